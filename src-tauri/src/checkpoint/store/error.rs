//! What can be wrong with a store, and with one checkpoint in it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::checkpoint::id::CheckpointId;
use crate::checkpoint::manifest::{MANIFEST_FILE, MANIFEST_VERSION, ManifestError};
use crate::durable::is_disk_full;
use crate::exit::Reason;

/// A checkpoint could not be saved, read, found or moved.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("`{}`: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Nothing of the new checkpoint is left, and all older ones are as they were.
    #[error("disk full while saving `{}`, which needs {bytes_needed} bytes", .path.display())]
    DiskFull {
        path: PathBuf,
        /// Of the whole checkpoint.
        bytes_needed: u64,
        source: io::Error,
    },
    #[error("`{}` has format {found}, but this program knows up to {MANIFEST_VERSION}; use a newer fermata", .path.display())]
    FutureVersion { path: PathBuf, found: u64 },
    #[error("checkpoint `{}` is damaged: {damage}", .path.display())]
    Damaged { path: PathBuf, damage: Damage },
    #[error("`{name}` cannot be the name of a file in checkpoint {id}, or is there twice")]
    FileName { id: CheckpointId, name: String },
    #[error("the manifest of {id} cannot be written: {source}")]
    Manifest { id: CheckpointId, source: serde_json::Error },
    #[error("there is no checkpoint `{text}`; {}", known_in_words(.known))]
    Unknown { text: String, known: Vec<CheckpointId> },
    #[error("there is no checkpoint `{name}` in the trash; {}", trashed_in_words(.known))]
    NotInTrash { name: String, known: Vec<String> },
    #[error("`{}` is there already; move it to the trash first", .path.display())]
    Taken { path: PathBuf },
}

/// A file of a checkpoint that is not as it was written.
#[derive(Debug, Error)]
#[error("{file}: {fault}")]
pub struct Damage {
    pub file: String,
    pub fault: Fault,
}

/// What is wrong with a file.
#[derive(Debug, Error)]
pub enum Fault {
    #[error("missing")]
    Missing,
    #[error("{found} of {expected} bytes")]
    Size { found: u64, expected: u64 },
    #[error("other content than was written")]
    Content,
    #[error("cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    #[error("{0}")]
    Manifest(#[source] ManifestError),
}

impl StoreError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    /// Of a checkpoint's folder whose manifest cannot be used.
    pub(super) fn of_manifest(folder: &Path, error: ManifestError) -> Self {
        match error {
            ManifestError::FutureVersion { path, found } => Self::FutureVersion { path, found },
            error => Self::Damaged { path: folder.to_owned(), damage: Damage::of_manifest(error) },
        }
    }

    /// What the process ends with when this ends it.
    pub fn reason(&self) -> Reason {
        match self {
            Self::DiskFull { .. } => Reason::DiskFull,
            Self::Io { source, .. } if is_disk_full(source) => Reason::DiskFull,
            Self::Unknown { .. } | Self::NotInTrash { .. } => Reason::PathMissing,
            Self::Taken { .. } => Reason::CannotCreate,
            Self::FileName { .. } | Self::Manifest { .. } => Reason::Internal,
            Self::Io { .. } | Self::FutureVersion { .. } | Self::Damaged { .. } => Reason::Io,
        }
    }
}

impl Damage {
    pub(super) fn of_manifest(error: ManifestError) -> Self {
        let fault = match error {
            ManifestError::Missing => Fault::Missing,
            ManifestError::Io(error) => Fault::Unreadable(error),
            error => Fault::Manifest(error),
        };
        Self { file: MANIFEST_FILE.to_owned(), fault }
    }
}

fn known_in_words(known: &[CheckpointId]) -> String {
    if known.is_empty() {
        return "the run has none yet".to_owned();
    }
    let ids: Vec<_> = known.iter().map(CheckpointId::to_string).collect();
    format!("there are {}; also an epoch's number, `last` and `best` can be given", ids.join(", "))
}

fn trashed_in_words(known: &[String]) -> String {
    if known.is_empty() { "it is empty".to_owned() } else { format!("there are {}", known.join(", ")) }
}
