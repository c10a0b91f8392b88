//! `manifest.json`: what a checkpoint holds and is. It is written last, so a folder with a whole one is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::id::CheckpointId;

/// Version of the format of `manifest.json` that this program writes, and the newest it reads.
pub const MANIFEST_VERSION: u32 = 1;
/// The manifest's name in a checkpoint's folder.
pub const MANIFEST_FILE: &str = "manifest.json";
/// Marks a checkpoint that is never removed. Beside the manifest, not in it, since that never changes.
pub const PIN_FILE: &str = "pinned";

pub const WEIGHTS_FILE: &str = "weights.safetensors";
pub const EMA_FILE: &str = "ema.safetensors";
pub const OPTIMIZER_FILE: &str = "optimizer.safetensors";
pub const STATE_FILE: &str = "state.json";

/// What comes before the hash in the manifest's last line.
const SEAL_KEY: &str = "  \"seal\": \"";
/// More than any manifest has, bytes.
const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// The contents of `manifest.json`, but for its last entry, `seal`: the BLAKE3 of the file up to the seal's line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format version.
    pub version: u32,
    #[serde(flatten)]
    pub about: About,
    /// In the order in which they were written.
    pub files: Vec<FileEntry>,
}

/// What the training says about a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub id: CheckpointId,
    /// Optimizer updates since the run began.
    pub step: u64,
    /// Saved after an epoch was trained and validated, so that it is the state after epoch `id.epoch`.
    pub is_epoch_end: bool,
    /// Its epoch was the best of the run when it was saved.
    pub is_best: bool,
    /// Figures of the last validation by their names in `results.csv` without prefix, such as `mAP50-95`.
    /// What is not finite is left out when saving, since JSON has no word for it.
    pub metrics: BTreeMap<String, f64>,
    /// Why it was saved, such as `pause` or `final`.
    pub tags: Vec<String>,
    /// Counts the rewinds of the run, from 0.
    pub timeline: u32,
    /// The checkpoint, perhaps of another run, that the training came from.
    pub parent: Option<String>,
    /// Milliseconds since 1970, UTC.
    pub created_unix_ms: u64,
    /// BLAKE3 of all that decides how the training goes on, hexadecimal.
    pub state_hash: String,
    /// BLAKE3 of weights and buffers alone, hexadecimal.
    pub weights_hash: String,
}

/// One file of a checkpoint as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Of a file in the folder itself: ASCII letters, digits, `-`, `_`, `.`.
    pub name: String,
    pub bytes: u64,
    /// Hexadecimal.
    pub blake3: String,
}

/// What can be done with a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// Training can go on from it.
    Full,
    /// The model can be used.
    Weights,
    /// Only its figures are left.
    Record,
}

/// A manifest cannot be used.
#[derive(Debug, Error)]
pub enum ManifestError {
    #[error("`{}` has format {found}, but this program knows up to {MANIFEST_VERSION}; use a newer fermata", .path.display())]
    FutureVersion { path: PathBuf, found: u64 },
    #[error("there is none")]
    Missing,
    #[error("{0}")]
    Io(#[source] io::Error),
    #[error("it cannot be understood: {0}")]
    Unreadable(#[source] serde_json::Error),
    #[error("it has more than {MAX_MANIFEST_BYTES} bytes")]
    TooLarge,
    #[error("it is not as it was written")]
    BrokenSeal,
    #[error("it is that of {found}")]
    OtherId { found: CheckpointId },
    #[error("it lists `{name}`, which is no plain file name or is there twice")]
    FileName { name: String },
}

impl Manifest {
    /// Of files with these contents, in this order.
    pub fn of(about: &About, files: &[(String, Vec<u8>)]) -> Self {
        let mut about = about.clone();
        about.metrics.retain(|_, value| value.is_finite());
        let entry = |(name, bytes): &(String, Vec<u8>)| FileEntry {
            name: name.clone(),
            bytes: bytes.len() as u64,
            blake3: blake3::hash(bytes).to_hex().to_string(),
        };
        Self { version: MANIFEST_VERSION, about, files: files.iter().map(entry).collect() }
    }

    pub fn grade(&self) -> Grade {
        let has = |name: &str| self.files.iter().any(|file| file.name == name);
        match (has(WEIGHTS_FILE), has(EMA_FILE)) {
            (true, true) if has(OPTIMIZER_FILE) && has(STATE_FILE) => Grade::Full,
            (false, false) => Grade::Record,
            (true, _) | (_, true) => Grade::Weights,
        }
    }

    /// The bytes of the file, seal included.
    ///
    /// # Errors
    /// When the serialiser fails.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let json = serde_json::to_string_pretty(self)?;
        let body = format!("{},\n", json.trim_end_matches('}').trim_end());
        let seal = blake3::hash(body.as_bytes()).to_hex();
        Ok(format!("{body}{SEAL_KEY}{seal}\"\n}}\n").into_bytes())
    }

    /// Reads the manifest of checkpoint `id` in `folder`. Sizes in it are still to be checked against the files.
    ///
    /// # Errors
    /// [`ManifestError::FutureVersion`] for that of a newer program, which is no damage; else what is wrong with it.
    pub fn read(folder: &Path, id: CheckpointId) -> Result<Self, ManifestError> {
        let path = folder.join(MANIFEST_FILE);
        let bytes = read_bounded(&path)?;
        let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(ManifestError::Unreadable)?;
        // A newer format may differ in any field, so the version is looked at alone, before the rest.
        let found = json["version"].as_u64().unwrap_or(0);
        if found > MANIFEST_VERSION.into() {
            return Err(ManifestError::FutureVersion { path, found });
        }
        check_seal(&bytes, &json)?;
        let manifest: Self = serde_json::from_value(json).map_err(ManifestError::Unreadable)?;
        if manifest.about.id != id {
            return Err(ManifestError::OtherId { found: manifest.about.id });
        }
        match bad_file_name(manifest.files.iter().map(|file| file.name.as_str())) {
            Some(name) => Err(ManifestError::FileName { name: name.to_owned() }),
            None => Ok(manifest),
        }
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, ManifestError> {
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => ManifestError::Missing,
        _ => ManifestError::Io(error),
    })?;
    let mut bytes = Vec::new();
    file.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut bytes).map_err(ManifestError::Io)?;
    if bytes.len() as u64 > MAX_MANIFEST_BYTES { Err(ManifestError::TooLarge) } else { Ok(bytes) }
}

fn check_seal(bytes: &[u8], json: &serde_json::Value) -> Result<(), ManifestError> {
    let body_end = bytes.windows(SEAL_KEY.len()).rposition(|window| window == SEAL_KEY.as_bytes());
    let seal = body_end.map(|end| blake3::hash(&bytes[..end]).to_hex());
    match (seal, json["seal"].as_str()) {
        (Some(seal), Some(written)) if seal.as_str() == written => Ok(()),
        _ => Err(ManifestError::BrokenSeal),
    }
}

/// The first name that may not stand in a manifest: one that is not plain, or was there before.
pub fn bad_file_name<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = BTreeSet::new();
    let mut names = names;
    names.find(|name| !is_plain_file_name(name) || !seen.insert(*name))
}

/// ASCII letters, digits, `-`, `_` and `.`, beginning with a letter or digit: the same file on every system, and never
/// one outside the folder. The store's own two names are not for others.
fn is_plain_file_name(name: &str) -> bool {
    let is_own = [MANIFEST_FILE, PIN_FILE].iter().any(|own| own.eq_ignore_ascii_case(name));
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    is_plain && !is_own && name.len() <= 100 && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests;
