//! One class in one image: overlaps, and which detection finds which ground truth.

use super::CocoGroundTruth;
use crate::geometry::BoxXyxyPx;
use crate::metrics::detection::{Detection, order_by_confidence};
use crate::metrics::matching::N_THRESHOLDS;

/// Boxes of one class in one image, with their overlaps worked out.
#[derive(Debug, Clone)]
pub(super) struct ClassInImage {
    truths: Vec<CocoGroundTruth>,
    /// Confidence and box area of the most confident detections, in descending confidence.
    detections: Vec<(f32, f64)>,
    /// `overlaps[detection][truth]`
    overlaps: Vec<Vec<f64>>,
}

/// What became of one detection at each IoU threshold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    pub(super) confidence: f32,
    pub(super) outcome: [Outcome; N_THRESHOLDS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Right,
    Wrong,
    /// Lies on an object that does not count, or on nothing while its own size is out of range.
    Ignored,
}

impl ClassInImage {
    pub(super) fn new(truths: Vec<CocoGroundTruth>, detections: &[Detection], max_detections: usize) -> Self {
        let order = order_by_confidence(detections);
        let kept: Vec<&Detection> = order.into_iter().take(max_detections).map(|i| &detections[i]).collect();
        let overlaps = kept
            .iter()
            .map(|detection| truths.iter().map(|truth| overlap(&detection.box_px, truth)).collect())
            .collect();
        let detections = kept.iter().map(|detection| (detection.confidence, area_px2(&detection.box_px))).collect();
        Self { truths, detections, overlaps }
    }

    /// How many objects had to be found within the size range.
    pub(super) fn n_required(&self, range_px2: (f64, f64)) -> usize {
        self.truths.iter().filter(|truth| !is_ignored(truth, range_px2)).count()
    }

    /// The detections' outcomes, in descending confidence.
    pub(super) fn judged(&self, range_px2: (f64, f64)) -> Vec<Judged> {
        // Required objects come first: an ignored one is claimed only where no required one is near enough.
        let ignored: Vec<bool> = self.truths.iter().map(|truth| is_ignored(truth, range_px2)).collect();
        let mut order: Vec<usize> = (0..self.truths.len()).collect();
        order.sort_by_key(|&i| ignored[i]);
        let mut judged: Vec<Judged> = self
            .detections
            .iter()
            .map(|&(confidence, _)| Judged { confidence, outcome: [Outcome::Wrong; N_THRESHOLDS] })
            .collect();
        for level in 0..N_THRESHOLDS {
            let mut free = vec![true; self.truths.len()];
            for (detection_idx, &(_, area)) in self.detections.iter().enumerate() {
                let found = self.claimed(detection_idx, iou_threshold(level), &order, &ignored, &free);
                if let Some(truth_idx) = found {
                    free[truth_idx] = false;
                }
                judged[detection_idx].outcome[level] = match found {
                    Some(truth_idx) if ignored[truth_idx] => Outcome::Ignored,
                    Some(_) => Outcome::Right,
                    None if is_outside(area, range_px2) => Outcome::Ignored,
                    None => Outcome::Wrong,
                };
            }
        }
        judged
    }

    /// The object a detection claims: the last in `order` of those with the largest overlap, required before ignored.
    fn claimed(
        &self,
        detection_idx: usize,
        threshold: f64,
        order: &[usize],
        ignored: &[bool],
        free: &[bool],
    ) -> Option<usize> {
        let mut claimed: Option<usize> = None;
        let mut largest = threshold.min(1.0 - 1e-10); // so that a perfect overlap reaches a threshold of 1
        for &truth_idx in order {
            if !free[truth_idx] && !self.truths[truth_idx].is_crowd {
                continue;
            }
            if ignored[truth_idx] && claimed.is_some_and(|before| !ignored[before]) {
                break;
            }
            let overlap = self.overlaps[detection_idx][truth_idx];
            if overlap >= largest {
                largest = overlap;
                claimed = Some(truth_idx);
            }
        }
        claimed
    }
}

/// 0.50, 0.55, .. 0.95 in `f64`.
fn iou_threshold(level: usize) -> f64 {
    if level + 1 == N_THRESHOLDS { 0.95 } else { 0.5 + level as f64 * ((0.95 - 0.5) / (N_THRESHOLDS - 1) as f64) }
}

fn is_ignored(truth: &CocoGroundTruth, range_px2: (f64, f64)) -> bool {
    truth.is_crowd || is_outside(truth.area_px2, range_px2)
}

fn is_outside(area_px2: f64, range_px2: (f64, f64)) -> bool {
    area_px2 < range_px2.0 || area_px2 > range_px2.1
}

fn area_px2(b: &BoxXyxyPx) -> f64 {
    (f64::from(b.x2) - f64::from(b.x1)) * (f64::from(b.y2) - f64::from(b.y1))
}

/// IoU; for a crowd the part of the detection that lies inside it.
fn overlap(detection: &BoxXyxyPx, truth: &CocoGroundTruth) -> f64 {
    let w = f64::from(detection.x2.min(truth.box_px.x2)) - f64::from(detection.x1.max(truth.box_px.x1));
    let h = f64::from(detection.y2.min(truth.box_px.y2)) - f64::from(detection.y1.max(truth.box_px.y1));
    let intersection = w.max(0.0) * h.max(0.0);
    let detection_area = area_px2(detection);
    let whole = if truth.is_crowd { detection_area } else { detection_area + area_px2(&truth.box_px) - intersection };
    if whole > 0.0 { intersection / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_with_a_crowd_is_the_part_inside() {
        let detection = BoxXyxyPx::new(0.0, 0.0, 10.0, 10.0);
        let single = CocoGroundTruth::new(0, BoxXyxyPx::new(5.0, 0.0, 105.0, 10.0));
        assert_eq!(overlap(&detection, &CocoGroundTruth { is_crowd: true, ..single }), 0.5);
        assert!((overlap(&detection, &single) - 50.0 / 1050.0).abs() < 1e-12);
    }

    #[test]
    fn a_required_object_is_claimed_before_a_better_overlapping_ignored_one() {
        let required = CocoGroundTruth::new(0, BoxXyxyPx::new(0.0, 0.0, 10.0, 9.0));
        let ignored =
            CocoGroundTruth { area_px2: 1e6, ..CocoGroundTruth::new(0, BoxXyxyPx::new(0.0, 0.0, 10.0, 10.0)) };
        let detection = Detection { class_idx: 0, confidence: 0.5, box_px: ignored.box_px };
        let image = ClassInImage::new(vec![ignored, required], &[detection], 100);
        let outcome = image.judged((0.0, 1024.0))[0].outcome;
        assert_eq!((outcome[0], outcome[9]), (Outcome::Right, Outcome::Ignored), "0.9 does not reach 0.95");
    }
}
