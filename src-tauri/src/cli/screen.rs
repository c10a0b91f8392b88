//! Progress on a terminal that may not take it: a supervisor never waits for whoever reads.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::spawn;
use std::time::Duration;

use super::progress::Progress;
use crate::trainer::event::TrainEvent;

/// Events that wait to be shown; a terminal that stands still misses those beyond.
const QUEUE: usize = 1024;
/// How long what is left may take to be shown at the end.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Shows events in a thread of its own.
pub struct Screen {
    events: SyncSender<TrainEvent>,
    /// Says that everything is shown.
    done: Receiver<()>,
}

impl Screen {
    pub fn new() -> Self {
        let (events, waiting) = sync_channel::<TrainEvent>(QUEUE);
        let (said, done) = channel();
        spawn(move || {
            let mut progress = Progress::new();
            waiting.iter().for_each(|event| progress.show(&event));
            drop(progress);
            // Nobody waits any more if the terminal stood still for too long.
            let _ = said.send(());
        });
        Self { events, done }
    }

    pub fn show(&self, event: &TrainEvent) {
        // What does not fit is in `events.jsonl` all the same.
        let _ = self.events.try_send(event.clone());
    }

    /// Shows what is left.
    pub fn end(self) {
        drop(self.events);
        // A terminal that takes nothing is no reason not to end.
        let _ = self.done.recv_timeout(END_LIMIT);
    }
}
