//! What a supervisor writes into the run folder: `run.json` and its own lines in `events.jsonl`.
//!
//! A disk that takes nothing for a while costs no run: what could not be written is written with the next change.

use crate::run::machine::{State, StateWord};
use crate::trainer::event::TrainEvent;
use crate::trainer::run_folder::{Accounting, EventLog, RunFolderError, RunPaths, RunRecord, RunStatus};

#[derive(Debug)]
pub struct Books {
    paths: RunPaths,
    record: RunRecord,
    /// Whether there is a run to write about.
    is_open: bool,
    log: Option<EventLog>,
    /// Events that are not in the file yet, oldest first.
    unwritten: Vec<TrainEvent>,
    /// Whether the last attempt to write failed, which is told once.
    has_fault: bool,
}

impl Books {
    /// The books of a run; those of one that begins stay closed until [`Self::open`].
    pub fn of(paths: &RunPaths, record: RunRecord, is_beginning: bool) -> Self {
        let (paths, is_open) = (paths.clone(), !is_beginning);
        Self { paths, record, is_open, log: None, unwritten: Vec::new(), has_fault: false }
    }

    pub fn is_open(&self) -> bool {
        self.is_open
    }

    pub fn open(&mut self) {
        self.is_open = true;
    }

    pub fn timeline(&self) -> u32 {
        self.record.timeline
    }

    /// Takes down what the dataset's contents hash to; false if they were others before.
    pub fn is_same_dataset(&mut self, fingerprint: &str) -> bool {
        self.record.dataset_fingerprint.get_or_insert_with(|| fingerprint.to_owned()) == fingerprint
    }

    /// Replaces `run.json`. Gives a sentence if it cannot be written and that was not told before.
    pub fn write_state(&mut self, state: &State, accounting: Accounting) -> Option<String> {
        self.record.status = status_of(state);
        self.record.reason = match state {
            State::Ended(_, reason) => Some(reason.word().to_owned()),
            State::Going { .. } => None,
        };
        self.record.accounting = accounting;
        if !self.is_open {
            return None;
        }
        let written = self.record.write(&self.paths.run_json()).and_then(|()| self.write_events());
        self.fault_of(written)
    }

    /// Appends an event, after those that could not be written before. Gives a sentence as [`Self::write_state`].
    pub fn append(&mut self, event: &TrainEvent) -> Option<String> {
        if !self.is_open {
            return None;
        }
        self.unwritten.push(event.clone());
        let written = self.write_events();
        self.fault_of(written)
    }

    fn write_events(&mut self) -> Result<(), RunFolderError> {
        while let Some(event) = self.unwritten.first() {
            let log = match &mut self.log {
                Some(log) => log,
                None => self.log.insert(EventLog::open(&self.paths.events_jsonl())?),
            };
            if let Err(error) = log.append(event) {
                // Opening it anew ends the torn line.
                self.log = None;
                return Err(error);
            }
            self.unwritten.remove(0);
        }
        Ok(())
    }

    fn fault_of(&mut self, written: Result<(), RunFolderError>) -> Option<String> {
        let had_fault = std::mem::replace(&mut self.has_fault, written.is_err());
        match written {
            Err(error) if !had_fault => Some(error.to_string()),
            Ok(()) | Err(_) => None,
        }
    }
}

fn status_of(state: &State) -> RunStatus {
    match state.word() {
        StateWord::Starting => RunStatus::Starting,
        StateWord::Running | StateWord::Pausing | StateWord::Resuming | StateWord::Stopping => RunStatus::Running,
        StateWord::Paused => RunStatus::Paused,
        StateWord::Stopped => RunStatus::Stopped,
        StateWord::Finished => RunStatus::Finished,
        StateWord::Failed => RunStatus::Failed,
    }
}
