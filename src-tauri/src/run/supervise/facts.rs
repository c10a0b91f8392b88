//! What a supervisor knows of its run beside the state: what the worker has last reported.

use std::path::PathBuf;

use tokio::time::Instant;

use crate::run::machine::State;
use crate::run::protocol::StateReport;
use crate::trainer::config::TrainConfig;
use crate::trainer::event::{Position, TrainEvent};
use crate::trainer::host::DiskTrouble;
use crate::trainer::run_folder::Accounting;

#[derive(Debug)]
pub struct Facts {
    pub position: Position,
    pub n_batches_per_epoch: Option<usize>,
    pub device: Option<String>,
    /// The newest good checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// Whether the worker has named its last checkpoint itself, so that there is no need to look.
    pub has_said_last: bool,
    /// Bytes written for the pause that is being reached.
    pub pause_bytes: u64,
    pub trouble: Option<DiskTrouble>,
    /// The last warning, or the sentence to an end.
    pub message: Option<String>,
    pub best_epoch: Option<u32>,
    /// Seconds of training as of the worker's last report.
    pub time_s: f64,
    /// When the last pause or resume was asked for.
    pub asked_at: Instant,
    /// When the pause was reached that is in force.
    pub paused_at: Option<Instant>,
}

impl Facts {
    pub fn new(from: Option<PathBuf>) -> Self {
        Self {
            position: Position::default(),
            n_batches_per_epoch: None,
            device: None,
            checkpoint: from,
            has_said_last: false,
            pause_bytes: 0,
            trouble: None,
            message: None,
            best_epoch: None,
            time_s: 0.0,
            asked_at: Instant::now(),
            paused_at: None,
        }
    }

    /// Learns from what the worker has reported.
    pub fn learn(&mut self, event: &TrainEvent) {
        match event {
            TrainEvent::Batch { epoch, batch, step, .. } => {
                (self.position.epoch, self.position.batch, self.position.step) = (*epoch, *batch, *step);
                (self.position.is_epoch_done, self.position.n_batches) = (false, self.position.n_batches + 1);
            }
            TrainEvent::EpochFinished(_) => self.position.is_epoch_done = true,
            TrainEvent::CheckpointSaved { path, .. } => self.checkpoint = Some(path.clone()),
            TrainEvent::Warning { message, .. } => self.message = Some(message.clone()),
            TrainEvent::Restored { position, .. } => self.position = *position,
            // The others say nothing that a state report holds.
            _ => {}
        }
    }

    pub fn report(
        &self,
        state: &State,
        config: &TrainConfig,
        worker_pid: Option<u32>,
        accounting: Accounting,
    ) -> StateReport {
        let pause = state.pause();
        let reason = match state {
            State::Ended(_, reason) => Some(*reason),
            State::Going { .. } => None,
        };
        StateReport {
            state: state.word(),
            depth: pause.map(|(depth, _)| depth),
            by: pause.map(|(_, by)| by),
            phase: state.phase(),
            reason,
            message: self.message.clone(),
            epoch: self.position.epoch,
            batch: self.position.batch,
            step: self.position.step,
            epochs: config.epochs,
            n_batches_per_epoch: self.n_batches_per_epoch,
            device: self.device.clone(),
            supervisor_pid: std::process::id(),
            worker_pid,
            checkpoint: self.checkpoint.clone(),
            accounting,
            trouble: self.trouble.clone(),
        }
    }
}
