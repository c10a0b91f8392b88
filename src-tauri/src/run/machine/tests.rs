use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::run::machine::StateWord::*;

const HOLD: Input = Input::Pause { depth: PauseDepth::Hold, by: PausedBy::User };
const FREE: Input = Input::Pause { depth: PauseDepth::Free, by: PausedBy::User };
const STOP: Input = Input::Stop(StopReason::User);
const TERM: Input = Input::Stop(StopReason::Terminated);

fn gone() -> Input {
    Input::WorkerGone { how: "killed".to_owned() }
}

/// The state after some inputs.
fn after(inputs: &[Input]) -> State {
    inputs.iter().fold(State::begin().0, |state, input| next(state, input.clone()).0)
}

fn name(effect: &Effect) -> &'static str {
    match effect {
        Effect::StartWorker => "start",
        Effect::SendTrain => "train",
        Effect::SendHold => "hold",
        Effect::SendGo => "go",
        Effect::SendLeave => "leave",
        Effect::KillWorker => "kill",
        Effect::ArmGrace => "grace",
        Effect::TellPaused { .. } => "paused",
        Effect::TellResumed { .. } => "resumed",
        Effect::Warn { .. } => "warn",
        Effect::End { .. } => "end",
    }
}

/// Checks the word and the effects that each input leads to.
fn check(from: &[Input], cells: &[(Input, StateWord, &str)]) {
    let state = after(from);
    for (input, word, effects) in cells {
        let (then, done) = next(state, input.clone());
        let done: Vec<_> = done.iter().map(name).collect();
        assert_eq!((then.word(), done.join(" ")), (*word, (*effects).to_owned()), "{input:?} after {from:?}");
    }
}

#[test]
fn while_it_starts() {
    check(
        &[],
        &[
            (HOLD, Pausing, "hold"),
            (FREE, Pausing, "leave"),
            (Input::Resume, Starting, ""),
            (STOP, Stopping, "leave grace"),
            (TERM, Stopping, "leave grace"),
            (Input::StopAtOnce, Stopped, "kill end"),
            (Input::Phase(StartPhase::Scan), Starting, ""),
            (Input::Prepared, Starting, "train"),
            (Input::Running, Running, ""),
            (Input::HeldByDisk, Paused, "paused"),
            (Input::Finished(Reason::Finished), Finished, "end"),
            (Input::Failed { reason: Reason::DeviceAbsent, message: String::new() }, Failed, "end"),
            (Input::Refused { reason: Reason::Contradiction, message: String::new() }, Failed, "kill end"),
            (gone(), Failed, "end"),
            (Input::GraceOver, Starting, ""),
        ],
    );
}

#[test]
fn while_it_runs() {
    check(
        &[Input::Prepared, Input::Running],
        &[
            (HOLD, Pausing, "hold"),
            (FREE, Pausing, "leave"),
            (Input::Resume, Running, ""),
            (STOP, Stopping, "leave grace"),
            (Input::StopAtOnce, Stopped, "kill end"),
            (Input::Phase(StartPhase::Scan), Running, ""),
            (Input::Prepared, Running, ""),
            (Input::Running, Running, ""),
            (Input::HeldByDisk, Paused, "paused"),
            (Input::Left, Pausing, "warn"),
            (Input::Finished(Reason::Patience), Finished, "end"),
            (gone(), Failed, "end"),
            (Input::GraceOver, Running, ""),
        ],
    );
}

#[test]
fn while_a_hold_is_on_its_way() {
    check(
        &[Input::Running, HOLD],
        &[
            (HOLD, Pausing, ""),
            (FREE, Pausing, "leave"),
            (Input::Resume, Running, "go"),
            (STOP, Stopping, "leave grace"),
            (Input::Running, Pausing, ""),
            (Input::Held, Paused, "paused"),
            (Input::HeldByDisk, Paused, "paused"),
            (Input::Finished(Reason::Finished), Finished, "end"),
            (gone(), Failed, "end"),
        ],
    );
}

