//! Saving a checkpoint so that it is there whole or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::folders::{is_taken, make_folder, move_into};
use super::removal::temporary_name;
use super::{CheckpointStore, StoreError};
use crate::checkpoint::id::CheckpointId;
use crate::checkpoint::manifest::{About, MANIFEST_FILE, Manifest, bad_file_name};
use crate::durable::{is_disk_full, sync_folder, sync_parent, write_synced};

/// A checkpoint to be saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub about: About,
    /// Name and contents of each file.
    pub files: Vec<(String, Vec<u8>)>,
}

/// A checkpoint that is on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Its folder.
    pub path: PathBuf,
    /// Of all its files.
    pub bytes: u64,
}

/// Called before each thing that saving makes or moves, with its path; an error ends the saving as if that had failed.
type BeforeEach<'a> = &'a mut dyn FnMut(&Path) -> io::Result<()>;

/// All that is to be written, known before the first byte is.
struct Plan<'a> {
    files: Vec<(&'a str, &'a [u8])>,
    bytes: u64,
}

impl CheckpointStore {
    /// Saves a checkpoint: written into a folder beside, every file synced, the manifest last, then renamed.
    ///
    /// If it is there already, whole and with the same state, nothing is written. One of this id that is damaged or of
    /// another state goes to `quarantine/`, once the new one is complete.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], a name that no file may have, a checkpoint of this id by a newer program, or a failure
    /// to write. The older checkpoints are then as they were, and what was written is removed.
    pub fn save(&self, draft: &Draft) -> Result<Saved, StoreError> {
        self.save_stepwise(draft, &mut |_| {
            crate::fault::reached("checkpoint_file", draft.about.id.epoch);
            Ok(())
        })
    }

    pub(super) fn save_stepwise(&self, draft: &Draft, before_each: BeforeEach) -> Result<Saved, StoreError> {
        let id = draft.about.id;
        if let Some(name) = bad_file_name(draft.files.iter().map(|(name, _)| name.as_str())) {
            return Err(StoreError::FileName { id, name: name.to_owned() });
        }
        if let Some(saved) = self.saved_before(draft)? {
            return Ok(saved);
        }
        let manifest = Manifest::of(&draft.about, &draft.files)
            .to_bytes()
            .map_err(|source| StoreError::Manifest { id, source })?;
        let plan = Plan::of(draft, &manifest);
        let temporary = self.checkpoints_folder().join(temporary_name(id));
        let written = self
            .write_aside(&plan, &temporary, before_each)
            .and_then(|()| self.put_in_place(id, &temporary, before_each));
        if let Err(error) = written {
            // The first fault is the one to tell; what cannot be removed now is swept at the next start.
            let _ = fs::remove_dir_all(&temporary);
            return Err(plan.needing_space(error));
        }
        Ok(Saved { path: self.path_of(id), bytes: plan.bytes })
    }

    /// The checkpoint of this id that has the same state and all of the draft's files, undamaged.
    fn saved_before(&self, draft: &Draft) -> Result<Option<Saved>, StoreError> {
        let checkpoint = match self.open(draft.about.id) {
            Ok(checkpoint) => checkpoint,
            Err(StoreError::Unknown { .. } | StoreError::Damaged { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let listed = &checkpoint.manifest.files;
        let has_all = draft.files.iter().all(|(name, _)| listed.iter().any(|file| file.name == *name));
        let is_same = has_all && checkpoint.manifest.about.state_hash == draft.about.state_hash;
        let is_whole = is_same && self.verify(&checkpoint).is_ok();
        Ok(is_whole.then_some(Saved { path: checkpoint.path, bytes: checkpoint.bytes }))
    }

    fn write_aside(&self, plan: &Plan, temporary: &Path, before_each: BeforeEach) -> Result<(), StoreError> {
        make_folder(&self.checkpoints_folder()).map_err(|error| StoreError::io(&self.checkpoints_folder(), error))?;
        if is_taken(temporary) {
            // Left by a process of the same id that was killed.
            fs::remove_dir_all(temporary).map_err(|error| StoreError::io(temporary, error))?;
        }
        before_each(temporary)
            .and_then(|()| fs::create_dir(temporary))
            .map_err(|error| StoreError::io(temporary, error))?;
        for (name, bytes) in &plan.files {
            let path = temporary.join(name);
            before_each(&path)
                .and_then(|()| write_synced(&path, bytes))
                .map_err(|error| StoreError::io(&path, error))?;
        }
        sync_folder(temporary).map_err(|error| StoreError::io(temporary, error))
    }

    fn put_in_place(&self, id: CheckpointId, temporary: &Path, before_each: BeforeEach) -> Result<(), StoreError> {
        let path = self.path_of(id);
        let fault = |error| StoreError::io(&path, error);
        before_each(&path).map_err(fault)?;
        let set_aside = if is_taken(&path) { Some(move_into(&self.quarantine_folder(), &path)?) } else { None };
        let renamed = before_each(temporary).and_then(|()| fs::rename(temporary, &path));
        if let (Err(_), Some(former)) = (&renamed, set_aside) {
            // Back to where it was; if that fails too, it stays in quarantine, and the first fault is the one to tell.
            let _ = fs::rename(former, &path);
        }
        renamed.and_then(|()| sync_parent(&path)).map_err(fault)
    }
}

impl<'a> Plan<'a> {
    /// The draft's files, and the manifest last.
    fn of(draft: &'a Draft, manifest: &'a [u8]) -> Self {
        let files = draft.files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        let files: Vec<_> = files.chain([(MANIFEST_FILE, manifest)]).collect();
        let bytes = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        Self { files, bytes }
    }

    fn needing_space(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Io { path, source } if is_disk_full(&source) => {
                StoreError::DiskFull { path, bytes_needed: self.bytes, source }
            }
            error => error,
        }
    }
}

#[cfg(test)]
mod tests;
