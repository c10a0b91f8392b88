//! A small run on disk, for the tests of whatever reads or rewinds one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::checkpoint::{
    About, Checkpoint, CheckpointId, CheckpointStore, Draft, EMA_FILE, OPTIMIZER_FILE, STATE_FILE, WEIGHTS_FILE,
};
use crate::trainer::config::TrainConfig;
use crate::trainer::event::{EpochResults, LearningRates, Losses, Position, TrainEvent};
use crate::trainer::run_folder::{
    Accounting, EventLog, RUN_RECORD_VERSION, ResultsCsv, RunFolder, RunPaths, RunRecord, RunStatus, read_args,
    read_rows,
};

/// Batches in an epoch.
const N_BATCHES: usize = 2;

/// The run `exp` in a project of its own, with a space and other letters than ASCII in its path.
pub struct Run {
    dir: TempDir,
    paths: RunPaths,
}

/// What `run.json` of a stopped run holds.
pub fn record(id: &str) -> RunRecord {
    RunRecord {
        version: RUN_RECORD_VERSION,
        id: id.to_owned(),
        status: RunStatus::Stopped,
        reason: Some("stopped".to_owned()),
        created_unix_ms: 1_700_000_000_000,
        versions: BTreeMap::new(),
        seed: 0,
        dataset_fingerprint: Some("ab".repeat(32)),
        parent: None,
        timeline: 0,
        rewind: None,
        accounting: Accounting { active_s: 12.5, ..Accounting::default() },
    }
}

/// The end of an epoch.
pub fn position(epoch: u32) -> Position {
    let n_batches = u64::from(epoch) * N_BATCHES as u64;
    Position { epoch, batch: N_BATCHES, n_batches, step: n_batches, is_epoch_done: true }
}

/// A full checkpoint of a few hundred bytes; the mAP50-95 of epoch N is N hundredths.
pub fn draft(position: &Position) -> Draft {
    let id = CheckpointId { n_batches: position.n_batches, epoch: position.epochs_done() };
    let file = |name: &str| (name.to_owned(), format!("{name} of {id}").into_bytes());
    let hash = |what: &str| blake3::hash(format!("{what} {id}").as_bytes()).to_hex().to_string();
    let about = About {
        id,
        step: position.step,
        is_epoch_end: position.is_epoch_done,
        is_best: false,
        metrics: BTreeMap::from([("mAP50-95".to_owned(), f64::from(id.epoch) / 100.0)]),
        tags: Vec::new(),
        timeline: 0,
        parent: None,
        created_unix_ms: 1_700_000_000_000,
        state_hash: hash("state"),
        weights_hash: hash("weights"),
    };
    Draft { about, files: [WEIGHTS_FILE, EMA_FILE, OPTIMIZER_FILE, STATE_FILE].map(file).to_vec() }
}

/// Names of a run's checkpoints, the oldest first.
pub fn ids(paths: &RunPaths) -> Vec<String> {
    CheckpointStore::of(paths.root()).list().unwrap().iter().map(|checkpoint| checkpoint.id().to_string()).collect()
}

pub fn epochs_in(results_csv: &Path) -> Vec<u32> {
    read_rows(results_csv).unwrap().into_iter().map(|(epoch, _)| epoch).collect()
}

impl Run {
    /// A run of ten epochs that was stopped after `epochs` of them, with a checkpoint of each.
    pub fn of_epochs(epochs: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("мои runs");
        fs::create_dir(&project).unwrap();
        let data = project.join("data.yaml");
        fs::write(&data, "names: [a]").unwrap();
        let config = TrainConfig { data, epochs: 10, project, ..TrainConfig::default() };
        let folder = RunFolder::create(&config).unwrap();
        folder.begin(&config).unwrap();
        let run = Self { dir, paths: folder.paths().clone() };
        record("0123456789abcdef").write(&run.paths.run_json()).unwrap();
        run.append(&TrainEvent::RunStarted {
            run_folder: run.paths.root().to_owned(),
            device: "the processor".to_owned(),
            model: "yolov8t".to_owned(),
            class_names: vec!["a".to_owned()],
            n_train_images: 8,
            n_val_images: 0,
            epochs: 10,
            n_batches: N_BATCHES,
            at_unix_ms: 1_700_000_000_000,
        });
        ResultsCsv::resume(&run.paths.results_csv(), 0).unwrap();
        (1..=epochs).for_each(|epoch| run.train_epoch(epoch));
        run
    }

    /// What training an epoch leaves behind.
    pub fn train_epoch(&self, epoch: u32) {
        let (train, lr) = (Losses::default(), LearningRates::default());
        let results = EpochResults { epoch, time_s: f64::from(epoch), train, val: None, lr };
        self.append(&TrainEvent::EpochStarted { epoch });
        self.append(&TrainEvent::EpochFinished(results));
        ResultsCsv::resume(&self.paths.results_csv(), epoch - 1).unwrap().append(&results).unwrap();
        self.save(position(epoch));
    }

    pub fn save(&self, position: Position) {
        let draft = draft(&position);
        let saved = self.store().save(&draft).unwrap();
        for path in [self.paths.last_weights(), self.paths.best_weights()] {
            fs::write(path, &draft.files[1].1).unwrap();
        }
        self.append(&TrainEvent::CheckpointSaved {
            path: saved.path,
            position,
            is_best: false,
            size_bytes: saved.bytes,
            stall_s: 0.0,
            write_s: 0.0,
        });
    }

    pub fn append(&self, event: &TrainEvent) {
        EventLog::open(&self.paths.events_jsonl()).unwrap().append(event).unwrap();
    }

    pub fn set_record(&self, change: impl FnOnce(&mut RunRecord)) {
        let mut record = self.record();
        change(&mut record);
        record.write(&self.paths.run_json()).unwrap();
    }

    pub fn paths(&self) -> &RunPaths {
        &self.paths
    }

    pub fn project(&self) -> &Path {
        self.paths.root().parent().unwrap()
    }

    /// Another folder in the project.
    pub fn beside(&self, name: &str) -> RunPaths {
        RunPaths::of(self.project().join(name))
    }

    pub fn store(&self) -> CheckpointStore {
        CheckpointStore::of(self.paths.root())
    }

    pub fn record(&self) -> RunRecord {
        RunRecord::read(&self.paths.run_json()).unwrap()
    }

    pub fn config(&self) -> TrainConfig {
        read_args(&self.paths).unwrap()
    }

    pub fn checkpoint(&self, epoch: u32) -> Checkpoint {
        self.store().find(&epoch.to_string()).unwrap()
    }

    /// The run with its lock, as a supervisor has it.
    pub fn open(&self) -> RunFolder {
        RunFolder::open(self.paths.root()).unwrap()
    }

    /// Names of the folders in the project.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.project()).unwrap().map(|entry| entry.unwrap());
        let folders = entries.filter(|entry| entry.path().is_dir());
        let mut names: Vec<_> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Contents of every file of the run.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.paths.root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
        }
        files
    }

    /// The folder that everything lies in.
    pub fn outside(&self) -> &Path {
        self.dir.path()
    }
}
