//! `fermata resume`: goes on with a run, from its newest checkpoint or from an earlier one, in place or as a branch.
//!
//! Where a supervisor lives it is told; otherwise this process becomes it. Everything is checked before anything is
//! changed.

mod edits;
mod target;
mod words;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::ending::{Ending, Refusal};
use super::status::{show, state_words};
use super::supervisor::{connect, not_reached};
use super::train::Terminal;
use super::{print, train};
use crate::checkpoint::{Checkpoint, CheckpointStore, STATE_FILE};
use crate::exit::Reason;
use crate::run::client::{Client, ClientError};
use crate::run::find::{find_run, state_by};
use crate::run::machine::StateWord;
use crate::run::supervise::Sitting;
use crate::run::timeline::{TimelineError, branch, complete_rewind, rewind_in_place};
use crate::trainer::config::TrainConfig;
use crate::trainer::run_folder::{
    FileLock, RunFolder, RunPaths, RunRecord, read_args, read_rows, sweep_temporary_files,
};
use crate::trainer::snapshot::SavedState;
use target::{Place, Target};
use words::ResumeWords;

/// Beyond the grace time, how long a supervisor that was told to stop, or a worker without one, may hold the run.
const SAVING_MARGIN: Duration = Duration::from_secs(5);

/// What follows `resume` in the help.
pub const RESUME_HELP: &str = "\
RUN is a name under the project, an id, or a path. In any order with it:
  --from EPOCH|CKPT   go on from the state after this epoch, or from this checkpoint (an id, last, best)
  --branch NAME       as a new run; without it and without --in-place an earlier checkpoint becomes the branch NAME-eN
  --in-place          in the same run; what came later is kept as the run NAME-before-eN
  --detach            return once it is running
  --project DIR       the folder that holds the runs [default: runs]
  --json              print one JSON object where a living supervisor is told
  KEY=VALUE           settings to change, as of `fermata train`";

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The run, options and settings; see below.
    #[arg(value_name = "RUN", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl ResumeArgs {
    /// Whether help is asked for anywhere among the words.
    pub fn has_help(&self) -> bool {
        self.words.iter().any(|word| word == "--help" || word == "-h")
    }
}

pub fn run(args: &ResumeArgs) -> Result<Ending, Refusal> {
    let words = ResumeWords::read(&args.words)?;
    // An unknown key is refused before the run is looked for.
    words.edits.apply(TrainConfig::default())?;
    let paths = find_run(&words.run, &words.project)?;
    if words.is_plain()
        && FileLock::is_held(&paths.supervisor_lock())
        && let Some(ending) = tell_supervisor(&paths, words.is_json)?
    {
        return Ok(ending);
    }
    if words.detach {
        let command = std::iter::once("resume".to_owned()).chain(words.for_child(&args.words));
        return train::run_detached(command.map(OsString::from).collect());
    }
    let signals = train::catch_signals()?;
    let terminal = if words.is_detached_child { Terminal::LetGo } else { Terminal::Kept };
    train::run_sitting(sitting(&words, &paths)?, signals, terminal)
}

/// Has a living supervisor go on; `None` if it has just ended.
fn tell_supervisor(paths: &RunPaths, is_json: bool) -> Result<Option<Ending>, Refusal> {
    let mut client = match Client::connect(paths) {
        Err(ClientError::NobodyThere) => return Ok(None),
        client => client?,
    };
    let state = state_by(paths, client.resume()?);
    show(&state, is_json)?;
    if state.state == StateWord::Running.as_str() {
        return Ok(Some(Ending { reason: Reason::Finished, checkpoint: state.checkpoint }));
    }
    Err(not_reached(&state, "running"))
}

