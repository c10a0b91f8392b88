//! When a training has stopped getting better.

/// Remembers the best epoch and ends the training `patience` epochs after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EarlyStop {
    /// Epochs without a better fitness that are waited for; 0 waits for ever.
    patience: u32,
    best_fitness: f64,
    best_epoch: u32,
}

impl EarlyStop {
    pub fn new(patience: u32) -> Self {
        Self { patience, best_fitness: 0.0, best_epoch: 0 }
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

    pub fn is_over(&self, epoch: u32) -> bool {
        self.patience > 0 && epoch - self.best_epoch >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_four_ends_four_epochs_after_the_best() {
        let mut stop = EarlyStop::new(4);
        let fitness = [0.5, 0.6, 0.6, 0.6, 0.6, 0.6];
        let best: Vec<bool> = fitness.iter().zip(1..).map(|(&f, epoch)| stop.update(epoch, Some(f))).collect();
        assert_eq!(best, [true, true, false, false, false, false], "an equal fitness is not better");
        assert!(!stop.is_over(5) && stop.is_over(6));
    }

    #[test]
    fn a_model_that_finds_nothing_yet_is_waited_for() {
        let mut stop = EarlyStop::new(2);
        (1..=5).for_each(|epoch| assert!(stop.update(epoch, Some(0.0))));
        assert!(!stop.is_over(5));
    }

    #[test]
    fn patience_zero_waits_for_ever() {
        let mut stop = EarlyStop::new(0);
        stop.update(1, Some(0.5));
        assert!(!stop.is_over(1_000_000));
    }
}
