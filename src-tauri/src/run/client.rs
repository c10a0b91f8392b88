//! What commands and windows call: asks the supervisor of a run, and waits for what was asked to be reached. Blocks.

use std::io::{self, BufReader, ErrorKind};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use interprocess::local_socket::prelude::*;
use interprocess::local_socket::{GenericFilePath, Stream};
use thiserror::Error;

use super::endpoint::{EndpointError, EndpointRecord};
use super::machine::StateWord;
use super::protocol::{Answer, Request, StateReport};
use crate::trainer::event::{PauseDepth, PausedBy};
use crate::trainer::run_folder::{FileLock, RunPaths};
use crate::worker::line::{Hello, LineError, Role, decode, read_line, write_line};

/// Supervisors that are watched say something each second; one that is silent for this long hangs.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// How long a supervisor that has just started may take to listen, and one that has ended to be gone.
const CHANGE_LIMIT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(20);

/// A supervisor could not be asked.
#[derive(Debug, Error)]
pub enum ClientError {
    #[error("no supervisor is there")]
    NobodyThere,
    #[error("the supervisor does not listen: {0}")]
    NotListening(#[source] EndpointError),
    #[error("the supervisor cannot be reached: {0}")]
    Unreachable(#[source] io::Error),
    #[error("the supervisor has not answered for {} s", SILENCE_LIMIT.as_secs())]
    Silent,
    #[error("the supervisor has died; the run can be resumed from its newest checkpoint")]
    Died,
    #[error(transparent)]
    Line(LineError),
    #[error("{message}")]
    Refused { message: String },
}

impl From<LineError> for ClientError {
    fn from(error: LineError) -> Self {
        match error {
            LineError::Io(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Self::Silent,
            LineError::Io(_) | LineError::CutShort => Self::Died,
            LineError::TooLong | LineError::NotUnderstood(_) | LineError::NoHello | LineError::OtherVersion { .. } => {
                Self::Line(error)
            }
        }
    }
}

/// A connection to the supervisor of a run.
#[derive(Debug)]
pub struct Client {
    paths: RunPaths,
    stream: BufReader<Stream>,
    /// Whether states come unasked, which are not to be taken for answers.
    is_watching: bool,
}

/// What a wait is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    Paused(PauseDepth),
    Running,
    Ended,
}

impl Client {
    /// # Errors
    /// [`ClientError::NobodyThere`] when nobody holds the run's lock; others when the one who does cannot be reached.
    pub fn connect(paths: &RunPaths) -> Result<Self, ClientError> {
        let began = Instant::now();
        loop {
            if !FileLock::is_held(&paths.supervisor_lock()) {
                return Err(ClientError::NobodyThere);
            }
            // It takes its lock a moment before it listens, and lets go of it a moment after.
            match Self::connect_once(paths) {
                Err(ClientError::NotListening(_) | ClientError::Unreachable(_) | ClientError::Died)
                    if began.elapsed() < CHANGE_LIMIT =>
                {
                    std::thread::sleep(RETRY);
                }
                connected => return connected,
            }
        }
    }

    fn connect_once(paths: &RunPaths) -> Result<Self, ClientError> {
        let endpoint = EndpointRecord::read(&paths.endpoint_json()).map_err(ClientError::NotListening)?;
        let name = endpoint.address.as_str().to_fs_name::<GenericFilePath>().map_err(ClientError::Unreachable)?;
        let stream = Stream::connect(name).map_err(ClientError::Unreachable)?;
        // Where the system has no such limit, a supervisor that hangs is waited for.
        let _ = stream.set_recv_timeout(Some(SILENCE_LIMIT));
        let mut client = Self { paths: paths.clone(), stream: BufReader::new(stream), is_watching: false };
        write_line(client.stream.get_mut(), &Hello::of(Role::Client))?;
        Hello::from_line(&read_line(&mut client.stream)?.ok_or(ClientError::Died)?)?;
        Ok(client)
    }

    /// How the run stands.
    ///
    /// # Errors
    /// When the supervisor dies, hangs, or is another version.
    pub fn status(&mut self) -> Result<StateReport, ClientError> {
        self.ask(Request::Status)
    }

    /// Pauses the run and waits until it is paused, or has ended, or somebody else has it go on; then the report's message
    /// says so.
    ///
    /// # Errors
    /// As [`Self::status`]; [`ClientError::Refused`] while the run is being stopped.
    pub fn pause(&mut self, depth: PauseDepth) -> Result<StateReport, ClientError> {
        self.ask_and_wait(Request::Pause { depth }, Goal::Paused(depth))
    }

    /// Has the run go on, and waits as [`Self::pause`] until it does.
    ///
    /// # Errors
    /// As [`Self::pause`].
    pub fn resume(&mut self) -> Result<StateReport, ClientError> {
        self.ask_and_wait(Request::Resume, Goal::Running)
    }

    /// Stops the run, and waits until it has ended and its supervisor is gone, or as [`Self::pause`].
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn stop(&mut self) -> Result<StateReport, ClientError> {
        self.ask_and_wait(Request::Stop { now: false }, Goal::Ended)
    }

    /// Ends the run at once, without saving, and waits as [`Self::stop`].
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn stop_now(&mut self) -> Result<StateReport, ClientError> {
        self.ask_and_wait(Request::Stop { now: true }, Goal::Ended)
    }

    /// Shows the state, each change of it and if asked each event, until told to stop, or the supervisor has ended as it
    /// should.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub fn watch(&mut self, events: bool, show: &mut dyn FnMut(&Answer) -> ControlFlow<()>) -> Result<(), ClientError> {
        self.send(Request::Watch { events })?;
        self.is_watching = true;
        let mut has_ended = false;
        loop {
            let answer = match self.next_answer() {
                Err(ClientError::Died) if has_ended => return Ok(()),
                answer => answer?,
            };
            if let Answer::State(report) = &answer {
                has_ended = report.state.is_end();
            }
            if show(&answer).is_break() {
                return Ok(());
            }
        }
    }

    fn ask(&mut self, request: Request) -> Result<StateReport, ClientError> {
        if self.is_watching {
            *self = Self::connect(&self.paths)?;
        }
        self.send(request)?;
        loop {
            match self.next_answer()? {
                Answer::State(report) => return Ok(*report),
                Answer::Refused { message } => return Err(ClientError::Refused { message }),
                Answer::Event { .. } => {}
            }
        }
    }

    fn ask_and_wait(&mut self, request: Request, goal: Goal) -> Result<StateReport, ClientError> {
        let mut report = self.ask(request)?;
        if !is_over(&report, goal) {
            // What changes meanwhile is in the first answer.
            self.watch(false, &mut |answer| match answer {
                Answer::State(now) => {
                    report.clone_from(now);
                    if is_over(&report, goal) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }
                Answer::Event { .. } | Answer::Refused { .. } => ControlFlow::Continue(()),
            })?;
        }
        if report.state.is_end() {
            self.wait_until_gone();
        }
        if !is_reached(&report, goal) {
            report.message = Some(why_not(&report));
        }
        Ok(report)
    }

    /// Where the supervisor has closed, what it said last is still there to be read, and then its end.
    fn send(&mut self, request: Request) -> Result<(), ClientError> {
        match write_line(self.stream.get_mut(), &request) {
            Ok(()) | Err(LineError::Io(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// So that whoever has stopped a run can take it up again at once.
    fn wait_until_gone(&self) {
        let began = Instant::now();
        while FileLock::is_held(&self.paths.supervisor_lock()) && began.elapsed() < CHANGE_LIMIT {
            std::thread::sleep(RETRY);
        }
    }

    fn next_answer(&mut self) -> Result<Answer, ClientError> {
        Ok(decode(&read_line(&mut self.stream)?.ok_or(ClientError::Died)?)?)
    }
}

/// Whether what was asked for is as it should be. Giving the device back is more than a hold.
fn is_reached(report: &StateReport, goal: Goal) -> bool {
    match goal {
        Goal::Paused(PauseDepth::Hold) => report.state == StateWord::Paused,
        Goal::Paused(PauseDepth::Free) => report.state == StateWord::Paused && report.depth == Some(PauseDepth::Free),
        Goal::Running => report.state == StateWord::Running,
        Goal::Ended => report.state.is_end(),
    }
}

/// Whether there is nothing more to wait for: it is reached, the run has ended, or it has gone another way.
fn is_over(report: &StateReport, goal: Goal) -> bool {
    is_reached(report, goal)
        || match (report.state, goal) {
            (StateWord::Stopped | StateWord::Finished | StateWord::Failed, _) => true,
            (StateWord::Stopping, _) => false,
            (StateWord::Pausing, Goal::Paused(_)) => false,
            (StateWord::Pausing, Goal::Running | Goal::Ended) => true,
            (StateWord::Paused, _) => true,
            (StateWord::Starting | StateWord::Resuming, Goal::Running) => false,
            (StateWord::Starting | StateWord::Resuming, Goal::Paused(_) | Goal::Ended) => true,
            (StateWord::Running, _) => true,
        }
}

fn why_not(report: &StateReport) -> String {
    match (report.state, report.by, &report.message) {
        (StateWord::Stopped | StateWord::Finished | StateWord::Failed, _, Some(message)) => message.clone(),
        (StateWord::Stopped | StateWord::Finished | StateWord::Failed, _, None) => {
            format!("the run is {} meanwhile", report.state.as_str())
        }
        (StateWord::Paused, Some(PausedBy::Disk), Some(message)) => message.clone(),
        (state, _, _) => format!("another command came meanwhile; the run is {}", state.as_str()),
    }
}

#[cfg(test)]
mod tests;
