//! Files and folders that outlive a power cut.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes `bytes` to a temporary file beside `path`, syncs it, renames it to `path`, and syncs the folder.
///
/// # Errors
/// When any of these fails. `path` is then what it was before (or, if only the last sync failed, already the new one),
/// and the temporary file is gone.
pub fn write_file_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_beside(path)?;
    let written = write_over(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // The first fault is the one to tell; what cannot be removed now is overwritten by the next attempt.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    sync_parent(path)
}

/// `.NAME.PID.tmp` in the same folder: a rename never crosses file systems, and processes do not meet.
fn temporary_beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the path names no file"))?;
    let mut temporary_name = OsString::from(".");
    temporary_name.push(name);
    temporary_name.push(format!(".{}.tmp", std::process::id()));
    Ok(path.with_file_name(temporary_name))
}

fn write_over(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes a new file and waits until it is on the disk.
///
/// # Errors
/// When something has this name, or the disk does not take it.
pub fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes new, moved and removed entries of a folder durable. Windows has no such call and does not need it.
///
/// # Errors
/// When the folder cannot be opened, or the disk fails.
#[cfg(unix)]
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
pub fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// As [`sync_folder`], for the folder that something lies in.
///
/// # Errors
/// As [`sync_folder`].
pub fn sync_parent(path: &Path) -> io::Result<()> {
    sync_folder(parent_of(path))
}

/// The folder that something lies in.
pub fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The disk, or the user's share of it, has no space left.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        write_file_durably(&path, b"old").unwrap();
        write_file_durably(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn a_failed_write_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::create_dir_all(path.join("inside")).unwrap();
        assert!(write_file_durably(&path, b"new").is_err(), "a folder has the name");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
