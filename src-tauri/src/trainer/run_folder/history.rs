//! What of a run's events counts after it went back to an earlier checkpoint.

use crate::trainer::event::{Position, TrainEvent};

/// The events of the present timeline: each `restored` takes back the results above it that lie behind its position.
/// What happened to the run itself (pauses, warnings, endings) stays, so each batch and each epoch comes once.
pub fn current_timeline(events: Vec<TrainEvent>) -> Vec<TrainEvent> {
    let mut current = Vec::with_capacity(events.len());
    for event in events {
        match &event {
            TrainEvent::Restored { position, .. } => current.retain(|earlier| !lies_behind(earlier, position)),
            // Without any checkpoint a run begins once more.
            TrainEvent::RunStarted { .. } => current.retain(|earlier| !lies_behind(earlier, &Position::default())),
            _ => {}
        }
        current.push(event);
    }
    current
}

/// The part of [`current_timeline`] that leads to `position`: its results up to there, and what happened to the run
/// before the first later one. A checkpoint may be reported after later batches, so results are told by their own
/// position.
pub fn events_up_to(events: Vec<TrainEvent>, position: &Position) -> Vec<TrainEvent> {
    let mut is_before = true;
    let mut leads_there = |event: &TrainEvent| {
        let is_behind = lies_behind(event, position);
        is_before &= !is_behind;
        !is_behind && (is_before || is_result(event))
    };
    current_timeline(events).into_iter().filter(|event| leads_there(event)).collect()
}

/// Whether a result comes after `position`.
fn lies_behind(event: &TrainEvent, position: &Position) -> bool {
    match event {
        TrainEvent::EpochStarted { epoch } => *epoch > position.epoch,
        TrainEvent::Batch { epoch, batch, .. } | TrainEvent::Samples { epoch, batch, .. } => {
            (*epoch, *batch) > (position.epoch, position.batch)
        }
        TrainEvent::Validated { epoch, .. } => *epoch > position.epochs_done(),
        TrainEvent::EpochFinished(results) => results.epoch > position.epochs_done(),
        TrainEvent::CheckpointSaved { position: saved, .. } => {
            (saved.n_batches, saved.is_epoch_done) > (position.n_batches, position.is_epoch_done)
        }
        // A change at a position counts for what comes after it, and is told again when it is still in force.
        TrainEvent::Edited { position: edited, .. } => edited.n_batches >= position.n_batches,
        TrainEvent::RunStarted { .. }
        | TrainEvent::Restored { .. }
        | TrainEvent::Paused { .. }
        | TrainEvent::Resumed { .. }
        | TrainEvent::Warning { .. }
        | TrainEvent::Finished { .. }
        | TrainEvent::Stopped { .. }
        | TrainEvent::Failed { .. } => false,
    }
}

