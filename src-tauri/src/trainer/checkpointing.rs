//! When a checkpoint is taken, and what happens when the disk does not take it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::data::TrainData;
use super::event::{Position, TrainEvent};
use super::host::Wish;
use super::record::{Record, versions};
use super::run_folder::RunPaths;
use super::saver::{Done, Job, Purpose, Saver};
use super::snapshot::{Edit, Snapshot, Surroundings};
use super::start::{Origin, Start};
use super::state::TrainState;
use super::{Assignment, TrainError, TrainOutcome};
use crate::checkpoint::RetentionPolicy;

/// The checkpoints of a training on its way.
pub struct Checkpointing {
    saver: Saver,
    surroundings: Surroundings,
    /// Where the newest complete checkpoint stands, and its folder.
    newest: Option<(Position, PathBuf)>,
    /// How old the last copy may grow inside an epoch.
    max_age: Option<Duration>,
    taken: Instant,
}

impl Checkpointing {
    pub fn new(assignment: &Assignment, data: &TrainData, start: &Start, paths: &RunPaths) -> Self {
        let config = &assignment.config;
        let (mut journal, mut newest, mut parent) = (Vec::new(), None, None);
        if let Origin::Checkpoint(restored) = &start.origin {
            let position = restored.saved.position;
            journal.clone_from(&restored.saved.journal);
            journal.extend(restored.changes.iter().map(|change| Edit {
                n_batches: position.n_batches,
                key: change.key.to_owned(),
                old: change.old.clone(),
                new: change.new.clone(),
            }));
            parent = restored.checkpoint.file_name().map(|name| name.to_string_lossy().into_owned());
            newest = Some((position, restored.checkpoint.clone()));
        }
        let surroundings = Surroundings {
            settings: config.clone(),
            journal,
            dataset_fingerprint: data.fingerprint.clone(),
            device: start.device_identity.clone(),
            versions: versions(),
            timeline: assignment.timeline,
            parent,
            time_s: 0.0,
        };
        let spread = RetentionPolicy::default_for(config.epochs).every;
        let policy = RetentionPolicy {
            keep_last: config.keep_last,
            keep_best: config.keep_best,
            // 0 keeps none of them, -1 spreads ten over the run.
            every: if config.keep_every == 0 { None } else { u32::try_from(config.keep_every).ok().or(spread) },
        };
        let is_timed = config.save && config.save_minutes > 0.0;
        Self {
            saver: Saver::new(paths.clone(), policy),
            surroundings,
            newest,
            max_age: Duration::try_from_secs_f64(config.save_minutes * 60.0).ok().filter(|_| is_timed),
            taken: Instant::now(),
        }
    }

    /// Copies the state and has it written in the background.
    ///
    /// # Errors
    /// When an event cannot be written.
    pub fn save(&mut self, state: &TrainState, purpose: Purpose, record: &mut Record) -> Result<(), TrainError> {
        let began = Instant::now();
        record.flush(state.position())?;
        self.surroundings.time_s = record.clock.elapsed_s();
        let snapshot = Snapshot::take(state, &self.surroundings);
        let stall_s = began.elapsed().as_secs_f64();
        self.taken = Instant::now();
        // Waits for the checkpoint before it, so that at most two copies lie in memory.
        self.settle(record)?;
        let stall_s = stall_s + self.taken.elapsed().as_secs_f64();
        self.saver.submit(Job { snapshot, purpose, stall_s, n_holds: record.n_holds() })
    }

    /// A checkpoint inside an epoch, when the last one has grown old.
    ///
    /// # Errors
    /// As [`Self::save`].
    pub fn save_if_old(&mut self, state: &TrainState, record: &mut Record) -> Result<(), TrainError> {
        if self.max_age.is_none_or(|max_age| self.taken.elapsed() < max_age) {
            return Ok(());
        }
        self.save(state, Purpose { tags: vec!["timed".to_owned()], ..Purpose::default() }, record)
    }

    /// Tells what has been saved meanwhile.
    ///
    /// # Errors
    /// When an event cannot be written.
    pub fn report(&mut self, record: &mut Record) -> Result<(), TrainError> {
        let done = self.saver.finished();
        self.take_in(done, record).map(drop)
    }

    /// Saves where the training stands, unless that is saved already, and ends. `None` if the host has changed its mind, while
    /// a full disk kept it from being saved.
    ///
    /// # Errors
    /// As [`Self::save`].
    pub fn leave(&mut self, state: &TrainState, record: &mut Record) -> Result<Option<TrainOutcome>, TrainError> {
        self.settle(record)?;
        let position = state.position();
        let size_bytes = if self.newest.as_ref().is_some_and(|(newest, _)| *newest == position) {
            0
        } else {
            self.save(state, Purpose { tags: vec!["pause".to_owned()], ..Purpose::default() }, record)?;
            self.settle(record)?
        };
        if record.wish(position)? == Wish::Go {
            return Ok(None);
        }
        record.flush(position)?;
        let Some((_, checkpoint)) = self.newest.clone() else { return Err(TrainError::SaverGone) };
        Ok(Some(TrainOutcome::Left { position, checkpoint, size_bytes }))
    }

    /// Waits until everything is written; gives the newest checkpoint.
    ///
    /// # Errors
    /// As [`Self::save`].
    pub fn finish(&mut self, record: &mut Record) -> Result<Option<PathBuf>, TrainError> {
        self.settle(record)?;
        Ok(self.newest.take().map(|(_, path)| path))
    }

    /// Waits until everything that was handed over is on the disk; gives the bytes of the last one.
    fn settle(&mut self, record: &mut Record) -> Result<u64, TrainError> {
        let done = self.saver.drain()?;
        let mut size_bytes = self.take_in(done, record)?;
        // A job that failed was handed over again, and may fail again.
        while self.saver.is_busy() {
            let done = self.saver.drain()?;
            size_bytes = self.take_in(done, record)?.max(size_bytes);
        }
        Ok(size_bytes)
    }

    /// Takes in what became of jobs; gives the bytes of the last one that was saved.
    fn take_in(&mut self, all: Vec<Done>, record: &mut Record) -> Result<u64, TrainError> {
        let mut last_bytes = 0;
        for done in all {
            match done {
                Done::Saved { path, position, is_best, size_bytes, stall_s, write_s } => {
                    last_bytes = size_bytes;
                    self.newest = Some((position, path.clone()));
                    record.event(TrainEvent::CheckpointSaved {
                        path,
                        position,
                        is_best,
                        size_bytes,
                        stall_s,
                        write_s,
                    })?;
                }
                Done::Unfinished { message } => record.warn("retention", message)?,
                Done::Failed { job, trouble } => self.hold_and_retry(job, trouble, record)?,
                Done::Refused { error } => return Err(error),
            }
        }
        Ok(last_bytes)
    }

    /// The disk did not take a checkpoint. If the training has stood still since then it may do so by now; else stands still
    /// with it in memory until the host wants another try.
    fn hold_and_retry(
        &mut self,
        mut job: Box<Job>,
        trouble: super::host::DiskTrouble,
        record: &mut Record,
    ) -> Result<(), TrainError> {
        if record.n_holds() > job.n_holds {
            job.n_holds = record.n_holds();
            return self.saver.submit(*job);
        }
        let position = job.snapshot.saved.position;
        record.warn("checkpoint_not_saved", trouble.message.clone())?;
        let wish = record.hold(position, Some(trouble));
        debug_assert_ne!(wish, Wish::Hold, "a hold ends with another wish");
        job.n_holds = record.n_holds();
        self.saver.submit(*job)
    }
}
