//! From outcomes to precision and recall of one class.

use super::matching::{ClassInImage, Judged, Outcome};
use crate::metrics::curve::unit_grid;
use crate::metrics::matching::N_THRESHOLDS;

/// Recall values at which precision is read.
pub(super) const N_RECALL_POINTS: usize = 101;

/// One class over all images.
#[derive(Debug, Clone)]
pub(super) struct Evaluated {
    /// `precision[threshold][recall point]`
    pub(super) precision: [Vec<f64>; N_THRESHOLDS],
    /// The largest recall reached at each threshold.
    pub(super) recall: [f64; N_THRESHOLDS],
}

/// `None` if no object of the size range had to be found.
pub(super) fn evaluated(images: &[ClassInImage], range_px2: (f64, f64), max_detections: usize) -> Option<Evaluated> {
    let n_required: usize = images.iter().map(|image| image.n_required(range_px2)).sum();
    if n_required == 0 {
        return None;
    }
    let mut judged: Vec<Judged> =
        images.iter().flat_map(|image| image.judged(range_px2).into_iter().take(max_detections)).collect();
    judged.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    let mut recall = [0.0; N_THRESHOLDS];
    let precision = std::array::from_fn(|level| {
        let (precisions, recalls) = ranked(level, &judged, n_required);
        recall[level] = recalls.last().copied().unwrap_or(0.0);
        envelope_at_recall_points(precisions, &recalls)
    });
    Some(Evaluated { precision, recall })
}

/// Precision and recall after each detection in descending confidence.
fn ranked(level: usize, judged: &[Judged], n_required: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut n_right, mut n_wrong) = (0usize, 0usize);
    let step = |detection: &Judged| {
        match detection.outcome[level] {
            Outcome::Right => n_right += 1,
            Outcome::Wrong => n_wrong += 1,
            Outcome::Ignored => {}
        }
        // Ignored detections at the head of the list leave 0 of 0, which counts as 0.
        let precision = n_right as f64 / (n_right + n_wrong).max(1) as f64;
        (precision, n_right as f64 / n_required as f64)
    };
    judged.iter().map(step).unzip()
}

/// The largest precision at that recall or beyond, for each recall point; 0 beyond the largest recall.
fn envelope_at_recall_points(mut precisions: Vec<f64>, recalls: &[f64]) -> Vec<f64> {
    for i in (1..precisions.len()).rev() {
        precisions[i - 1] = precisions[i - 1].max(precisions[i]);
    }
    let at = |point: f64| {
        let first_reaching = recalls.partition_point(|&recall| recall < point);
        precisions.get(first_reaching).copied().unwrap_or(0.0)
    };
    unit_grid(N_RECALL_POINTS).into_iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelope_looks_ahead_and_ends_at_the_largest_recall() {
        let values = envelope_at_recall_points(vec![0.0, 0.5], &[0.0, 0.5]);
        assert_eq!((values[0], values[50], values[51]), (0.5, 0.5, 0.0));
    }
}
