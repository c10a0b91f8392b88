//! Task-aligned assignment: each ground-truth box is answered for by the points that both score and place it best.
//!
//! C. Feng et al., "TOOD: Task-aligned One-stage Object Detection" (2021), section 3.2: alignment t = s^alpha * u^beta with s
//! the score of the box's class and u the overlap. Here alpha = 0.5, beta = 6 and the overlap is the CIoU, as in YOLOv8.

use crate::geometry::{BoxXyxyPx, GroundTruth};

use super::iou_loss::box_ciou;

/// What one image's points predict, on the host.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    /// Class probabilities, `[n_classes, n_points]` row-major, 0..=1.
    pub class_scores: &'a [f32],
    /// Predicted boxes by point, pixels.
    pub boxes_px: &'a [BoxXyxyPx],
    /// Centres of the points, pixels.
    pub centres_px: &'a [[f32; 2]],
}

/// A point that answers for a box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assignment {
    pub point_idx: usize,
    /// Index into the ground truth of the image.
    pub gt_idx: usize,
    /// Target for the score of the box's class, 0..=1.
    pub score: f32,
}

/// The assigner's settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assigner {
    /// Points that may answer for one box.
    pub top_k: usize,
    /// Exponent of the score.
    pub alpha: f32,
    /// Exponent of the overlap.
    pub beta: f32,
    /// A box side below this many pixels counts as this long when points inside the box are looked for, since a smaller
    /// box may hold no point at all. It is the second level's stride.
    pub min_side_px: f32,
}

impl Default for Assigner {
    fn default() -> Self {
        Self { top_k: 10, alpha: 0.5, beta: 6.0, min_side_px: 16.0 }
    }
}

/// Keeps points on a box's very edge out, and divisions defined.
const EPSILON: f32 = 1e-9;

/// A point inside a box, with its overlap and alignment.
#[derive(Clone, Copy)]
struct Fit {
    point_idx: usize,
    overlap: f32,
    alignment: f32,
}

impl Assigner {
    /// Assigns the points of one image, in order of point. A point answers for one box at most.
    pub fn assign(&self, candidates: &Candidates, ground_truth: &[GroundTruth]) -> Vec<Assignment> {
        let fits: Vec<Vec<Fit>> = ground_truth.iter().map(|gt| self.fits_inside(candidates, gt)).collect();
        let owners = self.resolve_owners(&fits, candidates.centres_px.len());
        score_owned(&fits, &owners)
    }

    /// Overlap and alignment of every point whose centre lies inside the box.
    fn fits_inside(&self, candidates: &Candidates, gt: &GroundTruth) -> Vec<Fit> {
        let area = self.widened(&gt.box_px);
        let n_points = candidates.centres_px.len();
        let scores = &candidates.class_scores[gt.class_idx * n_points..][..n_points];
        candidates
            .centres_px
            .iter()
            .enumerate()
            .filter(|(_, [x, y])| {
                let margin = (x - area.x1).min(y - area.y1).min(area.x2 - x).min(area.y2 - y);
                margin > EPSILON
            })
            .map(|(point_idx, _)| {
                let overlap = box_ciou(&gt.box_px, &candidates.boxes_px[point_idx]).max(0.0);
                let alignment = scores[point_idx].powf(self.alpha) * overlap.powf(self.beta);
                Fit { point_idx, overlap, alignment }
            })
            .collect()
    }

    fn widened(&self, gt: &BoxXyxyPx) -> BoxXyxyPx {
        let widen = |low: f32, high: f32| {
            if high - low < self.min_side_px {
                let centre = (low + high) / 2.0;
                (centre - self.min_side_px / 2.0, centre + self.min_side_px / 2.0)
            } else {
                (low, high)
            }
        };
        let (x1, x2) = widen(gt.x1, gt.x2);
        let (y1, y2) = widen(gt.y1, gt.y2);
        BoxXyxyPx { x1, y1, x2, y2 }
    }

    /// The box of each point: among the best `top_k` points of one box, or, where several boxes claim the point, the one of
    /// highest overlap of all that it lies in.
    ///
    /// Points of no alignment at all are left out: their target would be zero.
    fn resolve_owners(&self, fits: &[Vec<Fit>], n_points: usize) -> Vec<Option<usize>> {
        let mut n_claims = vec![0usize; n_points];
        let mut owners = vec![None; n_points];
        for (gt_idx, fits) in fits.iter().enumerate() {
            for fit in best_by_alignment(fits, self.top_k) {
                n_claims[fit.point_idx] += 1;
                owners[fit.point_idx] = Some(gt_idx);
            }
        }
        let mut best_overlap = vec![f32::NEG_INFINITY; n_points];
        for (gt_idx, fits) in fits.iter().enumerate() {
            for fit in fits.iter().filter(|fit| n_claims[fit.point_idx] > 1) {
                if fit.overlap > best_overlap[fit.point_idx] {
                    best_overlap[fit.point_idx] = fit.overlap;
                    owners[fit.point_idx] = Some(gt_idx);
                }
            }
        }
        owners
    }
}

