//! The folder of one run and the small files in it: `args.yaml`, `run.json`, `events.jsonl`, `results.csv`.
//!
//! Weights and checkpoints lie in the same folder, but are written elsewhere. Knows nothing of tensors or clocks.

mod event_log;
mod history;
mod lock;
mod paths;
mod results_csv;
mod run_record;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::config::{Settings, TrainConfig};
use crate::durable::{is_disk_full, sync_folder, sync_parent, write_file_durably};
use crate::exit::Reason;

pub use event_log::{EventHistory, EventLog, read_events};
pub use history::{current_timeline, events_up_to};
pub use lock::FileLock;
pub use paths::RunPaths;
pub use results_csv::{RESULTS_HEADER, ResultsCsv, ResultsRow, read_rows};
pub use run_record::{Accounting, Parent, RUN_RECORD_VERSION, Rewind, RunRecord, RunStatus, new_run_id};

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

/// The folder of one run, held by its supervisor.
#[derive(Debug)]
pub struct RunFolder {
    paths: RunPaths,
    /// Whether the folder was made for this run and holds nothing else.
    is_new: bool,
    /// Folders above it that were made for it, the deepest first.
    made_above: Vec<PathBuf>,
    _lock: FileLock,
}

impl RunFolder {
    /// Makes the folder that the settings ask for and takes its lock; writes nothing else into it.
    ///
    /// # Errors
    /// When it cannot be made, or another holds it.
    pub fn create(config: &TrainConfig) -> Result<Self, RunFolderError> {
        let path = config.project.join(&config.name);
        let is_new = !config.exist_ok || !path.exists();
        let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let made_above = config.project.ancestors().take_while(missing).map(Path::to_owned).collect();
        let path = if config.exist_ok {
            new_or_same_folder(&config.project, &config.name)?
        } else {
            new_folder(&config.project, &config.name)?
        };
        let paths = RunPaths::of(path);
        let lock = FileLock::take(&paths.supervisor_lock())?;
        Ok(Self { paths, is_new, made_above, _lock: lock })
    }

    /// Takes the lock of a run that is there.
    ///
    /// # Errors
    /// When another holds it, or it cannot be written to.
    pub fn open(path: &Path) -> Result<Self, RunFolderError> {
        let paths = RunPaths::of(path);
        let lock = FileLock::take(&paths.supervisor_lock())?;
        Ok(Self { paths, is_new: false, made_above: Vec::new(), _lock: lock })
    }

    pub fn paths(&self) -> &RunPaths {
        &self.paths
    }

    /// Writes `args.yaml`: a run begins here. What an earlier run left, with `exist_ok`, goes to `trash/former`.
    ///
    /// # Errors
    /// When something cannot be removed or written.
    pub fn begin(&self, config: &TrainConfig) -> Result<(), RunFolderError> {
        let weights = self.paths.weights();
        if !self.is_new {
            set_aside_former(&self.paths).map_err(|error| RunFolderError::io(self.paths.root(), error))?;
        }
        fs::create_dir_all(&weights).map_err(|error| RunFolderError::create(&weights, error))?;
        self.write_args(config)
    }

    /// Writes every setting under its key. `task` and `mode` are what tools for the reference's files look for.
    ///
    /// # Errors
    /// When writing fails; the file is then what it was.
    pub fn write_args(&self, config: &TrainConfig) -> Result<(), RunFolderError> {
        let path = self.paths.args_yaml();
        let written = serde_saphyr::to_string(config)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
            .and_then(|yaml| write_file_durably(&path, format!("task: detect\nmode: train\n{yaml}").as_bytes()));
        written.map_err(|error| RunFolderError::create(&path, error))
    }

    /// Takes the folder away again, if it was made for a run that did not begin.
    pub fn abandon(self) {
        if self.is_new {
            // What stays behind is an empty run that `runs` shows; the refusal that leads here is what there is to tell.
            let _ = fs::remove_dir_all(self.paths.root());
            for folder in &self.made_above {
                // Another run may be in it by now; then it stays.
                let _ = fs::remove_dir(folder);
            }
        }
    }
}

/// The settings that a run was begun or last resumed with.
///
/// # Errors
/// When `args.yaml` is not there or cannot be understood.
pub fn read_args(paths: &RunPaths) -> Result<TrainConfig, RunFolderError> {
    let path = paths.args_yaml();
    let text = fs::read_to_string(&path).map_err(|error| RunFolderError::io(&path, error))?;
    let unusable =
        |why: String| RunFolderError::Io { path: path.clone(), source: io::Error::new(ErrorKind::InvalidData, why) };
    let config: TrainConfig = serde_saphyr::from_str(&text).map_err(|error| unusable(error.to_string()))?;
    if config.data.as_os_str().is_empty() {
        return Err(unusable("it names no dataset".to_owned()));
    }
    // Somebody may have written into the file, so each value is looked at as if it came from the command line.
    let mut checked = config.clone();
    for setting in TrainConfig::table() {
        let value = (setting.show)(&config);
        // No path is given here where there is none.
        if !value.is_empty() {
            checked.set(setting.key, &value).map_err(|error| unusable(error.to_string()))?;
        }
    }
    Ok(checked)
}

/// Removes what a process that was killed had been writing: `.NAME.PID.tmp` in the run folder and in `weights/`. Only for whoever
/// holds the run.
///
/// # Errors
/// When a folder cannot be read or a file not removed.
pub fn sweep_temporary_files(paths: &RunPaths) -> Result<(), RunFolderError> {
    for folder in [paths.root().to_owned(), paths.weights()] {
        let fault = |error| RunFolderError::io(&folder, error);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries.map_err(fault)?,
        };
        for entry in entries {
            let entry = entry.map_err(fault)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_file = entry.file_type().map_err(fault)?.is_file();
            if is_file && is_temporary(&name) {
                fs::remove_file(entry.path()).map_err(fault)?;
            }
        }
    }
    Ok(())
}

