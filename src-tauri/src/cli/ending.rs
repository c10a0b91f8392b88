//! How a command ends.

use std::path::PathBuf;

use crate::dataset::DatasetError;
use crate::exit::Reason;
use crate::trainer::config::ConfigError;
use crate::trainer::run_folder::RunFolderError;

/// Why a command ends, and the newest good checkpoint if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub reason: Reason,
    pub checkpoint: Option<PathBuf>,
}

/// A command that did not do what was asked, with the one sentence that says why and what can be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub ending: Ending,
    pub message: String,
}

impl Ending {
    pub fn of(reason: Reason) -> Self {
        Self { reason, checkpoint: None }
    }
}

impl Refusal {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { ending: Ending::of(reason), message: message.into() }
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

impl From<RunFolderError> for Refusal {
    fn from(error: RunFolderError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

impl From<DatasetError> for Refusal {
    fn from(error: DatasetError) -> Self {
        Self::new(Reason::from(&error), error.to_string())
    }
}
