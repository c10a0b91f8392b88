//! How deep a pause is, and who asked for it.

use serde::{Deserialize, Serialize};

/// What a paused run keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseDepth {
    /// The worker waits with everything in memory; the next batch begins at once.
    Hold,
    /// A checkpoint is on the disk and the worker is gone, so that the device is given back completely.
    Free,
}

/// Whose wish a pause is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PausedBy {
    User,
    /// A rule that the user has set.
    Policy,
    /// A checkpoint could not be written; the state is kept in memory.
    Disk,
}
