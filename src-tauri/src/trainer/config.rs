//! Settings of a training, under the reference's (Ultralytics') key names: their meaning, range and default, in one
//! table.
//!
//! Unless a key says otherwise its default is the reference's. Knows nothing of devices, files' contents or tensors.

mod error;
mod eval;
mod model_choice;
mod relevant;
mod setting;
mod value;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::augment::AugmentConfig;
use crate::dataset::OpenOptions;
use crate::loss::LossGains;
use crate::trainer::device::{DeviceChoice, n_cores};
use crate::trainer::optimizer::UpdateRule;

pub use error::ConfigError;
pub use eval::{PredictConfig, ValConfig};
pub use model_choice::ModelChoice;
pub use relevant::{Change, OF_THE_FOLDER, OF_WHOLE_EPOCHS};
use setting::settings;
pub use setting::{Accepts, FixedKey, Setting, Settings, nearest, plain_name};
pub use value::{SettingValue, read_switch};

/// Sides of the network's input are multiples of this, the stride of its coarsest feature map, in pixels.
pub const IMGSZ_MULTIPLE: u32 = 32;

/// What `device=` takes, in words.
const DEVICE_NAMES: &str = "auto, cpu, cuda:N (or N), wgpu, wgpu:N or wgpu:cpu; one device";

