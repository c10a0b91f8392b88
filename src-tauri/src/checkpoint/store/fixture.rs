//! Small checkpoints for the tests of this module and its users.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{Checkpoint, CheckpointStore, Draft};
use crate::checkpoint::id::CheckpointId;
use crate::checkpoint::manifest::{About, EMA_FILE, Manifest, OPTIMIZER_FILE, STATE_FILE, WEIGHTS_FILE};

pub fn id(epoch: u32, n_batches: u64) -> CheckpointId {
    CheckpointId { n_batches, epoch }
}

/// At the end of an epoch, without figures; the hashes follow from the id.
pub fn about(id: CheckpointId) -> About {
    let hash = |what: &str| blake3::hash(format!("{what} {id}").as_bytes()).to_hex().to_string();
    About {
        id,
        step: id.n_batches,
        is_epoch_end: true,
        is_best: false,
        metrics: BTreeMap::new(),
        tags: Vec::new(),
        timeline: 0,
        parent: None,
        created_unix_ms: 1_700_000_000_000,
        state_hash: hash("state"),
        weights_hash: hash("weights"),
    }
}

/// A full checkpoint of a few hundred bytes, none of them zero.
pub fn draft(id: CheckpointId) -> Draft {
    let file = |name: &str, n_bytes: usize| {
        let first = id.n_batches as usize;
        (name.to_owned(), (0..n_bytes).map(|at| ((first + at) % 255) as u8 + 1).collect())
    };
    let files = vec![file(WEIGHTS_FILE, 120), file(EMA_FILE, 121), file(OPTIMIZER_FILE, 240), file(STATE_FILE, 60)];
    Draft { about: about(id), files }
}

/// A checkpoint of which only the model is left.
pub fn weights_draft(id: CheckpointId) -> Draft {
    let mut draft = draft(id);
    draft.files.truncate(2);
    draft
}

/// The folder of a run, with a space and other letters than ASCII in its path.
pub fn run_dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(RUN_NAME)).unwrap();
    dir
}

pub fn store_in(dir: &TempDir) -> CheckpointStore {
    CheckpointStore::of(&dir.path().join(RUN_NAME))
}

const RUN_NAME: &str = "мой run 数据";

pub fn save_each(store: &CheckpointStore, ids: &[CheckpointId]) {
    for id in ids {
        store.save(&draft(*id)).unwrap();
    }
}

/// As [`CheckpointStore::list`] would give it, but on no disk.
pub fn listed(draft: &Draft, is_pinned: bool) -> Checkpoint {
    let manifest = Manifest::of(&draft.about, &draft.files);
    let path = Path::new("checkpoints").join(draft.about.id.to_string());
    let bytes = draft.files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    Checkpoint { manifest, path, bytes, is_pinned }
}

/// What becomes of a file's bytes; `None` when the file is gone.
type Harm = fn(Vec<u8>) -> Option<Vec<u8>>;

/// The ways in which a disk, a power cut or a copy spoils a file.
pub const HARMS: [(&str, Harm); 5] = [
    ("gone", |_| None),
    ("cut to 60 %", |bytes| Some(bytes[..bytes.len() * 6 / 10].to_vec())),
    ("0 bytes", |_| Some(Vec::new())),
    ("zeros", |bytes| Some(vec![0; bytes.len()])),
    ("a flipped bit", |mut bytes| {
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        Some(bytes)
    }),
];

/// Spoils a file as one of [`HARMS`] does.
pub fn spoil(path: &Path, harm: Harm) {
    match harm(fs::read(path).unwrap()) {
        Some(bytes) => fs::write(path, bytes).unwrap(),
        None => fs::remove_file(path).unwrap(),
    }
}
