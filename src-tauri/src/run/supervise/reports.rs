//! What a worker says and does, as inputs of the machine.

use super::Supervisor;
use super::door::Talk;
use super::link::{Link, News};
use super::log_tail::log_tail;
use crate::checkpoint::CheckpointStore;
use crate::exit::Reason;
use crate::run::machine::{Input, LastOrder, Stage, State, Worker};
use crate::trainer::host::Prepared;
use crate::worker::protocol::Report;

impl Supervisor<'_> {
    /// Hands a connection to the worker whose token it knows; any other is closed.
    pub(super) fn connect(&mut self, token: &str, talk: Talk) {
        let Some(Link { token: known, process: Some(process), .. }) = &mut self.link else { return };
        if known == token
            && let Some(connection) = process.connection.take()
        {
            // A process that has ended meanwhile is reported by its link.
            let _ = connection.send(talk);
        }
    }

    pub(super) fn take_news(&mut self, news: News) {
        match news {
            News::LockIsFree => self.start_process(),
            News::LockIsHeld(error) => {
                let message = format!("an earlier worker of this run does not end: {error}");
                self.link = None;
                self.input(Input::Refused { reason: error.reason(), message });
            }
            News::Report(report) => self.take_report(report),
            News::Gone(how) => {
                let how = self.with_log_tail(how);
                self.link = None;
                if !self.facts.has_said_last {
                    self.look_for_checkpoint();
                }
                self.input(Input::WorkerGone { how });
            }
        }
    }

    fn take_report(&mut self, report: Report) {
        match report {
            Report::Phase { phase } => self.input(Input::Phase(phase)),
            Report::Prepared(prepared) => {
                let input = self.begin(prepared);
                self.input(input);
            }
            Report::Running => self.input(Input::Running),
            Report::Event { event } => {
                self.facts.learn(&event);
                self.show_event(&event);
            }
            Report::Held { position, trouble } => {
                self.facts.position = position;
                self.facts.trouble.clone_from(&trouble);
                match trouble {
                    Some(trouble) => {
                        self.facts.message = Some(trouble.message);
                        self.input(Input::HeldByDisk);
                    }
                    None => self.input(Input::Held),
                }
            }
            Report::Alive { position } => self.facts.position = position,
            Report::Left { position, checkpoint, size_bytes } => {
                (self.facts.position, self.facts.checkpoint) = (position, Some(checkpoint));
                (self.facts.pause_bytes, self.facts.trouble) = (size_bytes, None);
                self.facts.has_said_last = true;
                self.input(Input::Left);
            }
            Report::Finished { reason, best_epoch, time_s, checkpoint } => {
                (self.facts.best_epoch, self.facts.time_s) = (best_epoch, time_s);
                self.facts.checkpoint = checkpoint.or(self.facts.checkpoint.take());
                self.facts.has_said_last = true;
                self.input(Input::Finished(reason));
            }
            Report::Failed { reason, message } => self.input(Input::Failed { reason, message }),
        }
    }

    /// The worker has found everything good: the run begins, or goes on with the same dataset.
    fn begin(&mut self, prepared: Prepared) -> Input {
        let Prepared { dataset_fingerprint, device, n_batches_per_epoch, position } = prepared;
        self.facts.position = position;
        self.facts.has_said_last = false;
        (self.facts.device, self.facts.n_batches_per_epoch) = (Some(device), Some(n_batches_per_epoch));
        if !self.books.is_same_dataset(&dataset_fingerprint) {
            let message = "the dataset has changed since this run began; restore it, or begin a new run with it";
            return Input::Refused { reason: Reason::Contradiction, message: message.to_owned() };
        }
        if !self.books.is_open() {
            if let Some(Err(error)) = self.folder.as_ref().map(|folder| folder.begin(&self.config)) {
                return Input::Refused { reason: error.reason(), message: error.to_string() };
            }
            self.books.open();
            self.tell_change();
        } else if let Some(Err(error)) = self.folder.as_ref().map(|folder| folder.write_args(&self.config)) {
            return Input::Refused { reason: error.reason(), message: error.to_string() };
        }
        Input::Prepared
    }

    /// A worker that was ended may have saved more than it has said.
    pub(super) fn look_for_checkpoint(&mut self) {
        let Some(folder) = &self.folder else { return };
        let root = std::path::absolute(folder.paths().root());
        let newest = root.map(|root| CheckpointStore::of(&root).newest_whole());
        if let Ok(Ok(Some(newest))) = newest {
            self.facts.checkpoint = Some(newest.path);
        }
    }

    /// A worker that has not saved may have printed why.
    fn with_log_tail(&self, how: String) -> String {
        let has_left = matches!(
            self.state,
            State::Going { worker: Worker::Present { stage: Stage::Left, order: LastOrder::Leave, .. }, .. }
        );
        let from = self.link.as_ref().and_then(|link| link.process.as_ref()).map(|process| process.log_from);
        let (Some(folder), Some(from), false) = (&self.folder, from, has_left) else { return how };
        match log_tail(&folder.paths().worker_log(), from) {
            Some(tail) => format!("{how}; its last words:\n{tail}"),
            None => how,
        }
    }
}
