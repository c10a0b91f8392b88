//! The loop: epoch after epoch, batch after batch.

use std::time::Instant;

use super::TrainError;
use super::config::TrainConfig;
use super::data::TrainData;
use super::early_stop::EarlyStop;
use super::event::{EpochResults, EpochValidation, LearningRates, Losses, TrainEvent};
use super::record::Record;
use super::schedule::Schedule;
use super::start::Start;
use super::state::{MeanLosses, TrainState};
use super::validate::{ValSettings, validate};
use crate::dataset::loader::{TrainLoader, TrainLoaderConfig};
use crate::exit::Reason;
use crate::loss::DetectionLoss;

/// A training on its way.
pub struct Epochs<'a, 'show> {
    config: &'a TrainConfig,
    data: &'a TrainData,
    schedule: Schedule,
    loss: DetectionLoss,
    state: TrainState,
    record: &'a mut Record<'show>,
}

impl<'a, 'show> Epochs<'a, 'show> {
    /// # Errors
    /// When the first event cannot be written.
    pub fn new(
        config: &'a TrainConfig,
        data: &'a TrainData,
        start: Start,
        record: &'a mut Record<'show>,
    ) -> Result<Self, TrainError> {
        let schedule = Schedule::of(config, data.n_train());
        record.started(config, data, &start, schedule.batches_per_epoch)?;
        let state = TrainState::new(start, &schedule, config.rule());
        Ok(Self { config, data, schedule, loss: DetectionLoss::new(config.loss_gains()), state, record })
    }

    /// Trains until the last epoch, or until patience has run out; the reason says which.
    ///
    /// # Errors
    /// When the loss is not finite, or a file cannot be written. What was saved before stays good.
    pub fn run(mut self) -> Result<Reason, TrainError> {
        let mut early_stop = EarlyStop::new(self.config.patience);
        for epoch in 1..=self.config.epochs {
            self.record.event(TrainEvent::EpochStarted { epoch })?;
            let (train, lr) = self.train_epoch(epoch)?;
            let val = self.validate_if_due(epoch)?;
            self.record.epoch(EpochResults { epoch, time_s: self.record.elapsed_s(), train, val, lr })?;
            let is_best = early_stop.update(epoch, val.map(|val| val.scores.map50_95));
            if self.config.save {
                self.record.save(self.config, &self.state, epoch, is_best)?;
            }
            if early_stop.is_over(epoch) && epoch < self.config.epochs {
                return Ok(Reason::Patience);
            }
        }
        Ok(Reason::Finished)
    }

    /// One pass over the training images; gives the mean losses and the rates in force at the end.
    fn train_epoch(&mut self, epoch: u32) -> Result<(Losses, LearningRates), TrainError> {
        let mut means = MeanLosses::default();
        let mut lr = LearningRates::default();
        let mut clock = Instant::now();
        for batch in self.loader(epoch)? {
            let batch = batch?;
            let (number, n_images) = (batch.batch_idx + 1, batch.n_images());
            self.record.unreadable_images(&batch.warnings)?;
            let rates = self.schedule.rates(self.state.n_batches(), epoch as usize - 1);
            let losses = self.state.train_batch(batch, &self.loss, &rates);
            if !losses.is_finite() {
                return Err(TrainError::NonFiniteLoss { epoch, batch: number });
            }
            means.add(&losses);
            lr = LearningRates::from(&rates);
            self.record.event(TrainEvent::Batch {
                epoch,
                batch: number,
                n_batches: self.schedule.batches_per_epoch,
                step: self.state.n_steps() as u64,
                losses: losses.into(),
                lr,
                images_per_s: n_images as f64 / clock.elapsed().as_secs_f64().max(f64::MIN_POSITIVE),
            })?;
            clock = Instant::now();
        }
        Ok((means.mean(), lr))
    }

    /// The epoch's batches; mosaic is closed in the last `close_mosaic` epochs.
    fn loader(&self, epoch: u32) -> Result<TrainLoader, TrainError> {
        let config = TrainLoaderConfig {
            batch: self.config.batch,
            seed: self.config.seed,
            epoch: epoch as usize - 1,
            start_batch: 0,
            use_mosaic: epoch.saturating_add(self.config.close_mosaic) <= self.config.epochs,
            workers: self.config.workers,
        };
        Ok(TrainLoader::new(self.data.train.clone(), self.config.augment, config)?)
    }

    /// Measures the averaged model: after every epoch, or with `val=False` after the last.
    fn validate_if_due(&mut self, epoch: u32) -> Result<Option<EpochValidation>, TrainError> {
        let is_due = self.config.val || epoch == self.config.epochs;
        let Some(images) = self.data.val.as_ref().filter(|_| is_due) else { return Ok(None) };
        let settings = ValSettings::of(self.config);
        let (report, losses) = validate(self.state.averaged(), images, &self.data.class_names, &settings)?;
        self.record.validated(epoch, &report)?;
        Ok(Some(EpochValidation { scores: report.scores, losses }))
    }
}
