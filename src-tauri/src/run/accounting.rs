//! Where a run's time goes: summed up from what it was doing when.

use std::time::Instant;

use crate::trainer::run_folder::Accounting;

use super::machine::{LastOrder, Stage, State, Wish, Worker};

/// What a run's time is spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// A worker trains, or saves.
    Training,
    /// It stands still with everything in memory.
    Held,
    /// It stands still without a worker.
    GivenBack,
    /// It starts, or has ended.
    Neither,
}

impl Doing {
    pub fn of(state: &State) -> Self {
        match *state {
            State::Going { worker: Worker::Absent, wish: Wish::Pause { .. }, .. } => Self::GivenBack,
            State::Going { worker: Worker::Present { stage: Stage::Running | Stage::Left, .. }, .. } => Self::Training,
            State::Going { worker: Worker::Present { stage: Stage::Held, order: LastOrder::Hold, .. }, .. } => {
                Self::Held
            }
            State::Going { worker: Worker::Present { stage: Stage::Held, .. }, .. } => Self::Training,
            State::Going { worker: Worker::Present { stage: Stage::Starting(_), .. }, .. } => Self::Neither,
            State::Going { worker: Worker::Absent, wish: Wish::Run | Wish::Stop(_), .. } | State::Ended(..) => {
                Self::Neither
            }
        }
    }
}

/// Sums that go on from those of earlier sittings.
#[derive(Debug)]
pub struct Account {
    sums: Accounting,
    doing: Doing,
    since: Instant,
}

impl Account {
    pub fn from(sums: Accounting, now: Instant) -> Self {
        Self { sums, doing: Doing::Neither, since: now }
    }

    /// Books the time until now, and what it is spent on from now.
    pub fn turn_to(&mut self, doing: Doing, now: Instant) {
        self.sums = self.at(now);
        (self.doing, self.since) = (doing, now);
    }

    pub fn count_pause(&mut self) {
        self.sums.n_pauses += 1;
    }

    pub fn count_pause_bytes(&mut self, size_bytes: u64) {
        self.sums.pause_bytes += size_bytes;
    }

    /// The sums with the time until now.
    pub fn at(&self, now: Instant) -> Accounting {
        let spent_s = now.saturating_duration_since(self.since).as_secs_f64();
        let mut sums = self.sums;
        match self.doing {
            Doing::Training => sums.active_s += spent_s,
            Doing::Held => sums.paused_s += spent_s,
            Doing::GivenBack => {
                sums.paused_s += spent_s;
                sums.given_back_s += spent_s;
            }
            Doing::Neither => {}
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_second_is_booked_where_it_was_spent() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut account = Account::from(Accounting { active_s: 100.0, n_pauses: 2, ..Accounting::default() }, began);
        account.turn_to(Doing::Training, at(5));
        account.turn_to(Doing::Held, at(15));
        account.count_pause();
        account.turn_to(Doing::GivenBack, at(18));
        account.count_pause_bytes(7);
        let sums = Accounting { active_s: 110.0, paused_s: 5.0, given_back_s: 2.0, n_pauses: 3, pause_bytes: 7 };
        assert_eq!(account.at(at(20)), sums, "five seconds of starting count nowhere");
    }
}
