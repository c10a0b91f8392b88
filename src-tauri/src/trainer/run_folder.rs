//! The folder of one run and the small files in it: `args.yaml`, `run.json`, `events.jsonl`, `results.csv`.
//!
//! Weights and checkpoints lie in the same folder, but are written elsewhere. Knows nothing of tensors or clocks.

mod durable;
mod event_log;
mod results_csv;
mod run_record;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::config::TrainConfig;
use crate::exit::Reason;

pub use durable::write_file_durably;
pub use event_log::{EventHistory, EventLog, read_events};
pub use results_csv::{RESULTS_HEADER, ResultsCsv};
pub use run_record::{RUN_RECORD_VERSION, RunRecord, RunStatus, new_run_id};

/// A file or folder of a run could not be made, written or read.
#[derive(Debug, Error)]
pub enum RunFolderError {
    #[error("cannot create `{}`: {source}; choose another place with project=", .path.display())]
    CannotCreate { path: PathBuf, source: io::Error },
    #[error("disk full while writing `{}`; free some space and start again", .path.display())]
    DiskFull { path: PathBuf, source: io::Error },
    #[error("another process is at work in `{}`; choose another name=", .path.parent().unwrap_or(.path).display())]
    Locked { path: PathBuf },
    #[error("`{}`: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("`{}` has format {found}, but this program knows up to {known}; use a newer fermata", .path.display())]
    FutureVersion { path: PathBuf, found: u64, known: u32 },
    #[error("`{}` cannot be understood: {source}", .path.display())]
    Unreadable { path: PathBuf, source: serde_json::Error },
}

impl RunFolderError {
    /// A failure to read or write `path`.
    pub fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if is_disk_full(&source) { Self::DiskFull { path, source } } else { Self::Io { path, source } }
    }

    fn create(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if is_disk_full(&source) { Self::DiskFull { path, source } } else { Self::CannotCreate { path, source } }
    }

    /// What the process ends with when this ends it.
    pub fn reason(&self) -> Reason {
        match self {
            Self::CannotCreate { .. } => Reason::CannotCreate,
            Self::DiskFull { .. } => Reason::DiskFull,
            Self::Locked { .. } => Reason::Locked,
            Self::Io { .. } | Self::FutureVersion { .. } | Self::Unreadable { .. } => Reason::Io,
        }
    }
}

/// The disk, or the user's share of it, has no space left.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The folder of one run, made and found writable.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Held as long as the run goes on; the system lets go of it when the process ends, however it ends.
    _lock: File,
}

impl RunFolder {
    /// Makes the folder that the settings ask for, with `args.yaml` and an empty `weights` folder in it.
    ///
    /// # Errors
    /// When it cannot be made or written to.
    pub fn create(config: &TrainConfig) -> Result<Self, RunFolderError> {
        let path = if config.exist_ok {
            new_or_same_folder(&config.project, &config.name)?
        } else {
            new_folder(&config.project, &config.name)?
        };
        let lock = lock(&path.join("run.lock"))?;
        let folder = Self { path, _lock: lock };
        let weights = folder.weights();
        if config.exist_ok {
            remove_files_of(&weights).map_err(|error| RunFolderError::create(&weights, error))?;
        }
        fs::create_dir_all(&weights).map_err(|error| RunFolderError::create(&weights, error))?;
        folder.write_args(config).map_err(|error| RunFolderError::create(&folder.args_yaml(), error))?;
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder's own name, which tells runs of one project apart.
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    pub fn args_yaml(&self) -> PathBuf {
        self.path.join("args.yaml")
    }

    pub fn run_json(&self) -> PathBuf {
        self.path.join("run.json")
    }

    pub fn events_jsonl(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    pub fn results_csv(&self) -> PathBuf {
        self.path.join("results.csv")
    }

    /// Where `best.safetensors` and `last.safetensors` belong.
    pub fn weights(&self) -> PathBuf {
        self.path.join("weights")
    }

    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Writes every setting under its key. `task` and `mode` are what tools for the reference's files look for.
    fn write_args(&self, config: &TrainConfig) -> io::Result<()> {
        let settings =
            serde_saphyr::to_string(config).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        write_file_durably(&self.args_yaml(), format!("task: detect\nmode: train\n{settings}").as_bytes())
    }
}

/// Takes the lock that says a process is at work in a run folder.
fn lock(path: &Path) -> Result<File, RunFolderError> {
    let file =
        OpenOptions::new().create(true).append(true).open(path).map_err(|error| RunFolderError::create(path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RunFolderError::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(RunFolderError::create(path, error)),
    }
}

/// Removes what an earlier run left, with `exist_ok`: its weights, and files that it was writing when it was killed.
fn remove_files_of(weights: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(weights) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".safetensors") || (name.contains(".safetensors.") && name.ends_with(".tmp")) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Makes `project/name`, or where that is taken `name2`, `name3` and so on. Of several processes that try at once each
/// gets its own folder, since making it decides.
///
/// # Errors
/// [`RunFolderError::CannotCreate`] or [`RunFolderError::DiskFull`].
pub fn new_folder(project: &Path, name: &str) -> Result<PathBuf, RunFolderError> {
    fs::create_dir_all(project).map_err(|error| RunFolderError::create(project, error))?;
    let mut number = 1u64;
    loop {
        let path = if number == 1 { project.join(name) } else { project.join(format!("{name}{number}")) };
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(RunFolderError::create(&path, error)),
        }
    }
}

/// Makes `project/name`, or takes it as it is.
///
/// # Errors
/// As [`new_folder`], also when a file has this name.
pub fn new_or_same_folder(project: &Path, name: &str) -> Result<PathBuf, RunFolderError> {
    let path = project.join(name);
    fs::create_dir_all(&path).map_err(|error| RunFolderError::create(&path, error))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_in(project: &Path) -> TrainConfig {
        TrainConfig { project: project.to_owned(), data: "a b/数据.yaml".into(), ..TrainConfig::default() }
    }

    #[test]
    fn a_taken_name_is_numbered_from_two() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("new/runs");
        let names: Vec<_> = (0..3).map(|_| RunFolder::create(&config_in(&project)).unwrap().name()).collect();
        assert_eq!(names, ["exp", "exp2", "exp3"]);
    }

    #[test]
    fn folders_made_at_the_same_time_are_different() {
        let dir = tempfile::tempdir().unwrap();
        let paths: std::collections::BTreeSet<_> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| new_folder(dir.path(), "exp").unwrap())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert_eq!(paths.len(), 8, "no two makers got the same folder");
    }

