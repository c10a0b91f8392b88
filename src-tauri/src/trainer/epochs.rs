//! The loop: epoch after epoch, batch after batch, with an ear for the host between two batches.

use std::time::Instant;

use super::checkpointing::Checkpointing;
use super::data::TrainData;
use super::event::{EpochResults, EpochValidation, Losses, TrainEvent};
use super::host::Wish;
use super::record::Record;
use super::run_folder::RunFolderError;
use super::saver::{Purpose, make_weights_folder};
use super::schedule::Schedule;
use super::start::Start;
use super::state::TrainState;
use super::validate::{ValSettings, validate};
use super::{Assignment, TrainError, TrainOutcome, config::TrainConfig};
use crate::checkpoint::Weights;
use crate::dataset::batch::Batch;
use crate::dataset::loader::{TrainLoader, TrainLoaderConfig};
use crate::durable::write_file_durably;
use crate::exit::Reason;
use crate::loss::DetectionLoss;

/// A training on its way.
pub struct Epochs<'a> {
    config: &'a TrainConfig,
    data: &'a TrainData,
    schedule: Schedule,
    loss: DetectionLoss,
    state: TrainState,
    /// Before the record, whose lock is held until the last checkpoint is written.
    checkpointing: Checkpointing,
    record: Record<'a>,
}

/// Whether the loop goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    GoOn,
    Leave,
}

impl<'a> Epochs<'a> {
    /// # Errors
    /// When the first event cannot be written.
    pub fn new(
        assignment: &'a Assignment,
        data: &'a TrainData,
        start: Start,
        mut record: Record<'a>,
    ) -> Result<Self, TrainError> {
        let config = &assignment.config;
        let schedule = Schedule::of(config, data.n_train());
        record.started(config, data, &start, schedule.batches_per_epoch)?;
        let checkpointing = Checkpointing::new(assignment, data, &start, &record.paths);
        let loss = DetectionLoss::new(config.loss_gains());
        Ok(Self { config, data, schedule, loss, state: start.state, checkpointing, record })
    }

    /// Trains until the last epoch, until patience has run out, or until the host wants it to leave.
    ///
    /// # Errors
    /// When the loss is not finite, or a file cannot be written. What was saved before stays good.
    pub fn run(mut self) -> Result<TrainOutcome, TrainError> {
        self.mend_weights()?;
        let mut flow = self.obey()?;
        if flow == Flow::GoOn {
            self.record.running();
        }
        loop {
            if let Some(reason) = self.ending() {
                return self.finish(reason);
            }
            if flow == Flow::GoOn {
                flow = self.one_epoch()?;
            } else if let Some(outcome) = self.checkpointing.leave(&self.state, &mut self.record)? {
                return Ok(outcome);
            } else {
                flow = Flow::GoOn;
            }
        }
    }

    /// Why there is nothing left to train, if so.
    fn ending(&self) -> Option<Reason> {
        let n_done = self.state.position().epochs_done();
        let is_over = self.state.is_epoch_done && self.state.early_stop.is_over(n_done, self.config.patience);
        match (n_done >= self.config.epochs, is_over) {
            (true, _) => Some(Reason::Finished),
            (false, true) => Some(Reason::Patience),
            (false, false) => None,
        }
    }

    /// The rest of an epoch: what is left of its batches, its validation, its row and its checkpoint.
    fn one_epoch(&mut self) -> Result<Flow, TrainError> {
        let (epoch, first) = self.state.position().next_batch();
        if first == 1 {
            self.record.event(TrainEvent::EpochStarted { epoch })?;
        }
        if self.train_epoch(epoch, first)? == Flow::Leave {
            return Ok(Flow::Leave);
        }
        let Ok(val) = self.validate_if_due(epoch)? else { return Ok(Flow::Leave) };
        let means = self.state.epoch_means();
        let time_s = self.record.clock.elapsed_s();
        self.record.epoch(EpochResults { epoch, time_s, train: means.losses, val, lr: means.lr })?;
        self.state.finish_epoch();
        let is_best = self.state.early_stop.update(epoch, val.map(|val| val.scores.map50_95));
        crate::fault::reached("row_written", epoch);
        if self.config.save {
            let purpose = self.purpose(epoch, is_best, val);
            self.checkpointing.save(&self.state, purpose, &mut self.record)?;
        }
        self.obey()
    }

    /// Trains the batches of an epoch from number `first` on.
    fn train_epoch(&mut self, epoch: u32, first: usize) -> Result<Flow, TrainError> {
        let mut clock = Instant::now();
        for batch in self.loader(epoch, first)? {
            let batch = batch?;
            let (number, n_images) = (batch.batch_idx + 1, batch.n_images());
            let losses = self.train_batch(epoch, batch)?;
            self.record.event(TrainEvent::Batch {
                epoch,
                batch: number,
                n_batches: self.schedule.batches_per_epoch,
                step: self.state.n_steps(),
                losses,
                lr: self.state.lr,
                images_per_s: n_images as f64 / clock.elapsed().as_secs_f64().max(f64::MIN_POSITIVE),
            })?;
            crate::fault::reached("batch_trained", self.state.n_batches);
            self.checkpointing.save_if_old(&self.state, &mut self.record)?;
            if self.obey()? == Flow::Leave {
                return Ok(Flow::Leave);
            }
            clock = Instant::now();
        }
        Ok(Flow::GoOn)
    }

