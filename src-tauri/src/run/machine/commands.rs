//! What commands change. Each is remembered as the wish, and carried out as soon as the worker allows.

use super::{Effect, End, Going, LastOrder, StopReason, Wish, Worker};
use crate::exit::Reason;
use crate::trainer::event::{PauseDepth, PausedBy};

impl Going {
    pub(super) fn pause(&mut self, depth: PauseDepth, by: PausedBy) {
        let order = match (self.wish, self.worker) {
            (Wish::Stop(_), _) => return,
            (Wish::Pause { depth: PauseDepth::Free, .. }, Worker::Absent) => return,
            (Wish::Run | Wish::Pause { .. }, Worker::Absent) => LastOrder::Leave,
            (Wish::Run | Wish::Pause { .. }, Worker::Present { order, .. }) => order,
        };
        // Nothing calls back a worker that is leaving, so the pause becomes a deeper one.
        let depth = if order == LastOrder::Leave { PauseDepth::Free } else { depth };
        match self.wish {
            Wish::Pause { depth: wished, .. } if wished == depth => return,
            Wish::Run | Wish::Pause { .. } | Wish::Stop(_) => self.wish = Wish::Pause { depth, by },
        }
        match depth {
            PauseDepth::Hold => self.send(LastOrder::Hold),
            PauseDepth::Free => self.send(LastOrder::Leave),
        }
    }

    pub(super) fn resume(&mut self) {
        match self.wish {
            Wish::Run | Wish::Stop(_) => return,
            Wish::Pause { .. } => self.wish = Wish::Run,
        }
        match self.worker {
            Worker::Absent => self.start(),
            // One that is leaving is started anew once it has gone.
            Worker::Present { order: LastOrder::Leave, .. } => {}
            Worker::Present { order: LastOrder::Go | LastOrder::Hold, .. } => self.send(LastOrder::Go),
        }
    }

    pub(super) fn stop(&mut self, why: StopReason) {
        match self.wish {
            Wish::Stop(_) => return,
            Wish::Run | Wish::Pause { .. } => self.wish = Wish::Stop(why),
        }
        match self.worker {
            Worker::Absent => self.end(End::Stopped, why.reason(), None),
            Worker::Present { .. } => {
                self.send(LastOrder::Leave);
                self.effects.push(Effect::ArmGrace);
            }
        }
    }

    pub(super) fn stop_at_once(&mut self, message: &str) {
        let reason = match self.wish {
            Wish::Stop(why) => why.reason(),
            Wish::Run | Wish::Pause { .. } => Reason::Stopped,
        };
        let message = (self.worker != Worker::Absent).then(|| message.to_owned());
        self.kill();
        self.end(End::Stopped, reason, message);
    }

    pub(super) fn grace_over(&mut self) {
        match self.wish {
            Wish::Stop(_) => self.stop_at_once(
                "the worker did not save within the grace time and was ended; what was trained since the newest checkpoint \
                 is lost",
            ),
            Wish::Run | Wish::Pause { .. } => {}
        }
    }
}
