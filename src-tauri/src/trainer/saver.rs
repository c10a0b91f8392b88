//! Writes checkpoints in the background, while training goes on.
//!
//! One at a time, in order. Behind each complete one follow the files in `weights/`, if it ends an epoch, and the removal of older
//! checkpoints that the settings do not keep.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{JoinHandle, spawn};
use std::time::Instant;

use super::TrainError;
use super::event::Position;
use super::host::DiskTrouble;
use super::run_folder::{RunFolderError, RunPaths};
use super::snapshot::{Snapshot, SnapshotError};
use crate::checkpoint::{About, CheckpointId, CheckpointStore, Draft, RetentionPolicy, StoreError, apply_retention};
use crate::durable::write_file_durably;

/// A snapshot to be written.
#[derive(Debug)]
pub struct Job {
    pub snapshot: Snapshot,
    pub purpose: Purpose,
    /// Seconds that training stood still for the copy.
    pub stall_s: f64,
    /// Times that the training had stood still when this was handed over.
    pub n_holds: u64,
}

/// What a snapshot is for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Purpose {
    /// Its epoch is the best so far.
    pub is_best: bool,
    /// Figures of the epoch's validation, by column name.
    pub metrics: std::collections::BTreeMap<String, f64>,
    /// Such as `pause` or `final`.
    pub tags: Vec<String>,
    /// Files in `weights/` that the averaged weights go to.
    pub weights_files: Vec<String>,
}

/// What became of a job.
#[derive(Debug)]
pub enum Done {
    Saved {
        path: PathBuf,
        position: Position,
        is_best: bool,
        size_bytes: u64,
        stall_s: f64,
        write_s: f64,
    },
    /// The checkpoint is saved, but what belongs to older ones could not be done.
    Unfinished {
        message: String,
    },
    /// The disk did not take it; the job is given back, to be tried again.
    Failed {
        job: Box<Job>,
        trouble: DiskTrouble,
    },
    /// It cannot be saved, however often that is tried.
    Refused {
        error: TrainError,
    },
}

/// The thread that writes, and what it has still to write.
#[derive(Debug)]
pub struct Saver {
    /// Taken when the saver ends, which ends the thread.
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    n_unanswered: usize,
}

impl Saver {
    pub fn new(paths: RunPaths, policy: RetentionPolicy) -> Self {
        // No queue: a snapshot is a copy of everything, so at most one waits while another is written.
        let (jobs, todo) = sync_channel(0);
        let (answers, done) = channel();
        let thread = spawn(move || work(&paths, &policy, &todo, &answers));
        Self { jobs: Some(jobs), done, thread: Some(thread), n_unanswered: 0 }
    }

    /// Hands a snapshot over; waits while another is being written.
    ///
    /// # Errors
    /// When the thread is gone, which only a fault of the program can do.
    pub fn submit(&mut self, job: Job) -> Result<(), TrainError> {
        let handed_over = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if !handed_over {
            return Err(TrainError::SaverGone);
        }
        self.n_unanswered += 1;
        Ok(())
    }

    /// Whether something that was handed over is still to be answered.
    pub fn is_busy(&self) -> bool {
        self.n_unanswered > 0
    }

    /// What has been done since it was last asked.
    pub fn finished(&mut self) -> Vec<Done> {
        self.done.try_iter().inspect(|done| self.n_unanswered -= usize::from(done.is_answer())).collect()
    }

    /// As [`Self::finished`], after everything that was handed over is done.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn drain(&mut self) -> Result<Vec<Done>, TrainError> {
        let mut all = self.finished();
        while self.n_unanswered > 0 {
            let done = self.done.recv().map_err(|_| TrainError::SaverGone)?;
            self.n_unanswered -= usize::from(done.is_answer());
            all.push(done);
        }
        Ok(all)
    }
}

