//! What a user throws away: planned and shown first, then moved to the trash.

use std::path::PathBuf;

use serde::Serialize;
use thiserror::Error;

use super::id::CheckpointId;
use super::manifest::Grade;
use super::retention::{RetentionPolicy, keep, newest_full};
use super::store::{Checkpoint, CheckpointStore, StoreError};
use crate::exit::Reason;

/// What a user wants to be rid of: the named checkpoints, and all that a policy does not keep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PruneRequest {
    pub ids: Vec<CheckpointId>,
    /// `None`: the named ones alone.
    pub keep: Option<RetentionPolicy>,
}

/// What a prune would do. Nothing is changed before [`Self::apply`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrunePlan {
    /// Oldest first.
    pub checkpoints: Vec<Pruned>,
    /// Freed by the prune itself: none, since the trash lies on the same disk.
    pub bytes_now: u64,
    /// Of these checkpoints, freed when the trash is emptied after it.
    pub bytes_after_emptying: u64,
    /// What lies in the trash already, freed along with them.
    pub bytes_in_trash: u64,
}

/// A checkpoint that would go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Pruned {
    pub id: CheckpointId,
    pub epoch: u32,
    pub grade: Grade,
    pub bytes: u64,
}

/// A prune that is refused. No checkpoint was moved, but for [`PruneError::Store`] on the way.
#[derive(Debug, Error)]
pub enum PruneError {
    #[error("checkpoint {id} is pinned; unpin it first (`fermata checkpoints unpin RUN {id}`)")]
    Pinned { id: CheckpointId },
    #[error("checkpoint {id} is the newest that training can go on from, and is never pruned")]
    Newest { id: CheckpointId },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PruneError {
    /// What the process ends with when this ends it.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Pinned { .. } | Self::Newest { .. } => Reason::BadValue,
            Self::Store(error) => error.reason(),
        }
    }
}

impl PrunePlan {
    /// What the request comes to as the store is now.
    ///
    /// # Errors
    /// When a named checkpoint is not there, is pinned, or is the newest full one; or the store cannot be read. A
    /// policy never asks for a pinned one or the newest.
    pub fn of(store: &CheckpointStore, request: &PruneRequest) -> Result<Self, PruneError> {
        let checkpoints = store.list()?;
        for id in &request.ids {
            refuse_kept(store, &checkpoints, *id)?;
        }
        let kept = request.keep.map(|policy| keep(&checkpoints, &policy));
        let is_left_over = |id| kept.as_ref().is_some_and(|kept| kept.iter().all(|(kept, _)| *kept != id));
        let going = checkpoints.iter().filter(|it| request.ids.contains(&it.id()) || is_left_over(it.id()));
        let pruned: Vec<_> = going.map(Pruned::of).collect();
        Ok(Self {
            bytes_now: 0,
            bytes_after_emptying: pruned.iter().map(|pruned| pruned.bytes).sum(),
            bytes_in_trash: store.trash()?.iter().map(|trashed| trashed.bytes).sum(),
            checkpoints: pruned,
        })
    }

    /// Moves the checkpoints to the trash, once the newest full one has been verified, and says where they lie there.
    ///
    /// # Errors
    /// As [`Self::of`], since the store may have changed; and when the newest full one is damaged.
    pub fn apply(&self, store: &CheckpointStore) -> Result<Vec<PathBuf>, PruneError> {
        if self.checkpoints.is_empty() {
            return Ok(Vec::new());
        }
        let checkpoints = store.list()?;
        for pruned in &self.checkpoints {
            refuse_kept(store, &checkpoints, pruned.id)?;
        }
        if let Some(newest) = newest_full(&checkpoints) {
            store.open_whole(newest.id())?;
        }
        self.checkpoints.iter().map(|pruned| Ok(store.discard(pruned.id)?)).collect()
    }
}

impl Pruned {
    fn of(checkpoint: &Checkpoint) -> Self {
        let id = checkpoint.id();
        Self { id, epoch: id.epoch, grade: checkpoint.grade(), bytes: checkpoint.bytes }
    }
}

