//! Going back in place: the later part is kept as a run beside, then taken out of this one.

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use super::TimelineError;
use super::new_run::NewRun;
use crate::checkpoint::{Checkpoint, CheckpointId, CheckpointStore, EMA_FILE, StoreError, Trashed};
use crate::durable::{parent_of, write_file_durably};
use crate::exit::Reason;
use crate::trainer::clock::unix_ms;
use crate::trainer::run_folder::{
    Parent, ResultsCsv, Rewind, RunFolder, RunFolderError, RunPaths, RunRecord, RunStatus, new_run_id,
};

/// What a rewind has done so far, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It stands in `run.json`.
    Announced,
    /// The later part is a run beside this one.
    Kept,
    /// One of the later checkpoints is out of this run.
    TakenOut,
    /// So are all, and rows and weights are those of the checkpoint.
    Cut,
    /// The new timeline stands in `run.json`.
    Done,
}

/// Called after each step; an error breaks the rewind off there, as a crash would.
type AfterEach<'a> = &'a mut dyn FnMut(Step) -> Result<(), TimelineError>;

/// Makes `to` the newest checkpoint of the run. What came later becomes the run `NAME-before-eN` beside it, whose
/// folder is given back; nothing is lost. Without anything later the timeline stays, and only rows and weights are cut
/// to `to`.
///
/// # Errors
/// When something cannot be read or written. It is then completed by [`complete_rewind`], unless not even `run.json`
/// could be written.
pub fn rewind_in_place(
    folder: &RunFolder,
    record: &mut RunRecord,
    to: &Checkpoint,
) -> Result<Option<PathBuf>, TimelineError> {
    rewind_stepwise(folder, record, to, &mut |_| Ok(()))
}

/// Does what is left of a rewind that was broken off; to be called at each start of a supervisor, before anything else
/// is done in the folder. Gives back the folder of the later part, if there was such a rewind.
///
/// # Errors
/// As of [`rewind_in_place`].
pub fn complete_rewind(folder: &RunFolder, record: &mut RunRecord) -> Result<Option<PathBuf>, TimelineError> {
    let Some(rewind) = record.rewind.clone() else { return Ok(None) };
    complete_stepwise(folder.paths(), record, &rewind, &mut |_| Ok(())).map(Some)
}

fn rewind_stepwise(
    folder: &RunFolder,
    record: &mut RunRecord,
    to: &Checkpoint,
    after_each: AfterEach,
) -> Result<Option<PathBuf>, TimelineError> {
    let paths = folder.paths();
    if later_than(paths, to.id())?.is_empty() && trashed_after(paths, to.id())?.is_empty() {
        cut(paths, to.id(), after_each)?;
        return Ok(None);
    }
    let name = format!("{}-before-e{}", paths.name(), to.id().epoch);
    let rewind = announce(paths, record, to.id().to_string(), &name)?;
    after_each(Step::Announced)?;
    complete_stepwise(paths, record, &rewind, after_each).map(Some)
}

/// Writes down what is about to be done, with a free name for the later part.
fn announce(paths: &RunPaths, record: &mut RunRecord, to: String, name: &str) -> Result<Rewind, TimelineError> {
    let rewind = Rewind { to, sibling: free_name(parent_of(paths.root()), name) };
    let announced = RunRecord { rewind: Some(rewind.clone()), ..record.clone() };
    announced.write(&paths.run_json())?;
    *record = announced;
    Ok(rewind)
}

fn complete_stepwise(
    paths: &RunPaths,
    record: &mut RunRecord,
    rewind: &Rewind,
    after_each: AfterEach,
) -> Result<PathBuf, TimelineError> {
    let to = checked_target(paths, rewind)?;
    let mut sibling = parent_of(paths.root()).join(&rewind.sibling);
    if !is_kept(&sibling, record, rewind) {
        // Somebody may have taken the name since it was free.
        if fs::symlink_metadata(&sibling).is_ok() {
            let again = announce(paths, record, rewind.to.clone(), &rewind.sibling)?;
            sibling.set_file_name(again.sibling);
        }
        keep_later_part(paths, record, to, &sibling)?;
    }
    after_each(Step::Kept)?;
    cut(paths, to, after_each)?;
    // Whatever had ended the later part has not ended this one.
    let (status, reason) = (RunStatus::Stopped, Some(Reason::Stopped.word().to_owned()));
    let done = RunRecord { timeline: record.timeline + 1, rewind: None, status, reason, ..record.clone() };
    done.write(&paths.run_json())?;
    *record = done;
    after_each(Step::Done)?;
    Ok(sibling)
}

/// The checkpoint that a rewind goes back to; names in a file never lead out of the folder.
fn checked_target(paths: &RunPaths, rewind: &Rewind) -> Result<CheckpointId, TimelineError> {
    let is_one_name = matches!(Path::new(&rewind.sibling).components().collect::<Vec<_>>()[..], [Component::Normal(_)]);
    rewind.to.parse().ok().filter(|_| is_one_name).ok_or_else(|| {
        let Rewind { to, sibling } = rewind.clone();
        TimelineError::ImpossibleRewind { path: paths.run_json(), to, sibling }
    })
}

/// Whether the folder is the later part of this very rewind; it has its name only when it is complete.
fn is_kept(sibling: &Path, record: &RunRecord, rewind: &Rewind) -> bool {
    let found = RunRecord::read(&RunPaths::of(sibling).run_json());
    found.is_ok_and(|found| {
        found.parent.is_some_and(|parent| parent.run_id == record.id && parent.checkpoint == rewind.to)
    })
}

