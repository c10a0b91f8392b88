//! Which checkpoints a run keeps by itself, and the removal of the others.

use serde::Serialize;

use super::id::CheckpointId;
use super::manifest::Grade;
use super::store::{Checkpoint, CheckpointStore, StoreError};

/// What is kept beside the pinned checkpoints and the newest full one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// So many of the newest.
    pub keep_last: usize,
    /// So many of the highest mAP50-95. If not 0, also the newest that was the best when it was saved.
    pub keep_best: usize,
    /// The states after every so many epochs; `None` keeps none for that reason.
    pub every: Option<u32>,
}

/// Why a checkpoint is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// Among the newest, or the newest that training can go on from.
    Last,
    /// Among the best.
    Best,
    /// At an epoch that is kept for being a multiple.
    Every,
    /// The user said so.
    Pinned,
}

/// What [`apply_retention`] removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removed {
    /// Oldest first.
    pub ids: Vec<CheckpointId>,
    pub bytes: u64,
}

impl RetentionPolicy {
    /// The last three, the best, and ten spread over a run of so many epochs.
    pub fn default_for(epochs: u32) -> Self {
        Self { keep_last: 3, keep_best: 1, every: Some(epochs.div_ceil(10).max(1)) }
    }
}

/// The checkpoints to keep, in the order given, each with its reasons; all others may go.
///
/// `checkpoints` are those of one run, oldest first.
pub fn keep(checkpoints: &[Checkpoint], policy: &RetentionPolicy) -> Vec<(CheckpointId, Vec<Why>)> {
    let last = last_ids(checkpoints, policy.keep_last);
    let best = best_ids(checkpoints, policy.keep_best);
    let is_due = |checkpoint: &Checkpoint| {
        checkpoint.manifest.about.is_epoch_end && policy.every.is_some_and(|n| checkpoint.id().epoch.is_multiple_of(n))
    };
    let reasons = |checkpoint: &Checkpoint| {
        let reasons = [
            (Why::Last, last.contains(&checkpoint.id())),
            (Why::Best, best.contains(&checkpoint.id())),
            (Why::Every, is_due(checkpoint)),
            (Why::Pinned, checkpoint.is_pinned),
        ];
        reasons.into_iter().filter_map(|(why, applies)| applies.then_some(why)).collect::<Vec<_>>()
    };
    let each = checkpoints.iter().map(|checkpoint| (checkpoint.id(), reasons(checkpoint)));
    each.filter(|(_, reasons)| !reasons.is_empty()).collect()
}

fn last_ids(checkpoints: &[Checkpoint], n: usize) -> Vec<CheckpointId> {
    checkpoints.iter().rev().take(n).chain(newest_full(checkpoints)).map(Checkpoint::id).collect()
}

fn best_ids(checkpoints: &[Checkpoint], n: usize) -> Vec<CheckpointId> {
    let newest_best = checkpoints.iter().rfind(|checkpoint| checkpoint.manifest.about.is_best).filter(|_| n > 0);
    by_fitness(checkpoints).into_iter().take(n).chain(newest_best).map(Checkpoint::id).collect()
}

/// Those with a fitness, the highest first; of equal ones the older.
pub(super) fn by_fitness(checkpoints: &[Checkpoint]) -> Vec<&Checkpoint> {
    let mut ranked: Vec<_> = checkpoints.iter().filter_map(|it| it.fitness().map(|fitness| (fitness, it))).collect();
    ranked.sort_by(|(a, older), (b, newer)| b.total_cmp(a).then(older.id().cmp(&newer.id())));
    ranked.into_iter().map(|(_, checkpoint)| checkpoint).collect()
}

/// The newest that training can go on from, of checkpoints with the oldest first.
pub(super) fn newest_full(checkpoints: &[Checkpoint]) -> Option<&Checkpoint> {
    checkpoints.iter().rfind(|checkpoint| checkpoint.grade() == Grade::Full)
}

