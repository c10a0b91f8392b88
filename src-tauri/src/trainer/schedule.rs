//! Learning rates, momentum and gradient accumulation of every batch, as pure functions of its number.

use std::f64::consts::PI;

use super::config::TrainConfig;

/// What the schedule depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    pub epochs: usize,
    pub batches_per_epoch: usize,
    /// Images in a batch.
    pub batch: usize,
    /// Nominal batch: gradients of about `nbs / batch` batches make one step.
    pub nbs: usize,
    /// Rate after warm-up, before decay.
    pub lr0: f64,
    /// Last rate as a fraction of `lr0`.
    pub lrf: f64,
    /// Cosine instead of linear decay.
    pub decay: Decay,
    pub momentum: f64,
    /// Weight decay for a nominal batch.
    pub weight_decay: f64,
    pub warmup_epochs: f64,
    /// Momentum of the very first batch.
    pub warmup_momentum: f64,
    /// Rate of the biases at the very first batch.
    pub warmup_bias_lr: f64,
}

/// How the rate falls from `lr0` to `lr0 * lrf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decay {
    Linear,
    Cosine,
}

/// What is in force for one batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    pub lr_bias: f64,
    pub lr_weight: f64,
    pub lr_norm: f64,
    pub momentum: f64,
    /// Batches whose gradients make a step.
    pub accumulate: usize,
}

impl Schedule {
    /// The schedule that the settings ask for, with `n_images` training images.
    pub fn of(config: &TrainConfig, n_images: usize) -> Self {
        Self {
            epochs: config.epochs as usize,
            batches_per_epoch: n_images.div_ceil(config.batch),
            batch: config.batch,
            nbs: config.nbs,
            lr0: config.lr0,
            lrf: config.lrf,
            decay: if config.cos_lr { Decay::Cosine } else { Decay::Linear },
            momentum: config.momentum,
            weight_decay: config.weight_decay,
            warmup_epochs: config.warmup_epochs,
            warmup_momentum: config.warmup_momentum,
            warmup_bias_lr: config.warmup_bias_lr,
        }
    }

    /// Rates of a batch, counted from 0 over all epochs; `epoch_idx` is counted from 0.
    ///
    /// During warm-up the rates rise (the biases' fall) linearly from batch to batch towards the epoch's rate, and momentum
    /// and accumulation rise with them (P. Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 2.2, for the idea).
    pub fn rates(&self, batch_idx: usize, epoch_idx: usize) -> Rates {
        let lr = self.lr0 * self.decay_factor(epoch_idx);
        let warmup = self.warmup_batches();
        let nominal = self.nominal_accumulate() as f64;
        if warmup == 0 || batch_idx > warmup {
            return Rates {
                lr_bias: lr,
                lr_weight: lr,
                lr_norm: lr,
                momentum: self.momentum,
                accumulate: nominal as usize,
            };
        }
        let progress = batch_idx as f64 / warmup as f64;
        let between = |from: f64, to: f64| from + (to - from) * progress;
        let accumulate = between(1.0, self.nbs as f64 / self.batch as f64).round_ties_even().max(1.0) as usize;
        Rates {
            lr_bias: between(self.warmup_bias_lr, lr),
            lr_weight: between(0.0, lr),
            lr_norm: between(0.0, lr),
            momentum: between(self.warmup_momentum, self.momentum),
            accumulate,
        }
    }

    /// Weight decay per step: scaled, since the gradients of a step belong to `batch * accumulate` images, not to `nbs`.
    pub fn scaled_weight_decay(&self) -> f64 {
        self.weight_decay * (self.batch * self.nominal_accumulate()) as f64 / self.nbs as f64
    }

    /// Batches over which rates warm up: no more than all epochs but the last.
    pub fn warmup_batches(&self) -> usize {
        let epochs = self.warmup_epochs.min(self.epochs.saturating_sub(1) as f64);
        (epochs * self.batches_per_epoch as f64).round_ties_even().max(0.0) as usize
    }

    /// Batches per step after warm-up.
    fn nominal_accumulate(&self) -> usize {
        ((self.nbs as f64 / self.batch as f64).round_ties_even() as usize).max(1)
    }

    fn decay_factor(&self, epoch_idx: usize) -> f64 {
        let progress = epoch_idx as f64 / self.epochs as f64;
        match self.decay {
            Decay::Linear => (1.0 - progress).max(0.0) * (1.0 - self.lrf) + self.lrf,
            Decay::Cosine => (1.0 - (progress * PI).cos()) / 2.0 * (self.lrf - 1.0) + 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEDULE: Schedule = Schedule {
        epochs: 10,
        batches_per_epoch: 7,
        batch: 2,
        nbs: 8,
        lr0: 0.01,
        lrf: 0.01,
        decay: Decay::Linear,
        momentum: 0.937,
        weight_decay: 0.0005,
        warmup_epochs: 3.0,
        warmup_momentum: 0.8,
        warmup_bias_lr: 0.1,
    };

    #[test]
    fn the_first_batch_moves_biases_alone() {
        let rates = SCHEDULE.rates(0, 0);
        assert_eq!((rates.lr_bias, rates.lr_weight, rates.momentum, rates.accumulate), (0.1, 0.0, 0.8, 1));
    }

    #[test]
    fn after_warmup_the_rate_depends_on_the_epoch_alone() {
        assert_eq!(SCHEDULE.rates(22, 3), SCHEDULE.rates(27, 3));
        assert!((SCHEDULE.rates(22, 3).lr_weight - 0.00703).abs() < 1e-12);
    }

    #[test]
    fn both_decays_begin_at_one_and_approach_lrf() {
        for decay in [Decay::Linear, Decay::Cosine] {
            let schedule = Schedule { decay, ..SCHEDULE };
            assert_eq!(schedule.decay_factor(0), 1.0);
            assert!((schedule.decay_factor(10) - 0.01).abs() < 1e-12, "an eleventh epoch would run at lrf");
        }
    }

    #[test]
    fn a_single_epoch_has_no_warmup() {
        let schedule = Schedule { epochs: 1, ..SCHEDULE };
        assert_eq!(schedule.rates(0, 0).lr_weight, 0.01);
    }
}
