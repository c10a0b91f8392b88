//! Complete IoU: overlap, less the distance of the centres and the difference of the shapes.
//!
//! Z. Zheng et al., "Distance-IoU Loss" (2020), equations 8 to 11. The weight alpha of the shape term is a constant for the
//! gradient, as in the paper.

use std::f32::consts::PI;

use burn::prelude::*;
use burn::tensor::activation::relu;

use crate::geometry::BoxXyxyPx;

/// Keeps divisions by the areas and diagonals of empty boxes defined.
const EPSILON: f32 = 1e-7;

/// CIoU of two boxes, -1..=1.
pub fn box_ciou(a: &BoxXyxyPx, b: &BoxXyxyPx) -> f32 {
    let (aw, ah) = (a.x2 - a.x1, a.y2 - a.y1 + EPSILON);
    let (bw, bh) = (b.x2 - b.x1, b.y2 - b.y1 + EPSILON);
    let overlap_w = (a.x2.min(b.x2) - a.x1.max(b.x1)).max(0.0);
    let overlap_h = (a.y2.min(b.y2) - a.y1.max(b.y1)).max(0.0);
    let intersection = overlap_w * overlap_h;
    let union = aw * ah + bw * bh - intersection + EPSILON;
    let iou = intersection / union;

    let hull_w = a.x2.max(b.x2) - a.x1.min(b.x1);
    let hull_h = a.y2.max(b.y2) - a.y1.min(b.y1);
    let diagonal = hull_w * hull_w + hull_h * hull_h + EPSILON;
    let dx = b.x1 + b.x2 - a.x1 - a.x2;
    let dy = b.y1 + b.y2 - a.y1 - a.y2;
    let centre_distance = (dx * dx + dy * dy) / 4.0;

    let shape = 4.0 / (PI * PI) * ((bw / bh).atan() - (aw / ah).atan()).powi(2);
    let alpha = shape / (shape - iou + (1.0 + EPSILON));
    iou - (centre_distance / diagonal + shape * alpha)
}

/// CIoU of each pair of boxes, with gradient.
///
/// # Shapes
/// Two `[batch, 4, n_points]`: x1, y1, x2, y2 in any unit, the same for both; gives `[batch, 1, n_points]` in -1..=1.
pub fn complete_iou(predicted: Tensor<3>, target: Tensor<3>) -> Tensor<3> {
    let side = |boxes: &Tensor<3>, index: usize| boxes.clone().narrow(1, index, 1); // [batch, 1, n_points]
    let [px1, py1, px2, py2] = [0, 1, 2, 3].map(|index| side(&predicted, index));
    let [tx1, ty1, tx2, ty2] = [0, 1, 2, 3].map(|index| side(&target, index));

    let (pw, ph) = (px2.clone() - px1.clone(), (py2.clone() - py1.clone()).add_scalar(EPSILON));
    let (tw, th) = (tx2.clone() - tx1.clone(), (ty2.clone() - ty1.clone()).add_scalar(EPSILON));
    // relu, since boxes that just touch shall have no gradient of their overlap.
    let overlap_w = relu(smaller(&px2, &tx2) - larger(&px1, &tx1));
    let overlap_h = relu(smaller(&py2, &ty2) - larger(&py1, &ty1));
    let intersection = overlap_w * overlap_h;
    let union = (pw.clone() * ph.clone() + tw.clone() * th.clone() - intersection.clone()).add_scalar(EPSILON);
    let iou = intersection / union;

    let hull_w = larger(&px2, &tx2) - smaller(&px1, &tx1);
    let hull_h = larger(&py2, &ty2) - smaller(&py1, &ty1);
    let diagonal = (hull_w.square() + hull_h.square()).add_scalar(EPSILON);
    let dx = tx1 + tx2 - px1 - px2;
    let dy = ty1 + ty2 - py1 - py2;
    let centre_distance = (dx.square() + dy.square()).div_scalar(4.0);

    let shape = ((tw / th).atan() - (pw / ph).atan()).square().mul_scalar(4.0 / (PI * PI));
    let alpha = (shape.clone() / (shape.clone() - iou.clone()).add_scalar(1.0 + EPSILON)).detach();
    iou - (centre_distance / diagonal + shape * alpha)
}

/// The larger of each pair. Equal values share the gradient evenly, as in PyTorch; burn's own gives all of it to one.
fn larger(a: &Tensor<3>, b: &Tensor<3>) -> Tensor<3> {
    let (above, equal) = (a.clone().greater(b.clone()).float(), a.clone().equal(b.clone()).float());
    weighted(a, b, above.add(equal.mul_scalar(0.5)))
}

/// The smaller of each pair, equal values sharing the gradient.
fn smaller(a: &Tensor<3>, b: &Tensor<3>) -> Tensor<3> {
    let (below, equal) = (a.clone().lower(b.clone()).float(), a.clone().equal(b.clone()).float());
    weighted(a, b, below.add(equal.mul_scalar(0.5)))
}

/// `weight * a + (1 - weight) * b`; exact for weights 0, 1/2 and 1 wherever the halves are of equal values.
fn weighted(a: &Tensor<3>, b: &Tensor<3>, weight: Tensor<3>) -> Tensor<3> {
    a.clone() * weight.clone() + b.clone() * weight.neg().add_scalar(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_boxes_have_ciou_one() {
        let a = BoxXyxyPx::new(10.0, 10.0, 50.0, 30.0);
        assert!((box_ciou(&a, &a) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn distant_boxes_have_negative_ciou() {
        // Two unit squares nine apart: no overlap, distance 9 over a hull of 10 x 1, same shape.
        let a = BoxXyxyPx::new(0.0, 0.0, 1.0, 1.0);
        let b = BoxXyxyPx::new(9.0, 0.0, 10.0, 1.0);
        assert!((box_ciou(&a, &b) + 81.0 / 101.0).abs() < 1e-5, "minus distance squared over diagonal squared");
    }

    #[test]
    fn tensor_and_plain_form_agree() {
        let a = BoxXyxyPx::new(3.0, 4.0, 20.0, 31.0);
        let b = BoxXyxyPx::new(5.0, 2.0, 27.0, 18.0);
        let tensor = |x: &BoxXyxyPx| Tensor::<3>::from_data([[[x.x1], [x.y1], [x.x2], [x.y2]]], &Device::flex());
        let ciou: f32 = complete_iou(tensor(&a), tensor(&b)).into_scalar();
        assert!((ciou - box_ciou(&a, &b)).abs() < 1e-6);
    }
}
