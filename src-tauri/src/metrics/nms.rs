//! Non-maximum suppression on the decoded head output of one image.

use super::detection::Detection;
use crate::geometry::{BoxXyxyPx, iou};

/// Which boxes survive. [`NmsSettings::predict`] and [`NmsSettings::validate`] give the values of Ultralytics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NmsSettings {
    /// Scores must be above this, 0..=1.
    pub conf: f32,
    /// A box that overlaps a better one by more than this is dropped, IoU 0..=1.
    pub iou: f32,
    /// An anchor may give a detection for every class above `conf`, instead of its best class alone.
    pub multi_label: bool,
    /// Boxes of different classes also suppress each other.
    pub agnostic: bool,
    /// Detections kept at most.
    pub max_det: usize,
    /// Candidates looked at, at most: those of the highest scores.
    pub max_nms: usize,
}

/// The decoded head output of one image, `[4 + n_classes, n_anchors]` row-major: rows cx, cy, w, h in pixels of the
/// letterboxed image, then one row of sigmoid scores 0..=1 for each class.
#[derive(Debug, Clone, Copy)]
pub struct HeadOutput<'a> {
    boxes: &'a [f32],
    scores: &'a [f32],
    n_classes: usize,
    n_anchors: usize,
}

/// A detection that survived, and the anchor it comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeptDetection {
    pub anchor_idx: usize,
    pub detection: Detection,
}

/// Why an output cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NmsError {
    #[error("head output has {n_values} values, which is not a multiple of 4 + {n_classes} classes")]
    Shape { n_values: usize, n_classes: usize },
}

impl NmsSettings {
    /// For showing results: one class an anchor, confident boxes only.
    pub fn predict() -> Self {
        Self { conf: 0.25, iou: 0.7, multi_label: false, agnostic: false, max_det: 300, max_nms: 30_000 }
    }

    /// The same with these limits, as a user sets them.
    pub fn with_limits(self, conf: f64, iou: f64, max_det: usize) -> Self {
        Self { conf: conf as f32, iou: iou as f32, max_det, ..self }
    }

    /// For measuring: nearly all boxes, so that precision and recall are known down to low confidence.
    pub fn validate() -> Self {
        Self { conf: 0.001, multi_label: true, ..Self::predict() }
    }
}

impl<'a> HeadOutput<'a> {
    /// # Errors
    /// When the number of values does not fit the number of classes.
    pub fn new(values: &'a [f32], n_classes: usize) -> Result<Self, NmsError> {
        let n_rows = 4 + n_classes;
        if !values.len().is_multiple_of(n_rows) {
            return Err(NmsError::Shape { n_values: values.len(), n_classes });
        }
        let n_anchors = values.len() / n_rows;
        let (boxes, scores) = values.split_at(4 * n_anchors);
        Ok(Self { boxes, scores, n_classes, n_anchors })
    }

    fn box_px(&self, anchor_idx: usize) -> BoxXyxyPx {
        let [cx, cy, w, h] = std::array::from_fn(|row| self.boxes[row * self.n_anchors + anchor_idx]);
        BoxXyxyPx::new(cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0)
    }

    fn class_scores(&self, class_idx: usize) -> &'a [f32] {
        &self.scores[class_idx * self.n_anchors..][..self.n_anchors]
    }
}

/// Greedy suppression in descending score; scores that are equal go by anchor, then by class.
///
/// A box with a coordinate that is not finite is left out, so that it can neither be kept nor suppress anything.
pub fn nms(output: &HeadOutput<'_>, settings: &NmsSettings) -> Vec<KeptDetection> {
    let candidates = if settings.multi_label {
        candidates_of_all_classes(output, settings.conf)
    } else {
        candidates_of_best_class(output, settings.conf)
    };
    let mut kept: Vec<KeptDetection> = Vec::with_capacity(settings.max_det.min(candidates.len()));
    // Only boxes of one group can suppress each other; comparing within it keeps the work small.
    let mut kept_in_group: Vec<Vec<BoxXyxyPx>> = vec![Vec::new(); if settings.agnostic { 1 } else { output.n_classes }];
    for candidate in highest(candidates, settings.max_nms) {
        if kept.len() == settings.max_det {
            break;
        }
        let box_px = output.box_px(candidate.anchor_idx as usize);
        let group = &mut kept_in_group[if settings.agnostic { 0 } else { candidate.class_idx as usize }];
        let is_finite = [box_px.x1, box_px.y1, box_px.x2, box_px.y2].into_iter().all(f32::is_finite);
        if is_finite && !group.iter().any(|better| iou(better, &box_px) > settings.iou) {
            group.push(box_px);
            kept.push(candidate.kept(box_px));
        }
    }
    kept
}

/// An anchor's claim to one class. Ordered by rank: the highest score is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Bits of the score, inverted: a positive float is ordered as its bits are, and integers sort faster.
    inverted_score: u32,
    anchor_idx: u32,
    class_idx: u32,
}

impl Candidate {
    fn new(score: f32, anchor_idx: usize, class_idx: usize) -> Self {
        // An output with 2^32 anchors or classes would not fit into memory.
        Self { inverted_score: !score.to_bits(), anchor_idx: anchor_idx as u32, class_idx: class_idx as u32 }
    }

    fn kept(self, box_px: BoxXyxyPx) -> KeptDetection {
        let confidence = f32::from_bits(!self.inverted_score);
        let detection = Detection { class_idx: self.class_idx as usize, confidence, box_px };
        KeptDetection { anchor_idx: self.anchor_idx as usize, detection }
    }
}