    fn train_batch(&mut self, epoch: u32, batch: Batch) -> Result<Losses, TrainError> {
        let number = batch.batch_idx + 1;
        self.record.unreadable_images(&batch.warnings)?;
        if self.config.log_samples {
            let (sample_idxs, digest) = (batch.sample_idxs.clone(), batch.digest());
            self.record.event(TrainEvent::Samples { epoch, batch: number, sample_idxs, digest })?;
        }
        let (epoch_idx, batch_idx) = (epoch as usize - 1, batch.batch_idx);
        let rates = self.schedule.rates(epoch_idx * self.schedule.batches_per_epoch + batch_idx, epoch_idx);
        let losses = self.state.train_batch(batch, (epoch, number), &self.loss, &rates);
        if !losses.is_finite() {
            return Err(TrainError::NonFiniteLoss { epoch, batch: number });
        }
        Ok(losses.into())
    }

    /// The epoch's batches from number `first` on; mosaic is closed in the last `close_mosaic` epochs.
    fn loader(&self, epoch: u32, first: usize) -> Result<TrainLoader, TrainError> {
        let config = TrainLoaderConfig {
            batch: self.config.batch,
            seed: self.config.seed,
            epoch: epoch as usize - 1,
            start_batch: first - 1,
            use_mosaic: epoch.saturating_add(self.config.close_mosaic) <= self.config.epochs,
            workers: self.config.workers,
        };
        Ok(TrainLoader::new(self.data.train.clone(), self.config.augment, config)?)
    }

    /// Measures the averaged model: after every epoch, or with `val=False` after the last. Given up when the host wants it
    /// to leave.
    fn validate_if_due(&mut self, epoch: u32) -> Result<Result<Option<EpochValidation>, Abandoned>, TrainError> {
        let is_due = self.config.val || epoch == self.config.epochs;
        let Some(images) = self.data.val.as_ref().filter(|_| is_due) else { return Ok(Ok(None)) };
        let settings = ValSettings::of(self.config);
        let position = self.state.position();
        let record = &mut self.record;
        let mut fault = None;
        let mut is_wanted = || match record.wish(position) {
            Ok(wish) => wish == Wish::Go,
            Err(error) => {
                fault = Some(error);
                false
            }
        };
        let measured = validate(self.state.averaged(), images, &self.data.class_names, &settings, &mut is_wanted)?;
        if let Some(error) = fault {
            return Err(error);
        }
        let Some((report, losses)) = measured else { return Ok(Err(Abandoned)) };
        self.record.validated(epoch, &report)?;
        Ok(Ok(Some(EpochValidation { scores: report.scores, losses })))
    }

    /// Does what the host wants between two batches; while it wants to hold, this waits.
    fn obey(&mut self) -> Result<Flow, TrainError> {
        self.checkpointing.report(&mut self.record)?;
        Ok(match self.record.wish(self.state.position())? {
            Wish::Leave => Flow::Leave,
            Wish::Go | Wish::Hold => Flow::GoOn,
        })
    }

    /// What the checkpoint at the end of an epoch is for.
    fn purpose(&self, epoch: u32, is_best: bool, val: Option<EpochValidation>) -> Purpose {
        let weights_files = self.weights_files(epoch, is_best);
        let named = |scores: super::event::ValScores| {
            [
                ("precision", scores.precision),
                ("recall", scores.recall),
                ("mAP50", scores.map50),
                ("mAP50-95", scores.map50_95),
            ]
        };
        let metrics = val.into_iter().flat_map(|val| named(val.scores)).map(|(name, value)| (name.to_owned(), value));
        let tags = if self.ending().is_some() { vec!["final".to_owned()] } else { Vec::new() };
        Purpose { is_best, metrics: metrics.collect(), tags, weights_files }
    }

    /// The files in `weights/` that an epoch's averaged weights go to.
    fn weights_files(&self, epoch: u32, is_best: bool) -> Vec<String> {
        let mut names = vec!["last.safetensors".to_owned()];
        if is_best {
            names.push("best.safetensors".to_owned());
        }
        if self.config.save_period > 0 && i64::from(epoch) % self.config.save_period == 0 {
            names.push(format!("epoch{epoch}.safetensors"));
        }
        names
    }

    /// Writes what a kill between a checkpoint and the files in `weights/` has left out.
    fn mend_weights(&mut self) -> Result<(), TrainError> {
        let position = self.state.position();
        if !position.is_epoch_done || !self.config.save {
            return Ok(());
        }
        let is_best = self.state.early_stop.best_epoch() == Some(position.epoch);
        let bytes = Weights::to_bytes(self.state.averaged(), &self.state.weights_info())
            .map_err(|error| TrainError::Encode(error.into()))?;
        make_weights_folder(&self.record.paths)?;
        for name in self.weights_files(position.epoch, is_best) {
            let path = self.record.paths.weights().join(name);
            if std::fs::read(&path).ok().as_ref() != Some(&bytes) {
                write_file_durably(&path, &bytes).map_err(|error| RunFolderError::io(&path, error))?;
            }
        }
        Ok(())
    }

    fn finish(mut self, reason: Reason) -> Result<TrainOutcome, TrainError> {
        let checkpoint = self.checkpointing.finish(&mut self.record)?;
        self.record.flush(self.state.position())?;
        let best_epoch = self.state.early_stop.best_epoch();
        Ok(TrainOutcome::Finished { reason, best_epoch, time_s: self.record.clock.elapsed_s(), checkpoint })
    }
}

/// A validation that was given up, to be done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Abandoned;
