//! The whole detection loss of a batch.

use burn::prelude::*;
use burn::tensor::activation::sigmoid;

use crate::geometry::{BoxXyxyPx, GroundTruth};
use crate::model::{AnchorPoints, HeadOutput, corners_from_distances, distances_from_logits};

use super::assigner::{Assigner, Assignment, Candidates};
use super::dfl::{MAX_DISTANCE, distribution_focal_loss};
use super::iou_loss::complete_iou;

/// Weights of the three terms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossGains {
    pub box_gain: f64,
    pub cls_gain: f64,
    pub dfl_gain: f64,
}

/// Box, class and distribution terms, gains included: the numbers shown to the user.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LossItems {
    pub box_loss: f32,
    pub cls_loss: f32,
    pub dfl_loss: f32,
}

/// A batch's loss: what to differentiate, and what to show.
pub struct LossOutput {
    /// `[1]`: the three terms' sum times the number of images.
    pub total: Tensor<1>,
    /// `[3]`, without gradient: box, class and distribution term with their gains. Reading it waits for the device.
    pub items: Tensor<1>,
}

/// The loss's settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DetectionLoss {
    pub gains: LossGains,
    pub assigner: Assigner,
}

/// Below this the sum of target scores does not divide the loss: an image without boxes has none.
const MIN_SCORE_SUM: f32 = 1.0;

impl Default for LossGains {
    /// The reference's defaults.
    fn default() -> Self {
        Self { box_gain: 7.5, cls_gain: 0.5, dfl_gain: 1.5 }
    }
}

impl LossItems {
    /// Reads the three terms back. Waits for the device.
    pub fn read(items: Tensor<1>) -> Self {
        let values: Vec<f32> = items.into_data().convert::<f32>().iter::<f32>().collect();
        Self { box_loss: values[0], cls_loss: values[1], dfl_loss: values[2] }
    }

    pub fn is_finite(&self) -> bool {
        self.box_loss.is_finite() && self.cls_loss.is_finite() && self.dfl_loss.is_finite()
    }
}

impl DetectionLoss {
    pub fn new(gains: LossGains) -> Self {
        Self { gains, assigner: Assigner::default() }
    }

    /// Loss of a batch; `ground_truth` has one list of boxes for each image, in pixels of the network's input.
    ///
    /// The assignment is made on the host, so this waits for the forward pass.
    pub fn forward(&self, output: &HeadOutput, ground_truth: &[Vec<GroundTruth>]) -> LossOutput {
        let device = output.class_logits.device();
        let points = AnchorPoints::new(&output.level_sizes);
        let distances = distances_from_logits(output.box_logits.clone());
        let assignments = self.assign(output, &distances, &points, ground_truth);
        let targets = Targets::new(&assignments, ground_truth, &points, &device);

        let class_targets = targets.class_scores(output.class_logits.dims()[1]);
        let cls_loss = sum_all(bce_with_logits(output.class_logits.clone(), class_targets));

        let predicted = corners_from_distances(points.xy_tensor(&device), distances);
        let box_loss =
            sum_all(complete_iou(predicted, targets.boxes.clone()).neg().add_scalar(1.0) * targets.scores.clone());
        let distance_targets = distances_to_sides(points.xy_tensor(&device), targets.boxes.clone());
        let dfl_loss = sum_all(distribution_focal_loss(output.box_logits.clone(), distance_targets) * targets.scores);

        let norm = targets.score_sum.max(MIN_SCORE_SUM) as f64;
        let items = Tensor::cat(
            vec![
                box_loss.mul_scalar(self.gains.box_gain / norm),
                cls_loss.mul_scalar(self.gains.cls_gain / norm),
                dfl_loss.mul_scalar(self.gains.dfl_gain / norm),
            ],
            0,
        );
        let total = items.clone().sum().mul_scalar(ground_truth.len() as f64);
        LossOutput { total, items: items.detach() }
    }

    fn assign(
        &self,
        output: &HeadOutput,
        distances: &Tensor<3>,
        points: &AnchorPoints,
        ground_truth: &[Vec<GroundTruth>],
    ) -> Vec<Vec<Assignment>> {
        let scores = read_plain(sigmoid(without_graph(output.class_logits.clone())));
        let distances = read_plain(without_graph(distances.clone()));
        let centres_px: Vec<[f32; 2]> =
            points.xy_grid.iter().zip(&points.stride_px).map(|(xy, stride)| [xy[0] * stride, xy[1] * stride]).collect();
        let n_points = points.len();
        let n_classes = output.class_logits.dims()[1];
        ground_truth
            .iter()
            .enumerate()
            .map(|(image_idx, ground_truth)| {
                let boxes_px = predicted_boxes_px(&distances[image_idx * 4 * n_points..][..4 * n_points], points);
                let class_scores = &scores[image_idx * n_classes * n_points..][..n_classes * n_points];
                let candidates = Candidates { class_scores, boxes_px: &boxes_px, centres_px: &centres_px };
                self.assigner.assign(&candidates, ground_truth)
            })
            .collect()
    }
}

/// A plain copy of a tensor: a graph without a backward pass of its own would stay in memory.
fn without_graph<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.is_autodiff() { tensor.inner() } else { tensor }
}

