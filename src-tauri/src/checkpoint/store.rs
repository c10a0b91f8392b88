//! The checkpoints of one run on disk, each a folder under `checkpoints/` that is there whole or not at all.
//!
//! What is damaged goes to `quarantine/`, what a user throws away to `trash/`. Knows files as names and bytes, nothing
//! of tensors. One process at a time may change a store, the one that holds the run; others may read.

mod error;
mod find;
#[cfg(test)]
pub(super) mod fixture;
mod folders;
mod integrity;
mod recovery;
mod removal;
mod save;
mod trash;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::id::CheckpointId;
use super::manifest::{Grade, Manifest, PIN_FILE};
use crate::durable::{sync_folder, write_file_durably};
use folders::{entry_names, folder_bytes, is_taken};

pub use error::{Damage, Fault, StoreError};
pub use integrity::{Verdict, Verified};
pub use recovery::{Recovery, SetAside};
pub use save::{Draft, Saved};
pub use trash::Trashed;

/// The checkpoints of a run, by the run's folder. Holds no state: each call looks at the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointStore {
    run_folder: PathBuf,
}

/// A checkpoint as its manifest describes it. Its files may still be damaged: see [`CheckpointStore::verify`].
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    pub manifest: Manifest,
    /// Its folder.
    pub path: PathBuf,
    /// Of all its files on disk.
    pub bytes: u64,
    /// Marked by the user as never to be removed.
    pub is_pinned: bool,
}

impl Checkpoint {
    pub fn id(&self) -> CheckpointId {
        self.manifest.about.id
    }

    pub fn grade(&self) -> Grade {
        self.manifest.grade()
    }

    /// The figure by which epochs are compared, 0 to 1; absent if nothing was validated.
    pub fn fitness(&self) -> Option<f64> {
        self.manifest.about.metrics.get("mAP50-95").copied()
    }
}

impl CheckpointStore {
    pub fn of(run_folder: &Path) -> Self {
        Self { run_folder: run_folder.to_owned() }
    }

