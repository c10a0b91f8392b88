//! Going back to an earlier checkpoint: in place, where what came later becomes a run of its own, or as a branch.
//!
//! Both make a folder beside the run, whole or not at all. A rewind is written down in `run.json` before it begins, so
//! that a crash at any point is made good at the next start.

mod branch;
#[cfg(test)]
pub mod fixture;
mod new_run;
mod rewind;

use std::path::PathBuf;

use thiserror::Error;

use crate::checkpoint::StoreError;
use crate::exit::Reason;
use crate::trainer::run_folder::RunFolderError;

pub use branch::branch;
pub use rewind::{complete_rewind, rewind_in_place};

/// A rewind or a branch could not be made. Nothing of the run it starts from is lost.
#[derive(Debug, Error)]
pub enum TimelineError {
    #[error(transparent)]
    Folder(#[from] RunFolderError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("`{}` names a rewind to `{to}` into `{sibling}`, which cannot be", .path.display())]
    ImpossibleRewind { path: PathBuf, to: String, sibling: String },
}

impl TimelineError {
    /// What the process ends with when this ends it.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Folder(error) => error.reason(),
            Self::Store(error) => error.reason(),
            Self::ImpossibleRewind { .. } => Reason::Io,
        }
    }
}