fn read_plain(tensor: Tensor<3>) -> Vec<f32> {
    // Converted to f32 on the same line, so the cast cannot fail.
    tensor.into_data().convert::<f32>().try_into_vec().expect("f32 data")
}

/// Boxes in pixels from one image's distances, `[4, n_points]` row-major in grid units.
fn predicted_boxes_px(distances: &[f32], points: &AnchorPoints) -> Vec<BoxXyxyPx> {
    let n_points = points.len();
    (0..n_points)
        .map(|i| {
            let ([x, y], stride) = (points.xy_grid[i], points.stride_px[i]);
            BoxXyxyPx {
                x1: (x - distances[i]) * stride,
                y1: (y - distances[n_points + i]) * stride,
                x2: (x + distances[2 * n_points + i]) * stride,
                y2: (y + distances[3 * n_points + i]) * stride,
            }
        })
        .collect()
}

/// What each point should predict. Points without a box have score zero and any box of some size.
struct Targets {
    /// `[batch, 4, n_points]`: x1, y1, x2, y2 in grid units.
    boxes: Tensor<3>,
    /// `[batch, 1, n_points]`: score of the assigned box's class.
    scores: Tensor<3>,
    /// `[batch, 1, n_points]`: class of the assigned box.
    classes: Tensor<3>,
    score_sum: f32,
}

impl Targets {
    fn new(
        assignments: &[Vec<Assignment>],
        ground_truth: &[Vec<GroundTruth>],
        points: &AnchorPoints,
        device: &Device,
    ) -> Self {
        let (batch, n_points) = (assignments.len(), points.len());
        let mut boxes = unassigned_boxes(batch, points);
        let mut scores = vec![0.0f32; batch * n_points];
        let mut classes = vec![0.0f32; batch * n_points];
        for (image_idx, assignments) in assignments.iter().enumerate() {
            for assignment in assignments {
                let gt = &ground_truth[image_idx][assignment.gt_idx];
                let stride = points.stride_px[assignment.point_idx];
                let sides = [gt.box_px.x1, gt.box_px.y1, gt.box_px.x2, gt.box_px.y2];
                for (side, value) in sides.into_iter().enumerate() {
                    boxes[(image_idx * 4 + side) * n_points + assignment.point_idx] = value / stride;
                }
                scores[image_idx * n_points + assignment.point_idx] = assignment.score;
                classes[image_idx * n_points + assignment.point_idx] = gt.class_idx as f32;
            }
        }
        let device = device.clone().without_autodiff();
        let score_sum = scores.iter().map(|&score| score as f64).sum::<f64>() as f32;
        Self {
            boxes: Tensor::from_data(TensorData::new(boxes, [batch, 4, n_points]), &device),
            scores: Tensor::from_data(TensorData::new(scores, [batch, 1, n_points]), &device),
            classes: Tensor::from_data(TensorData::new(classes, [batch, 1, n_points]), &device),
            score_sum,
        }
    }

    /// `[batch, n_classes, n_points]`: the score at the assigned class, zero elsewhere.
    fn class_scores(&self, n_classes: usize) -> Tensor<3> {
        let indices: Vec<f32> = (0..n_classes).map(|class_idx| class_idx as f32).collect();
        let indices = Tensor::<3>::from_data(TensorData::new(indices, [1, n_classes, 1]), &self.scores.device());
        let [batch, _, n_points] = self.scores.dims();
        let shape = [batch, n_classes, n_points];
        indices.expand(shape).equal(self.classes.clone().expand(shape)).float() * self.scores.clone()
    }
}

/// The cell itself as every point's box: finite, with gradients that a zero score then removes.
fn unassigned_boxes(batch: usize, points: &AnchorPoints) -> Vec<f32> {
    let one_image: Vec<f32> = [(0, -0.5), (1, -0.5), (0, 0.5), (1, 0.5)]
        .iter()
        .flat_map(|&(axis, offset)| points.xy_grid.iter().map(move |xy| xy[axis] + offset))
        .collect();
    one_image.repeat(batch)
}

/// Left, top, right, bottom distances from centres to the sides of their boxes, kept within 0..=14.99, the distribution's range.
///
/// # Shapes
/// Centres `[1, 2, n_points]` and boxes `[batch, 4, n_points]` (x1, y1, x2, y2), both in grid units; gives `[batch, 4, n_points]`.
pub fn distances_to_sides(centres: Tensor<3>, boxes: Tensor<3>) -> Tensor<3> {
    let left_top = centres.clone() - boxes.clone().narrow(1, 0, 2);
    let right_bottom = boxes.narrow(1, 2, 2) - centres;
    Tensor::cat(vec![left_top, right_bottom], 1).clamp(0.0, MAX_DISTANCE)
}

/// Sum of all elements, one axis after the other: burn's whole sum depends on the number of threads for large tensors.
fn sum_all(tensor: Tensor<3>) -> Tensor<1> {
    tensor.sum_dim(2).sum_dim(1).sum()
}

/// Binary cross entropy of logits against soft targets, element by element; stable for logits of any size.
fn bce_with_logits(logits: Tensor<3>, targets: Tensor<3>) -> Tensor<3> {
    let softplus_of_minus_abs = logits.clone().abs().neg().exp().log1p();
    logits.clone().clamp_min(0.0) - logits * targets + softplus_of_minus_abs
}
