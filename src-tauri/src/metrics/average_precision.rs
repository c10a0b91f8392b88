//! Precision, recall, F1 and average precision as Ultralytics reports them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::curve::{position_of_max, smoothed, unit_grid};
use crate::geometry::GroundTruth;

use super::detection::Detection;
use super::matching::{N_THRESHOLDS, true_positives};
use super::ranking::{Curves, N_CURVE_POINTS, Ranked, Scored};

/// Window of the moving average under which the best F1 is looked for, a tenth of the curve.
const F1_WINDOW: usize = 101;
/// Keeps the number of false positives finite where precision is 0.
const EPSILON: f64 = 1e-16;

/// Collects the detections of one evaluation, image by image.
#[derive(Debug, Clone, Default)]
pub struct DetectionMetrics {
    classes: BTreeMap<usize, ClassTally>,
}

/// Everything one evaluation says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricsReport {
    /// One entry for each class that has ground truth, in order of class index.
    pub classes: Vec<ClassMetrics>,
    /// The confidence of the largest mean smoothed F1, at which `precision`, `recall` and `f1` are read.
    pub best_confidence: f64,
}

/// How well one class is found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassMetrics {
    pub class_idx: usize,
    /// Images that show the class.
    pub n_images: usize,
    /// Boxes of the class, in all images together.
    pub n_truths: usize,
    /// At [`MetricsReport::best_confidence`] and IoU 0.50, as the next two.
    pub precision: f64,
    pub recall: f64,
    pub f1: f64,
    /// Average precision at each of [`IOU_THRESHOLDS`](super::IOU_THRESHOLDS).
    pub ap: [f64; N_THRESHOLDS],
    pub curves: Curves,
}

#[derive(Debug, Clone, Default)]
struct ClassTally {
    n_images: usize,
    n_truths: usize,
    detections: Vec<Scored>,
}

impl DetectionMetrics {
    /// Takes in one image. Boxes of both lists are in pixels of the same image.
    pub fn add_image(&mut self, truths: &[GroundTruth], detections: &[Detection]) {
        for (detection, hits) in detections.iter().zip(true_positives(truths, detections)) {
            let tally = self.classes.entry(detection.class_idx).or_default();
            tally.detections.push(Scored { confidence: detection.confidence, hits });
        }
        let mut in_image: Vec<usize> = truths.iter().map(|truth| truth.class_idx).collect();
        for &class_idx in &in_image {
            self.classes.entry(class_idx).or_default().n_truths += 1;
        }
        in_image.sort_unstable();
        in_image.dedup();
        for class_idx in in_image {
            self.classes.entry(class_idx).or_default().n_images += 1;
        }
    }

    /// The figures over all images so far. Detections of equal confidence count in the order they were added.
    pub fn finish(&self) -> MetricsReport {
        let with_truths = self.classes.iter().filter(|(_, tally)| tally.n_truths > 0);
        let mut classes: Vec<ClassMetrics> = with_truths.map(|(&idx, tally)| tally.metrics(idx)).collect();
        let mean_f1: Vec<f64> =
            (0..N_CURVE_POINTS).map(|i| mean(classes.iter().map(|class| class.curves.f1[i]))).collect();
        let best = position_of_max(&smoothed(&mean_f1, F1_WINDOW));
        for class in &mut classes {
            class.precision = class.curves.precision[best];
            class.recall = class.curves.recall[best];
            class.f1 = class.curves.f1[best];
        }
        MetricsReport { classes, best_confidence: unit_grid(N_CURVE_POINTS)[best] }
    }
}

impl MetricsReport {
    /// Mean over the classes, as all means below; 0 without any class.
    pub fn precision(&self) -> f64 {
        mean(self.classes.iter().map(|class| class.precision))
    }

    pub fn recall(&self) -> f64 {
        mean(self.classes.iter().map(|class| class.recall))
    }

    pub fn map50(&self) -> f64 {
        mean(self.classes.iter().map(ClassMetrics::ap50))
    }

    pub fn map75(&self) -> f64 {
        mean(self.classes.iter().map(ClassMetrics::ap75))
    }

    pub fn map50_95(&self) -> f64 {
        mean(self.classes.iter().map(ClassMetrics::ap50_95))
    }

    /// By which checkpoints are compared, 0..=1: mAP50-95 alone, which is what Ultralytics 8.4 was measured to use.
    /// Older versions took 0.1 mAP50 + 0.9 mAP50-95.
    pub fn fitness(&self) -> f64 {
        self.map50_95()
    }
}