settings! {
    /// Everything that decides how a model is trained, and where the run is kept.
    pub struct TrainConfig {
        /// The dataset: a data.yaml, a COCO .json, or a folder of images with labels. Must be given.
        data: PathBuf = PathBuf::new(), Accepts::Text("a path");
        /// What to train: yolov8n, s, m, l or x to begin untrained, or a file of weights to begin from.
        model: String = "yolov8n".to_owned(), Accepts::Text("a model name or a file of weights");
        /// Weights to begin from where their names and shapes fit the model; None begins untrained. (The reference's
        /// default is True, which downloads; nothing is downloaded here.)
        pretrained: Option<PathBuf> = None, Accepts::OptionalFile("a file of weights");
        /// Number of passes over the training images.
        epochs: u32 = 100, Accepts::Whole { min: 1, max: 1_000_000 };
        /// Epochs without a better fitness after which training ends; 0 never ends it early.
        patience: u32 = 100, Accepts::Whole { min: 0, max: 1_000_000 };
        /// Images in one forward and backward pass.
        batch: usize = 16, Accepts::Whole { min: 1, max: 4096 };
        /// Side of the square network input in pixels; rounded up to a multiple of 32.
        imgsz: u32 = 640, Accepts::Whole { min: 1, max: 8192 };
        /// Nominal number of images for one optimizer step: the gradients of round(nbs / batch) batches are
        /// accumulated, and weight_decay is scaled to match.
        nbs: usize = 64, Accepts::Whole { min: 1, max: 65536 };
        /// The optimizer. (The reference's default is auto.)
        optimizer: String = "SGD".to_owned(), Accepts::OneOf(&["SGD", "AdamW"]);
        /// Part of the training images to set aside for validation where the dataset names no val split; 0 leaves it to
        /// the format. (Not a key of the reference.)
        val_split: f64 = 0.0, Accepts::Number { min: 0.0, max: 0.9 };
        /// Where to compute; auto takes CUDA, else a GPU through wgpu, else the CPU. (The reference's default is None,
        /// which chooses as well.)
        device: DeviceChoice = DeviceChoice::Auto, Accepts::Text(DEVICE_NAMES);
        /// Threads that load images; 0 loads in the training thread. Results do not depend on it. The default is this
        /// machine's number of cores. (The reference's is 8.)
        workers: usize = n_cores(), Accepts::Whole { min: 0, max: 256 };
        /// Seed of the order of images, of augmentation and of fresh weights.
        seed: u64 = 0, Accepts::Whole { min: 0, max: 4_294_967_295 };
        /// Part of the training images to use, 1.0 for all.
        fraction: f64 = 1.0, Accepts::NumberAbove { min: 0.0, max: 1.0 };
        /// Folder that holds the runs; made if it is not there.
        project: PathBuf = PathBuf::from("runs"), Accepts::Text("a folder");
        /// Folder of this run inside project; a taken name becomes name2, name3 and so on.
        name: String = "exp".to_owned(), Accepts::Text("a folder name");
        /// Use the folder even if it exists; its results are replaced.
        exist_ok: bool = false, Accepts::Switch;
        /// Learning rate at the start.
        lr0: f64 = 0.01, Accepts::Number { min: 0.0, max: 10.0 };
        /// Learning rate at the end, as a factor of lr0.
        lrf: f64 = 0.01, Accepts::Number { min: 0.0, max: 10.0 };
        /// Momentum of SGD.
        momentum: f64 = 0.937, Accepts::Number { min: 0.0, max: 1.0 };
        /// Decay of convolution weights for each step of nbs images; biases and batch norms have none.
        weight_decay: f64 = 0.0005, Accepts::Number { min: 0.0, max: 1.0 };
        /// Epochs of warm-up, may be a fraction; 0 for none.
        warmup_epochs: f64 = 3.0, Accepts::Number { min: 0.0, max: 1_000_000.0 };
        /// Momentum at the start of the warm-up.
        warmup_momentum: f64 = 0.8, Accepts::Number { min: 0.0, max: 1.0 };
        /// Learning rate of the biases at the start of the warm-up.
        warmup_bias_lr: f64 = 0.1, Accepts::Number { min: 0.0, max: 10.0 };
        /// Weight of the box loss.
        r#box: f64 = 7.5, Accepts::Number { min: 0.0, max: 1000.0 };
        /// Weight of the class loss.
        cls: f64 = 0.5, Accepts::Number { min: 0.0, max: 1000.0 };
        /// Weight of the distribution focal loss.
        dfl: f64 = 1.5, Accepts::Number { min: 0.0, max: 1000.0 };
        /// Let the learning rate fall along a cosine instead of a straight line.
        cos_lr: bool = false, Accepts::Switch;
        /// Last epochs that are trained without mosaic; 0 keeps mosaic to the end.
        close_mosaic: u32 = 10, Accepts::Whole { min: 0, max: 1_000_000 };
        /// Validate after each epoch. If False, only after the last.
        val: bool = true, Accepts::Switch;
        /// Keep checkpoints and weights.
        save: bool = true, Accepts::Switch;
        /// Also keep the weights of every so many epochs, as weights/epochN.safetensors; -1 for none.
        save_period: i64 = -1, Accepts::Whole { min: -1, max: 1_000_000 };
        /// Save a checkpoint inside an epoch when the last one is older than so many minutes; 0 for never. (Not a key of
        /// the reference.)
        save_minutes: f64 = 15.0, Accepts::Number { min: 0.0, max: 100_000.0 };
        /// Newest checkpoints that are kept. (Not a key of the reference.)
        keep_last: usize = 3, Accepts::Whole { min: 1, max: 1_000_000 };
        /// Checkpoints of the best epochs that are kept. (Not a key of the reference.)
        keep_best: usize = 1, Accepts::Whole { min: 0, max: 1_000_000 };
        /// The checkpoint of every so many epochs is kept; 0 for none, -1 for ten over the whole run. (Not a key of the
        /// reference.)
        keep_every: i64 = -1, Accepts::Whole { min: -1, max: 1_000_000 };
        /// Write down which images each batch is made of, with a hash of it. (Not a key of the reference.)
        log_samples: bool = false, Accepts::Switch;
        /// Seconds that a run has to save and end when it is told to stop; then it is ended by force. (Not a key of the
        /// reference.)
        grace: f64 = 25.0, Accepts::Number { min: 0.0, max: 86_400.0 };
        /// Least confidence of a detection in validation. (The reference shows None, which means 0.001.)
        conf: f64 = 0.001, Accepts::Number { min: 0.0, max: 1.0 };
        /// Overlap (IoU) above which non-maximum suppression drops the less confident box.
        iou: f64 = 0.7, Accepts::Number { min: 0.0, max: 1.0 };
        /// Most detections that are kept of an image.
        max_det: usize = 300, Accepts::Whole { min: 1, max: 100_000 };
        /// Keep decoded images in memory.
        cache: bool = false, Accepts::Switch;
    }
    /// Random changes of the training images.
    flatten augment: AugmentConfig {
        /// Change of hue, as a fraction of the colour circle.
        hsv_h: Accepts::Number { min: 0.0, max: 1.0 };
        /// Change of saturation, as a fraction.
        hsv_s: Accepts::Number { min: 0.0, max: 1.0 };
        /// Change of brightness, as a fraction.
        hsv_v: Accepts::Number { min: 0.0, max: 1.0 };
        /// Rotation, up to plus or minus so many degrees.
        degrees: Accepts::Number { min: 0.0, max: 180.0 };
        /// Shift, up to plus or minus this fraction of the image.
        translate: Accepts::Number { min: 0.0, max: 1.0 };
        /// Zoom, by a factor of 1 plus or minus this.
        scale: Accepts::Number { min: 0.0, max: 1.0 };
        /// Shear, up to plus or minus so many degrees.
        shear: Accepts::Number { min: 0.0, max: 80.0 };
        /// Perspective, up to plus or minus this.
        perspective: Accepts::Number { min: 0.0, max: 0.001 };
        /// Probability of a flip upside down.
        flipud: Accepts::Number { min: 0.0, max: 1.0 };
        /// Probability of a flip left to right.
        fliplr: Accepts::Number { min: 0.0, max: 1.0 };
        /// Probability of joining four images to one.
        mosaic: Accepts::Number { min: 0.0, max: 1.0 };
        /// Probability of blending two images.
        mixup: Accepts::Number { min: 0.0, max: 1.0 };
    }
    // Keys of the reference that are not built yet, with the value that means their absence. `auto_augment` and
    // `erasing` act on classification alone, masks and key points on other tasks.
    fixed {
        "agnostic_nms": "False"; "amp": "False"; "augment": "False"; "auto_augment": "None"; "bgr": "0"; "cfg": "-";
        "classes": "None"; "compile": "False"; "copy_paste": "0"; "copy_paste_mode": "flip"; "cutmix": "0";
        "deterministic": "True"; "dnn": "False"; "dropout": "0"; "erasing": "0"; "freeze": "None"; "half": "False";
        "label_smoothing": "0";
        "mode": "train"; "multi_scale": "0"; "plots": "False"; "profile": "False"; "rect": "False"; "resume": "False";
        "save_json": "False"; "single_cls": "False"; "task": "detect"; "time": "None"; "verbose": "True";
    }
}

