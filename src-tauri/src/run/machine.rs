//! What a supervisor does next: a pure function of how its worker stands, what is wanted, and what has just happened.
//!
//! Effects are given back, never done here. Knows no clock, no process and no file.

mod commands;
mod reports;
mod told;

use crate::exit::Reason;
use crate::trainer::event::{PauseDepth, PausedBy};
use crate::trainer::host::StartPhase;

pub use told::StateWord;

/// How one sitting of a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Going {
        worker: Worker,
        wish: Wish,
        /// The pause that was reached and not yet left again.
        pause: Option<PauseDepth>,
    },
    Ended(End, Reason),
}

/// The process that trains, as far as it has reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worker {
    Absent,
    Present {
        stage: Stage,
        /// The last order that it was given.
        order: LastOrder,
        /// Whether it has trained since it was started, so that its death loses something.
        has_trained: bool,
    },
}

/// What a worker has last said about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Starting(Option<StartPhase>),
    Running,
    /// It stands still with everything in memory.
    Held,
    /// It has saved; its process is about to end.
    Left,
}

/// What a worker was last told about going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastOrder {
    Go,
    Hold,
    Leave,
}

/// What is wanted of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Run,
    Pause { depth: PauseDepth, by: PausedBy },
    Stop(StopReason),
}

/// Who ends a run before its last epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    User,
    /// SIGTERM.
    Terminated,
}

impl StopReason {
    pub fn reason(self) -> Reason {
        match self {
            Self::User => Reason::Stopped,
            Self::Terminated => Reason::Terminated,
        }
    }
}

/// How a sitting has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Finished,
    Stopped,
    Failed,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Commands.
    Pause {
        depth: PauseDepth,
        by: PausedBy,
    },
    Resume,
    Stop(StopReason),
    StopAtOnce,
    /// Reports of the worker.
    Phase(StartPhase),
    Prepared,
    Running,
    Held,
    /// It stands still by itself, since a checkpoint could not be written.
    HeldByDisk,
    Left,
    Finished(Reason),
    Failed {
        reason: Reason,
        message: String,
    },
    /// Its process is gone, or could not be started; why, in words.
    WorkerGone {
        how: String,
    },
    /// The run cannot begin or go on, whatever the worker says.
    Refused {
        reason: Reason,
        message: String,
    },
    /// The time to stop is over.
    GraceOver,
}

/// What is to be done, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    StartWorker,
    SendTrain,
    SendHold,
    SendGo,
    SendLeave,
    KillWorker,
    /// Give [`Input::GraceOver`] once the grace time is over; replaces an earlier one.
    ArmGrace,
    /// Make it known that the run stands still.
    TellPaused {
        depth: PauseDepth,
        by: PausedBy,
    },
    /// Make it known that it goes on after a pause of this depth.
    TellResumed {
        depth: PauseDepth,
    },
    Warn {
        code: &'static str,
        message: String,
    },
    /// Nothing comes after it.
    End {
        end: End,
        reason: Reason,
        message: Option<String>,
    },
}

impl State {
    /// A sitting begins: the worker is to be started.
    pub fn begin() -> (Self, Vec<Effect>) {
        (Self::Going { worker: Worker::started(), wish: Wish::Run, pause: None }, vec![Effect::StartWorker])
    }
}

impl Worker {
    fn started() -> Self {
        Self::Present { stage: Stage::Starting(None), order: LastOrder::Go, has_trained: false }
    }
}

/// The state after an input, and what has to be done about it.
pub fn next(state: State, input: Input) -> (State, Vec<Effect>) {
    let State::Going { worker, wish, pause } = state else { return (state, Vec::new()) };
    let mut going = Going { worker, wish, pause, effects: Vec::new(), end: None };
    match input {
        Input::Pause { depth, by } => going.pause(depth, by),
        Input::Resume => going.resume(),
        Input::Stop(why) => going.stop(why),
        Input::StopAtOnce => going.stop_at_once("ended at once; what was trained since the newest checkpoint is lost"),
        Input::Phase(phase) => going.starting_with(phase),
        Input::Prepared => going.prepared(),
        Input::Running => going.running(),
        Input::Held => going.held(),
        Input::HeldByDisk => going.held_by_disk(),
        Input::Left => going.left(),
        Input::Finished(reason) => going.end(End::Finished, reason, None),
        Input::Failed { reason, message } => going.end(End::Failed, reason, Some(message)),
        Input::WorkerGone { how } => going.worker_gone(how),
        Input::Refused { reason, message } => {
            going.kill();
            going.end(End::Failed, reason, Some(message));
        }
        Input::GraceOver => going.grace_over(),
    }
    let next = match going.end {
        Some((end, reason)) => State::Ended(end, reason),
        None => State::Going { worker: going.worker, wish: going.wish, pause: going.pause },
    };
    (next, going.effects)
}

/// A state while it changes.
struct Going {
    worker: Worker,
    wish: Wish,
    pause: Option<PauseDepth>,
    effects: Vec<Effect>,
    end: Option<(End, Reason)>,
}

/// The parts of which the others are made.
impl Going {
    fn start(&mut self) {
        self.worker = Worker::started();
        self.effects.push(Effect::StartWorker);
    }

    /// Gives an order, unless there is nobody to give it to, or the worker knows already.
    fn send(&mut self, new: LastOrder) {
        let Worker::Present { order, .. } = &mut self.worker else { return };
        if *order == new {
            return;
        }
        *order = new;
        self.effects.push(match new {
            LastOrder::Go => Effect::SendGo,
            LastOrder::Hold => Effect::SendHold,
            LastOrder::Leave => Effect::SendLeave,
        });
    }

    fn paused(&mut self, depth: PauseDepth, by: PausedBy) {
        self.pause = Some(depth);
        self.effects.push(Effect::TellPaused { depth, by });
    }

    fn warn_of_loss(&mut self, is_lost: bool, how: String) {
        if is_lost {
            let message = format!("{how}; what was trained since the newest checkpoint is lost");
            self.effects.push(Effect::Warn { code: "worker_died", message });
        }
    }

    fn kill(&mut self) {
        if let Worker::Present { .. } = self.worker {
            self.effects.push(Effect::KillWorker);
        }
    }

    fn end(&mut self, end: End, reason: Reason, message: Option<String>) {
        self.end = Some((end, reason));
        self.effects.push(Effect::End { end, reason, message });
    }
}

#[cfg(test)]
mod tests;
