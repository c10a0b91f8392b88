//! What the supervisor wants, kept up to date by a thread that reads its orders.

use std::io::BufRead;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

use super::log_file;
use crate::trainer::Assignment;
use crate::trainer::host::Wish;
use crate::worker::line::{LineError, decode, read_line};
use crate::worker::protocol::Order;

/// Between two tries to save for a supervisor that is gone.
const RETRY: Duration = Duration::from_secs(1);

/// The newest orders.
pub struct Orders {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

struct Wanted {
    assignment: Option<Assignment>,
    may_train: bool,
    wish: Wish,
    /// Orders so far that set the wish.
    n_seen: u64,
    is_supervisor_gone: bool,
}

impl Orders {
    /// Reads orders in a thread of its own, until the connection ends.
    pub fn from(reader: impl BufRead + Send + 'static) -> Arc<Self> {
        let wanted =
            Wanted { assignment: None, may_train: false, wish: Wish::Go, n_seen: 0, is_supervisor_gone: false };
        let orders = Arc::new(Self { wanted: Mutex::new(wanted), changed: Condvar::new() });
        let kept = orders.clone();
        spawn(move || kept.read_all(reader));
        orders
    }

    /// What is to be trained; `None` if the supervisor has gone without a word.
    pub fn wait_for_assignment(&self) -> Option<Assignment> {
        self.wait_until(|wanted| wanted.assignment.is_some() || wanted.is_supervisor_gone).assignment.clone()
    }

    /// Whether training may begin; `false` if the supervisor is gone.
    pub fn wait_for_train(&self) -> bool {
        self.wait_until(|wanted| wanted.may_train || wanted.is_supervisor_gone).may_train
    }

    pub fn wish(&self) -> Wish {
        self.lock().wish
    }

    /// Orders so far that set the wish.
    pub fn n_seen(&self) -> u64 {
        self.lock().n_seen
    }

    /// Waits until the wish is another than to hold.
    pub fn wait_while_held(&self) -> Wish {
        self.wait_until(|wanted| wanted.wish != Wish::Hold).wish
    }

    /// Waits for an order after the first `seen`, that is not to hold.
    pub fn wait_for_another(&self, seen: u64) -> Wish {
        let wanted =
            self.wait_until(|wanted| (wanted.n_seen > seen && wanted.wish != Wish::Hold) || wanted.is_supervisor_gone);
        if !wanted.is_supervisor_gone {
            return wanted.wish;
        }
        drop(wanted);
        sleep(RETRY);
        Wish::Leave
    }

    fn read_all(&self, mut reader: impl BufRead) {
        loop {
            match read_line(&mut reader).and_then(|line| line.map(|line| decode(&line)).transpose()) {
                Ok(Some(order)) => self.take(order),
                // A newer supervisor would have been refused at the hello, so this is no order that counts.
                Err(LineError::NotUnderstood(error)) => {
                    log_file::print(&format!("an order cannot be understood: {error}"))
                }
                Ok(None) | Err(_) => return self.supervisor_gone(),
            }
        }
    }

    fn take(&self, order: Order) {
        let mut wanted = self.lock();
        let mut want = |wish| {
            wanted.wish = wish;
            wanted.n_seen += 1;
        };
        match order {
            Order::Hold => want(Wish::Hold),
            Order::Go => want(Wish::Go),
            Order::Leave => want(Wish::Leave),
            Order::Prepare(assignment) => wanted.assignment = Some(*assignment),
            Order::Train => wanted.may_train = true,
            Order::ReopenLog => {
                if let Some(assignment) = &wanted.assignment {
                    log_file::reopen(&assignment.run_folder);
                }
            }
        }
        self.changed.notify_all();
    }

    /// Nobody is there to give orders: save and leave, and end by force if that takes longer than it may.
    fn supervisor_gone(&self) {
        let mut wanted = self.lock();
        wanted.is_supervisor_gone = true;
        wanted.wish = Wish::Leave;
        let grace_s = wanted.assignment.as_ref().map_or(0.0, |assignment| assignment.config.grace);
        drop(wanted);
        self.changed.notify_all();
        sleep(Duration::try_from_secs_f64(grace_s).unwrap_or_default());
        log_file::print("the supervisor is gone and the grace time is over");
        std::process::exit(i32::from(crate::exit::ExitCode::Internal as u8));
    }

    fn wait_until(&self, is_so: impl Fn(&Wanted) -> bool) -> MutexGuard<'_, Wanted> {
        let wanted = self.lock();
        self.changed.wait_while(wanted, |wanted| !is_so(wanted)).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        // Every change is one assignment, so a panic elsewhere leaves nothing half done.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