/// Whether a name is one under which files are written before they get theirs.
fn is_temporary(name: &str) -> bool {
    let Some(inner) = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".tmp")) else { return false };
    inner.rsplit_once('.').is_some_and(|(_, pid)| pid.parse::<u32>().is_ok())
}

/// Moves the results, weights and checkpoints of an earlier run to `trash/former`, numbered where that is taken.
fn set_aside_former(paths: &RunPaths) -> io::Result<()> {
    let trash = paths.root().join("trash");
    let found = ["weights", "checkpoints", "quarantine", "events.jsonl", "results.csv", "run.json"];
    let found: Vec<PathBuf> =
        found.map(|name| paths.root().join(name)).into_iter().filter(|path| path.exists()).collect();
    let trashed: Vec<PathBuf> = match fs::read_dir(&trash) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        entries => entries?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?,
    };
    let trashed = trashed.into_iter().filter(|path| !is_former(path));
    let mut taken = (1..).map(|n| if n == 1 { FORMER.to_owned() } else { format!("{FORMER}{n}") });
    let Some(former) = taken.by_ref().map(|name| trash.join(name)).find(|path| !path.exists()) else { return Ok(()) };
    for path in found.into_iter().chain(trashed) {
        fs::create_dir_all(&former)?;
        fs::rename(&path, former.join(path.file_name().unwrap_or_default()))?;
    }
    if former.exists() { sync_folder(&former).and_then(|()| sync_folder(&trash)) } else { Ok(()) }
}

/// Name of the folder in the trash that keeps what a run of the same folder left.
const FORMER: &str = "former";

/// Whether something in the trash is what an earlier run of the same folder left.
pub fn is_former(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix(FORMER).is_some_and(|number| number.chars().all(|c| c.is_ascii_digit()))
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
            Ok(()) => {
                // So that a power cut does not take a whole run whose own files are safe.
                sync_parent(&path).map_err(|error| RunFolderError::create(&path, error))?;
                return Ok(path);
            }
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
        let names: Vec<_> = (0..3).map(|_| RunFolder::create(&config_in(&project)).unwrap().paths().name()).collect();
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
        let first = RunFolder::create(&config).unwrap().paths().clone();
        assert_eq!(RunFolder::create(&config).unwrap().paths(), &first);
    }

    #[test]
    fn a_folder_at_work_is_locked_and_a_left_one_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let config = TrainConfig { exist_ok: true, ..config_in(dir.path()) };
        let running = RunFolder::create(&config).unwrap();
        assert_eq!(RunFolder::create(&config).unwrap_err().reason(), Reason::Locked);
        let weights = running.paths().weights();
        running.begin(&config).unwrap();
        for name in ["epoch1.safetensors", ".best.safetensors.17.tmp", "notes.txt"] {
            fs::write(weights.join(name), "old").unwrap();
        }
        fs::create_dir_all(running.paths().checkpoints().join("e0001-b000004")).unwrap();
        drop(running);
        RunFolder::create(&config).unwrap().begin(&config).unwrap();
        let former = dir.path().join("exp/trash/former");
        assert!(former.join("checkpoints/e0001-b000004").is_dir(), "checkpoints are not lost");
        assert!(former.join("weights/epoch1.safetensors").is_file() && former.join("weights/notes.txt").is_file());
        assert_eq!(fs::read_dir(&weights).unwrap().count(), 0, "the new run begins with nothing");
    }

    #[test]
    fn a_run_that_did_not_begin_leaves_no_folder_but_an_old_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let config = config_in(dir.path());
        let folder = RunFolder::create(&config).unwrap();
        let path = folder.paths().root().to_owned();
        folder.abandon();
        assert!(!path.exists() && dir.path().exists());
        let deep = TrainConfig { project: dir.path().join("new/runs"), ..config.clone() };
        RunFolder::create(&deep).unwrap().abandon();
        assert!(!dir.path().join("new").exists(), "nor a project that was made for it");
        fs::create_dir(&path).unwrap();
        RunFolder::create(&TrainConfig { exist_ok: true, ..config }).unwrap().abandon();
        assert!(path.exists());
    }

    #[test]
    fn what_a_killed_process_was_writing_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let paths = RunPaths::of(dir.path());
        fs::create_dir(paths.weights()).unwrap();
        for name in [".run.json.17.tmp", "run.json", ".notes.tmp", "weights/.best.safetensors.9.tmp", "weights/a.1.tmp"]
        {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        sweep_temporary_files(&paths).unwrap();
        let left = |folder: &Path| -> std::collections::BTreeSet<_> {
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        assert_eq!(left(dir.path()), [".notes.tmp", "run.json", "weights"].map(str::to_owned).into());
        assert_eq!(left(&paths.weights()), ["a.1.tmp"].map(str::to_owned).into());
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
        let dir = tempfile::tempdir().unwrap();
        let mut config = config_in(dir.path());
        config.pretrained = Some("w.safetensors".into());
        config.seed = 4_294_967_295;
        config.weight_decay = 1e-7;
        let folder = RunFolder::create(&config).unwrap();
        folder.begin(&config).unwrap();
        let yaml = fs::read_to_string(folder.paths().args_yaml()).unwrap();
        for setting in TrainConfig::table() {
            let n_lines = yaml.lines().filter(|line| line.starts_with(&format!("{}: ", setting.key))).count();
            assert_eq!(n_lines, 1, "`{}` is one line of\n{yaml}", setting.key);
        }
        assert_eq!(read_args(folder.paths()).unwrap(), config);
    }
}
