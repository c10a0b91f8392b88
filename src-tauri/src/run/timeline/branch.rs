//! A new run that begins with a checkpoint of another.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::TimelineError;
use super::new_run::NewRun;
use super::rewind::set_weights;
use crate::checkpoint::{Checkpoint, CheckpointStore};
use crate::exit::Reason;
use crate::run::find::position_of;
use crate::trainer::clock::unix_ms;
use crate::trainer::config::TrainConfig;
use crate::trainer::run_folder::{
    Accounting, EventLog, Parent, ResultsCsv, RunFolder, RunFolderError, RunPaths, RunRecord, RunStatus, events_up_to,
    new_run_id, read_events,
};

/// Makes the run `project/name` (`name-2`, `name-3` and so on where that is taken) out of everything in `parent` up to
/// the checkpoint `from`, with the settings of `config` under the new name, and takes its lock. The parent is only
/// read.
///
/// # Errors
/// When something cannot be read or written; there is no new run then.
pub fn branch(
    parent: &RunPaths,
    parent_record: &RunRecord,
    from: &Checkpoint,
    project: &Path,
    name: &str,
    config: &TrainConfig,
) -> Result<RunFolder, TimelineError> {
    let path = claim_name(project, name)?;
    let filled = fill(parent, parent_record, from, &path, config);
    if filled.is_err() {
        // Empty still, and if it cannot go it is only a name that is taken.
        let _ = fs::remove_dir(&path);
    }
    filled?;
    Ok(RunFolder::open(&path)?)
}

fn fill(
    parent: &RunPaths,
    parent_record: &RunRecord,
    from: &Checkpoint,
    path: &Path,
    config: &TrainConfig,
) -> Result<(), TimelineError> {
    let new_run = NewRun::beside(path)?;
    let paths = new_run.paths();
    new_run.take_in(from)?;
    set_weights(paths, &CheckpointStore::of(paths.root()))?;
    RunFolder::open(paths.root())?.write_args(&own_config(path, config))?;
    new_run.copy(&parent.results_csv(), &paths.results_csv())?;
    ResultsCsv::resume(&paths.results_csv(), from.id().epoch)?;
    copy_events(parent, from, paths)?;
    Ok(new_run.finish(&own_record(parent, parent_record, from, path, config), path)?)
}

/// The settings, with the names that the folder has.
fn own_config(path: &Path, config: &TrainConfig) -> TrainConfig {
    let project = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    TrainConfig { project, name: RunPaths::of(path).name(), exist_ok: false, ..config.clone() }
}

fn own_record(
    parent: &RunPaths,
    parent_record: &RunRecord,
    from: &Checkpoint,
    path: &Path,
    config: &TrainConfig,
) -> RunRecord {
    let now = unix_ms();
    RunRecord {
        id: new_run_id(path, now, std::process::id()),
        status: RunStatus::Stopped,
        reason: Some(Reason::Stopped.word().to_owned()),
        created_unix_ms: now,
        seed: config.seed,
        parent: Some(Parent {
            run_id: parent_record.id.clone(),
            run_name: parent.name(),
            checkpoint: from.id().to_string(),
        }),
        timeline: 0,
        rewind: None,
        accounting: Accounting::default(),
        ..parent_record.clone()
    }
}

fn copy_events(parent: &RunPaths, from: &Checkpoint, paths: &RunPaths) -> Result<(), RunFolderError> {
    let source = parent.events_jsonl();
    if !source.exists() {
        return Ok(());
    }
    let events = read_events(&source)?.events;
    let position = position_of(from, &events);
    let mut log = EventLog::open(&paths.events_jsonl())?;
    events_up_to(events, &position).iter().try_for_each(|event| log.append(event))?;
    log.sync()
}

/// Makes the empty folder of this name, or of the first that is free. Making it decides, so no two branches meet.
fn claim_name(project: &Path, name: &str) -> Result<PathBuf, RunFolderError> {
    let fault = |path: &Path, source| RunFolderError::CannotCreate { path: path.to_owned(), source };
    fs::create_dir_all(project).map_err(|error| fault(project, error))?;
    let mut number = 1u64;
    loop {
        let path = if number == 1 { project.join(name) } else { project.join(format!("{name}-{number}")) };
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(fault(&path, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::timeline::fixture::{Run, epochs_in, ids};
    use crate::trainer::event::TrainEvent;
    use crate::trainer::run_folder::read_args;

    #[test]
    fn a_branch_holds_all_up_to_its_checkpoint_and_leaves_the_parent_alone() {
        let run = Run::of_epochs(5);
        let before = run.snapshot();
        let config = TrainConfig { lr0: 0.5, ..run.config() };
        let folder = branch(run.paths(), &run.record(), &run.checkpoint(3), run.project(), "other", &config).unwrap();
        let paths = folder.paths();
        assert_eq!(paths.name(), "other");
        assert_eq!(ids(paths), ["e0003-b000006"]);
        assert_eq!(epochs_in(&paths.results_csv()), [1, 2, 3]);
        let args = read_args(paths).unwrap();
        assert_eq!((args.name.as_str(), args.lr0, args.exist_ok), ("other", 0.5, false));
        let record = RunRecord::read(&paths.run_json()).unwrap();
        assert_eq!(record.parent.unwrap().checkpoint, "e0003-b000006");
        assert_ne!(record.id, run.record().id);
        let events = read_events(&paths.events_jsonl()).unwrap().events;
        assert_eq!(events.iter().filter(|event| matches!(event, TrainEvent::EpochFinished(_))).count(), 3);
        let ema = fs::read(run.checkpoint(3).path.join("ema.safetensors")).unwrap();
        assert_eq!(fs::read(paths.last_weights()).unwrap(), ema);
        assert_eq!(fs::read(paths.best_weights()).unwrap(), ema);
        assert_eq!(run.snapshot(), before, "the parent is as it was");
        assert!(!CheckpointStore::of(paths.root()).list().unwrap()[0].is_pinned);
    }

    #[test]
    fn a_taken_name_is_numbered_with_a_dash() {
        let run = Run::of_epochs(2);
        let make = || {
            let (from, config) = (run.checkpoint(1), run.config());
            branch(run.paths(), &run.record(), &from, run.project(), "exp-e1", &config).unwrap().paths().name()
        };
        assert_eq!([make(), make(), make()], ["exp-e1", "exp-e1-2", "exp-e1-3"]);
    }

    #[test]
    fn a_branch_that_cannot_be_made_leaves_nothing() {
        let run = Run::of_epochs(2);
        let from = run.checkpoint(1);
        fs::remove_file(from.path.join("optimizer.safetensors")).unwrap();
        assert!(branch(run.paths(), &run.record(), &from, run.project(), "b", &run.config()).is_err());
        assert_eq!(run.names(), ["exp"]);
    }
}
