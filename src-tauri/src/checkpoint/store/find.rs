//! Finding the checkpoint that a user means.

use super::{Checkpoint, CheckpointStore, StoreError};
use crate::checkpoint::retention::by_fitness;

impl CheckpointStore {
    /// The checkpoint that `text` names: an epoch's number (the state after it; the newest if there are several), an
    /// id, `last` (the newest), or `best` (of the highest mAP50-95; without figures the newest that was the best when
    /// it was saved).
    ///
    /// # Errors
    /// [`StoreError::Unknown`], which lists what there is, or as of [`Self::list`].
    pub fn find(&self, text: &str) -> Result<Checkpoint, StoreError> {
        let checkpoints = self.list()?;
        let found = match text {
            "last" => checkpoints.last(),
            "best" => best(&checkpoints),
            text if text.bytes().all(|byte| byte.is_ascii_digit()) => after_epoch(&checkpoints, text),
            text => checkpoints.iter().find(|checkpoint| checkpoint.id().to_string() == text),
        };
        found.cloned().ok_or_else(|| StoreError::Unknown {
            text: text.to_owned(),
            known: checkpoints.iter().map(Checkpoint::id).collect(),
        })
    }

    /// That there is no checkpoint of this name, or why even that cannot be said.
    pub(in crate::checkpoint) fn unknown(&self, text: &str) -> StoreError {
        match self.ids() {
            Ok(known) => StoreError::Unknown { text: text.to_owned(), known },
            Err(error) => error,
        }
    }
}

fn best(checkpoints: &[Checkpoint]) -> Option<&Checkpoint> {
    let was_best = || checkpoints.iter().rfind(|checkpoint| checkpoint.manifest.about.is_best);
    by_fitness(checkpoints).first().copied().or_else(was_best)
}

fn after_epoch<'a>(checkpoints: &'a [Checkpoint], text: &str) -> Option<&'a Checkpoint> {
    let epoch: u32 = text.parse().ok()?;
    checkpoints.iter().rfind(|checkpoint| checkpoint.manifest.about.is_epoch_end && checkpoint.id().epoch == epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::id::CheckpointId;
    use crate::checkpoint::store::fixture::{draft, id, run_dir, save_each, store_in};

    fn save_with(store: &CheckpointStore, id: CheckpointId, fitness: Option<f64>, is_epoch_end: bool) {
        let mut draft = draft(id);
        draft.about.metrics.extend(fitness.map(|fitness| ("mAP50-95".to_owned(), fitness)));
        draft.about.is_epoch_end = is_epoch_end;
        store.save(&draft).unwrap();
    }

    #[test]
    fn a_number_is_the_state_after_that_epoch() {
        let dir = run_dir();
        let store = store_in(&dir);
        for (id, is_epoch_end) in [(id(2, 8), true), (id(3, 12), true), (id(3, 13), true), (id(3, 14), false)] {
            save_with(&store, id, None, is_epoch_end);
        }
        let found = |text| store.find(text).unwrap().id();
        assert_eq!(found("2"), id(2, 8));
        assert_eq!(found("3"), id(3, 13), "the newest at its end, not the one inside epoch 4");
        assert_eq!(found("e0003-b000014"), id(3, 14));
        assert_eq!(found("last"), id(3, 14));
    }

    #[test]
    fn the_best_has_the_highest_fitness_and_is_the_older_of_equals() {
        let dir = run_dir();
        let store = store_in(&dir);
        for (epoch, fitness) in [(1, 0.2), (2, 0.5), (3, 0.5), (4, 0.4)] {
            save_with(&store, id(epoch, u64::from(epoch) * 4), Some(fitness), true);
        }
        assert_eq!(store.find("best").unwrap().id(), id(2, 8));
    }

    #[test]
    fn without_figures_the_best_is_what_was_called_so() {
        let dir = run_dir();
        let store = store_in(&dir);
        let mut best = draft(id(1, 4));
        best.about.is_best = true;
        store.save(&best).unwrap();
        save_each(&store, &[id(2, 8)]);
        assert_eq!(store.find("best").unwrap().id(), id(1, 4));
    }

    #[test]
    fn an_unknown_one_is_answered_with_what_there_is() {
        let dir = run_dir();
        let store = store_in(&dir);
        assert!(store.find("last").unwrap_err().to_string().contains("none yet"));
        save_each(&store, &[id(1, 4), id(2, 8)]);
        for text in ["3", "best", "", "latest", "+1", "../e0001-b000004", "e1-b4", "99999999999999999999"] {
            let message = store.find(text).unwrap_err().to_string();
            assert!(message.contains("e0001-b000004, e0002-b000008"), "`{text}`: {message}");
        }
    }
}