/// Decides where and with what to go on, and makes the run's folder ready for it.
///
/// # Errors
/// At the first thing that is wrong; the run is then as it was, but for a rewind that was completed and damaged
/// checkpoints that were set aside.
pub fn sitting(words: &ResumeWords, paths: &RunPaths) -> Result<Sitting, Refusal> {
    let is_held = FileLock::is_held(&paths.supervisor_lock());
    if !is_held {
        return take_over(words, paths);
    }
    let record = RunRecord::read(&paths.run_json())?;
    if let Some(target) = target::seen_from_outside(words, paths)? {
        if target.place != Place::Here {
            return begin_branch(words, paths, &record, &target);
        }
        // What is refused now is refused while the supervisor still stands by.
        checked_config(words, paths, &record, &target)?;
    }
    have_it_stop(paths)?;
    take_over(words, paths)
}

/// Ends a paused supervisor, since its run is to go on in another way. A running one is left alone.
fn have_it_stop(paths: &RunPaths) -> Result<(), Refusal> {
    let mut client = connect(paths)?;
    let state = client.status()?;
    if state.state != StateWord::Paused {
        let state = state_by(paths, state);
        let message = format!("run `{}` is {}; pause or stop it first", state.name, state_words(&state));
        return Err(Refusal::new(Reason::Locked, message));
    }
    client.stop()?;
    drop(FileLock::take_within(&paths.supervisor_lock(), saving_limit(paths))?);
    Ok(())
}

/// How long the run may still be held by somebody who ends.
fn saving_limit(paths: &RunPaths) -> Duration {
    let grace_s = read_args(paths).unwrap_or_default().grace;
    Duration::try_from_secs_f64(grace_s).unwrap_or_default() + SAVING_MARGIN
}

/// Holds the run and goes on in it, or with a branch of it.
fn take_over(words: &ResumeWords, paths: &RunPaths) -> Result<Sitting, Refusal> {
    let folder = RunFolder::open(paths.root())?;
    // A worker whose supervisor was killed may still be saving.
    let still_at_work = |_| {
        let message = format!(
            "a worker of run `{}` is still at work, though its supervisor is gone; wait for it, or end it: \
             `ps` shows it as `fermata worker`",
            paths.name()
        );
        Refusal::new(Reason::Locked, message)
    };
    drop(FileLock::take_within(&paths.run_lock(), saving_limit(paths)).map_err(still_at_work)?);
    sweep_temporary_files(paths)?;
    let mut record = RunRecord::read(&paths.run_json())?;
    // First of all, since a checkpoint whose removal was broken off would come back after the rewind that took it out.
    CheckpointStore::of(paths.root()).sweep()?;
    complete_rewind(&folder, &mut record)?;
    let Some(newest) = newest_good(paths)? else { return begin_anew(words, folder, record) };
    let target = Target::find(words, paths, newest)?;
    if let Place::Branch(_) = target.place {
        return begin_branch(words, paths, &record, &target);
    }
    let config = checked_config(words, paths, &record, &target)?;
    if let Some(sibling) = rewind_in_place_if_earlier(&folder, &mut record, &target)? {
        print::err(&format!("what came after {} is kept as {}", target.checkpoint.id(), sibling.display()));
    }
    record.seed = config.seed;
    print::err(&format!("going on from {} of {}", target.checkpoint.id(), paths.root().display()));
    let from = paths.checkpoints().join(target.checkpoint.id().to_string());
    Ok(Sitting { folder, record, config, from: Some(from), is_beginning: false })
}

fn rewind_in_place_if_earlier(
    folder: &RunFolder,
    record: &mut RunRecord,
    target: &Target,
) -> Result<Option<PathBuf>, TimelineError> {
    if target.is_newest { Ok(None) } else { rewind_in_place(folder, record, &target.checkpoint) }
}

/// The newest checkpoint that is whole. Says which ones were not.
fn newest_good(paths: &RunPaths) -> Result<Option<Checkpoint>, Refusal> {
    let recovery = CheckpointStore::of(paths.root()).newest_good()?;
    for set_aside in &recovery.set_aside {
        let lost = set_aside
            .n_batches_lost
            .map_or_else(|| "no older one is left".to_owned(), |n| format!("{n} batches have to be trained again"));
        let (id, damage, place) = (set_aside.id, &set_aside.damage, set_aside.moved_to.display());
        print::warning(&format!("checkpoint {id} is damaged ({damage}) and was set aside in {place}; {lost}"));
    }
    Ok(recovery.chosen)
}

