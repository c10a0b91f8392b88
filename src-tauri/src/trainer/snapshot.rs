//! The whole state of a training on the host: taken between two batches, turned into a checkpoint's files, and back.
//!
//! Numbers are kept in full precision; a training that goes on from a snapshot takes the same steps, bit for bit, as one that was
//! never interrupted.

mod hash;
mod saved_state;

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::prelude::*;
use thiserror::Error;

use super::config::TrainConfig;
use super::ema::Ema;
use super::flat_tensors::MisfitError;
use super::gradients::NamedGradients;
use super::optimizer::Optimizer;
use super::state::TrainState;
use crate::checkpoint::tensor_file::{tensors_from_bytes, tensors_to_bytes};
use crate::checkpoint::{EMA_FILE, OPTIMIZER_FILE, STATE_FILE, WEIGHTS_FILE, Weights, WeightsError, WeightsInfo};
use crate::model::{Detector, ModelConfig, NamedTensor, export_tensors};

pub use saved_state::{Edit, SavedState, Surroundings};

/// A training's state between two batches, on the host.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub saved: SavedState,
    info: WeightsInfo,
    /// Parameters and running statistics.
    weights: Vec<NamedTensor>,
    ema: Vec<NamedTensor>,
    /// Moments and open gradients.
    optimizer: Vec<NamedTensor>,
}

/// A checkpoint's files do not make a state.
#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error("the checkpoint has no `{name}`")]
    FileMissing { name: &'static str },
    #[error(
        "the checkpoint's state.json has version {found}, but this program knows up to {known}; use a newer fermata"
    )]
    FutureVersion { found: u64, known: u32 },
    #[error("the checkpoint's state.json cannot be understood: {0}")]
    State(#[from] serde_json::Error),
    #[error("the checkpoint's tensors cannot be read: {0}")]
    Tensors(#[from] safetensors::SafeTensorError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error("the checkpoint's optimizer.safetensors does not belong to its model: {0}")]
    Misfit(#[from] MisfitError),
}

impl Snapshot {
    /// Copies the state to the host. Waits for the device; nothing is encoded or written yet.
    pub fn take(state: &TrainState, surroundings: &Surroundings) -> Self {
        let moments = state.optimizer.export();
        let gradients = state.open.as_ref().map(NamedGradients::export).unwrap_or_default();
        let saved = SavedState::of(state, surroundings, (moments.len(), gradients.len()));
        Self {
            saved,
            info: state.weights_info(),
            weights: export_tensors(state.model()),
            ema: export_tensors(state.averaged()),
            optimizer: moments.into_iter().chain(gradients).collect(),
        }
    }

    /// Bytes of the averaged weights as a file of their own, for `weights/`.
    ///
    /// # Errors
    /// When a tensor cannot be put into the format.
    pub fn averaged_file(&self) -> Result<Vec<u8>, safetensors::SafeTensorError> {
        Weights::bytes_of(&self.ema, &self.info)
    }

    /// About how many bytes [`Self::averaged_file`] has.
    pub fn averaged_bytes(&self) -> u64 {
        self.ema.iter().map(|tensor| tensor.values.len() as u64 * 4).sum()
    }

    /// The files of a checkpoint, by name.
    ///
    /// # Errors
    /// When a tensor or the state cannot be put into its format.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, SnapshotError> {
        let mut state = serde_json::to_vec_pretty(&self.saved)?;
        state.push(b'\n');
        Ok(vec![
            (WEIGHTS_FILE.to_owned(), Weights::bytes_of(&self.weights, &self.info)?),
            (EMA_FILE.to_owned(), self.averaged_file()?),
            (OPTIMIZER_FILE.to_owned(), tensors_to_bytes(&self.optimizer)?),
            (STATE_FILE.to_owned(), state),
        ])
    }

    /// Hash of all that decides how training goes on.
    pub fn state_hash(&self) -> String {
        hash::state_hash(&self.saved, [("weights", &self.weights), ("ema", &self.ema), ("optimizer", &self.optimizer)])
    }

    /// Hash of the weights and running statistics alone.
    pub fn weights_hash(&self) -> String {
        hash::weights_hash(&self.weights)
    }
}

/// A checkpoint's files, read and understood, but not yet on a device.
pub struct SavedFiles {
    pub saved: SavedState,
    weights: Weights,
    ema: Weights,
    optimizer: BTreeMap<String, NamedTensor>,
}

impl SavedFiles {
    /// `folder` is for messages.
    ///
    /// # Errors
    /// When a file is missing, or cannot be understood by this version.
    pub fn read(files: &BTreeMap<String, Vec<u8>>, folder: &Path) -> Result<Self, SnapshotError> {
        let file = |name| files.get(name).map(Vec::as_slice).ok_or(SnapshotError::FileMissing { name });
        Ok(Self {
            saved: SavedState::read(file(STATE_FILE)?)?,
            weights: Weights::from_bytes(file(WEIGHTS_FILE)?, &folder.join(WEIGHTS_FILE))?,
            ema: Weights::from_bytes(file(EMA_FILE)?, &folder.join(EMA_FILE))?,
            optimizer: tensors_from_bytes(file(OPTIMIZER_FILE)?)?,
        })
    }

    /// Puts the state on a device. Every tensor of the model, every moment and every open gradient that was saved must find
    /// its place.
    ///
    /// # Errors
    /// When one does not.
    pub fn restore(
        mut self,
        config: &TrainConfig,
        mut optimizer: Optimizer,
        device: &Device,
        folder: &Path,
    ) -> Result<TrainState, SnapshotError> {
        let saved = self.saved;
        let mut info = self.weights.info.clone();
        info.imgsz = config.imgsz;
        let fresh = || ModelConfig::new(info.scale, info.class_names.len()).init(0, device);
        let model: Detector = self.weights.fill(fresh(), &folder.join(WEIGHTS_FILE))?.train();
        let averaged = self.ema.fill(fresh(), &folder.join(EMA_FILE))?.valid();
        let expected = saved.n_moments + saved.n_gradients;
        if self.optimizer.len() != expected {
            return Err(MisfitError::Count { found: self.optimizer.len(), expected }.into());
        }
        optimizer.restore(saved.position.step as usize, &mut self.optimizer, &model)?;
        let open = NamedGradients::restore(&mut self.optimizer, &model)?;
        if let Some(name) = self.optimizer.into_keys().next() {
            return Err(MisfitError::Unknown { name }.into());
        }
        let mut state = TrainState::new(model, info, optimizer);
        state.ema = Ema::restore(averaged, saved.ema_updates);
        state.open = (saved.n_open > 0).then_some(open);
        state.n_open = saved.n_open;
        (state.epoch, state.batch) = (saved.position.epoch, saved.position.batch);
        state.is_epoch_done = saved.position.is_epoch_done;
        state.n_batches = saved.position.n_batches;
        state.means = saved.means;
        state.lr = saved.lr;
        state.early_stop = saved.early_stop;
        Ok(state)
    }
}

#[cfg(test)]
mod tests;