/// The limit scores must pass, never below 0, because the order of [`Candidate`] needs positive scores.
fn positive(conf: f32) -> f32 {
    conf.max(0.0)
}

fn candidates_of_all_classes(output: &HeadOutput<'_>, conf: f32) -> Vec<Candidate> {
    let conf = positive(conf);
    let of_class = |class_idx: usize| {
        let scores = output.class_scores(class_idx).iter().enumerate();
        scores.filter(move |(_, score)| **score > conf).map(move |(anchor, &score)| (score, anchor, class_idx))
    };
    (0..output.n_classes)
        .flat_map(of_class)
        .map(|(score, anchor, class)| Candidate::new(score, anchor, class))
        .collect()
}

fn candidates_of_best_class(output: &HeadOutput<'_>, conf: f32) -> Vec<Candidate> {
    let mut best = vec![(positive(conf), None); output.n_anchors];
    for class_idx in 0..output.n_classes {
        for (best, &score) in best.iter_mut().zip(output.class_scores(class_idx)) {
            if score > best.0 {
                *best = (score, Some(class_idx));
            }
        }
    }
    let found = best.into_iter().enumerate();
    found.filter_map(|(anchor, (score, class))| Some(Candidate::new(score, anchor, class?))).collect()
}

/// The `n_most` candidates of the highest scores, in descending order.
fn highest(mut candidates: Vec<Candidate>, n_most: usize) -> Vec<Candidate> {
    if candidates.len() > n_most {
        candidates.select_nth_unstable(n_most);
        candidates.truncate(n_most);
    }
    candidates.sort_unstable();
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anchors as (x of the centre, scores of two classes); boxes are 10 px squares at y 0.
    fn head(anchors: &[(f32, [f32; 2])]) -> Vec<f32> {
        let row = |value: fn(&(f32, [f32; 2])) -> f32| anchors.iter().map(value);
        row(|a| a.0)
            .chain(row(|_| 0.0))
            .chain(row(|_| 10.0))
            .chain(row(|_| 10.0))
            .chain(row(|a| a.1[0]))
            .chain(row(|a| a.1[1]))
            .collect()
    }

    fn kept(anchors: &[(f32, [f32; 2])], settings: &NmsSettings) -> Vec<(usize, usize)> {
        let values = head(anchors);
        let output = HeadOutput::new(&values, 2).unwrap();
        nms(&output, settings).into_iter().map(|k| (k.anchor_idx, k.detection.class_idx)).collect()
    }

    #[test]
    fn the_better_of_two_overlapping_boxes_survives() {
        let anchors = [(0.0, [0.5, 0.0]), (1.0, [0.9, 0.0]), (50.0, [0.4, 0.0])];
        assert_eq!(kept(&anchors, &NmsSettings::predict()), [(1, 0), (2, 0)], "9 of 11 shared is an IoU above 0.7");
    }

    #[test]
    fn classes_suppress_each_other_only_when_agnostic() {
        let anchors = [(0.0, [0.5, 0.0]), (0.0, [0.0, 0.9])];
        assert_eq!(kept(&anchors, &NmsSettings::predict()), [(1, 1), (0, 0)]);
        assert_eq!(kept(&anchors, &NmsSettings { agnostic: true, ..NmsSettings::predict() }), [(1, 1)]);
    }

    #[test]
    fn multi_label_gives_an_anchor_several_classes() {
        let anchors = [(0.0, [0.5, 0.9])];
        assert_eq!(kept(&anchors, &NmsSettings::predict()), [(0, 1)]);
        assert_eq!(kept(&anchors, &NmsSettings::validate()), [(0, 1), (0, 0)]);
    }

    #[test]
    fn limits_keep_the_highest_scores() {
        let anchors = [(0.0, [0.5, 0.0]), (20.0, [0.9, 0.0]), (40.0, [0.7, 0.0])];
        assert_eq!(kept(&anchors, &NmsSettings { max_det: 2, ..NmsSettings::predict() }), [(1, 0), (2, 0)]);
        assert_eq!(kept(&anchors, &NmsSettings { max_nms: 1, ..NmsSettings::predict() }), [(1, 0)]);
    }

    #[test]
    fn a_score_of_exactly_conf_is_not_enough() {
        assert_eq!(kept(&[(0.0, [0.25, 0.0])], &NmsSettings::predict()), []);
    }

    #[test]
    fn numbers_that_are_not_finite_are_left_out() {
        let anchors = [(f32::NAN, [0.9, 0.0]), (0.0, [f32::NAN, 0.0]), (0.0, [0.8, 0.0])];
        assert_eq!(kept(&anchors, &NmsSettings::predict()), [(2, 0)]);
    }

    #[test]
    fn corners_are_half_a_size_from_the_centre() {
        let values = [10.0, 20.0, 4.0, 6.0, 0.9];
        let found = nms(&HeadOutput::new(&values, 1).unwrap(), &NmsSettings::predict());
        assert_eq!(found[0].detection.box_px, BoxXyxyPx::new(8.0, 17.0, 12.0, 23.0));
    }

    #[test]
    fn a_wrong_number_of_values_is_refused() {
        let refused = HeadOutput::new(&[0.0; 13], 2).unwrap_err();
        assert_eq!(refused, NmsError::Shape { n_values: 13, n_classes: 2 });
    }
}
