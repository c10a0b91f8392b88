//! The twelve figures of the COCO detection challenge.
//!
//! Follows the evaluation described at <https://cocodataset.org/#detection-eval> as pycocotools' `COCOeval` carries it
//! out for boxes: precision read at 101 recall values and averaged, ground truths outside the size range or marked as a
//! crowd neither required nor forbidden. Figures for which there is no ground truth are `None`, where pycocotools prints
//! -1.

mod accumulate;
mod matching;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::detection::Detection;
use super::matching::N_THRESHOLDS;
use crate::geometry::BoxXyxyPx;
use accumulate::{Evaluated, N_RECALL_POINTS};
use matching::ClassInImage;

/// Limits on the detections of one class in one image.
const MAX_DETECTIONS: [usize; 3] = [1, 10, 100];

/// Box areas in square pixels: any, small, medium, large. Both limits belong to the range.
const AREAS_PX2: [(f64, f64); 4] = [(0.0, 1e10), (0.0, 1024.0), (1024.0, 9216.0), (9216.0, 1e10)];

/// A labelled box as COCO annotations have it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CocoGroundTruth {
    pub class_idx: usize,
    pub box_px: BoxXyxyPx,
    /// Decides which size range the object belongs to; in COCO files the area of the mask, not of the box.
    pub area_px2: f64,
    /// A group of objects in one box: any number of detections may lie in it without being wrong.
    pub is_crowd: bool,
}

/// Collects one evaluation, image by image.
#[derive(Debug, Clone)]
pub struct CocoAveragePrecision {
    classes: Vec<Vec<ClassInImage>>,
}

/// Overall figures and those of each class, in order of class index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CocoReport {
    pub stats: CocoStats,
    /// AP over all thresholds, sizes and 100 detections.
    pub ap_of_class: Vec<Option<f64>>,
    /// The same at IoU 0.50 alone.
    pub ap50_of_class: Vec<Option<f64>>,
}

/// The figures in pycocotools' order: average precision (AP), then average recall (AR) with at most 1, 10 and 100
/// detections an image and class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CocoStats {
    pub ap: Option<f64>,
    pub ap50: Option<f64>,
    pub ap75: Option<f64>,
    pub ap_small: Option<f64>,
    pub ap_medium: Option<f64>,
    pub ap_large: Option<f64>,
    pub ar1: Option<f64>,
    pub ar10: Option<f64>,
    pub ar100: Option<f64>,
    pub ar_small: Option<f64>,
    pub ar_medium: Option<f64>,
    pub ar_large: Option<f64>,
}

impl CocoGroundTruth {
    /// A single object that fills its box.
    pub fn new(class_idx: usize, box_px: BoxXyxyPx) -> Self {
        let area_px2 = (f64::from(box_px.x2) - f64::from(box_px.x1)) * (f64::from(box_px.y2) - f64::from(box_px.y1));
        Self { class_idx, box_px, area_px2, is_crowd: false }
    }
}

impl CocoAveragePrecision {
    pub fn new(n_classes: usize) -> Self {
        Self { classes: vec![Vec::new(); n_classes] }
    }

    /// Takes in one image. Boxes of classes beyond `n_classes` take no part.
    pub fn add_image(&mut self, truths: &[CocoGroundTruth], detections: &[Detection]) {
        let mut by_class: BTreeMap<usize, (Vec<CocoGroundTruth>, Vec<Detection>)> = BTreeMap::new();
        for truth in truths {
            by_class.entry(truth.class_idx).or_default().0.push(*truth);
        }
        for detection in detections {
            by_class.entry(detection.class_idx).or_default().1.push(*detection);
        }
        for (class_idx, (truths, detections)) in by_class {
            if let Some(images) = self.classes.get_mut(class_idx) {
                images.push(ClassInImage::new(truths, &detections, MAX_DETECTIONS[2]));
            }
        }
    }

