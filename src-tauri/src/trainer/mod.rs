//! Training: settings in, events and weights out.
//!
//! [`train`] is the whole of it; each step lies in a file of its own. Knows nothing of windows, sockets or signals.

pub mod config;
mod data;
pub mod device;
mod early_stop;
pub mod ema;
mod epochs;
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

use crate::exit::Reason;

use config::TrainConfig;
use data::TrainData;
use epochs::Epochs;
use event::TrainEvent;
use record::Record;
use start::Start;

pub use error::TrainError;
pub use start::open_device;
pub use state::take_images;
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
    match Epochs::new(config, &data, start, &mut record).and_then(Epochs::run) {
        Ok(reason) => record.finish(reason),
        Err(error) => Err(record.fail(error)),
    }
}
