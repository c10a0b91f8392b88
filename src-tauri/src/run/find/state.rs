//! How a run stands: the word of its supervisor, or what its files say where nobody is there.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::{FindError, position_of};
use crate::checkpoint::CheckpointStore;
use crate::run::client::Client;
use crate::run::protocol::StateReport;
use crate::trainer::event::{PauseDepth, PausedBy, Position, TrainEvent};
use crate::trainer::host::{DiskTrouble, StartPhase};
use crate::trainer::run_folder::{
    Accounting, FileLock, Parent, RunPaths, RunRecord, RunStatus, current_timeline, read_args, read_events,
};

/// How long a supervisor may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// How a run stands. The first ten fields are what `fermata status --json` begins with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunState {
    /// `starting`, `running`, `pausing`, `paused`, `resuming`, `stopping`, `stopped`, `finished` or `failed`.
    pub state: String,
    pub depth: Option<PauseDepth>,
    /// Why it ended: a word of [`crate::exit::Reason`], or `interrupted` where the supervisor was killed.
    pub reason: Option<String>,
    /// Epoch of the last batch trained, counted from 1; 0 before the first. As of the newest checkpoint where nobody is
    /// there.
    pub epoch: u32,
    /// Number of that batch in its epoch.
    pub batch: usize,
    /// Optimizer steps since the run began.
    pub step: u64,
    pub device: Option<String>,
    pub supervisor_pid: Option<u32>,
    pub worker_pid: Option<u32>,
    /// The newest.
    pub checkpoint: Option<PathBuf>,
    pub name: String,
    pub id: Option<String>,
    pub path: PathBuf,
    /// Number of epochs asked for.
    pub epochs: Option<u32>,
    /// Whose wish a pause is.
    pub by: Option<PausedBy>,
    /// What is being done before the first batch.
    pub phase: Option<StartPhase>,
    /// What else there is to say.
    pub message: Option<String>,
    /// The checkpoint that could not be written, for which it stands still.
    pub trouble: Option<DiskTrouble>,
    pub accounting: Accounting,
    pub timeline: u32,
    pub parent: Option<Parent>,
}

/// What can be learnt of the one who holds a run.
pub enum Holder {
    /// Nobody holds it; its files have the last word.
    Nobody,
    Answers(Box<StateReport>),
    /// The lock is held, but nobody answers.
    Silent,
}

/// Asks the supervisor of a run how it stands. Takes 2 s at most.
pub fn holder_of(paths: &RunPaths) -> Holder {
    if !FileLock::is_held(&paths.supervisor_lock()) {
        return Holder::Nobody;
    }
    let (tell, told) = mpsc::channel();
    let asked = paths.clone();
    // The thread ends with its answer, or with this process if that never comes.
    thread::spawn(move || {
        let answer = Client::connect(&asked).and_then(|mut client| client.status());
        // Nobody waits any more for an answer that comes too late.
        let _ = tell.send(answer);
    });
    match told.recv_timeout(ANSWER_LIMIT) {
        Ok(Ok(report)) => Holder::Answers(Box::new(report)),
        // It may have ended between the look at its lock and the question.
        Ok(Err(_)) | Err(_) if !FileLock::is_held(&paths.supervisor_lock()) => Holder::Nobody,
        Ok(Err(_)) | Err(_) => Holder::Silent,
    }
}

/// How a run stands now.
///
/// # Errors
/// When its files cannot be read.
pub fn state_of(paths: &RunPaths) -> Result<RunState, FindError> {
    let holder = holder_of(paths);
    // A supervisor writes the file some time after it holds the folder; before that there is nothing in it.
    let record = match (&holder, paths.run_json().exists()) {
        (Holder::Answers(_) | Holder::Silent, false) => None,
        _ => Some(RunRecord::read(&paths.run_json())?),
    };
    let state = blank(paths, record.as_ref());
    match holder {
        Holder::Answers(report) => Ok(answered(state, *report)),
        Holder::Silent => {
            let message = Some("the supervisor does not answer".to_owned());
            at_newest_checkpoint(paths, RunState { message, ..state })
        }
        Holder::Nobody => {
            let (word, reason) = record.as_ref().map_or((state.state.clone(), None), left_standing);
            at_newest_checkpoint(paths, RunState { state: word, reason, ..state })
        }
    }
}

/// How a run stands by what its supervisor has just said.
pub fn state_by(paths: &RunPaths, report: StateReport) -> RunState {
    // Without a readable file the supervisor's word is all there is.
    answered(blank(paths, RunRecord::read(&paths.run_json()).ok().as_ref()), report)
}

/// The state and reason of a run that nobody holds. One that its file calls active was broken off.
pub fn left_standing(record: &RunRecord) -> (String, Option<String>) {
    if record.status.is_active() {
        return (word(RunStatus::Failed).to_owned(), Some("interrupted".to_owned()));
    }
    (word(record.status).to_owned(), record.reason.clone())
}