    /// Complete checkpoints, oldest first. Those without a readable manifest are passed over: see
    /// [`Self::verify_all`].
    ///
    /// # Errors
    /// When the folder cannot be read, or one of the checkpoints comes from a newer program.
    pub fn list(&self) -> Result<Vec<Checkpoint>, StoreError> {
        let mut checkpoints = Vec::new();
        for id in self.ids()? {
            match self.open(id) {
                Ok(checkpoint) => checkpoints.push(checkpoint),
                Err(StoreError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(checkpoints)
    }

    /// The checkpoint of this id.
    ///
    /// # Errors
    /// When it is not there, has no readable manifest, comes from a newer program, or cannot be read.
    pub fn open(&self, id: CheckpointId) -> Result<Checkpoint, StoreError> {
        let path = self.path_of(id);
        if !is_taken(&path) {
            return Err(self.unknown(&id.to_string()));
        }
        let manifest = Manifest::read(&path, id).map_err(|error| StoreError::of_manifest(&path, error))?;
        let bytes = folder_bytes(&path).map_err(|error| StoreError::io(&path, error))?;
        let is_pinned = path.join(PIN_FILE).exists();
        Ok(Checkpoint { manifest, path, bytes, is_pinned })
    }

    /// Marks a checkpoint as never to be removed.
    ///
    /// # Errors
    /// When it is not there or the mark cannot be written.
    pub fn pin(&self, id: CheckpointId) -> Result<(), StoreError> {
        let path = self.present(id)?.join(PIN_FILE);
        write_file_durably(&path, b"").map_err(|error| StoreError::io(&path, error))
    }

    /// Takes the mark of [`Self::pin`] away, if there is one.
    ///
    /// # Errors
    /// When the checkpoint is not there or the mark cannot be removed.
    pub fn unpin(&self, id: CheckpointId) -> Result<(), StoreError> {
        let folder = self.present(id)?;
        let path = folder.join(PIN_FILE);
        match fs::remove_file(&path) {
            Ok(()) => sync_folder(&folder).map_err(|error| StoreError::io(&folder, error)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StoreError::io(&path, error)),
        }
    }

    /// Where the checkpoints lie.
    pub fn checkpoints_folder(&self) -> PathBuf {
        self.run_folder.join("checkpoints")
    }

    pub fn trash_folder(&self) -> PathBuf {
        self.run_folder.join("trash")
    }

    pub fn quarantine_folder(&self) -> PathBuf {
        self.run_folder.join("quarantine")
    }

    /// The folder that a checkpoint of this id has or would have.
    pub fn path_of(&self, id: CheckpointId) -> PathBuf {
        self.checkpoints_folder().join(id.to_string())
    }

    /// Ids of everything under `checkpoints/` that is named as one, oldest first, damaged ones too.
    fn ids(&self) -> Result<Vec<CheckpointId>, StoreError> {
        let mut ids: Vec<CheckpointId> =
            entry_names(&self.checkpoints_folder())?.iter().filter_map(|name| name.parse().ok()).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The folder of a checkpoint that is there, whole or not.
    fn present(&self, id: CheckpointId) -> Result<PathBuf, StoreError> {
        let path = self.path_of(id);
        if path.is_dir() { Ok(path) } else { Err(self.unknown(&id.to_string())) }
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{draft, id, run_dir, save_each, store_in};
    use super::*;
    use crate::checkpoint::manifest::MANIFEST_FILE;

    #[test]
    fn an_empty_run_has_no_checkpoints() {
        let dir = run_dir();
        assert_eq!(store_in(&dir).list().unwrap(), []);
        assert!(!store_in(&dir).checkpoints_folder().exists(), "looking makes nothing");
    }

    #[test]
    fn checkpoints_are_listed_from_the_oldest() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(10, 40), id(2, 8), id(9, 36)]);
        let ids: Vec<_> = store.list().unwrap().iter().map(Checkpoint::id).collect();
        assert_eq!(ids, [id(2, 8), id(9, 36), id(10, 40)]);
    }

    #[test]
    fn other_things_in_the_folder_are_no_checkpoints() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4)]);
        for name in ["notes", ".e0002-b000008.77.tmp", "e0003-b000012"] {
            fs::create_dir(store.checkpoints_folder().join(name)).unwrap();
        }
        fs::write(store.checkpoints_folder().join("e0004-b000016"), "a file").unwrap();
        assert_eq!(store.list().unwrap().len(), 1);
    }

    #[test]
    fn the_size_is_that_of_all_files_on_disk() {
        let dir = run_dir();
        let store = store_in(&dir);
        let saved = store.save(&draft(id(1, 4))).unwrap();
        let checkpoint = &store.list().unwrap()[0];
        let on_disk: u64 = fs::read_dir(&saved.path).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert_eq!((checkpoint.bytes, saved.bytes), (on_disk, on_disk));
    }

    #[test]
    fn a_list_with_a_newer_manifest_is_refused() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8)]);
        fs::write(store.path_of(id(2, 8)).join(MANIFEST_FILE), r#"{"version":2}"#).unwrap();
        assert!(matches!(store.list(), Err(StoreError::FutureVersion { found: 2, .. })));
    }

    #[test]
    fn a_pin_is_kept_until_it_is_taken_away() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4)]);
        store.pin(id(1, 4)).unwrap();
        store.pin(id(1, 4)).unwrap();
        let pinned = store.open(id(1, 4)).unwrap();
        assert!(pinned.is_pinned);
        store.verify(&pinned).unwrap();
        store.unpin(id(1, 4)).unwrap();
        store.unpin(id(1, 4)).unwrap();
        assert!(!store.open(id(1, 4)).unwrap().is_pinned);
    }

    #[test]
    fn what_is_not_there_cannot_be_pinned() {
        let dir = run_dir();
        let store = store_in(&dir);
        assert!(matches!(store.pin(id(1, 4)), Err(StoreError::Unknown { .. })));
        assert!(matches!(store.unpin(id(1, 4)), Err(StoreError::Unknown { .. })));
    }
}
