//! One sitting of a run: its worker, its clients and its files, held together by the [state machine](super::machine).
//!
//! Everything that happens comes through one queue to one loop, which does all of it in turn. Nothing here touches a device.

mod books;
mod clients;
mod door;
mod effects;
mod facts;
mod link;
mod log_tail;
mod reports;

use std::collections::VecDeque;
use std::future::pending;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::accounting::{Account, Doing};
use super::endpoint::Endpoint;
use super::machine::{Input, State, StateWord, StopReason, next};
use super::protocol::{Answer, Request, StateReport};
use super::signals::{Signal, Signals};
use crate::exit::Reason;
use crate::trainer::config::TrainConfig;
use crate::trainer::event::{PauseDepth, PausedBy, TrainEvent};
use crate::trainer::run_folder::{RunFolder, RunRecord};
use crate::worker::process::{Connection, StartWorker};
use books::Books;
use clients::{Clients, Outbox};
use door::Doorkeeper;
use facts::Facts;
use link::{Link, News};

/// Happenings that wait for their turn; whoever brings more waits.
const QUEUE: usize = 64;
/// Between two signs of life to clients that watch.
const BEAT: Duration = Duration::from_secs(1);
/// Between two times that the time spent is written down while nothing changes.
const ACCOUNT_PERIOD: Duration = Duration::from_secs(60);

/// What is needed to begin or to go on with a run.
#[derive(Debug)]
pub struct Sitting {
    pub folder: RunFolder,
    pub record: RunRecord,
    pub config: TrainConfig,
    /// The checkpoint to go on from, a folder.
    pub from: Option<PathBuf>,
    /// Whether the run begins at its beginning: nothing is written until device and dataset are known to be good, and if
    /// they are not, the folder is taken away again.
    pub is_beginning: bool,
}

/// How a sitting has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub reason: Reason,
    /// The sentence to it, if there is more to say than the reason.
    pub message: Option<String>,
    /// The newest good one.
    pub checkpoint: Option<PathBuf>,
}

/// What is shown to whoever sits at the terminal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shown<'a> {
    /// The state's word has changed.
    State(&'a StateReport),
    Event(&'a TrainEvent),
    /// Log files have been moved, and are to be opened anew.
    LogsMoved,
}

/// Runs a sitting to its end. Blocks.
pub fn supervise(
    sitting: Sitting,
    signals: Signals,
    start_worker: &mut dyn StartWorker,
    show: &mut dyn FnMut(Shown<'_>),
) -> Outcome {
    let (runtime, caught) = signals.into_parts();
    let outcome = runtime.block_on(async {
        let (endpoint, listener) = match Endpoint::open(sitting.folder.paths()) {
            Ok(open) => open,
            Err(error) => return not_begun(sitting, error.to_string()),
        };
        let (door, connections) = mpsc::channel(QUEUE);
        let listening = tokio::spawn(door::listen(listener, door.clone()));
        let way_in = WayIn { address: endpoint.address().to_owned(), door, connections };
        let mut supervisor = Supervisor::new(sitting, way_in, start_worker, show);
        let ending = supervisor.run(caught).await;
        let outcome = supervisor.close(ending).await;
        listening.abort();
        drop(endpoint);
        supervisor.leave_folder();
        outcome
    });
    // Nothing that is left in it is waited for.
    runtime.shutdown_background();
    outcome
}

fn not_begun(sitting: Sitting, message: String) -> Outcome {
    if sitting.is_beginning {
        sitting.folder.abandon();
    }
    Outcome { reason: Reason::Io, message: Some(message), checkpoint: sitting.from }
}

/// How others reach a supervisor.
struct WayIn {
    address: String,
    door: mpsc::Sender<Box<dyn Connection>>,
    connections: mpsc::Receiver<Box<dyn Connection>>,
}

/// What comes from outside.
enum Happening {
    /// Somebody has said hello as a worker.
    Worker {
        token: String,
        talk: door::Talk,
    },
    Request {
        request: Request,
        outbox: Outbox,
    },
    /// Of the worker with this number.
    News {
        number: u32,
        news: News,
    },
}

struct Supervisor<'a> {
    /// Present until the end.
    folder: Option<RunFolder>,
    config: TrainConfig,
    state: State,
    facts: Facts,
    books: Books,
    account: Account,
    link: Option<Link>,
    n_workers: u32,
    clients: Clients,
    grace_end: Option<Instant>,
    /// When the time spent was last written down.
    written_at: Instant,
    /// Ctrl-C was pressed before.
    is_interrupted: bool,
    /// Inputs that came of effects.
    inputs: VecDeque<Input>,
    ending: Option<effects::Ending>,
    happenings: (mpsc::Sender<Happening>, mpsc::Receiver<Happening>),
    doorkeeper: Doorkeeper,
    way: (String, mpsc::Sender<Box<dyn Connection>>),
    start_worker: &'a mut dyn StartWorker,
    show: &'a mut dyn FnMut(Shown<'_>),
}

