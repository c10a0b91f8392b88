//! Folders and their entries: listed, measured and moved.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::StoreError;
use crate::durable::{sync_folder, sync_parent};

/// Names in a folder that can be text, in no order; none if there is no such folder.
pub fn entry_names(folder: &Path) -> Result<Vec<String>, StoreError> {
    let fault = |error| StoreError::io(folder, error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fault)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(fault)?.file_name().into_string());
    }
    Ok(names)
}

/// Bytes of a file, or of all files directly in a folder.
pub fn folder_bytes(path: &Path) -> io::Result<u64> {
    if !path.is_dir() {
        return Ok(fs::symlink_metadata(path)?.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

/// Makes a folder that outlives a power cut; its parent must be there. One that is there already is taken.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Ok(()) => sync_parent(folder),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Moves `from` into the folder `to`, which is made if needed, under its own name or `NAME-2`, `NAME-3` and so on where
/// that is taken. Says where it is now.
pub fn move_into(to: &Path, from: &Path) -> Result<PathBuf, StoreError> {
    make_folder(to).map_err(|error| StoreError::io(to, error))?;
    let target = free_path(to, from);
    fs::rename(from, &target).map_err(|error| StoreError::io(from, error))?;
    sync_folder(to).and_then(|()| sync_parent(from)).map_err(|error| StoreError::io(to, error))?;
    Ok(target)
}

fn free_path(folder: &Path, from: &Path) -> PathBuf {
    let name = from.file_name().unwrap_or_default().to_string_lossy();
    let mut path = folder.join(&*name);
    let mut number = 2u32;
    while is_taken(&path) {
        path = folder.join(format!("{name}-{number}"));
        number += 1;
    }
    path
}

/// Something has this name, be it a link to nothing.
pub fn is_taken(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_name_is_numbered_from_two() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<_> = (0..3)
            .map(|_| {
                let from = dir.path().join("数据 set");
                fs::create_dir(&from).unwrap();
                move_into(&dir.path().join("trash"), &from).unwrap().file_name().unwrap().to_owned()
            })
            .collect();
        assert_eq!(names, ["数据 set", "数据 set-2", "数据 set-3"]);
    }

    #[test]
    fn a_file_in_the_folders_place_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trash");
        fs::write(&file, "x").unwrap();
        assert!(make_folder(&file).is_err());
    }
}
