//! Where the files of a run lie.

use std::path::{Path, PathBuf};

/// The folder of a run, and the names in it. Says nothing about what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPaths {
    root: PathBuf,
}

impl RunPaths {
    pub fn of(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder's own name, which tells runs of one project apart.
    pub fn name(&self) -> String {
        self.root.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    pub fn args_yaml(&self) -> PathBuf {
        self.root.join("args.yaml")
    }

    pub fn run_json(&self) -> PathBuf {
        self.root.join("run.json")
    }

    pub fn events_jsonl(&self) -> PathBuf {
        self.root.join("events.jsonl")
    }

    pub fn results_csv(&self) -> PathBuf {
        self.root.join("results.csv")
    }

    /// Where `best.safetensors` and `last.safetensors` belong.
    pub fn weights(&self) -> PathBuf {
        self.root.join("weights")
    }

    pub fn last_weights(&self) -> PathBuf {
        self.weights().join("last.safetensors")
    }

    pub fn best_weights(&self) -> PathBuf {
        self.weights().join("best.safetensors")
    }

    /// One folder for each checkpoint.
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// What the worker prints.
    pub fn worker_log(&self) -> PathBuf {
        self.logs().join("worker.log")
    }

    /// Where the run's supervisor listens.
    pub fn endpoint_json(&self) -> PathBuf {
        self.root.join("endpoint.json")
    }

    /// Held while a supervisor lives.
    pub fn supervisor_lock(&self) -> PathBuf {
        self.root.join("supervisor.lock")
    }

    /// Held while a worker is at work on the run's files.
    pub fn run_lock(&self) -> PathBuf {
        self.root.join("run.lock")
    }
}
