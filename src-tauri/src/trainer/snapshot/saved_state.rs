//! `state.json`: all of a checkpoint that is no tensor.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::SnapshotError;
use crate::model::Scale;
use crate::trainer::config::TrainConfig;
use crate::trainer::early_stop::EarlyStop;
use crate::trainer::event::{LearningRates, Position};
use crate::trainer::state::{MeanLosses, TrainState};

/// Version of the format that this program writes, and the newest it reads.
const STATE_VERSION: u32 = 1;

/// The contents of `state.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedState {
    version: u32,
    pub position: Position,
    /// Updates of the average.
    pub ema_updates: usize,
    /// Batches whose gradients are open.
    pub n_open: usize,
    /// Tensors of moments in `optimizer.safetensors`.
    pub n_moments: usize,
    /// Tensors of open gradients in it.
    pub n_gradients: usize,
    /// Losses of the epoch in progress.
    pub means: MeanLosses,
    /// Rates of the last batch.
    pub lr: LearningRates,
    pub early_stop: EarlyStop,
    pub scale: Scale,
    pub class_names: Vec<String>,
    /// All settings in force.
    pub settings: TrainConfig,
    /// Settings that were changed on the way, oldest first.
    pub journal: Vec<Edit>,
    /// Hash of the dataset's contents.
    pub dataset_fingerprint: String,
    /// The device it was trained on, with its instruction set.
    pub device: String,
    /// Of this program and of what its numbers depend on.
    pub versions: BTreeMap<String, String>,
    pub timeline: u32,
    /// Name of the checkpoint that the sitting went on from.
    pub parent: Option<String>,
    /// Seconds of training so far, pauses left out.
    pub time_s: f64,
}

/// A setting that was changed while a run stood still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// Batches trained before it.
    pub n_batches: u64,
    pub key: String,
    pub old: String,
    pub new: String,
}

/// What a snapshot tells beyond the training's own state.
#[derive(Debug, Clone, PartialEq)]
pub struct Surroundings {
    pub settings: TrainConfig,
    pub journal: Vec<Edit>,
    pub dataset_fingerprint: String,
    pub device: String,
    pub versions: BTreeMap<String, String>,
    pub timeline: u32,
    pub parent: Option<String>,
    pub time_s: f64,
}

impl SavedState {
    /// `counts` are of the moments' and the open gradients' tensors.
    pub(super) fn of(state: &TrainState, surroundings: &Surroundings, counts: (usize, usize)) -> Self {
        let Surroundings { settings, journal, dataset_fingerprint, device, versions, timeline, parent, time_s } =
            surroundings.clone();
        Self {
            version: STATE_VERSION,
            position: state.position(),
            ema_updates: state.ema.n_updates(),
            n_open: state.n_open,
            n_moments: counts.0,
            n_gradients: counts.1,
            means: state.means,
            lr: state.lr,
            early_stop: state.early_stop,
            scale: state.info.scale,
            class_names: state.info.class_names.clone(),
            settings,
            journal,
            dataset_fingerprint,
            device,
            versions,
            timeline,
            parent,
            time_s,
        }
    }

    /// # Errors
    /// When the text is none of this format, or of a newer version.
    pub fn read(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let json: serde_json::Value = serde_json::from_slice(bytes)?;
        // A newer format may differ in any field, so the version is looked at alone, before the rest.
        let found = json["version"].as_u64().unwrap_or(0);
        if found > STATE_VERSION.into() {
            return Err(SnapshotError::FutureVersion { found, known: STATE_VERSION });
        }
        Ok(serde_json::from_value(json)?)
    }
}
