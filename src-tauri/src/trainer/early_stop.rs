//! When a training has stopped getting better.

use serde::{Deserialize, Serialize};

/// Remembers the best epoch and ends the training `patience` epochs after it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EarlyStop {
    /// mAP50-95 of the best epoch, 0..=1.
    best_fitness: f64,
    /// 0 before the first.
    best_epoch: u32,
}

impl EarlyStop {
    pub fn new() -> Self {
        Self { best_fitness: 0.0, best_epoch: 0 }
    }

    /// The best epoch so far, if there is one.
    pub fn best_epoch(&self) -> Option<u32> {
        (self.best_epoch > 0).then_some(self.best_epoch)
    }

    /// Takes an epoch's fitness (mAP50-95, 0..=1; `None` if it was not validated) and says whether it is the best.
    ///
    /// While the best is zero, a young model has found nothing yet, and each epoch counts as better than the one before.
    pub fn update(&mut self, epoch: u32, fitness: Option<f64>) -> bool {
        let is_best = match fitness {
            Some(fitness) => fitness > self.best_fitness || self.best_fitness == 0.0,
            None => self.best_fitness == 0.0,
        };
        if is_best {
            self.best_fitness = fitness.unwrap_or(0.0);
            self.best_epoch = epoch;
        }
        is_best
    }

    /// Whether `patience` epochs without a better fitness have passed; 0 waits for ever.
    pub fn is_over(&self, epoch: u32, patience: u32) -> bool {
        patience > 0 && epoch.saturating_sub(self.best_epoch) >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_four_ends_four_epochs_after_the_best() {
        let mut stop = EarlyStop::new();
        let fitness = [0.5, 0.6, 0.6, 0.6, 0.6, 0.6];
        let best: Vec<bool> = fitness.iter().zip(1..).map(|(&f, epoch)| stop.update(epoch, Some(f))).collect();
        assert_eq!(best, [true, true, false, false, false, false], "an equal fitness is not better");
        assert!(!stop.is_over(5, 4) && stop.is_over(6, 4));
    }

    #[test]
    fn a_model_that_finds_nothing_yet_is_waited_for() {
        let mut stop = EarlyStop::new();
        (1..=5).for_each(|epoch| assert!(stop.update(epoch, Some(0.0))));
        assert!(!stop.is_over(5, 2));
    }

    #[test]
    fn patience_zero_waits_for_ever() {
        let mut stop = EarlyStop::new();
        stop.update(1, Some(0.5));
        assert!(!stop.is_over(1_000_000, 0));
    }
}
