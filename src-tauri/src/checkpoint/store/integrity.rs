//! Whether a checkpoint's files are still what was written.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::error::{Damage, Fault};
use super::{Checkpoint, CheckpointStore, StoreError};
use crate::checkpoint::id::CheckpointId;
use crate::checkpoint::manifest::{FileEntry, Manifest};

/// What a look at every byte of a checkpoint found.
#[derive(Debug)]
pub enum Verdict {
    /// All is as it was written.
    Whole,
    Damaged(Damage),
    /// From a newer program, of the format `found`.
    Newer {
        found: u64,
    },
}

/// A checkpoint, whole or not, and how it stands.
#[derive(Debug)]
pub struct Verified {
    pub id: CheckpointId,
    pub path: PathBuf,
    pub verdict: Verdict,
}

impl CheckpointStore {
    /// Compares every listed file with its size and hash. Reads all of it, a piece at a time.
    ///
    /// # Errors
    /// The first file that is not as it was written.
    pub fn verify(&self, checkpoint: &Checkpoint) -> Result<(), Damage> {
        verify_files(&checkpoint.path, &checkpoint.manifest)
    }

    /// Verifies everything that is named as a checkpoint, oldest first. Changes nothing.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn verify_all(&self) -> Result<Vec<Verified>, StoreError> {
        let mut all = Vec::new();
        for id in self.ids()? {
            let verdict = match self.open_whole(id) {
                Ok(_) => Verdict::Whole,
                Err(StoreError::Damaged { damage, .. }) => Verdict::Damaged(damage),
                Err(StoreError::FutureVersion { found, .. }) => Verdict::Newer { found },
                Err(error) => return Err(error),
            };
            all.push(Verified { id, path: self.path_of(id), verdict });
        }
        Ok(all)
    }

    /// The checkpoint of this id, verified.
    ///
    /// # Errors
    /// As of [`CheckpointStore::open`], and [`StoreError::Damaged`] for any of its files.
    pub fn open_whole(&self, id: CheckpointId) -> Result<Checkpoint, StoreError> {
        let checkpoint = self.open(id)?;
        match self.verify(&checkpoint) {
            Ok(()) => Ok(checkpoint),
            Err(damage) => Err(StoreError::Damaged { path: checkpoint.path, damage }),
        }
    }

    /// Contents of a checkpoint's files by name, each verified as it is read, so that what is used is what was saved.
    ///
    /// # Errors
    /// When the checkpoint is not there, damaged, or from a newer program.
    pub fn read(&self, id: CheckpointId) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        let checkpoint = self.open(id)?;
        let read_each = checkpoint.manifest.files.iter().map(|file| {
            let bytes = read_file(&checkpoint.path, file)?;
            Ok((file.name.clone(), bytes))
        });
        read_each
            .collect::<Result<_, _>>()
            .map_err(|damage| StoreError::Damaged { path: checkpoint.path.clone(), damage })
    }
}

/// As [`CheckpointStore::verify`], for a checkpoint's files in any folder.
pub fn verify_files(folder: &Path, manifest: &Manifest) -> Result<(), Damage> {
    manifest.files.iter().try_for_each(|file| verify_file(folder, file))
}

fn verify_file(folder: &Path, entry: &FileEntry) -> Result<(), Damage> {
    let hash = |mut file: File| {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(&mut file)?;
        Ok(hasher.finalize())
    };
    open_sized(folder, entry)
        .and_then(|file| hash(file).map_err(Fault::Unreadable))
        .and_then(|hash| compare(entry, hash))
        .map_err(|fault| Damage { file: entry.name.clone(), fault })
}

fn read_file(folder: &Path, entry: &FileEntry) -> Result<Vec<u8>, Damage> {
    let read = |mut file: File| {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map(|_| bytes)
    };
    open_sized(folder, entry)
        .and_then(|file| read(file).map_err(Fault::Unreadable))
        .and_then(|bytes| compare(entry, blake3::hash(&bytes)).map(|()| bytes))
        .map_err(|fault| Damage { file: entry.name.clone(), fault })
}

