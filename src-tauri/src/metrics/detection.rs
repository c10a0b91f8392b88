//! A box the model found, which every metric compares with a [`GroundTruth`](crate::geometry::GroundTruth).

use serde::{Deserialize, Serialize};

use crate::geometry::BoxXyxyPx;

/// A box the model found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    pub class_idx: usize,
    /// Class score after the sigmoid, 0..=1.
    pub confidence: f32,
    /// In pixels; the holder says of which image (letterboxed or original).
    pub box_px: BoxXyxyPx,
}

/// Positions of the detections in descending confidence; equal ones keep the order they came in.
pub(super) fn order_by_confidence(detections: &[Detection]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..detections.len()).collect();
    order.sort_by(|&a, &b| detections[b].confidence.total_cmp(&detections[a].confidence));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_confidences_keep_their_order() {
        let detections = [0.5, 0.9, 0.5, 0.7].map(|confidence| Detection {
            class_idx: 0,
            confidence,
            box_px: BoxXyxyPx::new(0.0, 0.0, 1.0, 1.0),
        });
        assert_eq!(order_by_confidence(&detections), [1, 3, 0, 2], "the sort is stable");
    }
}
