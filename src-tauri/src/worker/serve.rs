//! The worker's side: takes orders from its supervisor, trains, and reports.
//!
//! All plain threads, since training is. One reads orders, one writes reports, so that training never waits for the
//! supervisor. When the supervisor is gone the worker saves and ends, by force once the grace time is over: no orphan holds
//! a device.

mod log_file;
mod orders;
mod panic_text;
mod reports;

use std::io::{self, BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use interprocess::local_socket::prelude::*;
use interprocess::local_socket::{GenericFilePath, Stream};

use super::line::{Hello, LineError, Role, read_line, write_line};
use super::protocol::Report;
use crate::exit::{ExitCode, Reason};
use crate::trainer::event::{Position, TrainEvent};
use crate::trainer::host::{DiskTrouble, Host, Prepared, StartPhase, Wish};
use crate::trainer::{TrainError, TrainOutcome, train};
use orders::Orders;
use reports::Reports;

/// How long a last report may take to be read.
const LAST_REPORT_LIMIT: Duration = Duration::from_secs(10);

/// Serves the supervisor that listens at `address` until the training has ended or the supervisor is gone.
pub fn serve(address: &str, token: &str) -> ExitCode {
    panic_text::remember();
    match connect(address, token) {
        Ok(stream) => serve_on(stream),
        Err(error) => {
            log_file::print(&format!("cannot reach the supervisor at `{address}`: {error}"));
            ExitCode::Internal
        }
    }
}

fn connect(address: &str, token: &str) -> Result<Stream, LineError> {
    let mut stream = Stream::connect(address.to_fs_name::<GenericFilePath>()?)?;
    write_line(&mut stream, &Hello::of_worker(token.to_owned()))?;
    Ok(stream)
}

fn serve_on(stream: Stream) -> ExitCode {
    let stream = Arc::new(stream);
    let mut receiver = BufReader::new(Half(stream.clone()));
    if let Err(error) = read_line(&mut receiver).and_then(|line| greeted(line.as_deref())) {
        log_file::print(&error.to_string());
        return ExitCode::Internal;
    }
    let orders = Orders::from(receiver);
    let reports = Reports::to(Half(stream));
    let Some(assignment) = orders.wait_for_assignment() else { return ExitCode::Internal };
    let mut worker = Worker { orders, reports: reports.clone(), position: Position::default() };
    // Nothing of the training is used after a panic.
    let outcome = catch_unwind(AssertUnwindSafe(|| train(&assignment, &mut worker)));
    let (last, code) = last_report(outcome, worker.position);
    reports.end(last, LAST_REPORT_LIMIT);
    code
}

/// One direction of a connection, for one thread.
struct Half(Arc<Stream>);

impl Read for Half {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(bytes)
    }
}

impl Write for Half {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.0).flush()
    }
}

fn greeted(line: Option<&[u8]>) -> Result<(), LineError> {
    let hello = Hello::from_line(line.ok_or(LineError::NoHello)?)?;
    if hello.role == Role::Supervisor { Ok(()) } else { Err(LineError::NoHello) }
}

type Caught = std::thread::Result<Result<TrainOutcome, TrainError>>;

/// What there is to say at the end, and the code to exit with.
fn last_report(outcome: Caught, position: Position) -> (Report, ExitCode) {
    match outcome {
        Ok(Ok(TrainOutcome::Finished { reason, best_epoch, time_s, checkpoint })) => {
            (Report::Finished { reason, best_epoch, time_s, checkpoint }, reason.code())
        }
        Ok(Ok(TrainOutcome::Left { position, checkpoint, size_bytes })) => {
            (Report::Left { position, checkpoint, size_bytes }, ExitCode::Finished)
        }
        Ok(Err(error)) => {
            log_file::print(&error.to_string());
            let reason = error.reason();
            (Report::Failed { reason, message: error.to_string() }, reason.code())
        }
        Err(_) => {
            let text = panic_text::last().unwrap_or_default();
            let reason = if panic_text::is_out_of_memory(&text) { Reason::OutOfMemory } else { Reason::Internal };
            let at = format!("epoch {}, batch {}", position.epoch, position.batch);
            let message = match reason {
                Reason::OutOfMemory => {
                    format!("the device's memory did not suffice after {at}; try a smaller batch= or imgsz= ({text})")
                }
                _ => format!("a fault of the program after {at}: {text}; logs/worker.log says more"),
            };
            (Report::Failed { reason, message }, reason.code())
        }
    }
}

/// The training's host: speaks to the supervisor.
struct Worker {
    orders: Arc<Orders>,
    reports: Reports,
    position: Position,
}

impl Host for Worker {
    fn phase(&mut self, phase: StartPhase) {
        crate::fault::reached("phase", phase as u64);
        self.reports.send(Report::Phase { phase });
    }

    fn prepared(&mut self, prepared: &Prepared) -> Result<(), TrainError> {
        self.position = prepared.position;
        self.reports.send(Report::Prepared(prepared.clone()));
        if self.orders.wait_for_train() { Ok(()) } else { Err(TrainError::HostGone) }
    }

    fn running(&mut self) {
        self.reports.send(Report::Running);
    }

    fn event(&mut self, event: &TrainEvent) {
        self.reports.send(Report::Event { event: event.clone() });
    }

    fn wish(&mut self, position: Position) -> Wish {
        self.position = position;
        self.reports.at(position);
        self.orders.wish()
    }

    fn hold(&mut self, position: Position, trouble: Option<DiskTrouble>) -> Wish {
        let is_in_trouble = trouble.is_some();
        let seen = self.orders.n_seen();
        self.reports.send(Report::Held { position, trouble });
        if is_in_trouble { self.orders.wait_for_another(seen) } else { self.orders.wait_while_held() }
    }
}
