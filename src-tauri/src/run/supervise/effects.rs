//! The machine's effects, carried out.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::link::{Attendance, Link, News, Process, attend, wait_for_lock};
use super::log_tail::log_length;
use super::{Answer, Clients, Happening, Outcome, Shown, Supervisor};
use crate::exit::Reason;
use crate::run::machine::{Effect, End, Input};
use crate::trainer::Assignment;
use crate::trainer::clock::unix_ms;
use crate::trainer::event::{PauseDepth, PausedBy, TrainEvent};
use crate::worker::process::Launch;
use crate::worker::protocol::Order;

/// Beyond the grace time, how long a worker without a supervisor may hold the run's files.
const LOCK_MARGIN: Duration = Duration::from_secs(5);
/// How long a worker may take to exit after its last word.
const EXIT_LIMIT: Duration = Duration::from_secs(5);

/// How the run ends.
pub struct Ending {
    pub end: End,
    pub reason: Reason,
    pub message: Option<String>,
}

impl Supervisor<'_> {
    pub(super) fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::StartWorker => self.prepare_worker(),
                Effect::SendTrain => self.send(Order::Train),
                Effect::SendHold => self.send(Order::Hold),
                Effect::SendGo => self.send(Order::Go),
                Effect::SendLeave => self.leave(),
                Effect::KillWorker => self.kill(),
                Effect::ArmGrace => self.grace_end = Some(Instant::now() + self.grace()),
                Effect::TellPaused { depth, by } => self.tell_paused(depth, by),
                Effect::TellResumed { depth } => self.tell_resumed(depth),
                Effect::Warn { code, message } => {
                    self.facts.message = Some(message.clone());
                    self.tell_event(&TrainEvent::Warning { code: code.to_owned(), message });
                }
                Effect::End { end, reason, message } => self.ending = Some(Ending { end, reason, message }),
            }
        }
    }

    fn grace(&self) -> Duration {
        // The settings allow a day at most.
        Duration::try_from_secs_f64(self.config.grace).unwrap_or(Duration::MAX)
    }

    /// A worker is started once no other is at work on the run's files.
    fn prepare_worker(&mut self) {
        let Some(folder) = &self.folder else { return };
        let root = folder.paths().root();
        let assignment = Assignment {
            // What cannot be made absolute is not there either, as the worker will say.
            run_folder: std::path::absolute(root).unwrap_or_else(|_| root.to_owned()),
            config: self.config.clone(),
            from: self.facts.checkpoint.clone(),
            timeline: self.books.timeline(),
        };
        let lock = folder.paths().run_lock();
        self.n_workers += 1;
        self.link = Some(Link::new(self.n_workers, Order::Prepare(Box::new(assignment))));
        let limit = self.grace().saturating_add(LOCK_MARGIN);
        tokio::spawn(wait_for_lock(lock, limit, self.n_workers, self.happenings.0.clone()));
    }

    /// Starts the process of the worker that waits for it.
    pub(super) fn start_process(&mut self) {
        let patience = self.grace();
        let (Some(folder), Some(link)) = (&self.folder, &mut self.link) else { return };
        let Some(orders) = link.unstarted.take() else { return };
        let log = folder.paths().worker_log();
        let (address, door) = self.way.clone();
        let launch = Launch { address, token: link.token.clone(), log: log.clone(), door };
        let log_from = log_length(&log);
        match self.start_worker.start(&launch) {
            Ok(process) => {
                let (sender, connection) = oneshot::channel();
                let (pid, kill) = (process.pid, process.kill.clone());
                link.process = Some(Process { pid, kill, connection: Some(sender), log_from });
                let (number, happenings) = (link.number, self.happenings.0.clone());
                tokio::spawn(attend(Attendance { number, process, connection, orders, happenings, patience }));
            }
            Err(error) => self.input(Input::WorkerGone { how: format!("the worker cannot be started: {error}") }),
        }
    }

    fn send(&mut self, order: Order) {
        if let Some(link) = &self.link {
            link.send(order);
        }
    }

    /// A worker whose process is not started yet has nothing to save.
    fn leave(&mut self) {
        match &self.link {
            Some(Link { unstarted: Some(_), .. }) => {
                self.link = None;
                self.inputs.push_back(Input::WorkerGone { how: "the worker was not started".to_owned() });
            }
            Some(link) => link.send(Order::Leave),
            None => {}
        }
    }

    fn kill(&mut self) {
        match &self.link {
            Some(Link { process: Some(process), .. }) => process.kill.notify_one(),
            Some(_) | None => self.link = None,
        }
    }

    pub(super) fn reopen_logs(&mut self) {
        self.send(Order::ReopenLog);
        (self.show)(Shown::LogsMoved);
    }

    fn tell_paused(&mut self, depth: PauseDepth, by: PausedBy) {
        let now = Instant::now();
        // A pause that becomes a deeper one is still the same.
        if self.facts.paused_at.is_none() {
            self.facts.paused_at = Some(now);
            self.account.count_pause();
        }
        let size_bytes = std::mem::take(&mut self.facts.pause_bytes);
        self.account.count_pause_bytes(size_bytes);
        let seconds = match by {
            PausedBy::User | PausedBy::Policy => (now - self.facts.asked_at).as_secs_f64(),
            PausedBy::Disk => 0.0,
        };
        let (position, checkpoint) = (self.facts.position, self.facts.checkpoint.clone());
        let at_unix_ms = unix_ms();
        self.tell_event(&TrainEvent::Paused { depth, by, position, checkpoint, size_bytes, seconds, at_unix_ms });
    }

    fn tell_resumed(&mut self, depth: PauseDepth) {
        let now = Instant::now();
        // What it stood still for is over.
        (self.facts.trouble, self.facts.message) = (None, None);
        let paused_at = self.facts.paused_at.take().unwrap_or(now);
        let paused_s = (now - paused_at).as_secs_f64();
        let seconds = (now - self.facts.asked_at).as_secs_f64();
        self.tell_event(&TrainEvent::Resumed { depth, paused_s, seconds, at_unix_ms: unix_ms() });
    }

    /// Sees the worker off, writes the end down, and tells it.
    pub(super) async fn close(&mut self, ending: Ending) -> Outcome {
        self.see_worker_off().await;
        if !self.facts.has_said_last {
            self.look_for_checkpoint();
        }
        let Ending { end, reason, message } = ending;
        let checkpoint = self.facts.checkpoint.clone();
        if message.is_some() {
            self.facts.message.clone_from(&message);
        }
        let event = self.closing_event(end, reason, message.clone());
        self.tell_event(&event);
        let accounting = self.account.at(Instant::now().into_std());
        let fault = self.books.write_state(&self.state, accounting);
        self.tell_fault(fault);
        let report = self.report();
        (self.show)(Shown::State(&report));
        self.clients = Clients::default();
        let last = Answer::State(Box::new(report));
        // Requests that still come are taken in, since each holds on to the way to its client.
        let take_in = async { while self.happenings.1.recv().await.is_some() {} };
        tokio::select! {
            () = self.doorkeeper.close(&last) => {}
            () = take_in => {}
        }
        Outcome { reason, message, checkpoint }
    }

    fn closing_event(&self, end: End, reason: Reason, message: Option<String>) -> TrainEvent {
        let (reason, checkpoint) = (reason.word().to_owned(), self.facts.checkpoint.clone());
        let (best_epoch, time_s) = (self.facts.best_epoch, self.facts.time_s);
        match end {
            End::Finished => TrainEvent::Finished { reason, best_epoch, time_s, checkpoint },
            End::Stopped => TrainEvent::Stopped { reason, checkpoint },
            End::Failed => TrainEvent::Failed { reason, message: message.unwrap_or_default(), checkpoint },
        }
    }

    /// Waits until the worker's process has ended, and ends it if it does not.
    async fn see_worker_off(&mut self) {
        for _ in 0..2 {
            let Some(Link { process: Some(process), .. }) = &self.link else { break };
            let kill = process.kill.clone();
            if timeout(EXIT_LIMIT, self.worker_gone()).await.is_err() {
                kill.notify_one();
            }
        }
        self.link = None;
    }

    async fn worker_gone(&mut self) {
        while let Some(number) = self.link.as_ref().map(|link| link.number) {
            // The sender lives as long as the receiver.
            let Some(happening) = self.happenings.1.recv().await else { return };
            match happening {
                Happening::News { number: of, news: News::Gone(_) } if of == number => self.link = None,
                // Whoever asks now is told how it has ended.
                Happening::News { .. } | Happening::Worker { .. } | Happening::Request { .. } => {}
            }
        }
    }

    /// Lets go of the run folder, and takes it away if no run has begun in it.
    pub(super) fn leave_folder(&mut self) {
        let Some(folder) = self.folder.take() else { return };
        if self.books.is_open() {
            return;
        }
        folder.abandon();
    }
}