impl Drop for Saver {
    /// Waits for what is being written.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

impl Done {
    /// Each job has one answer.
    fn is_answer(&self) -> bool {
        match self {
            Self::Saved { .. } | Self::Failed { .. } | Self::Refused { .. } => true,
            Self::Unfinished { .. } => false,
        }
    }
}

fn work(paths: &RunPaths, policy: &RetentionPolicy, jobs: &Receiver<Job>, answers: &Sender<Done>) {
    let store = CheckpointStore::of(paths.root());
    for job in jobs {
        let began = Instant::now();
        let answer = match save(&store, paths, &job) {
            Ok((path, size_bytes)) => {
                let position = job.snapshot.saved.position;
                let write_s = began.elapsed().as_secs_f64();
                let (is_best, stall_s) = (job.purpose.is_best, job.stall_s);
                Done::Saved { path, position, is_best, size_bytes, stall_s, write_s }
            }
            Err(error) => match trouble_of(&error, &job.snapshot) {
                Some(trouble) => Done::Failed { job: Box::new(job), trouble },
                None => Done::Refused { error },
            },
        };
        let is_saved = matches!(answer, Done::Saved { .. });
        // Whoever trains has gone if nobody listens; what is on the disk is good all the same.
        let _ = answers.send(answer);
        if is_saved && let Err(error) = apply_retention(&store, policy) {
            let message = format!("older checkpoints were not cleared away: {error}");
            let _ = answers.send(Done::Unfinished { message });
        }
    }
}

fn save(store: &CheckpointStore, paths: &RunPaths, job: &Job) -> Result<(PathBuf, u64), TrainError> {
    let Job { snapshot, purpose, .. } = job;
    let draft = Draft { about: about(snapshot, purpose), files: snapshot.files().map_err(TrainError::Encode)? };
    let saved = store.save(&draft)?;
    crate::fault::reached("checkpoint_saved", draft.about.id.epoch);
    if !purpose.weights_files.is_empty() {
        let bytes = snapshot.averaged_file().map_err(SnapshotError::from).map_err(TrainError::Encode)?;
        make_weights_folder(paths)?;
        for name in &purpose.weights_files {
            let path = paths.weights().join(name);
            write_file_durably(&path, &bytes).map_err(|error| RunFolderError::io(&path, error))?;
        }
    }
    Ok((saved.path, saved.bytes))
}

/// Makes `weights/` again, if somebody has taken it away.
pub fn make_weights_folder(paths: &RunPaths) -> Result<(), RunFolderError> {
    let folder = paths.weights();
    std::fs::create_dir_all(&folder).map_err(|error| RunFolderError::io(&folder, error))
}

/// What the disk lacks, if it was the disk's fault; nothing else gets better by waiting.
fn trouble_of(error: &TrainError, snapshot: &Snapshot) -> Option<DiskTrouble> {
    let bytes_needed = match error {
        TrainError::Store(StoreError::DiskFull { bytes_needed, .. }) => Some(*bytes_needed),
        TrainError::Store(StoreError::Io { .. }) => None,
        TrainError::RunFolder(RunFolderError::DiskFull { .. }) => Some(snapshot.averaged_bytes()),
        TrainError::RunFolder(RunFolderError::Io { .. }) => None,
        _ => return None,
    };
    Some(DiskTrouble { message: error.to_string(), bytes_needed })
}

fn about(snapshot: &Snapshot, purpose: &Purpose) -> About {
    let (saved, position) = (&snapshot.saved, snapshot.saved.position);
    About {
        id: id_of(&position),
        step: position.step,
        is_epoch_end: position.is_epoch_done,
        is_best: purpose.is_best,
        metrics: purpose.metrics.clone(),
        tags: purpose.tags.clone(),
        timeline: saved.timeline,
        parent: saved.parent.clone(),
        created_unix_ms: super::clock::unix_ms(),
        state_hash: snapshot.state_hash(),
        weights_hash: snapshot.weights_hash(),
    }
}

/// The name of the checkpoint of this position.
fn id_of(position: &Position) -> CheckpointId {
    CheckpointId { epoch: position.epochs_done(), n_batches: position.n_batches }
}
