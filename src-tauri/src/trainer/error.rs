//! Why a training or a validation could not be done.

use std::path::PathBuf;

use thiserror::Error;

use super::config::ConfigError;
use super::device::DeviceError;
use super::run_folder::RunFolderError;
use super::snapshot::SnapshotError;
use crate::checkpoint::{InvalidCheckpointId, StoreError, WeightsError};
use crate::dataset::DatasetError;
use crate::dataset::loader::LoaderError;
use crate::exit::Reason;

#[derive(Debug, Error)]
pub enum TrainError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("cannot find this program's own file, which it starts to ask for devices: {source}")]
    OwnFile { source: std::io::Error },
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error("`data={}` has no {split} split to validate on{hint}", .path.display())]
    NoSplit { path: PathBuf, split: &'static str, hint: &'static str },
    #[error("the model's classes are {}, but the dataset's are {}", .model.join(", "), .data.join(", "))]
    OtherClasses { model: Vec<String>, data: Vec<String> },
    #[error(transparent)]
    Loader(#[from] LoaderError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    RunFolder(#[from] RunFolderError),
    #[error("the loss is not finite in epoch {epoch}, batch {batch}; training stopped before this batch counted; {}", way_out(*.epoch, *.batch))]
    NonFiniteLoss { epoch: u32, batch: usize },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    NoCheckpoint(#[from] InvalidCheckpointId),
    #[error("checkpoint `{}`: {source}", .checkpoint.display())]
    Snapshot { checkpoint: PathBuf, source: SnapshotError },
    #[error("`data={}` has other images, labels or classes than the run was trained on up to `{}`; give the dataset it had, or begin a new run", .path.display(), .checkpoint.display())]
    OtherData { checkpoint: PathBuf, path: PathBuf },
    #[error(
        "`{key}` can change only between two epochs, and this checkpoint lies inside epoch {epoch}; take one at an epoch's end with --from"
    )]
    InsideEpoch { key: &'static str, epoch: u32 },
    #[error("cannot encode the checkpoint: {0}")]
    Encode(#[source] SnapshotError),
    #[error("the thread that saves checkpoints has ended by a fault of the program")]
    SaverGone,
    #[error("the supervisor is gone")]
    HostGone,
}

fn way_out(epoch: u32, batch: usize) -> &'static str {
    // The rate has changed nothing yet when the first batch is reached.
    if (epoch, batch) == (1, 1) { "the weights it began with are at fault" } else { "try a lower lr0" }
}

impl TrainError {
    /// What the process ends with when this ends it.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Config(error) => error.reason(),
            Self::Device(_) => Reason::DeviceAbsent,
            Self::Dataset(error) => error.into(),
            Self::NoSplit { .. } => Reason::DatasetEmpty,
            Self::OtherClasses { .. } => Reason::Contradiction,
            Self::Weights(WeightsError::Io { .. }) => Reason::Io,
            Self::Weights(_) => Reason::UnknownModel,
            Self::RunFolder(error) => error.reason(),
            Self::NonFiniteLoss { .. } => Reason::NonFiniteLoss,
            Self::Store(error) => error.reason(),
            Self::Snapshot { .. } => Reason::Io,
            Self::OtherData { .. } | Self::InsideEpoch { .. } => Reason::Contradiction,
            Self::OwnFile { .. } | Self::Loader(_) | Self::NoCheckpoint(_) => Reason::Internal,
            Self::Encode(_) | Self::SaverGone | Self::HostGone => Reason::Internal,
        }
    }
}
