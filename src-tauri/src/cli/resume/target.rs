//! From which checkpoint a run goes on, and where.

use super::words::ResumeWords;
use crate::checkpoint::{Checkpoint, CheckpointStore, Grade};
use crate::cli::ending::Refusal;
use crate::exit::Reason;
use crate::trainer::config::TrainConfig;
use crate::trainer::run_folder::{RunPaths, RunRecord, RunStatus};

/// A whole checkpoint, and the run that goes on from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub checkpoint: Checkpoint,
    /// Nothing of the run comes after it.
    pub is_newest: bool,
    pub place: Place,
}

/// Which run goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Here,
    /// A new run of this name.
    Branch(String),
}

impl Target {
    /// What the words name, in a run whose newest good checkpoint is `newest`.
    ///
    /// # Errors
    /// When there is no such checkpoint, or training cannot go on from it.
    pub fn find(words: &ResumeWords, paths: &RunPaths, newest: Checkpoint) -> Result<Self, Refusal> {
        let (newest_id, store) = (newest.id(), CheckpointStore::of(paths.root()));
        let checkpoint = match &words.from {
            None => newest,
            Some(text) => store.open_whole(store.find(text)?.id())?,
        };
        let id = checkpoint.id();
        if checkpoint.grade() != Grade::Full {
            let message = format!("checkpoint {id} holds only the model, so training cannot go on from it");
            return Err(Refusal::new(Reason::Contradiction, message));
        }
        let is_newest = id >= newest_id;
        let place = match &words.branch {
            Some(name) => Place::Branch(name.clone()),
            None if words.in_place || is_newest => Place::Here,
            None => Place::Branch(format!("{}-e{}", paths.name(), id.epoch)),
        };
        Ok(Self { checkpoint, is_newest, place })
    }

    /// Refuses to go on where nothing is left to do.
    ///
    /// # Errors
    /// When the epochs are trained, or patience would end the run at once.
    pub fn refuse_if_done(
        &self,
        name: &str,
        record: &RunRecord,
        old: &TrainConfig,
        config: &TrainConfig,
    ) -> Result<(), Refusal> {
        let epoch = self.checkpoint.id().epoch;
        let refuse = |message| Err(Refusal::new(Reason::Contradiction, message));
        // One that was killed after its last checkpoint still has to be told finished.
        let is_untold = self.is_newest && record.status != RunStatus::Finished;
        if epoch >= config.epochs && !is_untold {
            let message =
                format!("run `{name}` has trained its {epoch} epochs; to extend it, give a larger number: epochs=");
            return refuse(message);
        }
        let ended_by_patience =
            record.status == RunStatus::Finished && record.reason.as_deref() == Some(Reason::Patience.word());
        let waits_longer = config.patience == 0 || config.patience > old.patience || config.epochs > old.epochs;
        if self.is_newest && ended_by_patience && !waits_longer {
            let message = format!(
                "run `{name}` ended after epoch {epoch}, since it had not become better for {} epochs; to go on, give patience=0, \
                 a larger patience=, or more epochs=",
                old.patience
            );
            return refuse(message);
        }
        Ok(())
    }
}

/// What the words name in a run that another process holds, as far as it has saved. `None` if it has not saved yet.
///
/// # Errors
/// As of [`Target::find`], and when a named checkpoint or a branch has nothing to begin with.
pub fn seen_from_outside(words: &ResumeWords, paths: &RunPaths) -> Result<Option<Target>, Refusal> {
    let store = CheckpointStore::of(paths.root());
    let newest_full = store.list()?.into_iter().rfind(|checkpoint| checkpoint.grade() == Grade::Full);
    let Some(newest) = newest_full else {
        let what = words.branch.as_ref().or(words.from.as_ref());
        return what.map_or(Ok(None), |text| {
            let message =
                format!("run `{}` has no checkpoint yet, so `{text}` has nothing to go on from", paths.name());
            Err(Refusal::new(Reason::PathMissing, message))
        });
    };
    let target = Target::find(words, paths, newest)?;
    if target.place != Place::Here && words.from.is_none() {
        // Nothing was named, so nothing was verified yet.
        store.open_whole(target.checkpoint.id())?;
    }
    Ok(Some(target))
}
