//! What the worker's reports and its end change.

use super::{Effect, End, Going, LastOrder, Stage, StopReason, Wish, Worker};
use crate::exit::Reason;
use crate::trainer::event::{PauseDepth, PausedBy};
use crate::trainer::host::StartPhase;

impl Going {
    pub(super) fn starting_with(&mut self, phase: StartPhase) {
        if let Worker::Present { stage: Stage::Starting(shown), .. } = &mut self.worker {
            *shown = Some(phase);
        }
    }

    pub(super) fn prepared(&mut self) {
        if let Worker::Present { stage: Stage::Starting(_), .. } = self.worker {
            self.effects.push(Effect::SendTrain);
        }
    }

    pub(super) fn running(&mut self) {
        let Worker::Present { stage, has_trained, .. } = &mut self.worker else { return };
        (*stage, *has_trained) = (Stage::Running, true);
        // Its standing still crossed an order to go on, which has won; a hold sent meanwhile must not.
        if let Wish::Pause { depth: PauseDepth::Hold, by: PausedBy::Disk } = self.wish {
            self.wish = Wish::Run;
            self.send(LastOrder::Go);
        }
        if let Some(depth) = self.pause.take() {
            self.effects.push(Effect::TellResumed { depth });
        }
    }

    pub(super) fn held(&mut self) {
        let Worker::Present { stage, order, .. } = &mut self.worker else { return };
        *stage = Stage::Held;
        match (*order, self.wish) {
            (LastOrder::Hold, Wish::Pause { depth, by }) => self.paused(depth, by),
            // It was told otherwise meanwhile, and is about to follow.
            (LastOrder::Hold | LastOrder::Go | LastOrder::Leave, Wish::Run | Wish::Pause { .. } | Wish::Stop(_)) => {}
        }
    }

    pub(super) fn held_by_disk(&mut self) {
        let Worker::Present { stage, order, .. } = &mut self.worker else { return };
        *stage = Stage::Held;
        let dropped = match self.wish {
            // Whoever sends SIGTERM does not come back to make room: the grace time decides.
            Wish::Stop(StopReason::Terminated) => return,
            Wish::Stop(StopReason::User) => Some("stop"),
            Wish::Pause { depth: PauseDepth::Free, .. } => Some("pause --free"),
            Wish::Run | Wish::Pause { depth: PauseDepth::Hold, .. } => None,
        };
        if let Some(dropped) = dropped {
            let message =
                format!("not done: {dropped}, since a checkpoint could not be written; the state is kept in memory");
            self.effects.push(Effect::Warn { code: "not_saved", message });
        }
        *order = LastOrder::Hold;
        self.wish = Wish::Pause { depth: PauseDepth::Hold, by: PausedBy::Disk };
        self.paused(PauseDepth::Hold, PausedBy::Disk);
    }

    pub(super) fn left(&mut self) {
        let Worker::Present { stage, order, .. } = &mut self.worker else { return };
        *stage = Stage::Left;
        if *order == LastOrder::Leave {
            return;
        }
        *order = LastOrder::Leave;
        match self.wish {
            Wish::Run => {
                let message = "the worker has saved and left without being told to; the run is paused".to_owned();
                self.effects.push(Effect::Warn { code: "worker_left", message });
                self.wish = Wish::Pause { depth: PauseDepth::Free, by: PausedBy::Policy };
            }
            Wish::Pause { by, .. } => self.wish = Wish::Pause { depth: PauseDepth::Free, by },
            Wish::Stop(_) => {}
        }
    }

    pub(super) fn worker_gone(&mut self, how: String) {
        let Worker::Present { stage, has_trained, .. } = self.worker else { return };
        self.worker = Worker::Absent;
        let has_saved = stage == Stage::Left;
        match self.wish {
            Wish::Run if has_saved => {
                self.paused(PauseDepth::Free, PausedBy::User);
                self.start();
            }
            Wish::Run | Wish::Pause { depth: PauseDepth::Hold, .. } => {
                self.end(End::Failed, Reason::Internal, Some(how));
            }
            Wish::Pause { depth: PauseDepth::Free, by } => {
                self.warn_of_loss(has_trained && !has_saved, how);
                self.paused(PauseDepth::Free, by);
            }
            Wish::Stop(why) => {
                self.warn_of_loss(has_trained && !has_saved, how);
                self.end(End::Stopped, why.reason(), None);
            }
        }
    }
}