pub fn word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Starting => "starting",
        RunStatus::Running => "running",
        RunStatus::Paused => "paused",
        RunStatus::Finished => "finished",
        RunStatus::Stopped => "stopped",
        RunStatus::Failed => "failed",
    }
}

/// What the small files say.
fn blank(paths: &RunPaths, record: Option<&RunRecord>) -> RunState {
    RunState {
        state: word(record.map_or(RunStatus::Starting, |record| record.status)).to_owned(),
        depth: None,
        reason: record.and_then(|record| record.reason.clone()),
        epoch: 0,
        batch: 0,
        step: 0,
        device: None,
        supervisor_pid: None,
        worker_pid: None,
        checkpoint: None,
        name: paths.name(),
        id: record.map(|record| record.id.clone()),
        path: paths.root().to_owned(),
        // A run without readable settings still has a state.
        epochs: read_args(paths).ok().map(|config| config.epochs),
        by: None,
        phase: None,
        message: None,
        trouble: None,
        accounting: record.map(|record| record.accounting).unwrap_or_default(),
        timeline: record.map_or(0, |record| record.timeline),
        parent: record.and_then(|record| record.parent.clone()),
    }
}

/// The supervisor's word in place of the files'.
fn answered(state: RunState, report: StateReport) -> RunState {
    RunState {
        state: report.state.as_str().to_owned(),
        depth: report.depth,
        reason: report.reason.map(|reason| reason.word().to_owned()),
        epoch: report.epoch,
        batch: report.batch,
        step: report.step,
        device: report.device,
        supervisor_pid: Some(report.supervisor_pid),
        worker_pid: report.worker_pid,
        checkpoint: report.checkpoint,
        epochs: Some(report.epochs),
        by: report.by,
        phase: report.phase,
        message: report.message,
        trouble: report.trouble,
        accounting: report.accounting,
        ..state
    }
}

/// With the position of the newest checkpoint, since that is where the run would go on.
fn at_newest_checkpoint(paths: &RunPaths, state: RunState) -> Result<RunState, FindError> {
    let events = if paths.events_jsonl().exists() { read_events(&paths.events_jsonl())?.events } else { Vec::new() };
    let device = events.iter().rev().find_map(|event| match event {
        TrainEvent::RunStarted { device, .. } | TrainEvent::Restored { device, .. } => Some(device.clone()),
        _ => None,
    });
    let state = RunState { device, ..state };
    let Some(newest) = CheckpointStore::of(paths.root()).list()?.pop() else { return Ok(state) };
    let Position { epoch, batch, step, .. } = position_of(&newest, &current_timeline(events));
    Ok(RunState { epoch, batch, step, checkpoint: Some(newest.path), ..state })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::timeline::fixture::Run;

    #[test]
    fn a_run_that_nobody_holds_stands_at_its_newest_checkpoint() {
        let run = Run::of_epochs(3);
        let state = state_of(run.paths()).unwrap();
        assert_eq!((state.state.as_str(), state.reason.as_deref()), ("stopped", Some("stopped")));
        assert_eq!((state.epoch, state.batch, state.step, state.epochs), (3, 2, 6, Some(10)));
        assert_eq!(state.device.as_deref(), Some("the processor"));
        assert_eq!(state.checkpoint, Some(run.checkpoint(3).path));
        assert_eq!((state.supervisor_pid, state.worker_pid), (None, None));
        assert_eq!(state.accounting.active_s, 12.5);
    }

    #[test]
    fn a_run_that_was_killed_is_failed_and_interrupted() {
        let run = Run::of_epochs(1);
        for status in [RunStatus::Starting, RunStatus::Running, RunStatus::Paused] {
            run.set_record(|record| (record.status, record.reason) = (status, None));
            let state = state_of(run.paths()).unwrap();
            assert_eq!((state.state.as_str(), state.reason.as_deref()), ("failed", Some("interrupted")));
        }
    }

    #[test]
    fn a_supervisor_that_does_not_answer_leaves_the_files_word() {
        let run = Run::of_epochs(2);
        run.set_record(|record| (record.status, record.reason) = (RunStatus::Running, None));
        let _held = run.open();
        let state = state_of(run.paths()).unwrap();
        assert_eq!((state.state.as_str(), state.reason), ("running", None));
        assert_eq!(state.message.as_deref(), Some("the supervisor does not answer"));
        assert_eq!((state.epoch, state.batch), (2, 2));
    }

    #[test]
    fn json_begins_with_the_documented_fields() {
        let run = Run::of_epochs(1);
        let json = serde_json::to_value(state_of(run.paths()).unwrap()).unwrap();
        let keys: Vec<_> = json.as_object().unwrap().keys().take(10).map(String::as_str).collect();
        let documented = [
            "state",
            "depth",
            "reason",
            "epoch",
            "batch",
            "step",
            "device",
            "supervisor_pid",
            "worker_pid",
            "checkpoint",
        ];
        assert_eq!(keys, documented);
    }
}
