//! What a training begins or goes on with: the device and a state on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::Module;

use super::TrainError;
use super::config::{Change, ModelChoice, OF_WHOLE_EPOCHS, TrainConfig};
use super::data::TrainData;
use super::device::{DeviceChoice, OpenDevice, ProbeCommand, open};
use super::optimizer::Optimizer;
use super::schedule::Schedule;
use super::snapshot::{SavedFiles, SavedState};
use super::state::TrainState;
use crate::checkpoint::{CheckpointId, CheckpointStore, Transfer, Weights, WeightsInfo};
use crate::model::ModelConfig;

/// A training that can begin or go on, with how it came about.
pub struct Start {
    pub state: TrainState,
    /// The device in words, with the reason of each fall-back.
    pub device: String,
    /// The device alone, with its instruction set: what the numbers depend on.
    pub device_identity: String,
    pub origin: Origin,
}

/// Where a training comes from.
pub enum Origin {
    /// Its beginning; some weights may have come from a file.
    Beginning {
        transfer: Option<Transfer>,
    },
    Checkpoint(Box<Restored>),
}

/// What was found in a checkpoint beside the training's own state.
pub struct Restored {
    /// The checkpoint's folder.
    pub checkpoint: PathBuf,
    pub saved: SavedState,
    /// Settings that are other than they were when it was saved.
    pub changes: Vec<Change>,
}

/// Opens the device that was asked for.
///
/// # Errors
/// When it is absent or not compiled in.
pub fn open_device(choice: DeviceChoice) -> Result<OpenDevice, TrainError> {
    let probe = ProbeCommand::this_program().map_err(|source| TrainError::OwnFile { source })?;
    Ok(open(choice, &probe, &cache_folder())?)
}

/// The user's cache folder for this program.
pub fn cache_folder() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::home_dir().map(|home| home.join(".cache"));
    base.or_else(home).unwrap_or_else(std::env::temp_dir).join("fermata")
}

impl Start {
    /// A training that begins.
    ///
    /// # Errors
    /// When a named file of weights cannot be used.
    pub fn at_the_beginning(config: &TrainConfig, data: &TrainData, device: &OpenDevice) -> Result<Self, TrainError> {
        let (scale, file) = match config.model_choice()? {
            ModelChoice::Scale(scale) => (scale, config.pretrained.as_deref().map(read).transpose()?),
            ModelChoice::File(path) => {
                let weights = read(&path)?;
                (weights.info.scale, Some(weights))
            }
        };
        let fresh = ModelConfig::new(scale, data.class_names.len()).init(config.seed, &device.device);
        let (model, transfer) = match file {
            Some(weights) => {
                let (model, transfer) = weights.transfer(fresh);
                (model, Some(transfer))
            }
            None => (fresh, None),
        };
        let info = WeightsInfo::new(scale, data.class_names.clone(), config.imgsz);
        let state = TrainState::new(model.train(), info, optimizer(config, data));
        Ok(Self::on(device, state, Origin::Beginning { transfer }))
    }

    /// A training that goes on from a checkpoint's folder. Every file in it is compared with its hash.
    ///
    /// # Errors
    /// When the checkpoint is damaged, the dataset is another one, or a setting cannot be changed where it was saved.
    pub fn from_checkpoint(
        folder: &Path,
        config: &TrainConfig,
        data: &TrainData,
        device: &OpenDevice,
    ) -> Result<Self, TrainError> {
        let checkpoint = folder.to_owned();
        let files = read_checkpoint(folder)?;
        let unusable = |source| TrainError::Snapshot { checkpoint: checkpoint.clone(), source };
        let files = SavedFiles::read(&files, folder).map_err(unusable)?;
        let saved = files.saved.clone();
        if saved.dataset_fingerprint != data.fingerprint || saved.class_names != data.class_names {
            return Err(TrainError::OtherData { checkpoint, path: config.data.clone() });
        }
        let changes = config.changes_since(&saved.settings);
        let is_inside = !saved.position.is_epoch_done && saved.position.batch > 0;
        if let Some(change) = changes.iter().find(|change| is_inside && OF_WHOLE_EPOCHS.contains(&change.key)) {
            return Err(TrainError::InsideEpoch { key: change.key, epoch: saved.position.epoch });
        }
        let state = files.restore(config, optimizer(config, data), &device.device, folder).map_err(unusable)?;
        Ok(Self::on(device, state, Origin::Checkpoint(Box::new(Restored { checkpoint, saved, changes }))))
    }

    fn on(device: &OpenDevice, state: TrainState, origin: Origin) -> Self {
        let info = &device.info;
        let device_identity = format!("{} ({}, {})", info.id, info.name, info.interface);
        Self { state, device: in_words(device), device_identity, origin }
    }
}

fn optimizer(config: &TrainConfig, data: &TrainData) -> Optimizer {
    Optimizer::new(config.rule(), Schedule::of(config, data.n_train()).scaled_weight_decay())
}

fn read_checkpoint(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, TrainError> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let id: CheckpointId = name.parse()?;
    let run_folder = folder.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    Ok(CheckpointStore::of(run_folder).read(id)?)
}

fn read(path: &Path) -> Result<Weights, TrainError> {
    Ok(Weights::read(path)?)
}

fn in_words(device: &OpenDevice) -> String {
    let mut text = format!("{} ({})", device.info.id, device.info.name);
    for obstacle in &device.fallbacks {
        text.push_str(&format!("; {}", obstacle.message));
    }
    text
}