#[test]
fn while_it_is_held() {
    check(
        &[Input::Running, HOLD, Input::Held],
        &[
            (HOLD, Paused, ""),
            (FREE, Pausing, "leave"),
            (Input::Resume, Resuming, "go"),
            (STOP, Stopping, "leave grace"),
            (Input::StopAtOnce, Stopped, "kill end"),
            (Input::Left, Pausing, ""),
            (gone(), Failed, "end"),
            (Input::GraceOver, Paused, ""),
        ],
    );
    check(&[Input::Running, HOLD, Input::Held, Input::Resume], &[(Input::Running, Running, "resumed")]);
}

#[test]
fn while_it_leaves_for_a_pause() {
    let leaving = [Input::Running, FREE];
    check(
        &leaving,
        &[
            (HOLD, Pausing, ""),
            (FREE, Pausing, ""),
            (Input::Resume, Resuming, ""),
            (STOP, Stopping, "grace"),
            (Input::StopAtOnce, Stopped, "kill end"),
            (Input::Held, Pausing, ""),
            (Input::HeldByDisk, Paused, "warn paused"),
            (Input::Left, Pausing, ""),
            (Input::Finished(Reason::Finished), Finished, "end"),
            (gone(), Paused, "warn paused"),
            (Input::GraceOver, Pausing, ""),
        ],
    );
    check(&[Input::Running, FREE, Input::Left], &[(gone(), Paused, "paused"), (Input::Resume, Resuming, "")]);
    check(&[FREE], &[(gone(), Paused, "paused")]);
}

#[test]
fn a_resume_while_it_leaves_is_done_once_it_has_gone() {
    let resumed = [Input::Running, FREE, Input::Resume];
    check(&resumed, &[(FREE, Pausing, ""), (HOLD, Pausing, ""), (gone(), Failed, "end")]);
    check(&[Input::Running, FREE, Input::Resume, Input::Left], &[(gone(), Resuming, "paused start")]);
}

#[test]
fn while_the_device_is_given_back() {
    let freed = [Input::Running, FREE, Input::Left, gone()];
    check(
        &freed,
        &[
            (HOLD, Paused, ""),
            (FREE, Paused, ""),
            (Input::Resume, Resuming, "start"),
            (STOP, Stopped, "end"),
            (TERM, Stopped, "end"),
            (Input::StopAtOnce, Stopped, "end"),
            (Input::Running, Paused, ""),
            (Input::Held, Paused, ""),
            (Input::HeldByDisk, Paused, ""),
            (Input::Left, Paused, ""),
            (Input::Prepared, Paused, ""),
            (Input::Phase(StartPhase::Load), Paused, ""),
            (gone(), Paused, ""),
            (Input::GraceOver, Paused, ""),
        ],
    );
    let again = [Input::Running, FREE, Input::Left, gone(), Input::Resume];
    check(&again, &[(Input::Running, Running, "resumed"), (HOLD, Pausing, "hold")]);
}

#[test]
fn while_it_stops() {
    check(
        &[Input::Running, STOP],
        &[
            (HOLD, Stopping, ""),
            (FREE, Stopping, ""),
            (Input::Resume, Stopping, ""),
            (STOP, Stopping, ""),
            (TERM, Stopping, ""),
            (Input::StopAtOnce, Stopped, "kill end"),
            (Input::Held, Stopping, ""),
            (Input::HeldByDisk, Paused, "warn paused"),
            (Input::Left, Stopping, ""),
            (Input::Finished(Reason::Finished), Finished, "end"),
            (gone(), Stopped, "warn end"),
            (Input::GraceOver, Stopped, "kill end"),
        ],
    );
    check(&[Input::Running, STOP, Input::Left], &[(gone(), Stopped, "end")]);
}

