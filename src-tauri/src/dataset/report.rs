//! What `dataset check` prints: the gate, the counts and every fault. Its JSON keys are a promise to scripts.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::{Dataset, DatasetError, Sample, Split};

/// The outcome of reading a dataset; serializes to the documented JSON of `dataset check --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckReport {
    pub gate: Gate,
    /// Class names in order of class index.
    #[serde(rename = "classes")]
    pub class_names: Vec<String>,
    pub splits: BTreeMap<Split, SplitCounts>,
    /// Faults and notes, each once.
    pub faults: Vec<Fault>,
    /// Every image once, backgrounds included; `None` until asked for by [`CheckReport::with_boxes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<ImageReport>>,
}

/// May a training start? Green: nothing to report. Amber: yes, with what is listed. Red: no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    Green,
    Amber,
    Red,
}

/// What one split holds after faulty labels and images were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SplitCounts {
    #[serde(rename = "images")]
    pub n_images: usize,
    #[serde(rename = "boxes")]
    pub n_boxes: usize,
    /// Images without a box.
    #[serde(rename = "backgrounds")]
    pub n_backgrounds: usize,
}

/// One thing that was wrong, or done differently than the files say.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Fault {
    pub file: String,
    /// 1-based; `None` where the fault is about the whole file, or the format has no useful lines.
    pub line: Option<usize>,
    pub code: FaultCode,
    pub message: String,
}

/// One image with its good boxes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ImageReport {
    pub file: String,
    /// Pixels as shown, after the EXIF orientation.
    pub width: u32,
    pub height: u32,
    /// `[class, cx, cy, w, h]`, normalised.
    pub boxes: Vec<(usize, f64, f64, f64, f64)>,
}

/// The kind of a [`Fault`]; a stable word in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultCode {
    // A label that was left out.
    BadColumns,
    BadSeparator,
    NotANumber,
    NotFinite,
    ClassNotWhole,
    ClassOutOfRange,
    OutsideImage,
    ZeroSize,
    NulByte,
    NotUtf8,
    BadXml,
    BadAnnotation,
    // A label that was kept, changed.
    Clipped,
    DuplicatesRemoved,
    ConfidenceIgnored,
    SizeMismatch,
    // An image or a file.
    UnreadableImage,
    ImageTooSmall,
    MissingImage,
    DuplicateImage,
    SharedLabel,
    MissingAnnotation,
    UnreadableFile,
    // The whole dataset, usable.
    NoVal,
    SetAside,
    MissingSplit,
    PathIgnored,
    OtherFormat,
    DownloadIgnored,
    NamesMissing,
    DuplicateClassName,
    // The whole dataset, not usable.
    MissingPath,
    UnknownFormat,
    BadYaml,
    BadNames,
    NamesGap,
    NamesCount,
    BadJson,
    CategoryConflict,
    NoImages,
    NoBoxes,
}

impl Fault {
    pub(super) fn new(file: &Path, line: Option<usize>, code: FaultCode, message: impl Into<String>) -> Self {
        Self { file: file.display().to_string(), line, code, message: message.into() }
    }
}

impl CheckReport {
    /// The report of a dataset that was read, with these faults.
    pub(super) fn new(dataset: &Dataset, faults: Vec<Fault>) -> Self {
        let splits: BTreeMap<Split, SplitCounts> =
            dataset.splits.iter().map(|(split, samples)| (*split, SplitCounts::of(samples))).collect();
        let n_train_boxes = splits.get(&Split::Train).map_or(0, |counts| counts.n_boxes);
        let gate = match (n_train_boxes, faults.is_empty()) {
            (0, _) => Gate::Red,
            (_, false) => Gate::Amber,
            (_, true) => Gate::Green,
        };
        Self { gate, class_names: dataset.class_names.clone(), splits, faults, images: None }
    }

    /// The red report of a dataset that could not be opened.
    pub fn refused(error: &DatasetError) -> Self {
        Self {
            gate: Gate::Red,
            class_names: Vec::new(),
            splits: BTreeMap::new(),
            faults: vec![error.to_fault()],
            images: None,
        }
    }

    /// The same report with every image of `dataset` and its boxes; an image that is in two splits comes once.
    pub fn with_boxes(mut self, dataset: &Dataset) -> Self {
        let mut seen = std::collections::HashSet::new();
        let samples = dataset.splits.values().flatten();
        let once = samples.filter(|sample| seen.insert(&sample.image_path));
        self.images = Some(once.map(ImageReport::of).collect());
        self
    }
}

impl SplitCounts {
    fn of(samples: &[Sample]) -> Self {
        Self {
            n_images: samples.len(),
            n_boxes: samples.iter().map(|sample| sample.labels.len()).sum(),
            n_backgrounds: samples.iter().filter(|sample| sample.labels.is_empty()).count(),
        }
    }
}

impl ImageReport {
    fn of(sample: &Sample) -> Self {
        let boxes = sample.labels.iter().map(|label| {
            let b = label.box_norm;
            (label.class_idx, b.cx, b.cy, b.w, b.h)
        });
        Self {
            file: sample.image_path.display().to_string(),
            width: sample.width_px,
            height: sample.height_px,
            boxes: boxes.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Label;
    use crate::geometry::BoxXywhNorm;

    fn one_box_dataset() -> Dataset {
        let label = Label { class_idx: 0, box_norm: BoxXywhNorm { cx: 0.1, cy: 0.5, w: 0.2, h: 0.2 } };
        let sample = Sample { image_path: "a.png".into(), width_px: 40, height_px: 30, labels: vec![label] };
        Dataset {
            source: "data.yaml".into(),
            class_names: vec!["a".to_owned()],
            splits: BTreeMap::from([(Split::Train, vec![sample])]),
        }
    }

    #[test]
    fn json_has_the_documented_keys() {
        let dataset = one_box_dataset();
        let fault = Fault::new(Path::new("data.yaml"), None, FaultCode::NoVal, "none");
        let report = CheckReport::new(&dataset, vec![fault]).with_boxes(&dataset);
        let expected = concat!(
            r#"{"gate":"amber","classes":["a"],"splits":{"train":{"images":1,"boxes":1,"backgrounds":0}},"#,
            r#""faults":[{"file":"data.yaml","line":null,"code":"no-val","message":"none"}],"#,
            r#""images":[{"file":"a.png","width":40,"height":30,"boxes":[[0,0.1,0.5,0.2,0.2]]}]}"#
        );
        assert_eq!(serde_json::to_string(&report).unwrap(), expected, "keys, order and full precision");
    }

    #[test]
    fn images_are_left_out_unless_asked_for() {
        let report = CheckReport::new(&one_box_dataset(), Vec::new());
        assert_eq!(report.gate, Gate::Green, "no fault");
        assert!(!serde_json::to_string(&report).unwrap().contains("images\":["), "no list of images");
    }

    #[test]
    fn a_dataset_without_train_boxes_is_red() {
        let mut dataset = one_box_dataset();
        dataset.splits.get_mut(&Split::Train).unwrap()[0].labels.clear();
        let report = CheckReport::new(&dataset, Vec::new());
        assert_eq!(report.gate, Gate::Red, "nothing to learn");
        assert_eq!(report.splits[&Split::Train].n_backgrounds, 1, "the image is a background now");
    }

    #[test]
    fn a_refusal_is_a_red_report_with_one_fault() {
        let report = CheckReport::refused(&DatasetError::Missing { path: "nowhere".into() });
        assert_eq!((report.gate, report.faults[0].code), (Gate::Red, FaultCode::MissingPath), "JSON in every case");
    }
}
