//! From the head's raw output to boxes and scores.

use burn::prelude::*;
use burn::tensor::activation::{sigmoid, softmax};

use super::head::HeadOutput;

/// Bins of the distribution over each box side's distance, in grid units.
pub const REG_MAX: usize = 16;
/// Pixels of the input image per point of each level.
pub const STRIDES: [usize; 3] = [8, 16, 32];

/// Where the head's points lie in the image.
#[derive(Debug, Clone, PartialEq)]
pub struct AnchorPoints {
    /// Centre of each point's cell, in grid units of its level.
    pub xy_grid: Vec<[f32; 2]>,
    /// Pixels per grid unit of each point.
    pub stride_px: Vec<f32>,
}

impl AnchorPoints {
    /// Points of the three levels in the head's order.
    pub fn new(level_sizes: &[[usize; 2]]) -> Self {
        let mut points = Self { xy_grid: Vec::new(), stride_px: Vec::new() };
        for (&[height, width], &stride) in level_sizes.iter().zip(&STRIDES) {
            for row in 0..height {
                for column in 0..width {
                    points.xy_grid.push([column as f32 + 0.5, row as f32 + 0.5]);
                    points.stride_px.push(stride as f32);
                }
            }
        }
        points
    }

    pub fn len(&self) -> usize {
        self.stride_px.len()
    }

    pub fn is_empty(&self) -> bool {
        self.stride_px.is_empty()
    }

    /// Centres as `[1, 2, n_points]`, grid units.
    pub fn xy_tensor(&self, device: &Device) -> Tensor<3> {
        let flat: Vec<f32> = (0..2).flat_map(|axis| self.xy_grid.iter().map(move |xy| xy[axis])).collect();
        Tensor::from_data(TensorData::new(flat, [1, 2, self.len()]), device)
    }

    /// Strides as `[1, 1, n_points]`, pixels.
    pub fn stride_tensor(&self, device: &Device) -> Tensor<3> {
        Tensor::from_data(TensorData::new(self.stride_px.clone(), [1, 1, self.len()]), device)
    }
}

/// Expected distance of each box side under its predicted distribution (equation 4 of "Generalized Focal Loss").
///
/// # Shapes
/// `[batch, 4 * REG_MAX, n_points]` logits to `[batch, 4, n_points]`: left, top, right, bottom in grid units, 0..REG_MAX-1.
pub fn distances_from_logits(box_logits: Tensor<3>) -> Tensor<3> {
    let device = box_logits.device();
    let [batch, _, n_points] = box_logits.dims();
    let probabilities = softmax(box_logits.reshape([batch, 4, REG_MAX, n_points]), 2);
    let bins: Vec<f32> = (0..REG_MAX).map(|bin| bin as f32).collect();
    let bins = Tensor::<4>::from_data(TensorData::new(bins, [1, 1, REG_MAX, 1]), &device);
    probabilities.mul(bins).sum_dim(2).reshape([batch, 4, n_points])
}

/// Corners of the boxes that lie at the given distances around their points.
///
/// # Shapes
/// Centres `[1, 2, n_points]`, distances `[batch, 4, n_points]` (left, top, right, bottom); gives `[batch, 4, n_points]`
/// (x1, y1, x2, y2), all in grid units.
pub fn corners_from_distances(centres: Tensor<3>, distances: Tensor<3>) -> Tensor<3> {
    let left_top = centres.clone() - distances.clone().narrow(1, 0, 2);
    let right_bottom = centres + distances.narrow(1, 2, 2);
    Tensor::cat(vec![left_top, right_bottom], 1)
}

/// Boxes and class probabilities of every point.
///
/// # Shapes
/// `[batch, 4 + n_classes, n_points]`: centre x, centre y, width, height in pixels of the network's input, then the
/// sigmoid of each class logit.
pub fn decode_detections(output: &HeadOutput) -> Tensor<3> {
    let device = output.box_logits.device();
    let points = AnchorPoints::new(&output.level_sizes);
    let distances = distances_from_logits(output.box_logits.clone());
    let corners = corners_from_distances(points.xy_tensor(&device), distances);
    let (left_top, right_bottom) = (corners.clone().narrow(1, 0, 2), corners.narrow(1, 2, 2));
    let centre = (left_top.clone() + right_bottom.clone()).div_scalar(2.0);
    let boxes = Tensor::cat(vec![centre, right_bottom - left_top], 1) * points.stride_tensor(&device);
    Tensor::cat(vec![boxes, sigmoid(output.class_logits.clone())], 1)
}