#[test]
fn while_the_disk_is_full() {
    check(
        &[Input::Running, STOP, Input::HeldByDisk],
        &[
            (HOLD, Paused, ""),
            (FREE, Pausing, "leave"),
            (Input::Resume, Resuming, "go"),
            (STOP, Stopping, "leave grace"),
            (Input::StopAtOnce, Stopped, "kill end"),
            (Input::Running, Running, "go resumed"),
            (Input::GraceOver, Paused, ""),
        ],
    );
}

#[test]
fn the_reason_of_the_first_stop_stays() {
    assert_eq!(
        after(&[Input::Running, TERM, STOP, Input::Left, gone()]),
        State::Ended(End::Stopped, Reason::Terminated)
    );
    assert_eq!(after(&[Input::Running, TERM, Input::StopAtOnce]), State::Ended(End::Stopped, Reason::Terminated));
}

/// A worker that does as it is told, as far as its orders have reached it, and what it has said on its way here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sim {
    state: State,
    worker: Option<SimWorker>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SimWorker {
    at: At,
    may_train: bool,
    told: LastOrder,
    /// Not read yet; a later order takes the place of an earlier one.
    unread: Option<LastOrder>,
    /// Said, and not heard yet.
    said: VecDeque<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Starting,
    Prepared,
    Training,
    Holding,
    Gone,
}

impl Sim {
    fn begin() -> Self {
        let (state, effects) = State::begin();
        let mut sim = Self { state, worker: None };
        sim.apply(&effects);
        sim
    }

    fn with(&self, input: Input) -> Self {
        let (state, effects) = next(self.state, input.clone());
        if matches!(self.state, State::Ended(..)) {
            assert_eq!((state, effects.len()), (self.state, 0), "after an end nothing follows");
        }
        let mut sim = Self { state, ..self.clone() };
        if matches!(input, Input::WorkerGone { .. }) {
            sim.worker = None;
        }
        sim.apply(&effects);
        sim
    }

    fn apply(&mut self, effects: &[Effect]) {
        for effect in effects {
            let order = match effect {
                Effect::StartWorker => {
                    assert!(self.worker.is_none(), "at most one worker at a time");
                    let said = VecDeque::new();
                    let told = LastOrder::Go;
                    self.worker = Some(SimWorker { at: At::Starting, may_train: false, told, unread: None, said });
                    continue;
                }
                Effect::SendTrain => {
                    self.worker.as_mut().expect("no order without a worker").may_train = true;
                    continue;
                }
                Effect::KillWorker => {
                    assert!(self.worker.is_some(), "nobody to end");
                    continue;
                }
                Effect::SendHold => LastOrder::Hold,
                Effect::SendGo => LastOrder::Go,
                Effect::SendLeave => LastOrder::Leave,
                Effect::ArmGrace | Effect::TellPaused { .. } | Effect::TellResumed { .. } => continue,
                Effect::Warn { .. } | Effect::End { .. } => continue,
            };
            self.worker.as_mut().expect("no order without a worker").unread = Some(order);
        }
    }

    /// What may come next, other than a command, if the disk and the process may fail.
    fn steps(&self) -> Vec<Self> {
        let mut steps = Vec::from_iter(self.quiet_step());
        let Some(worker) = &self.worker else { return steps };
        if let (Some(said), true) = (worker.said.front(), worker.unread.is_some()) {
            steps.push(self.hear(said));
        }
        if worker.at == At::Training && worker.said.len() < 2 {
            let mut troubled = self.clone();
            let worker = troubled.worker.as_mut().unwrap();
            (worker.at, worker.told) = (At::Holding, LastOrder::Hold);
            worker.said.push_back("disk");
            steps.push(troubled);
            steps.push(self.with(Input::Finished(Reason::Finished)));
        }
        steps.push(self.with(gone()));
        steps
    }