/// A setting that was changed to one that works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImgszRounded {
    pub asked: u32,
    pub used: u32,
}

impl fmt::Display for ImgszRounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "imgsz={} is not a multiple of {IMGSZ_MULTIPLE}, using imgsz={}", self.asked, self.used)
    }
}

impl TrainConfig {
    /// How the dataset is to be opened.
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions { val_split: (self.val_split > 0.0).then_some(self.val_split), ..OpenOptions::default() }
    }

    /// The optimizer's update rule.
    pub fn rule(&self) -> UpdateRule {
        if self.optimizer == "AdamW" { UpdateRule::AdamW } else { UpdateRule::Sgd }
    }

    /// Weights of the loss's three parts.
    pub fn loss_gains(&self) -> LossGains {
        LossGains { box_gain: self.r#box, cls_gain: self.cls, dfl_gain: self.dfl }
    }

    /// What `model` names.
    ///
    /// # Errors
    /// [`ConfigError::UnknownModel`].
    pub fn model_choice(&self) -> Result<ModelChoice, ConfigError> {
        ModelChoice::from_text(&self.model)
    }

    /// Looks at the settings together, in the order of the exit codes: [`Self::check_settings`], then
    /// [`Self::check_paths`].
    ///
    /// # Errors
    /// The first of these that fails.
    pub fn check(&mut self) -> Result<Option<ImgszRounded>, ConfigError> {
        let rounded = self.check_settings()?;
        self.check_paths()?;
        Ok(rounded)
    }

    /// Checks all that needs no file: what must be given and the folder name (2), the model's name and contradictions
    /// (78). Rounds `imgsz` up to a multiple of 32, as the reference does.
    ///
    /// # Errors
    /// The first of these that fails.
    pub fn check_settings(&mut self) -> Result<Option<ImgszRounded>, ConfigError> {
        require("data", &self.data, "data.yaml")?;
        check_folder_name(&self.name)?;
        let rounded = round_imgsz(&mut self.imgsz);
        self.check_contradictions(&self.model_choice()?)?;
        Ok(rounded)
    }

    /// Checks that the named files and folders are there (66).
    ///
    /// # Errors
    /// The first that is not.
    pub fn check_paths(&self) -> Result<(), ConfigError> {
        require_path("data", &self.data)?;
        require_model(&self.model_choice()?)?;
        self.pretrained.as_ref().map_or(Ok(()), |file| require_path("pretrained", file))
    }

    fn check_contradictions(&self, model: &ModelChoice) -> Result<(), ConfigError> {
        let contradiction = |first: String, second: String, why| Err(ConfigError::Contradiction { first, second, why });
        match (model, &self.pretrained) {
            (ModelChoice::File(file), Some(other)) => contradiction(
                format!("`model={}`", file.display()),
                format!("`pretrained={}`", other.display()),
                "both name weights to begin from; give an architecture as model, or leave pretrained out",
            ),
            _ if !self.save && self.save_period > 0 => contradiction(
                "`save=False`".to_owned(),
                format!("`save_period={}`", self.save_period),
                "nothing is kept; set save=True or leave save_period out",
            ),
            _ => Ok(()),
        }
    }
}

