//! An image together with its boxes, as the augmentations hand it on.

use std::sync::Arc;

use image::RgbImage;

use crate::geometry::BoxXyxyPx;

/// A box of a class, in pixels of the image it travels with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LabeledBox {
    pub class_idx: usize,
    pub box_px: BoxXyxyPx,
}

/// An image that an augmentation made, with the boxes that lie in it.
#[derive(Debug, Clone, PartialEq)]
pub struct LabeledImage {
    pub image: RgbImage,
    pub boxes: Vec<LabeledBox>,
}

/// An image as it came from the loader: shared, so only read, its long side scaled to `imgsz`.
#[derive(Debug, Clone)]
pub struct LoadedImage {
    pub image: Arc<RgbImage>,
    /// In pixels of `image`.
    pub boxes: Vec<LabeledBox>,
}

impl LabeledBox {
    pub fn new(class_idx: usize, box_px: BoxXyxyPx) -> Self {
        Self { class_idx, box_px }
    }

    /// The same class with another box.
    pub fn moved(&self, box_px: BoxXyxyPx) -> Self {
        Self { class_idx: self.class_idx, box_px }
    }
}

/// Images with one bright rectangle that tests can find again.
#[cfg(test)]
pub(super) mod painted {
    use super::*;

    /// A grey image with a white rectangle of whole pixels, labelled with class 1.
    pub fn labeled(width: u32, height: u32, box_px: BoxXyxyPx) -> LabeledImage {
        let image = RgbImage::from_fn(width, height, |x, y| {
            let (x, y) = (x as f32 + 0.5, y as f32 + 0.5);
            let inside = box_px.x1 < x && x < box_px.x2 && box_px.y1 < y && y < box_px.y2;
            image::Rgb([if inside { 255 } else { 60 }; 3])
        });
        LabeledImage { image, boxes: vec![LabeledBox::new(1, box_px)] }
    }

    pub fn loaded(width: u32, height: u32, box_px: BoxXyxyPx) -> LoadedImage {
        let LabeledImage { image, boxes } = labeled(width, height, box_px);
        LoadedImage { image: Arc::new(image), boxes }
    }

    /// The envelope of all pixels that are more rectangle (255) than background (60).
    pub fn found(image: &RgbImage) -> BoxXyxyPx {
        let mut found = BoxXyxyPx::new(f32::MAX, f32::MAX, 0.0, 0.0);
        for (x, y, _) in image.enumerate_pixels().filter(|(.., pixel)| pixel[0] > 157) {
            let (x, y) = (x as f32, y as f32);
            found = BoxXyxyPx::new(found.x1.min(x), found.y1.min(y), found.x2.max(x + 1.0), found.y2.max(y + 1.0));
        }
        found
    }
}