impl<'a> Supervisor<'a> {
    fn new(
        sitting: Sitting,
        way_in: WayIn,
        start_worker: &'a mut dyn StartWorker,
        show: &'a mut dyn FnMut(Shown<'_>),
    ) -> Self {
        let Sitting { folder, record, config, from, is_beginning } = sitting;
        let now = Instant::now().into_std();
        let happenings = mpsc::channel(QUEUE);
        Self {
            state: State::begin().0,
            facts: Facts::new(from),
            account: Account::from(record.accounting, now),
            books: Books::of(folder.paths(), record, is_beginning),
            folder: Some(folder),
            config,
            link: None,
            n_workers: 0,
            clients: Clients::default(),
            grace_end: None,
            written_at: Instant::now(),
            is_interrupted: false,
            inputs: VecDeque::new(),
            ending: None,
            doorkeeper: Doorkeeper::at(way_in.connections, happenings.0.clone()),
            happenings,
            way: (way_in.address, way_in.door),
            start_worker,
            show,
        }
    }

    /// The loop: takes what happens until the run has ended.
    async fn run(&mut self, mut signals: mpsc::Receiver<Signal>) -> effects::Ending {
        let (state, effects) = State::begin();
        self.state = state;
        self.carry_out(effects);
        self.tell_change();
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let grace_end = self.grace_end;
            tokio::select! {
                Some(happening) = self.happenings.1.recv() => self.take(happening),
                Some(signal) = signals.recv() => self.take_signal(signal),
                () = until(grace_end) => {
                    self.grace_end = None;
                    self.input(Input::GraceOver);
                }
                _ = beat.tick() => {
                    self.tell_clients();
                    self.write_account();
                }
            }
            if let Some(ending) = self.ending.take() {
                return ending;
            }
        }
    }

    fn take(&mut self, happening: Happening) {
        match happening {
            Happening::Worker { token, talk } => self.connect(&token, talk),
            Happening::Request { request, outbox } => self.take_request(request, outbox),
            Happening::News { number, news } => {
                if self.link.as_ref().is_some_and(|link| link.number == number) {
                    self.take_news(news);
                }
            }
        }
    }

    fn take_signal(&mut self, signal: Signal) {
        match signal {
            Signal::PauseAndFree => self.input(Input::Pause { depth: PauseDepth::Free, by: PausedBy::User }),
            Signal::Resume => self.input(Input::Resume),
            Signal::Terminate => self.input(Input::Stop(StopReason::Terminated)),
            Signal::Interrupt => self.interrupt(),
            Signal::ReopenLogs => self.reopen_logs(),
        }
    }

    fn take_request(&mut self, request: Request, outbox: Outbox) {
        let is_stopping = self.state.word() == StateWord::Stopping;
        match request {
            Request::Status => {}
            Request::Watch { events } => self.clients.watch(outbox.clone(), events),
            Request::Stop { now: false } => self.input(Input::Stop(StopReason::User)),
            Request::Stop { now: true } => self.input(Input::StopAtOnce),
            Request::Pause { .. } | Request::Resume if is_stopping => {
                let message = "the run is being stopped; resume it once it has ended".to_owned();
                outbox.send(&Answer::Refused { message });
                return;
            }
            Request::Pause { depth } => self.input(Input::Pause { depth, by: PausedBy::User }),
            Request::Resume => self.input(Input::Resume),
        }
        // At the end all clients are told.
        if self.ending.is_none() {
            outbox.send(&Answer::State(Box::new(self.report())));
        }
    }

    /// The first time saves, the second time does not wait for it.
    fn interrupt(&mut self) {
        let was_interrupted = std::mem::replace(&mut self.is_interrupted, true);
        self.input(if was_interrupted { Input::StopAtOnce } else { Input::Stop(StopReason::User) });
    }

    /// Puts an input through the machine, and then those that came of it.
    fn input(&mut self, input: Input) {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            let is_command = matches!(input, Input::Pause { .. } | Input::Resume);
            let before = self.state;
            let (state, effects) = next(before, input);
            self.state = state;
            if is_command && state != before {
                self.facts.asked_at = Instant::now();
            }
            self.account.turn_to(Doing::of(&state), Instant::now().into_std());
            self.carry_out(effects);
            // An end is told once the worker is gone and all is written.
            if self.ending.is_none() && self.state != before {
                self.tell_change();
            }
        }
    }

    fn report(&self) -> StateReport {
        let worker_pid = self.link.as_ref().and_then(Link::pid);
        self.facts.report(&self.state, &self.config, worker_pid, self.account.at(Instant::now().into_std()))
    }

    /// Writes the state down, then tells it.
    fn tell_change(&mut self) {
        let accounting = self.account.at(Instant::now().into_std());
        let fault = self.books.write_state(&self.state, accounting);
        self.tell_fault(fault);
        let report = self.report();
        self.clients.tell_state(&report);
        (self.show)(Shown::State(&report));
    }

    /// Time is written down also while nothing changes, or a kill would lose it.
    fn write_account(&mut self) {
        if self.written_at.elapsed() >= ACCOUNT_PERIOD {
            self.written_at = Instant::now();
            let accounting = self.account.at(self.written_at.into_std());
            let fault = self.books.write_state(&self.state, accounting);
            self.tell_fault(fault);
        }
    }

    fn tell_clients(&mut self) {
        if self.clients.is_watched() {
            let report = self.report();
            self.clients.tell_state(&report);
        }
    }

    /// Shows an event of the supervisor's own, and appends it to the run's.
    fn tell_event(&mut self, event: &TrainEvent) {
        let fault = self.books.append(event);
        self.show_event(event);
        self.tell_fault(fault);
    }

    fn show_event(&mut self, event: &TrainEvent) {
        self.clients.tell_event(event);
        (self.show)(Shown::Event(event));
    }

    /// A file that cannot be written is told, and written later.
    fn tell_fault(&mut self, fault: Option<String>) {
        if let Some(message) = fault {
            self.facts.message = Some(message.clone());
            self.show_event(&TrainEvent::Warning { code: "not_written".to_owned(), message });
        }
    }
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
