//! Clients that watch: each has a queue, and none is waited for.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::run::protocol::{Answer, StateReport};
use crate::trainer::event::TrainEvent;
use crate::worker::line::encode;

/// Lines that wait for a client; one that lets more wait is dropped.
pub const OUTBOX: usize = 512;
/// Room in an outbox that events leave to states.
const ROOM_FOR_STATES: usize = 256;

/// An answer as a line, its end included; one for all who are sent it.
pub type Line = Arc<[u8]>;

/// The way to one client.
#[derive(Debug, Clone)]
pub struct Outbox {
    lines: mpsc::Sender<Line>,
}

impl Outbox {
    pub fn to(lines: mpsc::Sender<Line>) -> Self {
        Self { lines }
    }

    /// Puts an answer into the queue; false if the client is gone or does not read.
    pub fn send(&self, answer: &Answer) -> bool {
        line_of(answer).is_some_and(|line| self.lines.try_send(line).is_ok())
    }
}

#[derive(Debug)]
struct Watcher {
    outbox: Outbox,
    events: bool,
}

/// All clients that watch.
#[derive(Debug, Default)]
pub struct Clients {
    watchers: Vec<Watcher>,
}

impl Clients {
    /// Sends to this client from now on; asked again it changes what is sent.
    pub fn watch(&mut self, outbox: Outbox, events: bool) {
        self.watchers.retain(|watcher| !watcher.outbox.lines.same_channel(&outbox.lines));
        self.watchers.push(Watcher { outbox, events });
    }

    pub fn is_watched(&self) -> bool {
        !self.watchers.is_empty()
    }

    /// A client whose queue is full does not read, and is dropped.
    pub fn tell_state(&mut self, report: &StateReport) {
        if !self.is_watched() {
            return;
        }
        let Some(line) = line_of(&Answer::State(Box::new(report.clone()))) else { return };
        self.watchers.retain(|watcher| watcher.outbox.lines.try_send(Arc::clone(&line)).is_ok());
    }

    /// A client that reads slowly misses events, never states.
    pub fn tell_event(&mut self, event: &TrainEvent) {
        if !self.watchers.iter().any(|watcher| watcher.events) {
            return;
        }
        let Some(line) = line_of(&Answer::Event { event: Box::new(event.clone()) }) else { return };
        self.watchers.retain(|watcher| {
            let takes = watcher.events && watcher.outbox.lines.capacity() > ROOM_FOR_STATES;
            !takes || watcher.outbox.lines.try_send(Arc::clone(&line)).is_ok()
        });
    }
}

/// Absent for what has no form as a line, which is no reason to stop.
pub fn line_of(answer: &Answer) -> Option<Line> {
    encode(answer).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_not_read_misses_events_and_is_dropped_for_states() {
        let (lines, _kept) = mpsc::channel(OUTBOX);
        let mut clients = Clients::default();
        clients.watch(Outbox::to(lines), true);
        for epoch in 0..2 * OUTBOX as u32 {
            clients.tell_event(&TrainEvent::EpochStarted { epoch });
        }
        assert!(clients.is_watched(), "events leave room");
        for _ in 0..OUTBOX {
            let message = "again".to_owned();
            let line = line_of(&Answer::Refused { message }).unwrap();
            clients.watchers.retain(|watcher| watcher.outbox.lines.try_send(Arc::clone(&line)).is_ok());
        }
        assert!(!clients.is_watched(), "a full queue is given up");
    }
}
