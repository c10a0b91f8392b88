//! A model looking at images, one after the other.

use std::path::{Path, PathBuf};

use burn::prelude::*;
use image::RgbImage;
use thiserror::Error;

use super::Prediction;
use crate::augment::{Letterbox, SizePx};
use crate::checkpoint::{Weights, WeightsError};
use crate::dataset::batch::Batch;
use crate::dataset::decode::{DecodeError, decode_rgb};
use crate::exit::Reason;
use crate::metrics::NmsSettings;
use crate::model::{Detector, ModelConfig, decode_detections};
use crate::trainer::config::{IMGSZ_MULTIPLE, PredictConfig};
use crate::trainer::{TrainError, open_device, suppressed, take_images};

/// Goes through the images of a source in order of path, giving each with its detections.
pub struct Predictor {
    model: Detector,
    class_names: Vec<String>,
    imgsz: u32,
    nms: NmsSettings,
    files: std::vec::IntoIter<PathBuf>,
}

#[derive(Debug, Error)]
pub enum PredictError {
    #[error(transparent)]
    Open(#[from] TrainError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error("`source={}` cannot be read: {source}", .path.display())]
    Source { path: PathBuf, source: std::io::Error },
    #[error("`{}` cannot be read: {source}", .path.display())]
    Image { path: PathBuf, source: DecodeError },
}

/// File name endings that are taken for images in a folder; what is in a file decides how it is read.
const IMAGE_ENDINGS: [&str; 11] = ["jpg", "jpeg", "png", "bmp", "webp", "tif", "tiff", "gif", "mpo", "ppm", "pgm"];

impl PredictError {
    /// The other images can still be looked at.
    pub fn is_about_one_image(&self) -> bool {
        matches!(self, Self::Image { .. })
    }

    /// What the process ends with when this ends it.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Open(error) => error.reason(),
            Self::Weights(WeightsError::Io { .. }) | Self::Source { .. } => Reason::Io,
            Self::Weights(_) => Reason::UnknownModel,
            Self::Image { .. } => Reason::DatasetUnreadable,
        }
    }
}

impl Predictor {
    /// # Errors
    /// When the device is absent, or the weights or the source cannot be read.
    pub fn open(config: &PredictConfig) -> Result<Self, PredictError> {
        let device = open_device(config.device)?;
        let files = image_files(&config.source)
            .map_err(|source| PredictError::Source { path: config.source.clone(), source })?;
        let weights = Weights::read(&config.model)?;
        let class_names = weights.info.class_names.clone();
        let imgsz = if config.imgsz == 0 { weights.info.imgsz } else { config.imgsz };
        let fresh = ModelConfig::new(weights.info.scale, class_names.len()).init(0, &device.device);
        let model = weights.fill(fresh, &config.model)?;
        let nms = NmsSettings::predict().with_limits(config.conf, config.iou, config.max_det);
        Ok(Self { model, class_names, imgsz, nms, files: files.into_iter() })
    }

    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn look_at(&self, image_path: PathBuf) -> Result<(RgbImage, Prediction), PredictError> {
        let image =
            decode_rgb(&image_path).map_err(|source| PredictError::Image { path: image_path.clone(), source })?;
        let letterbox = Letterbox::minimal(SizePx::of(&image), self.imgsz, IMGSZ_MULTIPLE);
        let mut batch = Batch::with_capacity(0, letterbox.canvas(), 1);
        batch.push(0, &letterbox.apply(&image), std::iter::empty());
        let decoded: Tensor<3> = decode_detections(&self.model.forward(take_images(&mut batch, &self.model)));
        let mut found = suppressed(decoded, &[letterbox], &self.nms, self.class_names.len());
        let (width_px, height_px) = image.dimensions();
        let detections = found.pop().unwrap_or_default();
        Ok((image, Prediction { image_path, width_px, height_px, detections }))
    }
}

impl Iterator for Predictor {
    type Item = Result<(RgbImage, Prediction), PredictError>;

    fn next(&mut self) -> Option<Self::Item> {
        let file = self.files.next()?;
        Some(self.look_at(file))
    }
}

/// The file itself, or the images directly in the folder, in order of path.
fn image_files(source: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !source.is_dir() {
        return Ok(vec![source.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(source)? {
        let path = entry?.path();
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        if path.is_file() && ending.is_some_and(|ending| IMAGE_ENDINGS.contains(&ending.as_str())) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
