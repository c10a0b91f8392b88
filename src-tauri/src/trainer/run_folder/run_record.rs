//! `run.json`: what a run is and how it stands.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::RunFolderError;
use crate::durable::write_file_durably;
use crate::trainer::clock::unix_ms;
use crate::trainer::record::versions;

/// Version of the format of `run.json` that this program writes, and the newest it reads.
pub const RUN_RECORD_VERSION: u32 = 2;

/// The contents of `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Format version.
    pub version: u32,
    /// Distinguishes runs also after a folder was renamed or moved; 16 hexadecimal digits.
    pub id: String,
    pub status: RunStatus,
    /// Why it ended, a word of [`crate::exit::Reason`]; absent while it goes on.
    pub reason: Option<String>,
    /// Milliseconds since 1970, UTC.
    pub created_unix_ms: u64,
    /// Of this program and of what its numbers depend on, such as `fermata` and `burn`.
    pub versions: BTreeMap<String, String>,
    pub seed: u64,
    /// Hash of the dataset's contents, without paths; absent until it was read for the first time.
    pub dataset_fingerprint: Option<String>,
    /// Where the run was branched off; absent if it began at its beginning.
    #[serde(default)]
    pub parent: Option<Parent>,
    /// Number of the present timeline, from 0; each rewind in place begins another.
    #[serde(default)]
    pub timeline: u32,
    /// A rewind that has begun and must be completed before anything else.
    #[serde(default)]
    pub rewind: Option<Rewind>,
    #[serde(default)]
    pub accounting: Accounting,
}

/// How a run stands, as far as its supervisor could write it down. While it is [active](RunStatus::is_active) a supervisor
/// holds the run's lock; where nobody does, the run was broken off, since a process that is killed cannot write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Device and dataset are being opened.
    Starting,
    Running,
    Paused,
    Finished,
    /// Ended by the user or by SIGTERM; can be resumed.
    Stopped,
    Failed,
}

impl RunStatus {
    pub fn is_active(self) -> bool {
        match self {
            Self::Starting | Self::Running | Self::Paused => true,
            Self::Finished | Self::Stopped | Self::Failed => false,
        }
    }
}

/// The checkpoint of another run that a run began with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub run_id: String,
    /// Its folder's name at that time.
    pub run_name: String,
    /// The checkpoint's name.
    pub checkpoint: String,
}

/// A rewind in place: what comes after a checkpoint is kept as a run of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewind {
    /// Name of the checkpoint that becomes the newest.
    pub to: String,
    /// Name of the folder, beside the run's own, that keeps the later part.
    pub sibling: String,
}

/// Where a run's time went, over all its sittings.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Accounting {
    /// Seconds in which a worker trained.
    pub active_s: f64,
    /// Seconds in a pause of any depth.
    pub paused_s: f64,
    /// Seconds of these in which the device was given back.
    pub given_back_s: f64,
    pub n_pauses: u32,
    /// Bytes written for pauses.
    pub pause_bytes: u64,
}

/// An id for a run: 16 hexadecimal digits from its folder, its beginning and the process that began it.
pub fn new_run_id(folder: &Path, created_unix_ms: u64, pid: u32) -> String {
    let text = format!("{created_unix_ms} {pid} {}", folder.display());
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

impl RunRecord {
    /// The record of a run that begins now, in this process.
    pub fn of_a_beginning(folder: &Path, seed: u64) -> Self {
        let created_unix_ms = unix_ms();
        Self {
            version: RUN_RECORD_VERSION,
            id: new_run_id(folder, created_unix_ms, std::process::id()),
            status: RunStatus::Starting,
            reason: None,
            created_unix_ms,
            versions: versions(),
            seed,
            dataset_fingerprint: None,
            parent: None,
            timeline: 0,
            rewind: None,
            accounting: Accounting::default(),
        }
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// When writing fails; the file is then what it was.
    pub fn write(&self, path: &Path) -> Result<(), RunFolderError> {
        let mut json = serde_json::to_vec_pretty(self).map_err(|error| RunFolderError::io(path, error.into()))?;
        json.push(b'\n');
        write_file_durably(path, &json).map_err(|error| RunFolderError::io(path, error))
    }

    /// # Errors
    /// When the file cannot be read, is cut short, or comes from a newer program.
    pub fn read(path: &Path) -> Result<Self, RunFolderError> {
        let unreadable = |source| RunFolderError::Unreadable { path: path.to_owned(), source };
        let bytes = std::fs::read(path).map_err(|error| RunFolderError::io(path, error))?;
        let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(unreadable)?;
        // A newer format may differ in any field, so the version is looked at alone, before the rest.
        let found = json["version"].as_u64().unwrap_or(0);
        if found > RUN_RECORD_VERSION.into() {
            return Err(RunFolderError::FutureVersion { path: path.to_owned(), found, known: RUN_RECORD_VERSION });
        }
        serde_json::from_value(json).map_err(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RunRecord {
        RunRecord {
            version: RUN_RECORD_VERSION,
            id: new_run_id(Path::new("runs/exp"), 1_700_000_000_000, 42),
            status: RunStatus::Running,
            reason: None,
            created_unix_ms: 1_700_000_000_000,
            versions: BTreeMap::from([("fermata".to_owned(), "0.1.0".to_owned())]),
            seed: 7,
            dataset_fingerprint: Some("ab".repeat(32)),
            parent: None,
            timeline: 0,
            rewind: None,
            accounting: Accounting::default(),
        }
    }

    #[test]
    fn a_record_comes_back_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        record().write(&path).unwrap();
        assert_eq!(RunRecord::read(&path).unwrap(), record());
    }

    #[test]
    fn a_record_of_the_first_version_is_still_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        let old = r#"{"version":1,"id":"0123456789abcdef","status":"finished","reason":"finished","created_unix_ms":1,
            "versions":{},"seed":0,"dataset_fingerprint":"ab"}"#;
        std::fs::write(&path, old).unwrap();
        let record = RunRecord::read(&path).unwrap();
        assert_eq!((record.status, record.timeline, record.parent), (RunStatus::Finished, 0, None));
    }

    #[test]
    fn a_record_cut_short_is_unreadable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        std::fs::write(&path, "{\"version\":1,\"id\":").unwrap();
        assert!(matches!(RunRecord::read(&path), Err(RunFolderError::Unreadable { .. })));
    }

    #[test]
    fn a_record_of_a_newer_program_is_refused_by_its_version() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        std::fs::write(&path, "{\"version\":3,\"identity\":{}}").unwrap();
        assert!(matches!(RunRecord::read(&path), Err(RunFolderError::FutureVersion { found: 3, .. })));
    }

    #[test]
    fn ids_differ_by_folder_time_and_process() {
        let id = |folder, ms, pid| new_run_id(Path::new(folder), ms, pid);
        let ids = [id("a", 1, 1), id("b", 1, 1), id("a", 2, 1), id("a", 1, 2)];
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
        assert_eq!(ids[0].len(), 16);
    }
}
