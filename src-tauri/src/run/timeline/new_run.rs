//! A run folder that is made aside and gets its name when it is complete.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::checkpoint::{Checkpoint, MANIFEST_FILE};
use crate::durable::{parent_of, sync_folder, write_file_durably};
use crate::trainer::run_folder::{RunFolderError, RunPaths, RunRecord};

/// A folder of a run, still under a temporary name. What is not finished goes away with it.
#[derive(Debug)]
pub struct NewRun {
    paths: RunPaths,
    is_finished: bool,
}

impl NewRun {
    /// Makes `.NAME.PID.tmp` beside the folder that it is to become. What killed processes left under such a name goes
    /// first.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn beside(final_path: &Path) -> Result<Self, RunFolderError> {
        let (project, name) = (parent_of(final_path), RunPaths::of(final_path).name());
        let path = project.join(format!(".{name}.{}.tmp", std::process::id()));
        let fault = |error| RunFolderError::io(&path, error);
        remove_leftovers(project, &name).map_err(fault)?;
        fs::create_dir(&path).map_err(fault)?;
        let new_run = Self { paths: RunPaths::of(path), is_finished: false };
        for folder in [new_run.paths.checkpoints(), new_run.paths.weights()] {
            fs::create_dir(&folder).map_err(|error| RunFolderError::io(&folder, error))?;
        }
        Ok(new_run)
    }

    pub fn paths(&self) -> &RunPaths {
        &self.paths
    }

    /// Copies a file that may still grow where it is; one that is not there is left out.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn copy(&self, from: &Path, to: &Path) -> Result<(), RunFolderError> {
        match fs::read(from) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(RunFolderError::io(from, error)),
            Ok(bytes) => write_file_durably(to, &bytes).map_err(|error| RunFolderError::io(to, error)),
        }
    }

    /// Takes a checkpoint in, without its pin. Its files are never written in place, so both runs can share them.
    ///
    /// # Errors
    /// When it cannot be linked or copied.
    pub fn take_in(&self, checkpoint: &Checkpoint) -> Result<(), RunFolderError> {
        let names = checkpoint.manifest.files.iter().map(|file| file.name.as_str()).chain([MANIFEST_FILE]);
        link_files(&checkpoint.path, &self.paths.checkpoints().join(checkpoint.id().to_string()), names)
    }

    /// Takes a checkpoint's folder in whole, as it lies in the other run's `trash`.
    ///
    /// # Errors
    /// As of [`Self::take_in`].
    pub fn take_in_trash(&self, folder: &Path, name: &str) -> Result<(), RunFolderError> {
        let trash = self.paths.root().join("trash");
        fs::create_dir_all(&trash).map_err(|error| RunFolderError::io(&trash, error))?;
        let fault = |error| RunFolderError::io(folder, error);
        let files: Result<Vec<_>, io::Error> =
            fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
        let files = files.map_err(fault)?;
        link_files(folder, &trash.join(name), files.iter().map(|name| name.as_os_str()))?;
        sync_folder(&trash).map_err(fault)
    }

    /// Writes `run.json` and gives the folder the name `path`. An empty folder of this name is replaced.
    ///
    /// # Errors
    /// When something cannot be written or renamed; no folder of this name has come about then.
    pub fn finish(mut self, record: &RunRecord, path: &Path) -> Result<(), RunFolderError> {
        record.write(&self.paths.run_json())?;
        let fault = |error| RunFolderError::io(path, error);
        [&self.paths.checkpoints(), self.paths.root()].into_iter().try_for_each(sync_folder).map_err(fault)?;
        // Windows renames onto no folder, not even an empty one; it is an error for one that holds something.
        match fs::remove_dir(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(fault(error)),
            _ => fs::rename(self.paths.root(), path).map_err(fault)?,
        }
        self.is_finished = true;
        sync_folder(parent_of(path)).map_err(fault)
    }
}

impl Drop for NewRun {
    fn drop(&mut self) {
        if !self.is_finished {
            // The fault that leads here is the one to tell; what stays is removed by the next attempt.
            let _ = fs::remove_dir_all(self.paths.root());
        }
    }
}

fn remove_leftovers(project: &Path, name: &str) -> io::Result<()> {
    let begins = format!(".{name}.");
    for entry in fs::read_dir(project)? {
        let path = entry?.path();
        let is_ours = |found: &str| {
            let pid = found.strip_prefix(&begins).and_then(|rest| rest.strip_suffix(".tmp"));
            pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
        };
        if path.file_name().and_then(OsStr::to_str).is_some_and(is_ours) {
            fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}

/// Makes the folder `to` with links to these files of `from`, or copies where the file system has no links.
fn link_files<Name: AsRef<OsStr>>(
    from: &Path,
    to: &Path,
    names: impl Iterator<Item = Name>,
) -> Result<(), RunFolderError> {
    let fault = |error| RunFolderError::io(to, error);
    fs::create_dir(to).map_err(fault)?;
    for name in names {
        let (source, target) = (from.join(name.as_ref()), to.join(name.as_ref()));
        fs::hard_link(&source, &target)
            .or_else(|_| fs::copy(&source, &target).and_then(|_| File::open(&target)?.sync_all()))
            .map_err(|error| RunFolderError::io(&source, error))?;
    }
    sync_folder(to).map_err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_finished_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        drop(NewRun::beside(&dir.path().join("exp")).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn leftovers_of_this_name_alone_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in [".exp.7.tmp", ".exp2.7.tmp", ".exp.notes.tmp", "exp"] {
            fs::create_dir_all(dir.path().join(name).join("inside")).unwrap();
        }
        remove_leftovers(dir.path(), "exp").unwrap();
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".exp.notes.tmp", ".exp2.7.tmp", "exp"]);
    }

    #[test]
    fn a_folder_that_holds_something_is_never_replaced() {
        use crate::run::timeline::fixture::record;
        let dir = tempfile::tempdir().unwrap();
        let taken = dir.path().join("exp");
        fs::create_dir_all(taken.join("inside")).unwrap();
        assert!(NewRun::beside(&dir.path().join("exp")).unwrap().finish(&record("a"), &taken).is_err());
        assert!(taken.join("inside").is_dir());
        fs::remove_dir(taken.join("inside")).unwrap();
        NewRun::beside(&dir.path().join("exp")).unwrap().finish(&record("a"), &taken).unwrap();
        assert_eq!(RunRecord::read(&RunPaths::of(&taken).run_json()).unwrap(), record("a"));
    }
}
