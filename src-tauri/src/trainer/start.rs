//! What a training begins with: the device and a model on it.

use std::path::{Path, PathBuf};

use burn::module::Module;

use super::TrainError;
use super::config::{ModelChoice, TrainConfig};
use super::data::TrainData;
use super::device::{DeviceChoice, OpenDevice, ProbeCommand, open};
use crate::checkpoint::{Transfer, Weights, WeightsInfo};
use crate::model::{Detector, ModelConfig};

/// A model in training mode, with how it came about.
pub struct Start {
    pub model: Detector,
    pub info: WeightsInfo,
    /// The device in words, with the reason of each fall-back.
    pub device: String,
    /// Set if weights were taken from a file.
    pub transfer: Option<Transfer>,
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
    /// # Errors
    /// When a named file of weights cannot be used.
    pub fn new(config: &TrainConfig, data: &TrainData, device: &OpenDevice) -> Result<Self, TrainError> {
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
        Ok(Self { model: model.train(), info, device: in_words(device), transfer })
    }
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
