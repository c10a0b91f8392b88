//! Boxes on plain numbers: their coordinate spaces, conversions and overlaps.
//!
//! The space is part of the type's name, so that pixels and normalised numbers cannot be mixed by accident.
//! Coordinates are continuous: a width is `x2 - x1`, with no "+ 1". Knows nothing of tensors, files or classes.

use serde::{Deserialize, Serialize};

/// A box by its corners, in pixels of the image it belongs to (original or letterboxed; the holder says which).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BoxXyxyPx {
    pub x1: f32,
    pub y1: f32,
    pub x2: f32,
    pub y2: f32,
}

/// A box by centre and size, divided by the image's width and height: each number is in 0..=1 for a box inside the image.
///
/// Kept in `f64`, so that what was read from a label file is written back with full precision.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BoxXywhNorm {
    pub cx: f64,
    pub cy: f64,
    pub w: f64,
    pub h: f64,
}

/// A box that should be found, in pixels of the image it belongs to (original or network input; the holder says which).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GroundTruth {
    pub class_idx: usize,
    pub box_px: BoxXyxyPx,
}

impl GroundTruth {
    /// From a label relative to an image of `width` x `height` pixels.
    ///
    /// Rounded to f32 before it is scaled and turned into corners, as the reference does it: whether a point on the very
    /// edge of a box lies inside can depend on the last bit.
    pub fn from_norm(class_idx: usize, norm: &BoxXywhNorm, width: usize, height: usize) -> Self {
        let (cx, half_w) = (norm.cx as f32 * width as f32, norm.w as f32 * width as f32 / 2.0);
        let (cy, half_h) = (norm.cy as f32 * height as f32, norm.h as f32 * height as f32 / 2.0);
        Self { class_idx, box_px: BoxXyxyPx::new(cx - half_w, cy - half_h, cx + half_w, cy + half_h) }
    }
}

impl BoxXyxyPx {
    pub fn new(x1: f32, y1: f32, x2: f32, y2: f32) -> Self {
        Self { x1, y1, x2, y2 }
    }

    pub fn width(&self) -> f32 {
        self.x2 - self.x1
    }

    pub fn height(&self) -> f32 {
        self.y2 - self.y1
    }

    /// Area in square pixels; zero for a box that is turned inside out.
    pub fn area(&self) -> f32 {
        self.width().max(0.0) * self.height().max(0.0)
    }

    /// The part of the box that lies inside an image of `width` x `height` pixels.
    pub fn clipped(&self, width: f32, height: f32) -> Self {
        Self {
            x1: self.x1.clamp(0.0, width),
            y1: self.y1.clamp(0.0, height),
            x2: self.x2.clamp(0.0, width),
            y2: self.y2.clamp(0.0, height),
        }
    }

    /// Centre and size relative to an image of `width` x `height` pixels.
    pub fn to_norm(&self, width: f64, height: f64) -> BoxXywhNorm {
        let (x1, y1, x2, y2) = (self.x1 as f64, self.y1 as f64, self.x2 as f64, self.y2 as f64);
        BoxXywhNorm {
            cx: (x1 + x2) / 2.0 / width,
            cy: (y1 + y2) / 2.0 / height,
            w: (x2 - x1) / width,
            h: (y2 - y1) / height,
        }
    }
}

impl BoxXywhNorm {
    /// Corners in pixels of an image of `width` x `height`.
    pub fn to_xyxy_px(&self, width: f64, height: f64) -> BoxXyxyPx {
        BoxXyxyPx {
            x1: ((self.cx - self.w / 2.0) * width) as f32,
            y1: ((self.cy - self.h / 2.0) * height) as f32,
            x2: ((self.cx + self.w / 2.0) * width) as f32,
            y2: ((self.cy + self.h / 2.0) * height) as f32,
        }
    }
}

/// Intersection over union of two boxes, 0..=1; zero when both are empty.
pub fn iou(a: &BoxXyxyPx, b: &BoxXyxyPx) -> f32 {
    let w = (a.x2.min(b.x2) - a.x1.max(b.x1)).max(0.0);
    let h = (a.y2.min(b.y2) - a.y1.max(b.y1)).max(0.0);
    let intersection = w * h;
    let union = a.area() + b.area() - intersection;
    if union > 0.0 { intersection / union } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iou_of_half_overlapping_squares_is_a_third() {
        let a = BoxXyxyPx::new(0.0, 0.0, 2.0, 2.0);
        let b = BoxXyxyPx::new(1.0, 0.0, 3.0, 2.0);
        assert!((iou(&a, &b) - 1.0 / 3.0).abs() < 1e-6, "2 shared of 6 in all");
    }

    #[test]
    fn iou_of_empty_boxes_is_zero() {
        let empty = BoxXyxyPx::new(1.0, 1.0, 1.0, 1.0);
        assert_eq!(iou(&empty, &empty), 0.0, "no division by an empty union");
    }

    #[test]
    fn norm_and_pixels_undo_each_other() {
        let norm = BoxXywhNorm { cx: 0.25, cy: 0.5, w: 0.5, h: 0.25 };
        assert_eq!(norm.to_xyxy_px(40.0, 80.0).to_norm(40.0, 80.0), norm, "exact in powers of two");
    }
}