/// Opens a listed file if it has the listed size, so that most damage is found without reading.
fn open_sized(folder: &Path, entry: &FileEntry) -> Result<File, Fault> {
    let path = folder.join(&entry.name);
    let metadata = fs::metadata(&path).map_err(fault_of)?;
    if !metadata.is_file() {
        return Err(Fault::Unreadable(io::Error::new(ErrorKind::InvalidData, "it is no file")));
    }
    if metadata.len() != entry.bytes {
        return Err(Fault::Size { found: metadata.len(), expected: entry.bytes });
    }
    File::open(&path).map_err(fault_of)
}

fn fault_of(error: io::Error) -> Fault {
    if error.kind() == ErrorKind::NotFound { Fault::Missing } else { Fault::Unreadable(error) }
}

fn compare(entry: &FileEntry, hash: blake3::Hash) -> Result<(), Fault> {
    if hash.to_hex().as_str() == entry.blake3 { Ok(()) } else { Err(Fault::Content) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::manifest::{MANIFEST_FILE, WEIGHTS_FILE};
    use crate::checkpoint::store::fixture::{HARMS, draft, id, run_dir, save_each, spoil, store_in};

    fn file_names() -> Vec<String> {
        let files = draft(id(1, 4)).files.into_iter().map(|(name, _)| name);
        files.chain([MANIFEST_FILE.to_owned()]).collect()
    }

    #[test]
    fn every_harm_to_every_file_is_detected() {
        for name in file_names() {
            for (harm_name, harm) in HARMS {
                let dir = run_dir();
                let store = store_in(&dir);
                save_each(&store, &[id(1, 4)]);
                spoil(&store.path_of(id(1, 4)).join(&name), harm);
                let Err(StoreError::Damaged { damage, .. }) = store.open_whole(id(1, 4)) else {
                    panic!("{name} {harm_name}: not detected");
                };
                assert_eq!(damage.file, name, "{harm_name}: the file is named");
                assert!(
                    matches!(store.read(id(1, 4)), Err(StoreError::Damaged { .. })),
                    "{name} {harm_name}: never loaded"
                );
                assert!(matches!(store.verify_all().unwrap()[0].verdict, Verdict::Damaged(_)), "{name} {harm_name}");
            }
        }
    }

    #[test]
    fn damage_is_told_in_words() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4)]);
        let path = store.path_of(id(1, 4)).join(WEIGHTS_FILE);
        let damage = || store.verify(&store.open(id(1, 4)).unwrap()).unwrap_err().to_string();
        spoil(&path, HARMS[4].1);
        assert_eq!(damage(), "weights.safetensors: other content than was written");
        spoil(&path, HARMS[1].1);
        assert_eq!(damage(), "weights.safetensors: 72 of 120 bytes");
        spoil(&path, HARMS[0].1);
        assert_eq!(damage(), "weights.safetensors: missing");
        fs::create_dir(&path).unwrap();
        assert_eq!(damage(), "weights.safetensors: cannot be read: it is no file");
    }

    #[test]
    fn what_is_read_is_what_was_saved() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4)]);
        let files: Vec<_> = store.read(id(1, 4)).unwrap().into_iter().collect();
        let mut saved = draft(id(1, 4)).files;
        saved.sort();
        assert_eq!(files, saved);
        assert!(matches!(store.read(id(2, 8)), Err(StoreError::Unknown { .. })));
    }

    #[test]
    fn a_newer_manifest_is_no_damage() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8)]);
        fs::write(store.path_of(id(2, 8)).join(MANIFEST_FILE), r#"{"version":9}"#).unwrap();
        let verdicts: Vec<_> = store.verify_all().unwrap().into_iter().map(|verified| verified.verdict).collect();
        assert!(matches!(verdicts[..], [Verdict::Whole, Verdict::Newer { found: 9 }]));
    }
}