/// The `k` fits of highest positive alignment; among equals the earlier point wins.
fn best_by_alignment(fits: &[Fit], k: usize) -> Vec<Fit> {
    let mut best: Vec<Fit> = fits.iter().filter(|fit| fit.alignment > 0.0).copied().collect();
    let by_alignment = |a: &Fit, b: &Fit| b.alignment.total_cmp(&a.alignment).then(a.point_idx.cmp(&b.point_idx));
    if best.len() > k {
        best.select_nth_unstable_by(k, by_alignment);
        best.truncate(k);
    }
    best
}

/// Scores each owned point by its alignment, scaled so that the best point of a box gets the box's best overlap
/// (section 3.2.2 of the paper).
fn score_owned(fits: &[Vec<Fit>], owners: &[Option<usize>]) -> Vec<Assignment> {
    let mut assignments = Vec::new();
    for (gt_idx, fits) in fits.iter().enumerate() {
        let owned = || fits.iter().filter(move |fit| owners[fit.point_idx] == Some(gt_idx));
        let best_alignment = owned().map(|fit| fit.alignment).fold(0.0, f32::max);
        let best_overlap = owned().map(|fit| fit.overlap).fold(0.0, f32::max);
        assignments.extend(owned().map(|fit| Assignment {
            point_idx: fit.point_idx,
            gt_idx,
            score: fit.alignment * best_overlap / (best_alignment + EPSILON),
        }));
    }
    assignments.sort_by_key(|assignment| assignment.point_idx);
    assignments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(side: usize, stride: f32) -> Vec<[f32; 2]> {
        (0..side * side)
            .map(|i| [(i % side) as f32 * stride + stride / 2.0, (i / side) as f32 * stride + stride / 2.0])
            .collect()
    }

    #[test]
    fn a_perfect_prediction_scores_its_overlap() {
        let gt = GroundTruth { class_idx: 0, box_px: BoxXyxyPx::new(1.0, 1.0, 31.0, 31.0) };
        let centres = grid(4, 8.0);
        let boxes = vec![gt.box_px; 16];
        let scores = vec![0.25; 16];
        let candidates = Candidates { class_scores: &scores, boxes_px: &boxes, centres_px: &centres };
        let assigned = Assigner::default().assign(&candidates, &[gt]);
        assert_eq!(assigned.len(), 10, "sixteen points fit, ten may answer");
        assert!(
            assigned.iter().all(|a| (a.score - 1.0).abs() < 1e-5),
            "alike points all get the box's overlap, which is 1"
        );
    }

    #[test]
    fn a_contested_point_goes_to_the_box_it_overlaps_most() {
        let small = GroundTruth { class_idx: 0, box_px: BoxXyxyPx::new(1.0, 1.0, 23.0, 23.0) };
        let large = GroundTruth { class_idx: 0, box_px: BoxXyxyPx::new(1.0, 1.0, 63.0, 63.0) };
        let candidates = Candidates { class_scores: &[0.5], boxes_px: &[small.box_px], centres_px: &[[12.0, 12.0]] };
        let assigned = Assigner::default().assign(&candidates, &[large, small]);
        assert_eq!(
            assigned.iter().map(|a| a.gt_idx).collect::<Vec<_>>(),
            [1],
            "the prediction is the small box itself"
        );
    }

    #[test]
    fn a_box_smaller_than_the_grid_still_finds_a_point() {
        let gt = GroundTruth { class_idx: 0, box_px: BoxXyxyPx::new(15.0, 15.0, 17.0, 17.0) };
        let centres = grid(4, 8.0);
        let boxes = vec![BoxXyxyPx::new(14.0, 14.0, 18.0, 18.0); 16];
        let scores = vec![0.5; 16];
        let candidates = Candidates { class_scores: &scores, boxes_px: &boxes, centres_px: &centres };
        assert_eq!(Assigner::default().assign(&candidates, &[gt]).len(), 4, "the four points within eight pixels");
    }

    #[test]
    fn no_box_means_no_assignment() {
        let candidates = Candidates {
            class_scores: &[0.5],
            boxes_px: &[BoxXyxyPx::new(0.0, 0.0, 1.0, 1.0)],
            centres_px: &[[4.0, 4.0]],
        };
        assert!(Assigner::default().assign(&candidates, &[]).is_empty());
    }
}