impl ClassMetrics {
    pub fn ap50(&self) -> f64 {
        self.ap[0]
    }

    pub fn ap75(&self) -> f64 {
        self.ap[5]
    }

    /// Mean over the ten IoU thresholds.
    pub fn ap50_95(&self) -> f64 {
        mean(self.ap.iter().copied())
    }

    /// True and false positives at IoU 0.50 and the best confidence, rounded from the interpolated curves.
    pub fn counts_at_best_confidence(&self) -> (u64, u64) {
        let n_true = (self.recall * self.n_truths as f64).round_ties_even();
        let n_false = (n_true / (self.precision + EPSILON) - n_true).round_ties_even();
        (n_true as u64, n_false as u64)
    }
}

impl ClassTally {
    fn metrics(&self, class_idx: usize) -> ClassMetrics {
        let (ap, curves) = if self.detections.is_empty() {
            ([0.0; N_THRESHOLDS], Curves::zero())
        } else {
            let mut sorted = self.detections.clone();
            sorted.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
            let ranked: [Ranked; N_THRESHOLDS] = std::array::from_fn(|level| Ranked::at(level, &sorted, self.n_truths));
            (ranked.each_ref().map(Ranked::average_precision), Curves::of(&sorted, &ranked[0]))
        };
        let (n_images, n_truths) = (self.n_images, self.n_truths);
        ClassMetrics { class_idx, n_images, n_truths, precision: 0.0, recall: 0.0, f1: 0.0, ap, curves }
    }
}

/// Arithmetic mean; 0 of nothing.
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n_values = values.len();
    if n_values == 0 { 0.0 } else { values.sum::<f64>() / n_values as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::BoxXyxyPx;

    fn square(x: f32) -> BoxXyxyPx {
        BoxXyxyPx::new(x, 0.0, x + 10.0, 10.0)
    }

    fn truth(class_idx: usize, x: f32) -> GroundTruth {
        GroundTruth { class_idx, box_px: square(x) }
    }

    fn detection(class_idx: usize, confidence: f32, x: f32) -> Detection {
        Detection { class_idx, confidence, box_px: square(x) }
    }

    #[test]
    fn a_perfect_detector_gets_0_995() {
        let mut metrics = DetectionMetrics::default();
        metrics.add_image(&[truth(0, 0.0)], &[detection(0, 0.9, 0.0)]);
        let report = metrics.finish();
        assert!((report.map50_95() - 0.995).abs() < 1e-12, "the last of 100 trapezoids falls to 0: 99 + 1/2 of 100");
        assert_eq!((report.precision(), report.recall()), (1.0, 1.0));
    }

    #[test]
    fn half_of_the_boxes_found_is_half_the_area() {
        let mut metrics = DetectionMetrics::default();
        metrics.add_image(&[truth(0, 0.0), truth(0, 50.0)], &[detection(0, 0.9, 0.0)]);
        let report = metrics.finish();
        assert!((report.map50() - 0.495).abs() < 1e-12, "49 full trapezoids and a half one");
        assert_eq!(report.recall(), 0.5);
        assert_eq!(report.classes[0].counts_at_best_confidence(), (1, 0));
    }

    #[test]
    fn a_false_positive_before_the_hit_halves_precision() {
        let mut metrics = DetectionMetrics::default();
        metrics.add_image(&[truth(0, 0.0)], &[detection(0, 0.9, 90.0), detection(0, 0.5, 0.0)]);
        let report = metrics.finish();
        let class = &report.classes[0];
        assert!((class.ap50() - 0.4975).abs() < 1e-12, "precision 1/2 at every recall, times 0.995");
        assert_eq!(class.counts_at_best_confidence(), (1, 1));
    }

    #[test]
    fn classes_without_ground_truth_take_no_part() {
        let mut metrics = DetectionMetrics::default();
        metrics.add_image(&[truth(1, 0.0)], &[detection(0, 0.9, 0.0), detection(1, 0.8, 0.0)]);
        let report = metrics.finish();
        assert_eq!(report.classes.iter().map(|class| class.class_idx).collect::<Vec<_>>(), [1]);
        assert_eq!((report.classes[0].n_images, report.classes[0].n_truths), (1, 1));
    }

    #[test]
    fn nothing_at_all_is_zero_and_finite() {
        let report = DetectionMetrics::default().finish();
        assert_eq!((report.precision(), report.map50(), report.map50_95()), (0.0, 0.0, 0.0));
    }
}
