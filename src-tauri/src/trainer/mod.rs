//! Training: an assignment in, events, rows and checkpoints out.
//!
//! [`train`] is the whole of it; each step lies in a file of its own. Knows nothing of windows, sockets or signals: whoever runs
//! it is a [`host::Host`].

mod checkpointing;
pub(crate) mod clock;
pub mod config;
mod data;
pub mod device;
mod early_stop;
pub mod ema;
mod epochs;
mod error;
pub mod event;
mod flat_tensors;
pub mod gradients;
pub mod host;
mod journal;
pub mod optimizer;
pub(crate) mod record;
pub mod run_folder;
mod saver;
pub mod schedule;
pub mod snapshot;
mod start;
mod state;
pub mod validate;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::exit::Reason;

use config::TrainConfig;
use data::TrainData;
use epochs::Epochs;
use event::Position;
use host::{Host, Prepared, StartPhase};
use record::Record;
use schedule::Schedule;
use start::Start;

pub use error::TrainError;
pub use start::open_device;
pub use state::take_images;
pub use validate::suppressed;

/// What is to be trained, and where it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    pub run_folder: PathBuf,
    pub config: TrainConfig,
    /// The checkpoint to go on from, a folder; without one the run begins at its beginning.
    pub from: Option<PathBuf>,
    /// Number of the run's present timeline; each rewind in place begins another.
    pub timeline: u32,
}

/// How a training ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TrainOutcome {
    /// All is trained.
    Finished {
        /// `Finished` or `Patience`.
        reason: Reason,
        best_epoch: Option<u32>,
        /// Seconds of training, pauses left out.
        time_s: f64,
        /// The last one, if any is kept.
        checkpoint: Option<PathBuf>,
    },
    /// It was told to save and leave.
    Left {
        position: Position,
        checkpoint: PathBuf,
        /// Bytes that had to be written for it; 0 if it was there already.
        size_bytes: u64,
    },
}

/// What would keep a training from beginning, looked at without one: first the device, then the dataset.
///
/// # Errors
/// The first that cannot be opened.
pub fn check_beginning(config: &TrainConfig) -> Result<(), TrainError> {
    open_device(config.device)?;
    TrainData::open(config).map(drop)
}

/// Trains a detector, from its beginning or from a checkpoint, until the last epoch or until the host wants it to leave.
///
/// # Errors
/// Before training, in this order: the device, the dataset, the model's weights or the checkpoint, the files of the run. Later: a
/// loss that is not finite, or a disk that takes no more; what was saved before stays good.
pub fn train(assignment: &Assignment, host: &mut dyn Host) -> Result<TrainOutcome, TrainError> {
    let config = &assignment.config;
    host.phase(StartPhase::OpenDevice);
    let device = open_device(config.device)?;
    host.phase(StartPhase::Scan);
    let data = TrainData::open(config)?;
    host.phase(StartPhase::Load);
    let start = match &assignment.from {
        Some(checkpoint) => Start::from_checkpoint(checkpoint, config, &data, &device)?,
        None => Start::at_the_beginning(config, &data, &device)?,
    };
    host.prepared(&Prepared {
        dataset_fingerprint: data.fingerprint.clone(),
        device: start.device.clone(),
        n_batches_per_epoch: Schedule::of(config, data.n_train()).batches_per_epoch,
        position: start.state.position(),
    })?;
    let record = Record::open(assignment, &start, host)?;
    Epochs::new(assignment, &data, start, record)?.run()
}
