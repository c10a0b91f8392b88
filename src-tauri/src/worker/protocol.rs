//! What a supervisor and its worker say to each other: JSON lines, the version in the first one of each side.
//!
//! ```text
//! worker                          supervisor
//! hello                    ->
//!                          <-     hello
//!                          <-     prepare
//! phase*  prepared         ->
//!                          <-     train
//! running  event* alive*   ->
//!                          <-     hold
//! held                     ->
//!                          <-     go
//! running  event*          ->
//!                          <-     leave
//! left | finished | failed ->                 once, and nothing after it
//! ```
//!
//! `hold`, `go` and `leave` may come at any time after `prepare`; what counts is the last of them, and nothing undoes `leave`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::exit::Reason;
use crate::trainer::Assignment;
use crate::trainer::event::{Position, TrainEvent};
use crate::trainer::host::{DiskTrouble, Prepared, StartPhase};

/// What a supervisor wants of its worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Open device and dataset, and load the checkpoint.
    Prepare(Box<Assignment>),
    /// The run folder is ready: begin.
    Train,
    /// Stand still after the batch in progress, with everything in memory.
    Hold,
    /// Go on after a hold.
    Go,
    /// Save after the batch in progress, then exit.
    Leave,
    /// Open the log file anew, since somebody has moved it.
    ReopenLog,
}

/// What a worker tells its supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// What it is about before the first batch.
    Phase {
        phase: StartPhase,
    },
    /// Device, dataset and checkpoint are good. Nothing has been written yet.
    Prepared(Prepared),
    /// A batch begins, the first one or the first after a hold.
    Running,
    Event {
        event: TrainEvent,
    },
    /// It stands still. With `trouble` it does so by itself, since a checkpoint could not be written.
    Held {
        position: Position,
        trouble: Option<DiskTrouble>,
    },
    /// A sign of life, once a second while it trains.
    Alive {
        position: Position,
    },
    /// It has saved and exits.
    Left {
        position: Position,
        checkpoint: PathBuf,
        size_bytes: u64,
    },
    /// All is trained (or patience has run out) and saved; it exits.
    Finished {
        reason: Reason,
        best_epoch: Option<u32>,
        time_s: f64,
        checkpoint: Option<PathBuf>,
    },
    /// It cannot go on and exits.
    Failed {
        reason: Reason,
        message: String,
    },
}
