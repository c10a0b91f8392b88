//! The trash: checkpoints that a user threw away and can have back.

use std::fs;
use std::path::{Path, PathBuf};

use super::folders::{entry_names, folder_bytes, is_taken, make_folder, move_into};
use super::removal::remove_folder;
use super::{CheckpointStore, StoreError};
use crate::checkpoint::id::CheckpointId;
use crate::checkpoint::manifest::Manifest;
use crate::durable::{sync_folder, sync_parent};
use crate::trainer::run_folder::is_former;

/// A checkpoint in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trashed {
    /// In the trash: the id, followed by `-2`, `-3` and so on if that was taken.
    pub name: String,
    pub id: CheckpointId,
    pub path: PathBuf,
    /// Of all its files.
    pub bytes: u64,
}

impl CheckpointStore {
    /// Moves a checkpoint to the trash and says where it lies there.
    ///
    /// # Errors
    /// When it is not there or cannot be moved.
    pub fn discard(&self, id: CheckpointId) -> Result<PathBuf, StoreError> {
        move_into(&self.trash_folder(), &self.present(id)?)
    }

    /// Moves a checkpoint back from the trash, and pins it, or the next save might remove it again. Its files are not
    /// verified.
    ///
    /// # Errors
    /// When the trash has none of this name, there is one of its id again, or its manifest cannot be read.
    pub fn restore(&self, name: &str) -> Result<CheckpointId, StoreError> {
        let trash = self.trash()?;
        let Some(trashed) = trash.iter().find(|trashed| trashed.name == name) else {
            let known = trash.into_iter().map(|trashed| trashed.name).collect();
            return Err(StoreError::NotInTrash { name: name.to_owned(), known });
        };
        Manifest::read(&trashed.path, trashed.id).map_err(|error| StoreError::of_manifest(&trashed.path, error))?;
        let target = self.path_of(trashed.id);
        if is_taken(&target) {
            return Err(StoreError::Taken { path: target });
        }
        self.move_back(&trashed.path, &target).map_err(|error| StoreError::io(&target, error))?;
        self.pin(trashed.id)?;
        Ok(trashed.id)
    }

    fn move_back(&self, from: &Path, target: &Path) -> std::io::Result<()> {
        make_folder(&self.checkpoints_folder())?;
        fs::rename(from, target)?;
        sync_parent(target)?;
        sync_folder(&self.trash_folder())
    }

    /// What lies in the trash, oldest checkpoint first. Things that are not named as checkpoints are passed over.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn trash(&self) -> Result<Vec<Trashed>, StoreError> {
        let mut trash = Vec::new();
        for name in entry_names(&self.trash_folder())? {
            let path = self.trash_folder().join(&name);
            let Some(id) = trashed_id(&name).filter(|_| path.is_dir()) else { continue };
            let bytes = folder_bytes(&path).map_err(|error| StoreError::io(&path, error))?;
            trash.push(Trashed { name, id, path, bytes });
        }
        trash.sort_by(|a, b| (a.id, &a.name).cmp(&(b.id, &b.name)));
        Ok(trash)
    }

    /// Removes for good what [`Self::trash`] lists and what an earlier run of the same folder left, and says how many bytes that freed.
    ///
    /// # Errors
    /// When one of them cannot be removed; others may be gone then.
    pub fn empty_trash(&self) -> Result<u64, StoreError> {
        let mut bytes = 0;
        for trashed in self.trash()? {
            remove_folder(&trashed.path).map_err(|error| StoreError::io(&trashed.path, error))?;
            bytes += trashed.bytes;
        }
        for name in entry_names(&self.trash_folder())? {
            let path = self.trash_folder().join(name);
            if is_former(&path) {
                bytes += tree_bytes(&path).map_err(|error| StoreError::io(&path, error))?;
                fs::remove_dir_all(&path).map_err(|error| StoreError::io(&path, error))?;
            }
        }
        Ok(bytes)
    }
}

/// Bytes of all files below a folder.
fn tree_bytes(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { tree_bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

/// The id in a name such as `e0012-b000480` or `e0012-b000480-2`.
fn trashed_id(name: &str) -> Option<CheckpointId> {
    let numbered = || {
        let (id, number) = name.rsplit_once('-')?;
        number.parse::<u32>().ok()?;
        id.parse().ok()
    };
    name.parse().ok().or_else(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::manifest::MANIFEST_FILE;
    use crate::checkpoint::store::fixture::{HARMS, id, run_dir, save_each, spoil, store_in};

    #[test]
    fn a_discarded_checkpoint_can_be_had_back() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8)]);
        let before = store.list().unwrap();
        assert_eq!(store.discard(id(1, 4)).unwrap(), store.trash_folder().join("e0001-b000004"));
        assert_eq!(store.list().unwrap(), before[1..]);
        assert_eq!(store.trash().unwrap()[0].bytes, before[0].bytes);
        assert_eq!(store.restore("e0001-b000004").unwrap(), id(1, 4));
        assert!(store.list().unwrap()[0].is_pinned, "or the next save might remove it");
        store.unpin(id(1, 4)).unwrap();
        assert_eq!(store.list().unwrap(), before);
        assert_eq!(store.trash().unwrap(), []);
    }

    #[test]
    fn the_same_checkpoint_thrown_away_twice_is_there_twice() {
        let dir = run_dir();
        let store = store_in(&dir);
        for _ in 0..2 {
            save_each(&store, &[id(1, 4)]);
            store.discard(id(1, 4)).unwrap();
        }
        let names: Vec<_> = store.trash().unwrap().into_iter().map(|trashed| trashed.name).collect();
        assert_eq!(names, ["e0001-b000004", "e0001-b000004-2"]);
        assert_eq!(store.restore("e0001-b000004-2").unwrap(), id(1, 4));
        assert!(matches!(store.restore("e0001-b000004"), Err(StoreError::Taken { .. })));
    }

    #[test]
    fn only_what_the_trash_lists_can_be_restored() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8)]);
        store.discard(id(1, 4)).unwrap();
        for name in ["e0002-b000008", "../checkpoints/e0002-b000008", "", "."] {
            let error = store.restore(name).unwrap_err();
            assert!(error.to_string().contains("e0001-b000004"), "`{name}`: what there is is named: {error}");
        }
        spoil(&store.trash_folder().join("e0001-b000004").join(MANIFEST_FILE), HARMS[2].1);
        assert!(matches!(store.restore("e0001-b000004"), Err(StoreError::Damaged { .. })));
    }

    #[test]
    fn emptying_frees_the_checkpoints_and_leaves_the_rest() {
        let dir = run_dir();
        let store = store_in(&dir);
        assert_eq!(store.empty_trash().unwrap(), 0, "there is no trash yet");
        save_each(&store, &[id(1, 4), id(2, 8), id(3, 12)]);
        let bytes: u64 = store.list().unwrap()[..2].iter().map(|checkpoint| checkpoint.bytes).sum();
        store.discard(id(1, 4)).unwrap();
        store.discard(id(2, 8)).unwrap();
        fs::write(store.trash_folder().join("notes.txt"), "mine").unwrap();
        assert_eq!(store.empty_trash().unwrap(), bytes);
        assert_eq!(entry_names(&store.trash_folder()).unwrap(), ["notes.txt"]);
        assert_eq!(store.list().unwrap().len(), 1);
    }
}
