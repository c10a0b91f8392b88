//! The tie to one worker: a task that hands on its reports and its orders, and sees its process end.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::Happening;
use super::door::Talk;
use crate::trainer::run_folder::{FileLock, RunFolderError};
use crate::worker::line::{LineError, decode, read_line_async, write_line_async};
use crate::worker::process::WorkerProcess;
use crate::worker::protocol::{Order, Report};

/// How long a started process may take to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// How long the last reports of a process that has ended may take to be read.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
type Exit = oneshot::Receiver<String>;

const LOCK_RETRY: Duration = Duration::from_millis(50);

/// What there is to know of a worker.
pub enum News {
    /// No other worker is at work on the run's files, so that this one may be started.
    LockIsFree,
    LockIsHeld(RunFolderError),
    Report(Report),
    /// Its process has ended; how, in words.
    Gone(String),
}

/// A worker that is to be started, or was.
pub struct Link {
    pub number: u32,
    pub token: String,
    pub orders: mpsc::UnboundedSender<Order>,
    /// Until it is started: what is needed for that.
    pub unstarted: Option<mpsc::UnboundedReceiver<Order>>,
    pub process: Option<Process>,
}

/// The process of a worker that was started.
pub struct Process {
    pub pid: u32,
    pub kill: Arc<Notify>,
    /// Takes its connection; absent once it has come.
    pub connection: Option<oneshot::Sender<Talk>>,
    /// Bytes that were in its log before it.
    pub log_from: u64,
}

impl Link {
    /// A worker that is not started yet, with its first order.
    pub fn new(number: u32, first: Order) -> Self {
        let (orders, unread) = mpsc::unbounded_channel();
        // The other end is right here.
        let _ = orders.send(first);
        Self { number, token: new_token(), orders, unstarted: Some(unread), process: None }
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.pid)
    }

    pub fn send(&self, order: Order) {
        // A worker whose connection is gone is about to be reported gone itself.
        let _ = self.orders.send(order);
    }
}

/// A word that nobody guesses: the standard library's hash keys come from the system's random source.
fn new_token() -> String {
    let half = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", half(), half())
}

/// Waits until no worker holds the run's files; one whose supervisor has died may still be saving.
pub async fn wait_for_lock(path: PathBuf, limit: Duration, number: u32, happenings: mpsc::Sender<Happening>) {
    let news = match free_lock(&path, limit).await {
        Ok(()) => News::LockIsFree,
        Err(error) => News::LockIsHeld(error),
    };
    // At the end nobody listens any more.
    let _ = happenings.send(Happening::News { number, news }).await;
}

async fn free_lock(path: &Path, limit: Duration) -> Result<(), RunFolderError> {
    let began = Instant::now();
    loop {
        match FileLock::take_within(path, Duration::ZERO) {
            Ok(_) => return Ok(()),
            Err(RunFolderError::Locked { .. }) if began.elapsed() < limit => sleep(LOCK_RETRY).await,
            Err(error) => return Err(error),
        }
    }
}

/// What the task that attends a worker holds.
pub struct Attendance {
    pub number: u32,
    pub process: WorkerProcess,
    pub connection: oneshot::Receiver<Talk>,
    pub orders: mpsc::UnboundedReceiver<Order>,
    pub happenings: mpsc::Sender<Happening>,
    /// How long it may go on without a connection before it is ended.
    pub patience: Duration,
}

/// Attends a worker until its process has ended, which is reported after all else.
pub async fn attend(attendance: Attendance) {
    let Attendance { number, process, connection, orders, happenings, patience } = attendance;
    let WorkerProcess { mut exit, kill, .. } = process;
    let mut talking = std::pin::pin!(attend_connection(number, connection, orders, &happenings));
    let how = tokio::select! {
        ended = &mut exit => {
            // Its last reports may still be on their way. One that never connected has none.
            let _ = timeout(DRAIN_LIMIT, &mut talking).await;
            words_of(ended)
        }
        lost = &mut talking => with_cause(words_of(end_of(&mut exit, &kill, patience).await), lost),
    };
    let _ = happenings.send(Happening::News { number, news: News::Gone(how) }).await;
}

/// The end of a process; it is ended if it does not end by itself.
async fn end_of(exit: &mut Exit, kill: &Notify, patience: Duration) -> Result<String, oneshot::error::RecvError> {
    match timeout(patience, &mut *exit).await {
        Ok(ended) => ended,
        Err(_) => {
            kill.notify_one();
            exit.await
        }
    }
}

fn words_of(exit: Result<String, oneshot::error::RecvError>) -> String {
    exit.map_or_else(|_| "the worker has ended".to_owned(), |how| format!("the worker {how}"))
}

fn with_cause(how: String, lost: Option<String>) -> String {
    match lost {
        Some(cause) => format!("{how} ({cause})"),
        None => how,
    }
}

/// Until the connection ends; what was wrong with it, if it did not end as it should.
async fn attend_connection(
    number: u32,
    connection: oneshot::Receiver<Talk>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    happenings: &mpsc::Sender<Happening>,
) -> Option<String> {
    let Talk { mut reader, mut writer } = match timeout(CONNECT_LIMIT, connection).await {
        Ok(Ok(talk)) => talk,
        Ok(Err(_)) => return Some("it was given up before it connected".to_owned()),
        Err(_) => return Some("it did not connect".to_owned()),
    };
    let writing = async {
        while let Some(order) = orders.recv().await {
            if write_line_async(&mut writer, &order).await.is_err() {
                break;
            }
        }
        // Only what it says tells how it stands.
        std::future::pending::<()>().await;
    };
    let reading = async {
        loop {
            let report = match next_report(&mut reader).await {
                Ok(Some(report)) => report,
                Ok(None) => return None,
                Err(error) => return Some(error.to_string()),
            };
            let is_last = matches!(report, Report::Left { .. } | Report::Finished { .. } | Report::Failed { .. });
            let news = News::Report(report);
            if happenings.send(Happening::News { number, news }).await.is_err() || is_last {
                return None;
            }
        }
    };
    tokio::select! {
        lost = reading => lost,
        () = writing => None,
    }
}

async fn next_report(reader: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Result<Option<Report>, LineError> {
    read_line_async(reader).await?.map(|line| decode(&line)).transpose()
}
