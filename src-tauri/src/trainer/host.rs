//! What a training needs of whoever runs it: to be told what is wanted, and to tell how it goes.

use serde::{Deserialize, Serialize};

use super::TrainError;
use super::event::{Position, TrainEvent};

/// Whoever runs a training. Calls come from the training thread, between batches.
pub trait Host {
    /// What is being done before the first batch.
    fn phase(&mut self, phase: StartPhase);

    /// Device, dataset and checkpoint are good, and nothing has been written. Gives back when the run folder is ready.
    ///
    /// # Errors
    /// When the run is not to begin after all.
    fn prepared(&mut self, prepared: &Prepared) -> Result<(), TrainError>;

    /// A batch is about to begin, the first one or the first after a hold.
    fn running(&mut self);

    /// What has happened; already in the run's files.
    fn event(&mut self, event: &TrainEvent);

    /// What is wanted now, asked between batches (also of a validation).
    fn wish(&mut self, position: Position) -> Wish;

    /// The training stands still here; gives back what is wanted next, once that is no longer to hold. `trouble` says that
    /// it stands still since a checkpoint could not be written.
    fn hold(&mut self, position: Position, trouble: Option<DiskTrouble>) -> Wish;
}

/// What a training is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Go,
    /// Stand still with everything in memory.
    Hold,
    /// Save and end.
    Leave,
}

/// What a training is about before its first batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartPhase {
    /// The device is looked for and opened.
    OpenDevice,
    /// The dataset is read.
    Scan,
    /// The model is made or loaded.
    Load,
}

/// What is known before the first batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Hash of the dataset's contents, without paths.
    pub dataset_fingerprint: String,
    /// The device in words.
    pub device: String,
    /// Batches in one epoch.
    pub n_batches_per_epoch: usize,
    /// Where training goes on.
    pub position: Position,
}

/// A checkpoint that could not be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskTrouble {
    pub message: String,
    /// What the checkpoint needs on the disk, if there is too little room.
    pub bytes_needed: Option<u64>,
}
