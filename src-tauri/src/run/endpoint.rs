//! Where a supervisor listens: a local socket with a short name, and the file in the run folder that names it.
//!
//! A Unix socket's path has little more than a hundred bytes, so it lies in the user's runtime folder under a hash of the run
//! folder's path; on Windows it is a named pipe.

#[cfg(unix)]
mod folder;

use std::io;
use std::path::{Path, PathBuf};

use interprocess::local_socket::tokio::Listener;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, ToFsName};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::durable::write_file_durably;
use crate::trainer::clock::unix_ms;
use crate::trainer::run_folder::RunPaths;

/// Version of the format of `endpoint.json`.
const ENDPOINT_VERSION: u32 = 1;

/// A supervisor cannot be reached, or cannot make itself reachable.
#[derive(Debug, Error)]
pub enum EndpointError {
    #[error("cannot listen at `{address}`: {source}")]
    CannotListen { address: String, source: io::Error },
    #[error("`{}` must be a folder that belongs to this user alone; remove it, or set XDG_RUNTIME_DIR", .path.display())]
    NotOurs { path: PathBuf },
    #[error("`{}`: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("`{}` cannot be understood: {source}", .path.display())]
    Unreadable { path: PathBuf, source: serde_json::Error },
    #[error("`{}` has format {found}, but this program knows {ENDPOINT_VERSION}; use a newer fermata", .path.display())]
    OtherVersion { path: PathBuf, found: u64 },
}

/// The contents of `endpoint.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointRecord {
    pub version: u32,
    /// A socket's path, or a pipe's name.
    pub address: String,
    /// For people; whether it lives is decided by its lock.
    pub supervisor_pid: u32,
    /// Milliseconds since 1970, UTC.
    pub started_unix_ms: u64,
    /// Version of the program.
    pub program: String,
}

impl EndpointRecord {
    /// # Errors
    /// When the file is not there, cannot be understood, or comes from another version.
    pub fn read(path: &Path) -> Result<Self, EndpointError> {
        let bytes = std::fs::read(path).map_err(|source| EndpointError::Io { path: path.to_owned(), source })?;
        let unreadable = |source| EndpointError::Unreadable { path: path.to_owned(), source };
        let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(unreadable)?;
        let found = json["version"].as_u64().unwrap_or(0);
        if found != u64::from(ENDPOINT_VERSION) {
            return Err(EndpointError::OtherVersion { path: path.to_owned(), found });
        }
        serde_json::from_value(json).map_err(unreadable)
    }
}

/// A place where a supervisor listens; taken away again when it is dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: String,
    record_path: PathBuf,
}

impl Endpoint {
    /// Listens for a run whose lock is held, in place of a dead supervisor if there was one. Needs a runtime.
    ///
    /// # Errors
    /// When the socket or the file cannot be made.
    pub fn open(paths: &RunPaths) -> Result<(Self, Listener), EndpointError> {
        let address = address_of(paths.root())?;
        let cannot = |source| EndpointError::CannotListen { address: address.clone(), source };
        let name = address.as_str().to_fs_name::<GenericFilePath>().map_err(cannot)?;
        // Whoever holds the run's lock is alone, so a socket of this name is a dead one's.
        let listener = ListenerOptions::new().name(name).try_overwrite(true).create_tokio().map_err(cannot)?;
        let endpoint = Self { address, record_path: paths.endpoint_json() };
        endpoint.write()?;
        Ok((endpoint, listener))
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    fn write(&self) -> Result<(), EndpointError> {
        let record = EndpointRecord {
            version: ENDPOINT_VERSION,
            address: self.address.clone(),
            supervisor_pid: std::process::id(),
            started_unix_ms: unix_ms(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let io = |source| EndpointError::Io { path: self.record_path.clone(), source };
        let json = serde_json::to_vec_pretty(&record).map_err(|error| io(error.into()))?;
        write_file_durably(&self.record_path, &json).map_err(io)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // What stays behind is swept by the next supervisor; clients go by the lock.
        let _ = std::fs::remove_file(&self.record_path);
        #[cfg(unix)]
        let _ = std::fs::remove_file(&self.address);
    }
}

/// 16 hexadecimal digits that belong to a run folder, however it is spelt.
fn hash_of(run_folder: &Path) -> Result<String, EndpointError> {
    let path = std::fs::canonicalize(run_folder)
        .map_err(|source| EndpointError::Io { path: run_folder.to_owned(), source })?;
    Ok(blake3::hash(path.as_os_str().as_encoded_bytes()).to_hex()[..16].to_owned())
}

#[cfg(unix)]
fn address_of(run_folder: &Path) -> Result<String, EndpointError> {
    folder::socket_path(&format!("{}.sock", hash_of(run_folder)?))
}

#[cfg(windows)]
fn address_of(run_folder: &Path) -> Result<String, EndpointError> {
    Ok(format!(r"\\.\pipe\fermata-{}", hash_of(run_folder)?))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_names_its_socket_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let paths = RunPaths::of(dir.path());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (endpoint, listener) = Endpoint::open(&paths).unwrap();
            let record = EndpointRecord::read(&paths.endpoint_json()).unwrap();
            assert_eq!((record.address.as_str(), record.supervisor_pid), (endpoint.address(), std::process::id()));
            assert!(Path::new(&record.address).exists());
            drop((listener, endpoint));
            assert!(!Path::new(&record.address).exists() && !paths.endpoint_json().exists());
        });
    }

    #[test]
    fn a_dead_supervisors_socket_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let paths = RunPaths::of(dir.path());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let address = address_of(paths.root()).unwrap();
            // A socket that nobody listens at any more stays in its folder.
            drop(std::os::unix::net::UnixListener::bind(&address).unwrap());
            assert!(Path::new(&address).exists());
            assert!(Endpoint::open(&paths).is_ok());
        });
    }

    #[test]
    fn an_endpoint_of_another_version_is_told_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("endpoint.json");
        std::fs::write(&path, "{\"version\":2}").unwrap();
        assert!(matches!(EndpointRecord::read(&path), Err(EndpointError::OtherVersion { found: 2, .. })));
        std::fs::write(&path, "{\"vers").unwrap();
        assert!(matches!(EndpointRecord::read(&path), Err(EndpointError::Unreadable { .. })));
    }
}