    /// What a worker without trouble does next: it reads, then acts, then is heard.
    fn quiet_step(&self) -> Option<Self> {
        let mut then = self.clone();
        let worker = then.worker.as_mut()?;
        // What was said is heard before more is said than a test can follow.
        if worker.said.len() > 1 {
            return worker.said.front().map(|said| self.hear(said));
        }
        if let Some(order) = worker.unread.take() {
            worker.told = order;
            return Some(then);
        }
        let (at, says) = match (worker.at, worker.told) {
            (At::Starting, _) => (At::Prepared, "prepared"),
            (At::Prepared | At::Training | At::Holding, LastOrder::Leave) if worker.may_train => (At::Gone, "left"),
            (At::Prepared, LastOrder::Go) if worker.may_train => (At::Training, "running"),
            (At::Prepared | At::Training, LastOrder::Hold) if worker.may_train => (At::Holding, "held"),
            (At::Holding, LastOrder::Go) => (At::Training, "running"),
            (At::Prepared | At::Training | At::Holding | At::Gone, _) => {
                return worker.said.front().map(|said| self.hear(said));
            }
        };
        worker.at = at;
        worker.said.push_back(says);
        if at == At::Gone {
            worker.said.push_back("gone");
        }
        Some(then)
    }

    fn hear(&self, said: &str) -> Self {
        let mut then = self.clone();
        then.worker.as_mut().unwrap().said.pop_front();
        then.with(match said {
            "prepared" => Input::Prepared,
            "running" => Input::Running,
            "held" => Input::Held,
            "disk" => Input::HeldByDisk,
            "left" => Input::Left,
            _ => gone(),
        })
    }
}

/// Everything that can come about.
fn reachable() -> Vec<Sim> {
    let commands = [HOLD, FREE, Input::Resume, STOP, TERM, Input::StopAtOnce, Input::GraceOver];
    let mut known = BTreeMap::from([(format!("{:?}", Sim::begin()), Sim::begin())]);
    let mut open = vec![Sim::begin()];
    while let Some(sim) = open.pop() {
        let commanded = commands.iter().map(|command| sim.with(command.clone()));
        for then in commanded.chain(sim.steps()) {
            if known.insert(format!("{then:?}"), then.clone()).is_none() {
                open.push(then);
            }
        }
    }
    known.into_values().collect()
}

#[test]
fn a_stop_and_the_grace_time_always_end_it() {
    for sim in reachable() {
        let ended = sim.with(STOP).with(Input::GraceOver);
        assert!(ended.state.word().is_end(), "{sim:?}");
        assert!(sim.with(Input::StopAtOnce).state.word().is_end(), "{sim:?}");
    }
}

/// Whether a checkpoint that could not be written has crossed an order, so that the two sides mean different things until
/// the next report. What comes of it is shown, but may be another thing than was wanted.
fn is_crossed(sim: &Sim) -> bool {
    let State::Going { worker: Worker::Present { order, .. }, wish, .. } = sim.state else { return false };
    let is_by_disk = wish == Wish::Pause { depth: PauseDepth::Hold, by: PausedBy::Disk };
    sim.worker.as_ref().is_some_and(|worker| {
        let told = if worker.at == At::Gone { LastOrder::Leave } else { worker.unread.unwrap_or(worker.told) };
        told != order || worker.said.contains(&"disk") || (is_by_disk && !worker.said.is_empty())
    })
}

#[test]
fn what_is_wanted_last_is_reached_if_the_worker_has_no_trouble() {
    let all: Vec<_> = reachable().into_iter().filter(|sim| !is_crossed(sim)).collect();
    assert!(all.len() > 300, "the search has been somewhere: {}", all.len());
    for sim in all {
        for (command, goal) in [(Input::Resume, Running), (HOLD, Paused), (FREE, Paused)] {
            let mut then = sim.with(command.clone());
            let was_stopping = then.state.word() == Stopping;
            for _ in 0..32 {
                let Some(step) = then.quiet_step() else { break };
                then = step;
            }
            let word = then.state.word();
            assert!(word == goal || word.is_end(), "{command:?} in {sim:?}: {then:?}");
            assert!(!was_stopping || word.is_end(), "{command:?} in {sim:?}: {then:?}");
        }
    }
}
