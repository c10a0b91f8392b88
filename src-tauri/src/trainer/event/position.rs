//! Where a training stands.

use serde::{Deserialize, Serialize};

/// The last batch that was trained. Counting begins at 1; before the first batch all is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    /// Epoch of the last batch.
    pub epoch: u32,
    /// Number of the last batch in its epoch.
    pub batch: usize,
    /// Batches trained since the run began.
    pub n_batches: u64,
    /// Optimizer steps taken since the run began.
    pub step: u64,
    /// Whether the epoch is complete, with its validation and its row in `results.csv`.
    pub is_epoch_done: bool,
}

impl Position {
    /// Epochs that are complete.
    pub fn epochs_done(&self) -> u32 {
        if self.is_epoch_done { self.epoch } else { self.epoch.saturating_sub(1) }
    }

    /// Epoch and number of the next batch; the number may be beyond the epoch's last, when only its validation is missing.
    pub fn next_batch(&self) -> (u32, usize) {
        if self.is_epoch_done || self.epoch == 0 { (self.epoch + 1, 1) } else { (self.epoch, self.batch + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_batch_follows_the_last_one_or_begins_an_epoch() {
        let at = |epoch, batch, is_epoch_done| Position { epoch, batch, is_epoch_done, ..Position::default() };
        assert_eq!(Position::default().next_batch(), (1, 1));
        assert_eq!(at(3, 2, false).next_batch(), (3, 3));
        assert_eq!(at(3, 4, true).next_batch(), (4, 1));
        assert_eq!(at(3, 4, false).epochs_done(), 2, "validation is still to come");
        assert_eq!(at(3, 4, true).epochs_done(), 3);
    }
}
