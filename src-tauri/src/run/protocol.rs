//! What clients ask of a supervisor and what it answers: JSON lines, after the hello of both sides.
//!
//! Every request gets one answer, in order. After `watch` each change of state, and if asked each event, comes as one more
//! answer, and the state once a second as a sign of life.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::machine::StateWord;
use crate::exit::Reason;
use crate::trainer::event::{PauseDepth, PausedBy, TrainEvent};
use crate::trainer::host::{DiskTrouble, StartPhase};
use crate::trainer::run_folder::Accounting;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    Status,
    Pause {
        depth: PauseDepth,
    },
    Resume,
    /// Save and end.
    Stop {
        /// End at once, without saving.
        #[serde(default)]
        now: bool,
    },
    /// Send each change of state from now on.
    Watch {
        /// Events too.
        #[serde(default)]
        events: bool,
    },
}

/// What a supervisor says to a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// How the run stands, after the request was taken up, or since it has changed.
    State(Box<StateReport>),
    Event {
        event: Box<TrainEvent>,
    },
    /// The request was not understood, or cannot be done now.
    Refused {
        message: String,
    },
}

/// How a run stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateReport {
    pub state: StateWord,
    /// Of the pause that is wanted or reached, as is `by`.
    pub depth: Option<PauseDepth>,
    pub by: Option<PausedBy>,
    /// What is done before the first batch.
    pub phase: Option<StartPhase>,
    /// Why it has ended.
    pub reason: Option<Reason>,
    /// What a person should know: the last warning, or the sentence to an end.
    pub message: Option<String>,
    /// Of the last batch that was trained, as in [`crate::trainer::event::Position`].
    pub epoch: u32,
    pub batch: usize,
    pub step: u64,
    /// Number of epochs asked for.
    pub epochs: u32,
    pub n_batches_per_epoch: Option<usize>,
    /// The device in words, once it is open.
    pub device: Option<String>,
    pub supervisor_pid: u32,
    /// Absent while no worker is there, as after `free`.
    pub worker_pid: Option<u32>,
    /// The newest good one.
    pub checkpoint: Option<PathBuf>,
    pub accounting: Accounting,
    /// The checkpoint that could not be written, for which it stands still.
    pub trouble: Option<DiskTrouble>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_short_lines() {
        for (line, request) in [
            (r#"{"request":"status"}"#, Request::Status),
            (r#"{"request":"pause","depth":"free"}"#, Request::Pause { depth: PauseDepth::Free }),
            (r#"{"request":"resume"}"#, Request::Resume),
            (r#"{"request":"stop","now":true}"#, Request::Stop { now: true }),
            (r#"{"request":"watch","events":true}"#, Request::Watch { events: true }),
        ] {
            assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
        }
        assert_eq!(
            serde_json::from_str::<Request>(r#"{"request":"watch"}"#).unwrap(),
            Request::Watch { events: false }
        );
        assert_eq!(serde_json::from_str::<Request>(r#"{"request":"stop"}"#).unwrap(), Request::Stop { now: false });
    }

    #[test]
    fn an_event_keeps_its_own_name() {
        let event = TrainEvent::EpochStarted { epoch: 3 };
        let answer = Answer::Event { event: Box::new(event) };
        let json = serde_json::to_string(&answer).unwrap();
        assert_eq!(json, r#"{"answer":"event","event":{"event":"epoch_started","epoch":3}}"#);
        assert_eq!(serde_json::from_str::<Answer>(&json).unwrap(), answer);
    }
}
