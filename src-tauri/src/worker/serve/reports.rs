//! What the worker says, written by a thread so that training never waits for a reader.

use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::spawn;
use std::time::{Duration, Instant};

use crate::trainer::event::Position;
use crate::worker::line::write_line;
use crate::worker::protocol::Report;

/// Between two signs of life.
const HEART_BEAT: Duration = Duration::from_secs(1);

/// Where reports go; clones lead to the same place.
#[derive(Clone)]
pub struct Reports {
    to_writer: Sender<Message>,
    position: Arc<Mutex<Position>>,
}

enum Message {
    Report(Report),
    /// The last one; says when it is written.
    Last(Report, Sender<()>),
}

impl Reports {
    /// Writes to a connection, and a sign of life every second.
    pub fn to(writer: impl Write + Send + 'static) -> Self {
        let (to_writer, messages) = channel();
        let position = Arc::new(Mutex::new(Position::default()));
        let shared = position.clone();
        spawn(move || write_all(writer, &messages, &shared));
        Self { to_writer, position }
    }

    pub fn send(&self, report: Report) {
        // Fails when the supervisor is gone; the reader of orders sees that too and has the worker leave.
        let _ = self.to_writer.send(Message::Report(report));
    }

    /// Where training stands, for the signs of life.
    pub fn at(&self, position: Position) {
        *self.position.lock().unwrap_or_else(PoisonError::into_inner) = position;
    }

    /// Says the last word and waits until it is written, but no longer than `limit`.
    pub fn end(self, last: Report, limit: Duration) {
        let (written, wait) = channel();
        if self.to_writer.send(Message::Last(last, written)).is_ok() {
            // Nobody reads any more if this fails, so there is nobody to tell.
            let _ = wait.recv_timeout(limit);
        }
    }
}

/// Ends with the last report, or when nobody reads.
fn write_all(mut writer: impl Write, messages: &Receiver<Message>, position: &Mutex<Position>) {
    let mut beat_at = Instant::now() + HEART_BEAT;
    loop {
        let written = match messages.recv_timeout(beat_at.saturating_duration_since(Instant::now())) {
            Ok(Message::Report(report)) => write_line(&mut writer, &report),
            Ok(Message::Last(report, written)) => {
                if write_line(&mut writer, &report).is_ok() {
                    // Whoever waits may have given up.
                    let _ = written.send(());
                }
                return;
            }
            Err(RecvTimeoutError::Timeout) => {
                beat_at = Instant::now() + HEART_BEAT;
                let position = *position.lock().unwrap_or_else(PoisonError::into_inner);
                write_line(&mut writer, &Report::Alive { position })
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if written.is_err() {
            return;
        }
    }
}