    /// The figures over all images so far.
    pub fn finish(&self) -> CocoReport {
        let [all, small, medium, large] = AREAS_PX2.map(|range| self.evaluated(range, MAX_DETECTIONS[2]));
        let [top1, top10] = [MAX_DETECTIONS[0], MAX_DETECTIONS[1]].map(|n| self.evaluated(AREAS_PX2[0], n));
        let stats = CocoStats {
            ap: precision(&all, 0..N_THRESHOLDS),
            ap50: precision(&all, 0..1),
            ap75: precision(&all, 5..6),
            ap_small: precision(&small, 0..N_THRESHOLDS),
            ap_medium: precision(&medium, 0..N_THRESHOLDS),
            ap_large: precision(&large, 0..N_THRESHOLDS),
            ar1: recall(&top1),
            ar10: recall(&top10),
            ar100: recall(&all),
            ar_small: recall(&small),
            ar_medium: recall(&medium),
            ar_large: recall(&large),
        };
        let of_class = |levels: std::ops::Range<usize>| {
            all.iter().map(|class| precision(std::slice::from_ref(class), levels.clone())).collect()
        };
        CocoReport { stats, ap_of_class: of_class(0..N_THRESHOLDS), ap50_of_class: of_class(0..1) }
    }

    /// One entry a class; `None` where nothing had to be found.
    fn evaluated(&self, area_range_px2: (f64, f64), max_detections: usize) -> Vec<Option<Evaluated>> {
        self.classes.iter().map(|images| accumulate::evaluated(images, area_range_px2, max_detections)).collect()
    }
}

/// Mean precision over classes, recall values and the IoU thresholds named.
fn precision(classes: &[Option<Evaluated>], levels: std::ops::Range<usize>) -> Option<f64> {
    let n_values = classes.iter().flatten().count() * levels.len() * N_RECALL_POINTS;
    let sum: f64 = classes.iter().flatten().flat_map(|class| &class.precision[levels.clone()]).flatten().sum();
    (n_values > 0).then(|| sum / n_values as f64)
}

/// Mean of the largest recall reached over classes and IoU thresholds.
fn recall(classes: &[Option<Evaluated>]) -> Option<f64> {
    let n_values = classes.iter().flatten().count() * N_THRESHOLDS;
    let sum: f64 = classes.iter().flatten().flat_map(|class| class.recall).sum();
    (n_values > 0).then(|| sum / n_values as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(side: f32) -> BoxXyxyPx {
        BoxXyxyPx::new(0.0, 0.0, side, side)
    }

    fn detection(confidence: f32, side: f32) -> Detection {
        Detection { class_idx: 0, confidence, box_px: square(side) }
    }

    #[test]
    fn a_perfect_detector_gets_one_and_empty_size_ranges_are_undefined() {
        let mut coco = CocoAveragePrecision::new(1);
        coco.add_image(&[CocoGroundTruth::new(0, square(20.0))], &[detection(0.9, 20.0)]);
        let stats = coco.finish().stats;
        assert_eq!((stats.ap, stats.ap_small, stats.ar1), (Some(1.0), Some(1.0), Some(1.0)));
        assert_eq!((stats.ap_medium, stats.ap_large, stats.ar_large), (None, None, None), "400 px² is small");
    }

    #[test]
    fn an_iou_of_0_64_counts_at_three_of_ten_thresholds() {
        let mut coco = CocoAveragePrecision::new(1);
        coco.add_image(&[CocoGroundTruth::new(0, square(10.0))], &[detection(0.9, 8.0)]);
        let stats = coco.finish().stats;
        assert!((stats.ap.unwrap() - 0.3).abs() < 1e-12, "0.50, 0.55 and 0.60");
        assert_eq!((stats.ap50, stats.ap75), (Some(1.0), Some(0.0)));
    }

    #[test]
    fn detections_inside_a_crowd_are_neither_right_nor_wrong() {
        let crowd =
            CocoGroundTruth { is_crowd: true, ..CocoGroundTruth::new(0, BoxXyxyPx::new(50.0, 0.0, 90.0, 40.0)) };
        let truths = [CocoGroundTruth::new(0, square(20.0)), crowd];
        let in_crowd =
            |confidence, x1| Detection { class_idx: 0, confidence, box_px: BoxXyxyPx::new(x1, 0.0, x1 + 10.0, 10.0) };
        let mut coco = CocoAveragePrecision::new(1);
        coco.add_image(&truths, &[in_crowd(0.95, 50.0), in_crowd(0.92, 60.0), detection(0.9, 20.0)]);
        assert_eq!(coco.finish().stats.ap, Some(1.0), "two more confident boxes in the crowd cost nothing");
    }

    #[test]
    fn without_ground_truth_everything_is_undefined() {
        let mut coco = CocoAveragePrecision::new(1);
        coco.add_image(&[], &[detection(0.9, 20.0)]);
        let report = coco.finish();
        assert_eq!((report.stats.ap, report.ap_of_class), (None, vec![None]));
    }
}
