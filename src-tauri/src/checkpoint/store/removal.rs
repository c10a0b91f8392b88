//! Removing checkpoints outright, and what killed processes left half done.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::folders::{entry_names, folder_bytes, is_taken};
use super::integrity::verify_files;
use super::{CheckpointStore, StoreError};
use crate::checkpoint::id::CheckpointId;
use crate::checkpoint::manifest::{MANIFEST_FILE, Manifest};
use crate::durable::{sync_folder, sync_parent};

/// `.ID.PID.tmp`: the folder of a checkpoint that is being written or removed.
pub fn temporary_name(id: CheckpointId) -> String {
    format!(".{id}.{}.tmp", std::process::id())
}

/// The id in a name that [`temporary_name`] gave, in any process.
fn temporary_id(name: &str) -> Option<CheckpointId> {
    let (id, pid) = name.strip_prefix('.')?.strip_suffix(".tmp")?.split_once('.')?;
    pid.parse::<u32>().ok()?;
    id.parse().ok()
}

/// Removes a checkpoint's folder, the manifest first: what a crash leaves of it is not taken for a checkpoint.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_file(path.join(MANIFEST_FILE)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => sync_folder(path)?,
    }
    fs::remove_dir_all(path)?;
    sync_parent(path)
}

impl CheckpointStore {
    /// Removes a checkpoint for good, pinned or not, and says how many bytes that freed.
    ///
    /// # Errors
    /// When it is not there or cannot be removed. It is then still whole, or no longer listed and left to
    /// [`Self::sweep`].
    pub fn remove(&self, id: CheckpointId) -> Result<u64, StoreError> {
        let path = self.present(id)?;
        let fault = |error| StoreError::io(&path, error);
        let bytes = folder_bytes(&path).map_err(fault)?;
        let temporary = self.checkpoints_folder().join(temporary_name(id));
        if is_taken(&temporary) {
            remove_folder(&temporary).map_err(fault)?;
        }
        fs::rename(&path, &temporary).and_then(|()| remove_folder(&temporary)).map_err(fault)?;
        Ok(bytes)
    }

    /// Clears away what killed processes left, and says how many folders that were. A checkpoint that was written whole
    /// and only lacked its name gets it.
    ///
    /// For the process that holds the run alone, before it saves: the folder of a saving that goes on looks the same.
    ///
    /// # Errors
    /// When one of them cannot be removed.
    pub fn sweep(&self) -> Result<usize, StoreError> {
        let folder = self.checkpoints_folder();
        let mut n_left = 0;
        for name in entry_names(&folder)? {
            let path = folder.join(&name);
            let Some(id) = temporary_id(&name).filter(|_| path.is_dir()) else { continue };
            let target = self.path_of(id);
            let ended = if !is_taken(&target) && is_whole(&path, id)? {
                fs::rename(&path, &target).and_then(|()| sync_folder(&folder))
            } else {
                remove_folder(&path)
            };
            ended.map_err(|error| StoreError::io(&path, error))?;
            n_left += 1;
        }
        Ok(n_left)
    }
}

fn is_whole(folder: &Path, id: CheckpointId) -> Result<bool, StoreError> {
    match Manifest::read(folder, id).map_err(|error| StoreError::of_manifest(folder, error)) {
        Ok(manifest) => Ok(verify_files(folder, &manifest).is_ok()),
        Err(StoreError::Damaged { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::manifest::WEIGHTS_FILE;
    use crate::checkpoint::store::fixture::{HARMS, id, run_dir, save_each, spoil, store_in};

    fn leave(store: &CheckpointStore, left: CheckpointId) -> std::path::PathBuf {
        let path = store.checkpoints_folder().join(format!(".{left}.77.tmp"));
        fs::rename(store.path_of(left), &path).unwrap();
        path
    }

    #[test]
    fn a_removed_checkpoint_is_gone_and_its_bytes_are_told() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8)]);
        let bytes = store.list().unwrap()[0].bytes;
        assert_eq!(store.remove(id(1, 4)).unwrap(), bytes);
        assert_eq!(entry_names(&store.checkpoints_folder()).unwrap(), ["e0002-b000008"]);
        assert!(matches!(store.remove(id(1, 4)), Err(StoreError::Unknown { .. })));
    }

    #[test]
    fn a_half_written_checkpoint_is_swept() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8), id(3, 12)]);
        spoil(&leave(&store, id(2, 8)).join(MANIFEST_FILE), HARMS[0].1);
        spoil(&leave(&store, id(3, 12)).join(WEIGHTS_FILE), HARMS[1].1);
        assert_eq!(store.sweep().unwrap(), 2);
        assert_eq!(entry_names(&store.checkpoints_folder()).unwrap(), ["e0001-b000004"]);
        assert_eq!(store.sweep().unwrap(), 0);
    }

    #[test]
    fn a_checkpoint_that_only_lacks_its_name_gets_it() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4)]);
        let left = leave(&store, id(1, 4));
        assert_eq!(store.sweep().unwrap(), 1);
        assert!(!left.exists());
        store.open_whole(id(1, 4)).unwrap();
    }

    #[test]
    fn what_is_named_otherwise_is_not_swept() {
        let dir = run_dir();
        let store = store_in(&dir);
        let names = [".cache.tmp", ".e0001-b000004.tmp", ".e0001-b000004.x.tmp", "e0001-b000004.7.tmp", ".e1-b4.7.tmp"];
        for name in names {
            fs::create_dir_all(store.checkpoints_folder().join(name)).unwrap();
        }
        assert_eq!(store.sweep().unwrap(), 0);
        assert_eq!(entry_names(&store.checkpoints_folder()).unwrap().len(), names.len());
    }
}