    #[test]
    fn exist_ok_takes_the_folder_again() {
        let dir = tempfile::tempdir().unwrap();
        let config = TrainConfig { exist_ok: true, ..config_in(dir.path()) };
        let first = RunFolder::create(&config).unwrap().path().to_owned();
        assert_eq!(RunFolder::create(&config).unwrap().path(), first);
    }

    #[test]
    fn a_folder_at_work_is_locked_and_a_left_one_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let config = TrainConfig { exist_ok: true, ..config_in(dir.path()) };
        let running = RunFolder::create(&config).unwrap();
        assert_eq!(RunFolder::create(&config).unwrap_err().reason(), Reason::Locked);
        let weights = running.weights();
        for name in ["epoch1.safetensors", ".best.safetensors.17.tmp", "notes.txt"] {
            fs::write(weights.join(name), "old").unwrap();
        }
        drop(running);
        RunFolder::create(&config).unwrap();
        let left: Vec<_> = fs::read_dir(&weights).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"], "weights of the former run go, what is not ours stays");
    }

    #[test]
    fn a_project_below_a_file_cannot_be_created() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        let error = RunFolder::create(&config_in(&file.join("runs"))).unwrap_err();
        assert_eq!(error.reason(), Reason::CannotCreate);
        fs::write(dir.path().join("exp"), "x").unwrap();
        let taken = TrainConfig { exist_ok: true, ..config_in(dir.path()) };
        assert_eq!(RunFolder::create(&taken).unwrap_err().reason(), Reason::CannotCreate, "a file has the name");
    }

    #[test]
    fn a_full_disk_is_told_from_other_faults() {
        let path = Path::new("results.csv");
        assert_eq!(RunFolderError::io(path, ErrorKind::StorageFull.into()).reason(), Reason::DiskFull);
        assert_eq!(RunFolderError::io(path, ErrorKind::PermissionDenied.into()).reason(), Reason::Io);
    }

    #[test]
    fn args_yaml_holds_every_key_and_gives_the_settings_back() {
        use crate::trainer::config::Settings;
        let dir = tempfile::tempdir().unwrap();
        let mut config = config_in(dir.path());
        config.pretrained = Some("w.safetensors".into());
        config.seed = 4_294_967_295;
        config.weight_decay = 1e-7;
        let folder = RunFolder::create(&config).unwrap();
        let yaml = fs::read_to_string(folder.args_yaml()).unwrap();
        for setting in TrainConfig::table() {
            let n_lines = yaml.lines().filter(|line| line.starts_with(&format!("{}: ", setting.key))).count();
            assert_eq!(n_lines, 1, "`{}` is one line of\n{yaml}", setting.key);
        }
        assert_eq!(serde_saphyr::from_str::<TrainConfig>(&yaml).unwrap(), config);
    }
}
