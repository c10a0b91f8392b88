//! One in-memory [`Dataset`] from YOLO text labels, Pascal VOC or COCO JSON, with a report of what was wrong in the files.
//!
//! User files are only ever read. Knows nothing of models, training or the command line.
//!
//! [`open`] finds the format (`source`), reads it (`yolo`, `pascal_voc`, `coco_json`, `image_folder`) and gives a
//! [`Dataset`] with its [`CheckReport`]; every box of every format passes `label_rules`. [`decode`] turns an image file
//! into pixels, [`demo`] draws a small dataset of our own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::geometry::BoxXywhNorm;

pub mod batch;
mod coco_json;
mod data_yaml;
pub mod decode;
pub mod demo;
mod demo_picture;
mod error;
mod fingerprint;
mod image_files;
mod image_folder;
mod label_rules;
pub mod loader;
mod open;
mod pascal_voc;
mod pixel_frame;
mod png_exif;
mod reading;
mod report;
mod set_aside;
mod source;
mod voc_xml;
mod yolo;
mod yolo_txt;

pub use error::{DatasetError, DatasetErrorKind};
pub use open::{OpenOptions, Opened, open};
pub use reading::ImageCheck;
pub use report::{CheckReport, Fault, FaultCode, Gate, ImageReport, SplitCounts};

/// A labelled image collection, read and checked, held in memory without pixels.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// What the user named: a yaml, a json or a folder.
    pub source: PathBuf,
    /// Class names in order of class index.
    pub class_names: Vec<String>,
    /// Samples of each split, in a fixed order (sorted by path) that does not depend on the file system.
    pub splits: BTreeMap<Split, Vec<Sample>>,
}

/// The part of a dataset a sample belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    Train,
    Val,
    Test,
}

/// One image and its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub image_path: PathBuf,
    /// Width in pixels as the image is shown, that is after its EXIF orientation was applied.
    pub width_px: u32,
    /// Height in pixels, likewise.
    pub height_px: u32,
    /// Good boxes only; empty for a background image.
    pub labels: Vec<Label>,
}

/// One box of one class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Label {
    pub class_idx: usize,
    pub box_norm: BoxXywhNorm,
}
