//! What a detector is judged by: non-maximum suppression, average precision in two conventions, the confusion matrix.
//!
//! * [`nms`] turns the decoded head output of one image into detections.
//! * [`average_precision`] gives precision, recall, F1, AP and curves as Ultralytics reports them during training.
//! * [`coco_average_precision`] gives the twelve figures of the COCO challenge, as pycocotools prints them.
//! * [`confusion_matrix`] counts which class is taken for which.
//!
//! Plain numbers only: knows nothing of tensors, models, files or the training loop.

pub mod average_precision;
pub mod coco_average_precision;
pub mod confusion_matrix;
mod curve;
mod detection;
mod matching;
pub mod nms;
mod ranking;

pub use average_precision::{ClassMetrics, DetectionMetrics, MetricsReport};
pub use coco_average_precision::{CocoAveragePrecision, CocoGroundTruth, CocoReport, CocoStats};
pub use confusion_matrix::{ConfusionError, ConfusionMatrix};
pub use detection::Detection;
pub use matching::{IOU_THRESHOLDS, N_THRESHOLDS, true_positives};
pub use nms::{HeadOutput, KeptDetection, NmsError, NmsSettings};
pub use ranking::{Curves, N_CURVE_POINTS};
