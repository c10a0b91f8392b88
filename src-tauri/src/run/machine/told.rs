//! The words for a state that clients are told.

use serde::{Deserialize, Serialize};

use super::{End, LastOrder, Stage, State, Wish, Worker};
use crate::trainer::event::{PauseDepth, PausedBy};
use crate::trainer::host::StartPhase;

/// How a run stands, in one word.
///
/// ```text
/// starting -> running -> pausing -> paused -> resuming -> running ..
/// any of these -> stopping -> stopped
/// any of these -> finished | failed
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateWord {
    Starting,
    Running,
    /// A pause is wanted and not reached.
    Pausing,
    Paused,
    /// The run is to go on after a pause, and does not yet.
    Resuming,
    Stopping,
    Stopped,
    Finished,
    Failed,
}

impl StateWord {
    pub fn is_end(self) -> bool {
        match self {
            Self::Stopped | Self::Finished | Self::Failed => true,
            Self::Starting | Self::Running | Self::Pausing | Self::Paused | Self::Resuming | Self::Stopping => false,
        }
    }

    /// The word as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Resuming => "resuming",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
            Self::Failed => "failed",
        }
    }
}

impl State {
    pub fn word(&self) -> StateWord {
        let (worker, wish, pause) = match *self {
            Self::Ended(End::Finished, _) => return StateWord::Finished,
            Self::Ended(End::Stopped, _) => return StateWord::Stopped,
            Self::Ended(End::Failed, _) => return StateWord::Failed,
            Self::Going { worker, wish, pause } => (worker, wish, pause),
        };
        match (wish, worker) {
            (Wish::Stop(_), Worker::Absent | Worker::Present { .. }) => StateWord::Stopping,
            (Wish::Pause { .. }, Worker::Absent) => StateWord::Paused,
            (Wish::Pause { .. }, Worker::Present { stage: Stage::Held, order: LastOrder::Hold, .. }) => {
                StateWord::Paused
            }
            (Wish::Pause { .. }, Worker::Present { .. }) => StateWord::Pausing,
            (Wish::Run, Worker::Present { order: LastOrder::Leave, .. }) => StateWord::Resuming,
            (Wish::Run, Worker::Present { stage: Stage::Running, .. }) => StateWord::Running,
            (Wish::Run, Worker::Present { stage: Stage::Held | Stage::Left, .. }) => StateWord::Resuming,
            (Wish::Run, Worker::Absent | Worker::Present { stage: Stage::Starting(_), .. }) => {
                if pause.is_some() {
                    StateWord::Resuming
                } else {
                    StateWord::Starting
                }
            }
        }
    }

    /// The pause that is wanted or reached: how deep, and whose wish.
    pub fn pause(&self) -> Option<(PauseDepth, PausedBy)> {
        match *self {
            Self::Going { wish: Wish::Pause { depth, by }, .. } => Some((depth, by)),
            Self::Going { wish: Wish::Run | Wish::Stop(_), .. } | Self::Ended(..) => None,
        }
    }

    /// What a starting worker is about.
    pub fn phase(&self) -> Option<StartPhase> {
        match *self {
            Self::Going { worker: Worker::Present { stage: Stage::Starting(phase), .. }, .. } => phase,
            Self::Going { .. } | Self::Ended(..) => None,
        }
    }
}
