//! Locks on files: who is alive is decided by them alone, never by a process number.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::RunFolderError;

/// Whoever only asks whether a lock is held takes it for a moment; a taker outlasts that.
const ASKING_LIMIT: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_millis(10);

/// A lock that is held; the system lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Takes the lock on a file, which is made if it is not there.
    ///
    /// # Errors
    /// [`RunFolderError::Locked`] when another holds it; others when the file cannot be made.
    pub fn take(path: &Path) -> Result<Self, RunFolderError> {
        Self::take_within(path, ASKING_LIMIT)
    }

    /// As [`Self::take`], but waits up to `limit` for another to let go.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_within(path: &Path, limit: Duration) -> Result<Self, RunFolderError> {
        let file = OpenOptions::new()
            .create(true)
            // Windows locks no file that is open for appending alone.
            .read(true)
            .append(true)
            .open(path)
            .map_err(|error| RunFolderError::create(path, error))?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if began.elapsed() < limit => sleep(RETRY),
                Err(TryLockError::WouldBlock) => return Err(RunFolderError::Locked { path: path.to_owned() }),
                Err(TryLockError::Error(error)) => return Err(RunFolderError::create(path, error)),
            }
        }
    }

    /// Whether somebody holds the lock. A file that is not there, or cannot be opened, is not held.
    pub fn is_held(path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_holder_and_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.lock");
        assert!(!FileLock::is_held(&path), "no file, no holder");
        let held = FileLock::take(&path).unwrap();
        assert!(FileLock::is_held(&path));
        assert!(matches!(FileLock::take(&path), Err(RunFolderError::Locked { .. })));
        drop(held);
        assert!(!FileLock::is_held(&path));
        assert!(FileLock::take(&path).is_ok());
    }
}
