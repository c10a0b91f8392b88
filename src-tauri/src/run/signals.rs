//! Signals of the operating system as commands.
//!
//! The handlers are tokio's, which only set a flag; what a signal means is decided where the flags are read.

use std::io;

use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGUSR1: pause and give the device back.
    PauseAndFree,
    /// SIGUSR2.
    Resume,
    /// SIGTERM: save and end within the grace time.
    Terminate,
    /// SIGINT, Ctrl-C: save and end; once more: end at once.
    Interrupt,
    /// SIGHUP: go on, with log files opened anew.
    ReopenLogs,
}

/// Signals are caught from its making on, and stay caught: none ends the process afterwards, also once the run is over.
#[derive(Debug)]
pub struct Signals {
    runtime: Runtime,
    caught: mpsc::Receiver<Signal>,
}

/// Signals that wait to be read; those beyond are repeats.
const QUEUE: usize = 16;

impl Signals {
    /// Catches signals; to be called before anything else that takes time. Those that arrive before they are read wait.
    ///
    /// # Errors
    /// When the operating system does not allow it.
    pub fn install() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (sender, caught) = mpsc::channel(QUEUE);
        {
            let _entered = runtime.enter();
            system::forward_to(&sender)?;
        }
        Ok(Self { runtime, caught })
    }

    /// The runtime that reads them, and the queue that they come through.
    pub(super) fn into_parts(self) -> (Runtime, mpsc::Receiver<Signal>) {
        (self.runtime, self.caught)
    }
}

#[cfg(unix)]
mod system {
    use super::{Signal, io, mpsc};
    use tokio::signal::unix::{SignalKind, signal};

    pub fn forward_to(sender: &mpsc::Sender<Signal>) -> io::Result<()> {
        for (kind, meaning) in [
            (SignalKind::user_defined1(), Signal::PauseAndFree),
            (SignalKind::user_defined2(), Signal::Resume),
            (SignalKind::terminate(), Signal::Terminate),
            (SignalKind::interrupt(), Signal::Interrupt),
            (SignalKind::hangup(), Signal::ReopenLogs),
        ] {
            let mut caught = signal(kind)?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while caught.recv().await.is_some() {
                    if sender.send(meaning).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(())
    }
}

#[cfg(windows)]
mod system {
    use super::{Signal, io, mpsc};

    pub fn forward_to(sender: &mpsc::Sender<Signal>) -> io::Result<()> {
        let mut caught = tokio::signal::windows::ctrl_c()?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while caught.recv().await.is_some() {
                if sender.send(Signal::Interrupt).await.is_err() {
                    return;
                }
            }
        });
        Ok(())
    }
}
