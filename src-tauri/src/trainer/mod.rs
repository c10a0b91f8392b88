//! Training: settings in, events and weights out.
//!
//! [`train`] is the whole of it; each step lies in a file of its own. Knows nothing of windows, sockets or signals.

pub mod config;
mod data;
pub mod device;
mod early_stop;
pub mod ema;
mod error;
pub mod event;
pub mod gradients;
pub mod optimizer;
mod record;
pub mod run_folder;
pub mod schedule;
mod start;
mod state;
pub mod validate;

use std::path::PathBuf;
use std::time::Instant;

use crate::dataset::loader::{TrainLoader, TrainLoaderConfig};
use crate::exit::Reason;
use crate::loss::DetectionLoss;

use config::TrainConfig;
use data::TrainData;
use early_stop::EarlyStop;
use event::{EpochResults, EpochValidation, TrainEvent};
use record::Record;
use schedule::Schedule;
use start::Start;
use state::TrainState;
use validate::{ValSettings, validate};

pub use error::TrainError;
pub use start::open_device;
pub use state::images;
pub use validate::suppressed;

/// How a training ended, and where its results are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainOutcome {
    /// `Finished` or `Patience`.
    pub reason: Reason,
    pub run_folder: PathBuf,
    /// The newest weights, if any were kept.
    pub checkpoint: Option<PathBuf>,
}

/// Trains a detector from the first epoch to the last, showing every event as it comes.
///
/// # Errors
/// Before training, in this order: the device, the dataset, the model's weights, the run folder. Later: a loss that is not
/// finite, or a disk that takes no more; what was saved before stays good.
pub fn train(config: &TrainConfig, show: &mut dyn FnMut(&TrainEvent)) -> Result<TrainOutcome, TrainError> {
    let device = open_device(config.device)?;
    let data = TrainData::open(config)?;
    let start = Start::new(config, &data, &device)?;
    let mut record = Record::create(config, &data, show)?;
    match train_epochs(config, &data, start, &mut record) {
        Ok(reason) => record.finish(reason),
        Err(error) => Err(record.fail(error)),
    }
}

fn train_epochs(
    config: &TrainConfig,
    data: &TrainData,
    start: Start,
    record: &mut Record,
) -> Result<Reason, TrainError> {
    let schedule = Schedule::of(config, data.n_train());
    record.started(config, data, &start, schedule.batches_per_epoch)?;
    let mut state = TrainState::new(start, &schedule, config.rule());
    let mut early_stop = EarlyStop::new(config.patience);
    for epoch in 1..=config.epochs {
        record.event(TrainEvent::EpochStarted { epoch })?;
        let (train, lr) = train_epoch(config, data, &schedule, epoch, &mut state, record)?;
        let is_last = epoch == config.epochs;
        let val = match &data.val {
            Some(images) if config.val || is_last => {
                let report = validate(state.averaged(), images, &data.class_names, &ValSettings::of(config))?;
                record.validated(epoch, &report)?;
                report.losses.map(|losses| EpochValidation { scores: report.scores, losses })
            }
            _ => None,
        };
        record.epoch(EpochResults { epoch, time_s: record.elapsed_s(), train, val, lr })?;
        let is_best = early_stop.update(epoch, val.map(|val| val.scores.map50_95));
        if config.save {
            record.save(config, &state, epoch, is_best)?;
        }
        if early_stop.is_over(epoch) && !is_last {
            return Ok(Reason::Patience);
        }
    }
    Ok(Reason::Finished)
}

/// One pass over the training images; gives the mean losses and the rates in force at the end.
fn train_epoch(
    config: &TrainConfig,
    data: &TrainData,
    schedule: &Schedule,
    epoch: u32,
    state: &mut TrainState,
    record: &mut Record,
) -> Result<(event::Losses, event::LearningRates), TrainError> {
    let epoch_idx = epoch as usize - 1;
    let loss = DetectionLoss::new(config.loss_gains());
    let mut means = state::MeanLosses::default();
    let mut rates = schedule.rates(state.n_batches(), epoch_idx);
    let use_mosaic = epoch + config.close_mosaic <= config.epochs;
    let loader = TrainLoader::new(
        data.train.clone(),
        config.augment,
        TrainLoaderConfig {
            batch: config.batch,
            seed: config.seed,
            epoch: epoch_idx,
            start_batch: 0,
            use_mosaic,
            workers: config.workers,
        },
    )?;
    let mut clock = Instant::now();
    for batch in loader {
        let batch = batch?;
        let (batch_idx, n_images) = (batch.batch_idx, batch.n_images());
        record.unreadable_images(&batch.warnings)?;
        rates = schedule.rates(state.n_batches(), epoch_idx);
        let losses = state.train_batch(batch, &loss, &rates);
        if !losses.is_finite() {
            return Err(TrainError::NonFiniteLoss { epoch, batch: batch_idx + 1, checkpoint: None });
        }
        means.add(&losses);
        record.event(TrainEvent::Batch {
            epoch,
            batch: batch_idx + 1,
            n_batches: schedule.batches_per_epoch,
            step: state.n_steps() as u64,
            losses: losses.into(),
            lr: (&rates).into(),
            images_per_s: n_images as f64 / clock.elapsed().as_secs_f64().max(1e-9),
        })?;
        clock = Instant::now();
    }
    Ok((means.mean(), (&rates).into()))
}