/// Makes the run that keeps everything up to now, with the checkpoints after `to`.
fn keep_later_part(
    paths: &RunPaths,
    record: &RunRecord,
    to: CheckpointId,
    sibling: &Path,
) -> Result<(), TimelineError> {
    let new_run = NewRun::beside(sibling)?;
    let target = new_run.paths();
    for file in [
        RunPaths::args_yaml,
        RunPaths::results_csv,
        RunPaths::events_jsonl,
        RunPaths::last_weights,
        RunPaths::best_weights,
    ] {
        new_run.copy(&file(paths), &file(target))?;
    }
    for file in epoch_weights_after(paths, to) {
        new_run.copy(&file, &target.weights().join(file.file_name().unwrap_or_default()))?;
    }
    let store = CheckpointStore::of(target.root());
    for checkpoint in later_than(paths, to)? {
        new_run.take_in(&checkpoint)?;
        if checkpoint.is_pinned {
            store.pin(checkpoint.id())?;
        }
    }
    for trashed in trashed_after(paths, to)? {
        new_run.take_in_trash(&trashed.path, &trashed.name)?;
    }
    new_run.finish(&sibling_record(paths, record, to, sibling), sibling)?;
    Ok(())
}

fn sibling_record(paths: &RunPaths, record: &RunRecord, to: CheckpointId, sibling: &Path) -> RunRecord {
    let parent = Parent { run_id: record.id.clone(), run_name: paths.name(), checkpoint: to.to_string() };
    // A training that has finished has done so here.
    let (status, reason) = match record.status {
        RunStatus::Finished => (RunStatus::Finished, record.reason.clone()),
        RunStatus::Starting | RunStatus::Running | RunStatus::Paused | RunStatus::Stopped | RunStatus::Failed => {
            (RunStatus::Stopped, Some(Reason::Stopped.word().to_owned()))
        }
    };
    let now = unix_ms();
    let id = new_run_id(sibling, now, std::process::id());
    RunRecord { id, status, reason, created_unix_ms: now, parent: Some(parent), rewind: None, ..record.clone() }
}

/// Takes everything after `to` out of the run. Can be repeated.
fn cut(paths: &RunPaths, to: CheckpointId, after_each: AfterEach) -> Result<(), TimelineError> {
    let store = CheckpointStore::of(paths.root());
    // The newest first, so that what is left is always the beginning of the later part.
    for checkpoint in later_than(paths, to)?.iter().rev() {
        store.remove(checkpoint.id())?;
        after_each(Step::TakenOut)?;
    }
    for trashed in trashed_after(paths, to)? {
        fs::remove_dir_all(&trashed.path).map_err(|error| RunFolderError::io(&trashed.path, error))?;
    }
    for file in epoch_weights_after(paths, to) {
        fs::remove_file(&file).map_err(|error| RunFolderError::io(&file, error))?;
    }
    ResultsCsv::resume(&paths.results_csv(), to.epoch)?;
    set_weights(paths, &store)?;
    after_each(Step::Cut)
}

/// `last` from the newest checkpoint, `best` from the best one that is kept.
pub fn set_weights(paths: &RunPaths, store: &CheckpointStore) -> Result<(), TimelineError> {
    for (text, target) in [("last", paths.last_weights()), ("best", paths.best_weights())] {
        let checkpoint = match store.find(text).or_else(|_| store.find("last")) {
            Err(StoreError::Unknown { .. }) => return Ok(()),
            found => found?,
        };
        let source = checkpoint.path.join(EMA_FILE);
        match fs::read(&source) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(RunFolderError::io(&source, error).into()),
            Ok(bytes) => write_file_durably(&target, &bytes).map_err(|error| RunFolderError::io(&target, error))?,
        }
    }
    Ok(())
}

/// Weights that were kept by the number of an epoch after `to`.
fn epoch_weights_after(paths: &RunPaths, to: CheckpointId) -> Vec<PathBuf> {
    // A folder that cannot be read has none that could be moved.
    let entries = fs::read_dir(paths.weights()).into_iter().flatten().flatten();
    let is_later = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let epoch = name.strip_prefix("epoch").and_then(|rest| rest.strip_suffix(".safetensors"));
        epoch.and_then(|epoch| epoch.parse().ok()).is_some_and(|epoch: u32| epoch > to.epoch)
    };
    entries.map(|entry| entry.path()).filter(is_later).collect()
}

/// Checkpoints after `to`, the oldest first.
fn later_than(paths: &RunPaths, to: CheckpointId) -> Result<Vec<Checkpoint>, StoreError> {
    let all = CheckpointStore::of(paths.root()).list()?;
    Ok(all.into_iter().filter(|checkpoint| checkpoint.id() > to).collect())
}

/// Checkpoints after `to` that the user threw away, the oldest first.
fn trashed_after(paths: &RunPaths, to: CheckpointId) -> Result<Vec<Trashed>, StoreError> {
    let all = CheckpointStore::of(paths.root()).trash()?;
    Ok(all.into_iter().filter(|trashed| trashed.id > to).collect())
}

/// `name`, or `name-2`, `name-3` and so on where that is taken. A bare number behind it would read as another epoch.
fn free_name(project: &Path, name: &str) -> String {
    let numbered = (2u64..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    // The names have no end, so one is free.
    names.find(|name| fs::symlink_metadata(project.join(name)).is_err()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