/// A run without any checkpoint begins again with its settings, in the same folder.
fn begin_anew(words: &ResumeWords, folder: RunFolder, record: RunRecord) -> Result<Sitting, Refusal> {
    let name = folder.paths().name();
    if let Some(text) = words.from.as_ref().or(words.branch.as_ref()) {
        let message = format!("run `{name}` has no checkpoint that is whole, so `{text}` has nothing to go on from");
        return Err(Refusal::new(Reason::PathMissing, message));
    }
    if folder.paths().last_weights().exists() || !read_rows(&folder.paths().results_csv())?.is_empty() {
        let message = format!(
            "run `{name}` has results but no checkpoint that training could go on from; its weights can begin a new run: \
             fermata train model={}",
            folder.paths().last_weights().display()
        );
        return Err(Refusal::new(Reason::Contradiction, message));
    }
    let old = read_args(folder.paths())?;
    let mut config = words.edits.apply(old.clone())?;
    edits::refuse_other_folder(&old, &config)?;
    train::warn_if_rounded(config.check()?);
    print::warning(&format!("run `{name}` has no checkpoint to go on from and begins anew"));
    // Nothing is trained yet that another dataset would contradict.
    let record = RunRecord { seed: config.seed, dataset_fingerprint: None, ..record };
    Ok(Sitting { folder, record, config, from: None, is_beginning: true })
}

/// Makes the branch and goes on in it; the parent is only read.
fn begin_branch(
    words: &ResumeWords,
    parent: &RunPaths,
    parent_record: &RunRecord,
    target: &Target,
) -> Result<Sitting, Refusal> {
    let Place::Branch(name) = &target.place else {
        return Err(Refusal::new(Reason::Internal, "a branch without a name"));
    };
    let config = checked_config(words, parent, parent_record, target)?;
    let project = parent.root().parent().unwrap_or(Path::new("."));
    let folder = branch(parent, parent_record, &target.checkpoint, project, name, &config)?;
    let record = RunRecord::read(&folder.paths().run_json())?;
    let config = read_args(folder.paths())?;
    let (id, path) = (target.checkpoint.id(), folder.paths().root().display());
    print::err(&format!("going on from {id} of `{}` as the branch {path}", parent.name()));
    let from = folder.paths().checkpoints().join(id.to_string());
    Ok(Sitting { folder, record, config, from: Some(from), is_beginning: false })
}

/// The settings that a run was last in force with; where `args.yaml` cannot be used, those of the checkpoint.
fn settings_of(paths: &RunPaths, checkpoint: &Checkpoint) -> Result<TrainConfig, Refusal> {
    let unusable = match read_args(paths) {
        Ok(config) => return Ok(config),
        Err(error) => Refusal::from(error),
    };
    let files = CheckpointStore::of(paths.root()).read(checkpoint.id())?;
    let saved = files.get(STATE_FILE).and_then(|bytes| SavedState::read(bytes).ok());
    let Some(saved) = saved else { return Err(unusable) };
    print::warning(&format!("{}; the settings are taken from {}", unusable.message, checkpoint.id()));
    Ok(saved.settings)
}

/// The settings to go on with.
fn checked_config(
    words: &ResumeWords,
    paths: &RunPaths,
    record: &RunRecord,
    target: &Target,
) -> Result<TrainConfig, Refusal> {
    let old = settings_of(paths, &target.checkpoint)?;
    let mut config = words.edits.apply(old.clone())?;
    if config.data != old.data {
        config.data = std::path::absolute(&config.data).unwrap_or(config.data);
    }
    edits::check(&old, &config, &target.checkpoint)?;
    if let Place::Branch(name) = &target.place {
        config.name.clone_from(name);
    }
    train::warn_if_rounded(config.check_settings()?);
    edits::require_data(&config)?;
    target.refuse_if_done(&paths.name(), record, &old, &config)?;
    Ok(config)
}

impl From<TimelineError> for Refusal {
    fn from(error: TimelineError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

#[cfg(test)]
mod tests;
