//! Hashes by which two states can be told equal, wherever and in however many sittings they were reached.

use std::collections::BTreeMap;

use serde::Serialize;

use super::saved_state::SavedState;
use crate::checkpoint::tensor_file::little_endian;
use crate::model::{NamedTensor, Scale};
use crate::trainer::early_stop::EarlyStop;
use crate::trainer::event::{LearningRates, Position};
use crate::trainer::state::MeanLosses;

/// Says what is hashed and how; changes with either.
const CONTEXT: &[u8] = b"fermata state 1";

/// The part of `state.json` that decides how training goes on. Names, paths, times, device and lineage are not in it.
#[derive(Serialize)]
struct Hashed<'a> {
    position: Position,
    ema_updates: usize,
    n_open: usize,
    means: MeanLosses,
    lr: LearningRates,
    early_stop: EarlyStop,
    scale: Scale,
    class_names: &'a [String],
    settings: BTreeMap<&'static str, String>,
    dataset_fingerprint: &'a str,
}

/// BLAKE3, in hexadecimal, over the state without tensors (as JSON with fixed order of fields, numbers in the shortest form
/// that reads back equal), and each group of tensors in order of name.
pub fn state_hash(saved: &SavedState, groups: [(&str, &Vec<NamedTensor>); 3]) -> String {
    let hashed = Hashed {
        position: saved.position,
        ema_updates: saved.ema_updates,
        n_open: saved.n_open,
        means: saved.means,
        lr: saved.lr,
        early_stop: saved.early_stop,
        scale: saved.scale,
        class_names: &saved.class_names,
        settings: saved.settings.relevant(),
        dataset_fingerprint: &saved.dataset_fingerprint,
    };
    let mut hasher = blake3::Hasher::new();
    hasher.update(CONTEXT);
    // Numbers, text and lists of them always have a JSON form.
    update(&mut hasher, serde_json::to_string(&hashed).unwrap_or_default().as_bytes());
    for (group, tensors) in groups {
        update(&mut hasher, group.as_bytes());
        update_tensors(&mut hasher, tensors);
    }
    hasher.finalize().to_hex().to_string()
}

/// BLAKE3, in hexadecimal, over the weights and running statistics in order of name.
pub fn weights_hash(weights: &[NamedTensor]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(CONTEXT);
    update_tensors(&mut hasher, weights);
    hasher.finalize().to_hex().to_string()
}

fn update_tensors(hasher: &mut blake3::Hasher, tensors: &[NamedTensor]) {
    let mut in_order: Vec<&NamedTensor> = tensors.iter().collect();
    in_order.sort_by(|one, other| one.name.cmp(&other.name));
    hasher.update(&(in_order.len() as u64).to_le_bytes());
    for tensor in in_order {
        update(hasher, tensor.name.as_bytes());
        hasher.update(&(tensor.shape.len() as u64).to_le_bytes());
        for side in &tensor.shape {
            hasher.update(&(*side as u64).to_le_bytes());
        }
        update(hasher, &little_endian(&tensor.values));
    }
}

/// The length goes first, so that no two lists of texts look alike.
fn update(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}
