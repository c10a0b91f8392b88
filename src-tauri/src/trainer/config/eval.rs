//! Settings of validating a model and of predicting with it.

use std::path::{Path, PathBuf};

use super::setting::{Accepts, settings};
use super::{
    ConfigError, DEVICE_NAMES, ImgszRounded, ModelChoice, check_folder_name, require, require_model, require_path,
    round_imgsz,
};
use crate::dataset::{OpenOptions, Split};
use crate::trainer::device::{DeviceChoice, n_cores};

const EXAMPLE_MODEL: &str = "runs/exp/weights/best.safetensors";

settings! {
    /// Which model is measured, on which images.
    pub struct ValConfig {
        /// The file of weights to measure. Must be given.
        model: PathBuf = PathBuf::new(), Accepts::Text("a file of weights");
        /// The dataset: a data.yaml, a COCO .json, or a folder of images with labels. Must be given.
        data: PathBuf = PathBuf::new(), Accepts::Text("a path");
        /// The part of the dataset to measure on.
        split: Split = Split::Val, Accepts::OneOf(&["train", "val", "test"]);
        /// Part of the training images that training set aside for validation, so that the same ones are measured on.
        /// (Not a key of the reference.)
        val_split: f64 = 0.0, Accepts::Number { min: 0.0, max: 0.9 };
        /// Longer side of the network input in pixels, rounded up to a multiple of 32; 0 for the size the model was trained
        /// on. (The reference's default is 640.)
        imgsz: u32 = 0, Accepts::Whole { min: 0, max: 8192 };
        /// Images in one forward pass.
        batch: usize = 16, Accepts::Whole { min: 1, max: 4096 };
        /// Where to compute; auto takes CUDA, else a GPU through wgpu, else the CPU.
        device: DeviceChoice = DeviceChoice::Auto, Accepts::Text(DEVICE_NAMES);
        /// Threads that load images; 0 loads in the calling thread. The default is this machine's number of cores.
        workers: usize = n_cores(), Accepts::Whole { min: 0, max: 256 };
        /// Least confidence of a detection that is counted.
        conf: f64 = 0.001, Accepts::Number { min: 0.0, max: 1.0 };
        /// Overlap (IoU) above which non-maximum suppression drops the less confident box.
        iou: f64 = 0.7, Accepts::Number { min: 0.0, max: 1.0 };
        /// Most detections that are kept of an image.
        max_det: usize = 300, Accepts::Whole { min: 1, max: 100_000 };
        /// Print one JSON object instead of a table. (Not a key of the reference.)
        json: bool = false, Accepts::Switch;
    }
    fixed {
        "agnostic_nms": "False"; "augment": "False"; "classes": "None"; "dnn": "False"; "half": "False"; "mode": "val";
        "plots": "False"; "rect": "-"; "save_json": "False"; "save_txt": "False"; "single_cls": "False";
        "task": "detect"; "verbose": "True";
    }
}

settings! {
    /// Which model looks at which images, and what is kept of its detections.
    pub struct PredictConfig {
        /// The file of weights to use. Must be given.
        model: PathBuf = PathBuf::new(), Accepts::Text("a file of weights");
        /// An image, or a folder of images. Must be given.
        source: PathBuf = PathBuf::new(), Accepts::Text("a file or folder");
        /// Longer side of the network input in pixels, rounded up to a multiple of 32; 0 for the size the model was trained
        /// on. (The reference's default is 640.)
        imgsz: u32 = 0, Accepts::Whole { min: 0, max: 8192 };
        /// Where to compute; auto takes CUDA, else a GPU through wgpu, else the CPU.
        device: DeviceChoice = DeviceChoice::Auto, Accepts::Text(DEVICE_NAMES);
        /// Least confidence of a detection that is shown.
        conf: f64 = 0.25, Accepts::Number { min: 0.0, max: 1.0 };
        /// Overlap (IoU) above which non-maximum suppression drops the less confident box.
        iou: f64 = 0.7, Accepts::Number { min: 0.0, max: 1.0 };
        /// Most detections that are kept of an image.
        max_det: usize = 300, Accepts::Whole { min: 1, max: 100_000 };
        /// Folder that holds the outputs; made if it is not there.
        project: PathBuf = PathBuf::from("runs"), Accepts::Text("a folder");
        /// Folder of these outputs inside project; a taken name becomes name2, name3 and so on.
        name: String = "predict".to_owned(), Accepts::Text("a folder name");
        /// Use the folder even if it exists.
        exist_ok: bool = false, Accepts::Switch;
        /// Write a copy of each image with its boxes drawn in.
        save: bool = true, Accepts::Switch;
        /// Write labels/IMAGE.txt with one line `class cx cy w h` for each box, divided by the image's width and
        /// height.
        save_txt: bool = false, Accepts::Switch;
        /// Add the confidence to each of these lines.
        save_conf: bool = false, Accepts::Switch;
        /// Print one JSON object instead of lines. (Not a key of the reference.)
        json: bool = false, Accepts::Switch;
    }
    fixed {
        "agnostic_nms": "False"; "augment": "False"; "classes": "None"; "dnn": "False"; "embed": "None";
        "half": "False"; "line_width": "-"; "mode": "predict"; "retina_masks": "False"; "save_crop": "False";
        "save_frames": "False"; "show": "False"; "show_boxes": "True"; "show_conf": "True"; "show_labels": "True";
        "stream_buffer": "False"; "task": "detect"; "verbose": "True"; "vid_stride": "1"; "visualize": "False";
    }
}

impl ValConfig {
    /// How the dataset is to be opened.
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions { val_split: (self.val_split > 0.0).then_some(self.val_split), ..OpenOptions::default() }
    }

    /// Looks at the settings together, as [`super::TrainConfig::check`] does.
    ///
    /// # Errors
    /// The first that fails of: what must be given (2), the model's name (78), missing paths (66).
    pub fn check(&mut self) -> Result<Option<ImgszRounded>, ConfigError> {
        require("model", &self.model, EXAMPLE_MODEL)?;
        require("data", &self.data, "data.yaml")?;
        let model = weights_file(&self.model)?;
        require_path("data", &self.data)?;
        require_model(&model)?;
        Ok(round_imgsz(&mut self.imgsz))
    }
}

impl PredictConfig {
    /// Looks at the settings together, as [`super::TrainConfig::check`] does.
    ///
    /// # Errors
    /// The first that fails of: what must be given, the folder name (2), the model's name (78), missing paths (66).
    pub fn check(&mut self) -> Result<Option<ImgszRounded>, ConfigError> {
        require("model", &self.model, EXAMPLE_MODEL)?;
        require("source", &self.source, "photos")?;
        check_folder_name(&self.name)?;
        let model = weights_file(&self.model)?;
        require_path("source", &self.source)?;
        require_model(&model)?;
        Ok(round_imgsz(&mut self.imgsz))
    }
}

/// A model to be used must be a file: an architecture's name has no weights.
fn weights_file(model: &Path) -> Result<ModelChoice, ConfigError> {
    match ModelChoice::from_text(&model.to_string_lossy())? {
        ModelChoice::Scale(scale) => Err(ConfigError::Untrained { name: scale.to_string() }),
        file @ ModelChoice::File(_) => Ok(file),
    }
}
