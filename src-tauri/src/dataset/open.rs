//! Opening a dataset: find its format, read it, see that it can be validated, and report.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::coco_json::read_coco;
use super::image_folder::read_image_folder;
use super::pascal_voc::read_pascal_voc;
use super::reading::{ImageCheck, Reading};
use super::report::{CheckReport, Fault, FaultCode};
use super::set_aside::set_aside;
use super::source::{Source, find_sources};
use super::yolo::read_yolo;
use super::{Dataset, DatasetError, Split};

/// Share of the images set aside for validation where a format has no way to name them.
const DEFAULT_VAL_SHARE: f64 = 0.1;

/// How a dataset is opened.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OpenOptions {
    pub image_check: ImageCheck,
    /// Share of the training images, 0 to 1 (both excluded), to set aside for validation where the dataset names no val
    /// split. `None`: a tenth where the format cannot name one; none where a data.yaml or split folders could and do not.
    pub val_split: Option<f64>,
}

/// A dataset that was read, and what was found on the way.
#[derive(Debug, Clone)]
pub struct Opened {
    pub dataset: Dataset,
    pub report: CheckReport,
}

impl Opened {
    /// The dataset if something can be learnt from it. It may still have no val split.
    ///
    /// # Errors
    /// No image or no box in the train split.
    pub fn into_trainable(self) -> Result<Self, DatasetError> {
        let path = || self.dataset.source.clone();
        let train = self.report.splits.get(&Split::Train).copied().unwrap_or_default();
        match (train.n_images, train.n_boxes) {
            (0, _) => Err(DatasetError::NoTrainImages { path: path() }),
            (_, 0) => Err(DatasetError::NoTrainBoxes { path: path() }),
            _ => Ok(self),
        }
    }
}

/// Reads the dataset at `source`: a data.yaml, a COCO JSON file, or a folder that holds one of the known formats. Bad
/// labels and images are left out one by one and reported. Nothing is written.
///
/// # Errors
/// Nothing is there, or nothing that can be read as a dataset. One that can be read but not trained on is no error here:
/// its report is red, and [`Opened::into_trainable`] refuses it.
pub fn open(source: &Path, options: &OpenOptions) -> Result<Opened, DatasetError> {
    let path: PathBuf = std::path::absolute(source).map_err(|error| DatasetError::unreadable(source, error))?;
    let sources = find_sources(&path)?;
    let (used, others) = sources.split_first().ok_or_else(|| DatasetError::UnknownFormat { path: path.clone() })?;
    let check = options.image_check;
    let mut reading = match used {
        Source::YoloYaml(file) => read_yolo(file, check)?,
        Source::Coco(coco) => read_coco(coco, check)?,
        Source::VocRoot(root) => read_pascal_voc(root, check)?,
        Source::ImageFolder(folder) => read_image_folder(folder, check)?,
    };
    let mut faults = other_formats_fault(&path, used, others);
    faults.extend(ensure_val(&mut reading, options));
    faults.append(&mut reading.faults);
    let dataset = Dataset { source: source.to_owned(), class_names: reading.class_names, splits: reading.splits };
    faults.extend(untrainable_fault(&dataset));
    let report = CheckReport::new(&dataset, each_once(faults));
    Ok(Opened { dataset, report })
}

fn other_formats_fault(path: &Path, used: &Source, others: &[Source]) -> Vec<Fault> {
    if others.is_empty() {
        return Vec::new();
    }
    let others: Vec<String> = others.iter().map(Source::describe).collect();
    let message = format!("used: {}; also found, not used: {}", used.describe(), others.join("; "));
    vec![Fault::new(path, None, FaultCode::OtherFormat, message)]
}

/// Sets training images aside where that was asked for or is the format's rule; says so, or that there is no val split.
fn ensure_val(reading: &mut Reading, options: &OpenOptions) -> Option<Fault> {
    if reading.splits.contains_key(&Split::Val) {
        return None;
    }
    let default_share = reading.splits_are_unnamed.then_some(DEFAULT_VAL_SHARE);
    let train = reading.splits.remove(&Split::Train).unwrap_or_default();
    let n_images = train.len();
    let (train, val) = match options.val_split.or(default_share) {
        Some(share) => set_aside(train, share),
        None => (train, Vec::new()),
    };
    let n_val = val.len();
    reading.splits.insert(Split::Train, train);
    if n_val == 0 {
        let message = "no val split, and training images are not used for validation unasked: name a val split, or set \
                       images of train aside for it with val_split=0.1";
        return Some(Fault::new(&reading.root, None, FaultCode::NoVal, message));
    }
    reading.splits.insert(Split::Val, val);
    let message = format!(
        "no val split: {n_val} of {n_images} training images, chosen by a hash of their names, are set aside for it"
    );
    Some(Fault::new(&reading.root, None, FaultCode::SetAside, message))
}

fn untrainable_fault(dataset: &Dataset) -> Option<Fault> {
    let train = dataset.splits.get(&Split::Train).map(Vec::as_slice).unwrap_or_default();
    let path = dataset.source.clone();
    let error = match (train.is_empty(), train.iter().all(|sample| sample.labels.is_empty())) {
        (true, _) => DatasetError::NoTrainImages { path },
        (false, true) => DatasetError::NoTrainBoxes { path },
        (false, false) => return None,
    };
    Some(error.to_fault())
}

/// One folder may be two splits; its faults are then found twice.
fn each_once(faults: Vec<Fault>) -> Vec<Fault> {
    let mut seen = HashSet::new();
    faults.into_iter().filter(|fault| seen.insert(fault.clone())).collect()
}