/// Whether an event belongs to a timeline, and is not something that happened to the run.
fn is_result(event: &TrainEvent) -> bool {
    match event {
        TrainEvent::Edited { .. }
        | TrainEvent::EpochStarted { .. }
        | TrainEvent::Batch { .. }
        | TrainEvent::Samples { .. }
        | TrainEvent::Validated { .. }
        | TrainEvent::EpochFinished(_)
        | TrainEvent::CheckpointSaved { .. } => true,
        TrainEvent::RunStarted { .. }
        | TrainEvent::Restored { .. }
        | TrainEvent::Paused { .. }
        | TrainEvent::Resumed { .. }
        | TrainEvent::Warning { .. }
        | TrainEvent::Finished { .. }
        | TrainEvent::Stopped { .. }
        | TrainEvent::Failed { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::event::{EpochResults, LearningRates, Losses, ValScores};

    const N_BATCHES: usize = 2;

    fn at(epoch: u32, batch: usize, is_epoch_done: bool) -> Position {
        let n_batches = u64::from(epoch.max(1) - 1) * N_BATCHES as u64 + batch as u64;
        Position { epoch, batch, n_batches, step: n_batches, is_epoch_done }
    }

    fn batch(epoch: u32, batch: usize) -> TrainEvent {
        let (losses, lr) = (Losses::default(), LearningRates::default());
        TrainEvent::Batch { epoch, batch, n_batches: N_BATCHES, step: 1, losses, lr, images_per_s: 1.0 }
    }

    fn saved(position: Position) -> TrainEvent {
        let path = format!("checkpoints/e{:04}-b{:06}", position.epochs_done(), position.n_batches).into();
        TrainEvent::CheckpointSaved { path, position, is_best: false, size_bytes: 1, stall_s: 0.0, write_s: 0.0 }
    }

    fn restored(position: Position) -> TrainEvent {
        let device = "cpu".to_owned();
        TrainEvent::Restored {
            checkpoint: "c".into(),
            position,
            device,
            epochs: 9,
            n_batches_per_epoch: N_BATCHES,
            at_unix_ms: 1,
        }
    }

    fn epoch(epoch: u32) -> Vec<TrainEvent> {
        let lr = LearningRates::default();
        let results = EpochResults { epoch, time_s: 1.0, train: Losses::default(), val: None, lr };
        vec![
            TrainEvent::EpochStarted { epoch },
            batch(epoch, 1),
            batch(epoch, 2),
            TrainEvent::Validated { epoch, scores: ValScores::default(), classes: vec![] },
            TrainEvent::EpochFinished(results),
            saved(at(epoch, 2, true)),
        ]
    }

    fn warning() -> TrainEvent {
        TrainEvent::Warning { code: "image_unreadable".into(), message: "a.jpg".into() }
    }

    #[test]
    fn what_lies_behind_a_restored_checkpoint_comes_once() {
        let mut events = [epoch(1), epoch(2), vec![warning()], epoch(3)].concat();
        events.push(restored(at(1, 2, true)));
        events.extend(epoch(2));
        let expected = [epoch(1), vec![warning(), restored(at(1, 2, true))], epoch(2)].concat();
        assert_eq!(current_timeline(events), expected);
    }

    #[test]
    fn a_checkpoint_inside_an_epoch_keeps_its_batches_and_start() {
        let mut events = epoch(1);
        events.extend([restored(at(1, 1, false)), batch(1, 2)]);
        let expected = [TrainEvent::EpochStarted { epoch: 1 }, batch(1, 1), restored(at(1, 1, false)), batch(1, 2)];
        assert_eq!(current_timeline(events), expected);
    }

    #[test]
    fn an_epoch_without_its_validation_is_not_finished() {
        let mut events = epoch(1);
        events.push(restored(at(1, 2, false)));
        let expected = [TrainEvent::EpochStarted { epoch: 1 }, batch(1, 1), batch(1, 2), restored(at(1, 2, false))];
        assert_eq!(current_timeline(events), expected);
    }

    #[test]
    fn an_edit_at_the_checkpoint_is_told_again_and_an_earlier_one_stays() {
        let edited = |position| TrainEvent::Edited { key: "lr0".into(), old: "1".into(), new: "2".into(), position };
        let (first, second) = (at(1, 2, true), at(2, 2, true));
        let mut events = [epoch(1), vec![edited(first)], epoch(2), vec![edited(second)]].concat();
        events.extend([restored(second), edited(second)]);
        let expected = [epoch(1), vec![edited(first)], epoch(2), vec![restored(second), edited(second)]].concat();
        assert_eq!(current_timeline(events), expected);
    }

    #[test]
    fn a_restart_from_the_beginning_takes_all_results_back() {
        let mut events = [epoch(1), vec![warning()]].concat();
        events.push(restored(Position::default()));
        assert_eq!(current_timeline(events), [warning(), restored(Position::default())]);
    }

    #[test]
    fn events_up_to_a_checkpoint_keep_its_late_report_and_no_later_trouble() {
        let first = epoch(1);
        let mut events = first[..5].to_vec();
        events.extend([warning(), TrainEvent::EpochStarted { epoch: 2 }, batch(2, 1), first[5].clone(), warning()]);
        let expected = [first[..5].to_vec(), vec![warning(), first[5].clone()]].concat();
        assert_eq!(events_up_to(events, &at(1, 2, true)), expected);
    }
}
