//! Which class is taken for which, and what is missed or made up.

use serde::Serialize;

use super::detection::{Detection, order_by_confidence};
use super::matching::best;
use crate::geometry::{GroundTruth, iou};

/// IoU above which a detection and a ground truth belong together, the value Ultralytics uses.
pub const DEFAULT_IOU: f32 = 0.45;

/// Counts of (predicted class, true class) over a set of images.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConfusionMatrix {
    n_classes: usize,
    /// Detections at or below this confidence take no part, 0..=1.
    conf: f32,
    /// Pairs at or below this IoU do not belong together, 0..=1.
    iou: f32,
    /// Row-major, `n_classes + 1` rows and columns.
    counts: Vec<u64>,
}

/// What a confusion matrix refuses.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfusionError {
    #[error("a box has class {class_idx}, but the confusion matrix was made for {n_classes} classes")]
    ClassOutOfRange { class_idx: usize, n_classes: usize },
}

impl ConfusionMatrix {
    /// An empty matrix; the reference validates with `conf` 0.001 and `iou` [`DEFAULT_IOU`].
    pub fn new(n_classes: usize, conf: f32, iou: f32) -> Self {
        Self { n_classes, conf, iou, counts: vec![0; (n_classes + 1) * (n_classes + 1)] }
    }

    /// Takes in one image: in descending confidence, each detection claims the free ground truth with the largest IoU,
    /// of whatever class. A ground truth nobody claims was taken for background; a detection that claims none was made
    /// of it.
    ///
    /// # Errors
    /// When a class index is beyond the matrix; the counts are then unchanged.
    pub fn add_image(&mut self, truths: &[GroundTruth], detections: &[Detection]) -> Result<(), ConfusionError> {
        let classes = truths.iter().map(|truth| truth.class_idx).chain(detections.iter().map(|d| d.class_idx));
        let n_classes = self.n_classes;
        if let Some(class_idx) = classes.into_iter().find(|&class_idx| class_idx >= n_classes) {
            return Err(ConfusionError::ClassOutOfRange { class_idx, n_classes });
        }
        let background = n_classes;
        let mut free = vec![true; truths.len()];
        for detection in order_by_confidence(detections).into_iter().map(|i| &detections[i]) {
            if detection.confidence <= self.conf {
                break;
            }
            let overlaps = truths.iter().enumerate().map(|(i, truth)| (i, iou(&truth.box_px, &detection.box_px)));
            match best(overlaps.filter(|(truth_idx, overlap)| free[*truth_idx] && *overlap > self.iou)) {
                Some(truth_idx) => {
                    free[truth_idx] = false;
                    self.count(detection.class_idx, truths[truth_idx].class_idx);
                }
                None => self.count(detection.class_idx, background),
            }
        }
        for (truth, _) in truths.iter().zip(free).filter(|(_, free)| *free) {
            self.count(background, truth.class_idx);
        }
        Ok(())
    }

    /// Rows are predicted classes, columns true classes; the last of each is background.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[u64]> {
        self.counts.chunks_exact(self.n_classes + 1)
    }

    fn count(&mut self, predicted: usize, truth: usize) {
        self.counts[predicted * (self.n_classes + 1) + truth] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::BoxXyxyPx;

    fn truth(class_idx: usize, x: f32) -> GroundTruth {
        GroundTruth { class_idx, box_px: BoxXyxyPx::new(x, 0.0, x + 10.0, 10.0) }
    }

    fn detection(class_idx: usize, confidence: f32, x: f32) -> Detection {
        Detection { class_idx, confidence, box_px: truth(class_idx, x).box_px }
    }

    #[test]
    fn hits_mix_ups_misses_and_inventions_land_in_their_cells() {
        let mut matrix = ConfusionMatrix::new(2, 0.25, DEFAULT_IOU);
        let truths = [truth(0, 0.0), truth(1, 20.0), truth(1, 40.0)];
        let detections = [detection(0, 0.9, 0.0), detection(0, 0.8, 20.0), detection(1, 0.7, 80.0)];
        matrix.add_image(&truths, &detections).unwrap();
        let rows: Vec<_> = matrix.rows().collect();
        assert_eq!(
            rows,
            [[1, 1, 0], [0, 0, 1], [0, 1, 0]],
            "hit; class 1 taken for 0; class 1 invented; class 1 missed"
        );
    }

    #[test]
    fn detections_at_the_confidence_limit_take_no_part() {
        let mut matrix = ConfusionMatrix::new(1, 0.25, DEFAULT_IOU);
        matrix.add_image(&[truth(0, 0.0)], &[detection(0, 0.25, 0.0)]).unwrap();
        assert_eq!(matrix.rows().collect::<Vec<_>>(), [[0, 0], [1, 0]], "the box counts as missed");
    }

    #[test]
    fn an_unknown_class_is_refused_and_counts_nothing() {
        let mut matrix = ConfusionMatrix::new(1, 0.25, DEFAULT_IOU);
        let refused = matrix.add_image(&[truth(0, 0.0)], &[detection(3, 0.9, 0.0)]);
        assert_eq!(refused, Err(ConfusionError::ClassOutOfRange { class_idx: 3, n_classes: 1 }));
        assert!(matrix.counts.iter().all(|&n| n == 0));
    }
}