/// Refuses what is not there, pinned, or the newest full checkpoint.
fn refuse_kept(store: &CheckpointStore, checkpoints: &[Checkpoint], id: CheckpointId) -> Result<(), PruneError> {
    let Some(checkpoint) = checkpoints.iter().find(|checkpoint| checkpoint.id() == id) else {
        return Err(store.unknown(&id.to_string()).into());
    };
    if checkpoint.is_pinned {
        return Err(PruneError::Pinned { id });
    }
    if newest_full(checkpoints).is_some_and(|newest| newest.id() == id) {
        return Err(PruneError::Newest { id });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::manifest::WEIGHTS_FILE;
    use crate::checkpoint::store::fixture::{HARMS, id, run_dir, save_each, spoil, store_in};

    fn three_epochs(store: &CheckpointStore) {
        save_each(store, &[id(1, 4), id(2, 8), id(3, 12)]);
    }

    fn named(ids: &[CheckpointId]) -> PruneRequest {
        PruneRequest { ids: ids.to_vec(), keep: None }
    }

    #[test]
    fn the_plan_changes_nothing_and_comes_true() {
        let dir = run_dir();
        let store = store_in(&dir);
        three_epochs(&store);
        let before = store.list().unwrap();
        let plan = PrunePlan::of(&store, &named(&[id(2, 8), id(1, 4), id(2, 8)])).unwrap();
        assert_eq!(store.list().unwrap(), before);
        assert_eq!(plan.bytes_now, 0);
        let paths = plan.apply(&store).unwrap();
        assert_eq!(paths, ["e0001-b000004", "e0002-b000008"].map(|name| store.trash_folder().join(name)));
        assert_eq!(store.list().unwrap(), before[2..]);
        assert_eq!(store.empty_trash().unwrap(), plan.bytes_after_emptying);
    }

    #[test]
    fn what_lies_in_the_trash_already_is_told_apart() {
        let dir = run_dir();
        let store = store_in(&dir);
        three_epochs(&store);
        PrunePlan::of(&store, &named(&[id(1, 4)])).unwrap().apply(&store).unwrap();
        let plan = PrunePlan::of(&store, &named(&[id(2, 8)])).unwrap();
        assert_eq!(plan.bytes_in_trash, store.trash().unwrap()[0].bytes);
        assert_eq!(plan.bytes_after_emptying, store.open(id(2, 8)).unwrap().bytes);
    }

    #[test]
    fn a_policy_prunes_what_it_does_not_keep() {
        let dir = run_dir();
        let store = store_in(&dir);
        three_epochs(&store);
        save_each(&store, &[id(4, 16)]);
        store.pin(id(1, 4)).unwrap();
        let policy = RetentionPolicy { keep_last: 1, keep_best: 0, every: None };
        let ids_of = |plan: PrunePlan| plan.checkpoints.iter().map(|pruned| pruned.id).collect::<Vec<_>>();
        let plan = PrunePlan::of(&store, &PruneRequest { ids: vec![], keep: Some(policy) }).unwrap();
        assert_eq!(ids_of(plan), [id(2, 8), id(3, 12)], "neither the pinned nor the newest");
        let keep = Some(RetentionPolicy { keep_last: 3, ..policy });
        let plan = PrunePlan::of(&store, &PruneRequest { ids: vec![id(3, 12)], keep }).unwrap();
        assert_eq!(ids_of(plan), [id(3, 12)], "a named one goes although the policy keeps it");
    }

    #[test]
    fn a_pinned_one_is_refused_with_the_way_out() {
        let dir = run_dir();
        let store = store_in(&dir);
        three_epochs(&store);
        let plan = PrunePlan::of(&store, &named(&[id(1, 4)])).unwrap();
        store.pin(id(1, 4)).unwrap();
        for result in [PrunePlan::of(&store, &named(&[id(1, 4)])).map(|_| ()), plan.apply(&store).map(|_| ())] {
            let error = result.unwrap_err();
            assert!(error.to_string().contains("unpin"), "{error}");
            assert_eq!(error.reason(), Reason::BadValue);
        }
        assert_eq!(store.list().unwrap().len(), 3);
    }

    #[test]
    fn the_newest_full_one_is_refused() {
        let dir = run_dir();
        let store = store_in(&dir);
        three_epochs(&store);
        let result = PrunePlan::of(&store, &named(&[id(1, 4), id(3, 12)]));
        assert!(matches!(result, Err(PruneError::Newest { id: refused }) if refused == id(3, 12)));
    }

    #[test]
    fn one_that_is_not_there_is_refused() {
        let dir = run_dir();
        let store = store_in(&dir);
        three_epochs(&store);
        let error = PrunePlan::of(&store, &named(&[id(9, 36)])).unwrap_err();
        assert_eq!(error.reason(), Reason::PathMissing);
    }

    #[test]
    fn nothing_is_pruned_when_the_newest_does_not_verify() {
        let dir = run_dir();
        let store = store_in(&dir);
        three_epochs(&store);
        let plan = PrunePlan::of(&store, &named(&[id(1, 4)])).unwrap();
        spoil(&store.path_of(id(3, 12)).join(WEIGHTS_FILE), HARMS[4].1);
        assert!(matches!(plan.apply(&store), Err(PruneError::Store(StoreError::Damaged { .. }))));
        assert_eq!(store.list().unwrap().len(), 3);
    }

    #[test]
    fn an_empty_request_is_an_empty_plan() {
        let dir = run_dir();
        let store = store_in(&dir);
        three_epochs(&store);
        let plan = PrunePlan::of(&store, &PruneRequest::default()).unwrap();
        assert_eq!((plan.checkpoints.len(), plan.apply(&store).unwrap().len()), (0, 0));
    }

    #[test]
    fn the_plan_is_told_as_json() {
        let pruned = Pruned { id: id(1, 4), epoch: 1, grade: Grade::Full, bytes: 7 };
        let plan = PrunePlan { checkpoints: vec![pruned], bytes_now: 0, bytes_after_emptying: 7, bytes_in_trash: 2 };
        let json = serde_json::json!({
            "checkpoints": [{"id": "e0001-b000004", "epoch": 1, "grade": "full", "bytes": 7}],
            "bytes_now": 0, "bytes_after_emptying": 7, "bytes_in_trash": 2,
        });
        assert_eq!(serde_json::to_value(&plan).unwrap(), json);
    }
}
