//! Where a training stood at a checkpoint.

use crate::checkpoint::Checkpoint;
use crate::trainer::event::{Position, TrainEvent};

/// Where a training stood at a checkpoint: as it reported when it saved, or, where that report was lost, as far as the
/// checkpoint's own figures tell. The number in the epoch then supposes that all epochs had the same length.
pub fn position_of(checkpoint: &Checkpoint, events: &[TrainEvent]) -> Position {
    let (id, name) = (checkpoint.id(), checkpoint.id().to_string());
    let about = &checkpoint.manifest.about;
    let reported = events.iter().rev().find_map(|event| match event {
        TrainEvent::CheckpointSaved { path, position, .. } => {
            Some(*position).filter(|_| path.file_name().is_some_and(|found| *found == *name))
        }
        _ => None,
    });
    let epoch = if about.is_epoch_end { id.epoch } else { id.epoch + 1 };
    let n_before = n_batches_per_epoch(events).unwrap_or(0) as u64 * u64::from(epoch.saturating_sub(1));
    reported.unwrap_or(Position {
        epoch,
        batch: id.n_batches.saturating_sub(n_before) as usize,
        n_batches: id.n_batches,
        step: about.step,
        is_epoch_done: about.is_epoch_end,
    })
}

fn n_batches_per_epoch(events: &[TrainEvent]) -> Option<usize> {
    events.iter().rev().find_map(|event| match event {
        TrainEvent::RunStarted { n_batches, .. } => Some(*n_batches),
        TrainEvent::Restored { n_batches_per_epoch, .. } => Some(*n_batches_per_epoch),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::timeline::fixture::{Run, position};
    use crate::trainer::run_folder::read_events;

    #[test]
    fn a_position_whose_report_was_lost_follows_from_the_checkpoint() {
        let run = Run::of_epochs(2);
        let inside = Position { epoch: 3, batch: 1, n_batches: 5, step: 5, is_epoch_done: false };
        run.save(inside);
        let events = read_events(&run.paths().events_jsonl()).unwrap().events;
        let newest = run.store().find("last").unwrap();
        assert_eq!(position_of(&newest, &events), inside);
        assert_eq!(position_of(&newest, &events[..1]), inside);
        assert_eq!(position_of(&run.checkpoint(2), &events[..1]), position(2));
    }
}
