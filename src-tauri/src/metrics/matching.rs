//! Which detection claims which ground truth.

use super::detection::{Detection, order_by_confidence};
use crate::geometry::{GroundTruth, iou};

/// How many IoU thresholds average precision is averaged over.
pub const N_THRESHOLDS: usize = 10;

/// The IoU thresholds of AP50-95.
pub const IOU_THRESHOLDS: [f32; N_THRESHOLDS] = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95];

/// For each detection of one image, whether it is a true positive at each of [`IOU_THRESHOLDS`].
///
/// At each threshold by itself: in descending confidence, a detection claims the free ground truth of its own class with
/// the largest IoU, if that IoU reaches the threshold. Whatever finds none is a false positive. The answer is in the
/// order of `detections`.
pub fn true_positives(truths: &[GroundTruth], detections: &[Detection]) -> Vec<[bool; N_THRESHOLDS]> {
    let mut hits = vec![[false; N_THRESHOLDS]; detections.len()];
    let order = order_by_confidence(detections);
    let overlaps: Vec<Vec<(usize, f32)>> = order.iter().map(|&d| same_class_overlaps(truths, &detections[d])).collect();
    for (level, &threshold) in IOU_THRESHOLDS.iter().enumerate() {
        let mut free = vec![true; truths.len()];
        for (&detection_idx, overlaps) in order.iter().zip(&overlaps) {
            let candidates = overlaps.iter().filter(|(truth_idx, overlap)| free[*truth_idx] && *overlap >= threshold);
            if let Some(truth_idx) = best(candidates.copied()) {
                free[truth_idx] = false;
                hits[detection_idx][level] = true;
            }
        }
    }
    hits
}

/// The index with the largest overlap; the first of equals.
pub(super) fn best(candidates: impl Iterator<Item = (usize, f32)>) -> Option<usize> {
    candidates.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(idx, _)| idx)
}

/// Ground truths of the detection's class that overlap it at least by the lowest threshold.
fn same_class_overlaps(truths: &[GroundTruth], detection: &Detection) -> Vec<(usize, f32)> {
    let of_class = truths.iter().enumerate().filter(|(_, truth)| truth.class_idx == detection.class_idx);
    of_class
        .map(|(truth_idx, truth)| (truth_idx, iou(&truth.box_px, &detection.box_px)))
        .filter(|(_, overlap)| *overlap >= IOU_THRESHOLDS[0])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::BoxXyxyPx;

    fn truth(class_idx: usize, x1: f32, x2: f32) -> GroundTruth {
        GroundTruth { class_idx, box_px: BoxXyxyPx::new(x1, 0.0, x2, 10.0) }
    }

    fn detection(class_idx: usize, confidence: f32, x1: f32, x2: f32) -> Detection {
        Detection { class_idx, confidence, box_px: BoxXyxyPx::new(x1, 0.0, x2, 10.0) }
    }

    #[test]
    fn iou_of_exactly_a_threshold_counts() {
        let hits = true_positives(&[truth(0, 0.0, 20.0)], &[detection(0, 0.9, 0.0, 10.0)]);
        let expected = [true, false, false, false, false, false, false, false, false, false];
        assert_eq!(hits, [expected], "100 of 200 square pixels are an IoU of 0.5");
    }

    #[test]
    fn a_truth_is_claimed_once_and_by_the_more_confident() {
        let detections = [detection(0, 0.3, 0.0, 10.0), detection(0, 0.8, 0.0, 9.0)];
        let hits = true_positives(&[truth(0, 0.0, 10.0)], &detections);
        assert!(hits[1][0], "0.8 comes first although its box is the worse one");
        assert!(!hits[0][0], "nothing is left for 0.3");
        assert!(hits[0][9], "an IoU of 0.9 does not reach 0.95, so there the truth is free for the other");
    }

    #[test]
    fn another_class_never_matches() {
        assert_eq!(true_positives(&[truth(1, 0.0, 10.0)], &[detection(0, 0.9, 0.0, 10.0)]), [[false; N_THRESHOLDS]]);
    }
}