/// Removes what `policy` does not keep, for good, once the newest full checkpoint has been verified. What is newer than
/// that stays; without a full checkpoint all do.
///
/// # Errors
/// [`StoreError::Damaged`] when the newest full one does not verify; nothing is removed then. Else a failure to read or
/// remove, after which some may be gone.
pub fn apply_retention(store: &CheckpointStore, policy: &RetentionPolicy) -> Result<Removed, StoreError> {
    let checkpoints = store.list()?;
    let Some(newest) = newest_full(&checkpoints) else { return Ok(Removed::default()) };
    let kept = keep(&checkpoints, policy);
    let may_go = |id: &CheckpointId| *id < newest.id() && kept.iter().all(|(kept, _)| kept != id);
    let going: Vec<_> = checkpoints.iter().map(Checkpoint::id).filter(may_go).collect();
    if !going.is_empty() {
        store.open_whole(newest.id())?;
    }
    let mut removed = Removed::default();
    for id in going {
        // Verifying takes a while, in which the user may have pinned one.
        if store.open(id).is_ok_and(|checkpoint| checkpoint.is_pinned) {
            continue;
        }
        removed.bytes += store.remove(id)?;
        removed.ids.push(id);
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::manifest::OPTIMIZER_FILE;
    use crate::checkpoint::store::fixture::{
        HARMS, draft, id, listed, run_dir, save_each, spoil, store_in, weights_draft,
    };

    const NOTHING: RetentionPolicy = RetentionPolicy { keep_last: 0, keep_best: 0, every: None };

    /// Full checkpoints after epochs 1, 2, 3, .. with these fitnesses, four batches each.
    fn epochs(fitnesses: &[f64]) -> Vec<Checkpoint> {
        let each = (1u32..).zip(fitnesses).map(|(epoch, fitness)| {
            let mut draft = draft(id(epoch, u64::from(epoch) * 4));
            draft.about.metrics.insert("mAP50-95".to_owned(), *fitness);
            listed(&draft, false)
        });
        each.collect()
    }

    fn kept_epochs(checkpoints: &[Checkpoint], policy: &RetentionPolicy) -> Vec<u32> {
        keep(checkpoints, policy).iter().map(|(id, _)| id.epoch).collect()
    }

    #[test]
    fn the_default_is_the_last_three_the_best_and_a_tenth() {
        let policy = RetentionPolicy::default_for(100);
        assert_eq!(policy, RetentionPolicy { keep_last: 3, keep_best: 1, every: Some(10) });
        assert_eq!(RetentionPolicy::default_for(101).every, Some(11));
        assert_eq!(RetentionPolicy::default_for(1).every, Some(1));
        assert_eq!(RetentionPolicy::default_for(0).every, Some(1));
    }

    #[test]
    fn each_rule_keeps_what_it_says() {
        let checkpoints = epochs(&[0.1, 0.6, 0.2, 0.6, 0.3, 0.5, 0.4]);
        for (policy, kept) in [
            (NOTHING, vec![7]),
            (RetentionPolicy { keep_last: 3, ..NOTHING }, vec![5, 6, 7]),
            (RetentionPolicy { keep_last: 99, ..NOTHING }, vec![1, 2, 3, 4, 5, 6, 7]),
            (RetentionPolicy { keep_best: 1, ..NOTHING }, vec![2, 7]),
            (RetentionPolicy { keep_best: 3, ..NOTHING }, vec![2, 4, 6, 7]),
            (RetentionPolicy { every: Some(3), ..NOTHING }, vec![3, 6, 7]),
            (RetentionPolicy { every: Some(0), ..NOTHING }, vec![7]),
            (RetentionPolicy { keep_last: 2, keep_best: 1, every: Some(3) }, vec![2, 3, 6, 7]),
        ] {
            assert_eq!(kept_epochs(&checkpoints, &policy), kept, "{policy:?}");
        }
    }

    #[test]
    fn all_reasons_are_given() {
        let mut checkpoints = epochs(&[0.1, 0.6]);
        checkpoints[1].is_pinned = true;
        let policy = RetentionPolicy { keep_last: 1, keep_best: 1, every: Some(2) };
        let all = vec![Why::Last, Why::Best, Why::Every, Why::Pinned];
        assert_eq!(keep(&checkpoints, &policy), [(id(2, 8), all)]);
    }

    #[test]
    fn a_pinned_one_is_kept_whatever_the_policy() {
        let mut checkpoints = epochs(&[0.1, 0.2, 0.3]);
        checkpoints[0].is_pinned = true;
        assert_eq!(keep(&checkpoints, &NOTHING)[0], (id(1, 4), vec![Why::Pinned]));
    }

    #[test]
    fn the_newest_full_one_is_kept_behind_newer_ones_of_weights_alone() {
        let mut checkpoints = epochs(&[0.1, 0.2]);
        checkpoints.push(listed(&weights_draft(id(3, 12)), false));
        assert_eq!(kept_epochs(&checkpoints, &RetentionPolicy { keep_last: 1, ..NOTHING }), [2, 3]);
    }

    #[test]
    fn the_newest_that_was_the_best_is_kept_also_without_figures() {
        let best_first = |is_best: bool| {
            let mut first = draft(id(1, 4));
            first.about.is_best = is_best;
            [listed(&first, false), listed(&draft(id(2, 8)), false)]
        };
        let policy = RetentionPolicy { keep_best: 1, ..NOTHING };
        assert_eq!(kept_epochs(&best_first(true), &policy), [1, 2]);
        assert_eq!(kept_epochs(&best_first(false), &policy), [2]);
        assert_eq!(kept_epochs(&best_first(true), &NOTHING), [2]);
    }

    #[test]
    fn a_state_inside_an_epoch_is_not_that_after_one() {
        let mut inside = draft(id(2, 9));
        inside.about.is_epoch_end = false;
        let checkpoints = [listed(&draft(id(2, 8)), false), listed(&inside, false), listed(&draft(id(3, 12)), false)];
        let kept = keep(&checkpoints, &RetentionPolicy { every: Some(2), ..NOTHING });
        assert_eq!(kept, [(id(2, 8), vec![Why::Every]), (id(3, 12), vec![Why::Last])]);
    }

    #[test]
    fn what_is_not_kept_is_removed_outright() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8), id(3, 12)]);
        store.pin(id(1, 4)).unwrap();
        let bytes = store.open(id(2, 8)).unwrap().bytes;
        let removed = apply_retention(&store, &NOTHING).unwrap();
        assert_eq!(removed, Removed { ids: vec![id(2, 8)], bytes });
        assert_eq!(store.list().unwrap().len(), 2);
        assert!(!store.trash_folder().exists());
        assert_eq!(apply_retention(&store, &NOTHING).unwrap(), Removed::default());
    }

    #[test]
    fn nothing_is_removed_when_the_newest_does_not_verify() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8), id(3, 12)]);
        spoil(&store.path_of(id(3, 12)).join(OPTIMIZER_FILE), HARMS[4].1);
        assert!(matches!(apply_retention(&store, &NOTHING), Err(StoreError::Damaged { .. })));
        assert_eq!(store.list().unwrap().len(), 3);
    }

    #[test]
    fn without_a_full_checkpoint_nothing_is_removed() {
        let dir = run_dir();
        let store = store_in(&dir);
        store.save(&weights_draft(id(1, 4))).unwrap();
        store.save(&weights_draft(id(2, 8))).unwrap();
        assert_eq!(apply_retention(&store, &NOTHING).unwrap(), Removed::default());
    }

    #[test]
    fn what_is_newer_than_the_verified_one_stays() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8)]);
        store.save(&weights_draft(id(3, 12))).unwrap();
        assert_eq!(apply_retention(&store, &NOTHING).unwrap().ids, [id(1, 4)]);
    }
}
