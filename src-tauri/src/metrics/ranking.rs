//! One class's detections in descending confidence: precision, recall, the area below, and the curves to show.
//!
//! AP follows the Pascal VOC evaluation with its monotonic precision envelope (Everingham et al., "The Pascal Visual
//! Object Classes Challenge", IJCV 2010, section 4.2), at ten IoU thresholds as COCO has it. Two habits of Ultralytics
//! are kept so that numbers can be compared: the area is the trapezoidal rule over 101 recall values, and behind the
//! largest recall reached precision drops to 0. A perfect detector therefore gets 0.995, where pycocotools says 1.

use serde::{Deserialize, Serialize};

use super::curve::{area_below, interpolated, unit_grid};
use super::matching::N_THRESHOLDS;

/// Points of each curve over confidence or recall, which runs from 0 to 1.
pub const N_CURVE_POINTS: usize = 1000;

/// Recall values at which the precision envelope is read for AP.
const N_RECALL_POINTS: usize = 101;
/// Keeps F1 finite where precision and recall are both 0.
const EPSILON: f64 = 1e-16;

/// A detection, and at which IoU thresholds it is a true positive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scored {
    pub(super) confidence: f32,
    pub(super) hits: [bool; N_THRESHOLDS],
}

/// A class's curves at IoU 0.50, each of [`N_CURVE_POINTS`] points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// Over confidence 0..=1, as the next two.
    pub precision: Vec<f64>,
    pub recall: Vec<f64>,
    pub f1: Vec<f64>,
    /// The precision envelope over recall 0..=1.
    pub precision_over_recall: Vec<f64>,
}

/// Precision and recall of the first 1, 2, 3, .. detections at one IoU threshold.
pub(super) struct Ranked {
    precision: Vec<f64>,
    recall: Vec<f64>,
}

impl Ranked {
    pub(super) fn at(level: usize, sorted: &[Scored], n_truths: usize) -> Self {
        let mut n_true = 0usize;
        let (mut precision, mut recall) = (Vec::with_capacity(sorted.len()), Vec::with_capacity(sorted.len()));
        for (rank, scored) in sorted.iter().enumerate() {
            n_true += usize::from(scored.hits[level]);
            precision.push(n_true as f64 / (rank + 1) as f64);
            recall.push(n_true as f64 / n_truths as f64);
        }
        Self { precision, recall }
    }

    /// The envelope's points (recall, precision): from recall 0, where precision is 1, to the largest recall reached and
    /// from there, at precision 0, to recall 1.
    fn envelope(&self) -> (Vec<f64>, Vec<f64>) {
        let reached = self.recall.last().copied().unwrap_or(1.0);
        let recall = [&[0.0], self.recall.as_slice(), &[reached, 1.0]].concat();
        let mut precision = [&[1.0], self.precision.as_slice(), &[0.0, 0.0]].concat();
        for i in (1..precision.len()).rev() {
            precision[i - 1] = precision[i - 1].max(precision[i]);
        }
        (recall, precision)
    }

    pub(super) fn average_precision(&self) -> f64 {
        let grid = unit_grid(N_RECALL_POINTS);
        let (recall, precision) = self.envelope();
        let sampled: Vec<f64> = grid.iter().map(|&x| interpolated(x, &recall, &precision, 1.0)).collect();
        area_below(&grid, &sampled)
    }
}

impl Curves {
    pub(super) fn zero() -> Self {
        let zeros = vec![0.0; N_CURVE_POINTS];
        Self { precision: zeros.clone(), recall: zeros.clone(), f1: zeros.clone(), precision_over_recall: zeros }
    }

    /// Above the largest confidence nothing is detected: recall 0, and precision 1 by agreement.
    pub(super) fn of(sorted: &[Scored], ranked: &Ranked) -> Self {
        let grid = unit_grid(N_CURVE_POINTS);
        // Confidence falls along the ranking; its negative rises, as interpolation wants.
        let rising: Vec<f64> = sorted.iter().map(|scored| -f64::from(scored.confidence)).collect();
        let over_confidence = |values: &[f64], before: f64| -> Vec<f64> {
            grid.iter().map(|&x| interpolated(-x, &rising, values, before)).collect()
        };
        let precision = over_confidence(&ranked.precision, 1.0);
        let recall = over_confidence(&ranked.recall, 0.0);
        let f1 = precision.iter().zip(&recall).map(|(p, r)| 2.0 * p * r / (p + r + EPSILON)).collect();
        let (recall_points, precision_points) = ranked.envelope();
        let precision_over_recall =
            grid.iter().map(|&x| interpolated(x, &recall_points, &precision_points, 1.0)).collect();
        Self { precision, recall, f1, precision_over_recall }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(hits: &[(f32, bool)]) -> Vec<Scored> {
        hits.iter().map(|&(confidence, hit)| Scored { confidence, hits: [hit; N_THRESHOLDS] }).collect()
    }

    #[test]
    fn precision_and_recall_count_from_the_most_confident() {
        let ranked = Ranked::at(0, &sorted(&[(0.9, true), (0.8, false), (0.7, true)]), 4);
        assert_eq!(ranked.precision, [1.0, 0.5, 2.0 / 3.0]);
        assert_eq!(ranked.recall, [0.25, 0.25, 0.5]);
    }

    #[test]
    fn the_envelope_never_rises() {
        let ranked = Ranked::at(0, &sorted(&[(0.9, false), (0.8, true)]), 1);
        assert_eq!(ranked.envelope(), (vec![0.0, 0.0, 1.0, 1.0, 1.0], vec![1.0, 0.5, 0.5, 0.0, 0.0]));
    }

    #[test]
    fn above_the_largest_confidence_recall_is_zero_and_precision_one() {
        let hits = sorted(&[(0.5, true)]);
        let curves = Curves::of(&hits, &Ranked::at(0, &hits, 1));
        assert_eq!((curves.recall[0], curves.precision[0], curves.f1[0]), (1.0, 1.0, 1.0));
        assert_eq!((curves.recall[999], curves.precision[999], curves.f1[999]), (0.0, 1.0, 0.0));
    }
}