/// Rounds the side up to a multiple of the stride.
fn round_imgsz(imgsz: &mut u32) -> Option<ImgszRounded> {
    let asked = *imgsz;
    *imgsz = asked.next_multiple_of(IMGSZ_MULTIPLE);
    if *imgsz == asked { None } else { Some(ImgszRounded { asked, used: *imgsz }) }
}

/// A path without a default was given.
fn require(key: &'static str, path: &Path, example: &'static str) -> Result<(), ConfigError> {
    if path.as_os_str().is_empty() { Err(ConfigError::Missing { key, example }) } else { Ok(()) }
}

fn require_path(key: &'static str, path: &Path) -> Result<(), ConfigError> {
    use std::io::ErrorKind;
    match std::fs::metadata(path).map_err(|error| error.kind()) {
        Err(ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(ConfigError::PathMissing { key, path: path.to_owned(), hint: "" })
        }
        // What is there but cannot be read is named by whoever reads it.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn require_model(model: &ModelChoice) -> Result<(), ConfigError> {
    let ModelChoice::File(path) = model else { return Ok(()) };
    require_path("model", path).map_err(|_| ConfigError::PathMissing {
        key: "model",
        path: path.clone(),
        hint: " (nothing is downloaded; model=yolov8n and the like begin untrained)",
    })
}

/// The name is one folder inside `project`, and never leads out of it.
fn check_folder_name(name: &str) -> Result<(), ConfigError> {
    // A colon would name a drive on Windows.
    let is_one_folder =
        !name.contains(['/', '\\', ':']) && !name.contains(char::is_control) && name != "." && name != "..";
    if is_one_folder && (1..=200).contains(&name.len()) {
        return Ok(());
    }
    let accepts = Accepts::Text("a folder name of up to 200 bytes, without slashes and colons");
    Err(ConfigError::BadValue { key: "name", value: name.escape_debug().to_string(), accepts })
}

#[cfg(test)]
mod tests;
