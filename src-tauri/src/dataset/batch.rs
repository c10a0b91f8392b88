//! One mini-batch in plain numbers, ready to become tensors.

use std::path::PathBuf;

use image::RgbImage;

use crate::augment::{LabeledBox, Letterbox, SizePx};
use crate::geometry::BoxXywhNorm;

/// Images of one size with their targets.
///
/// # Shapes
/// `images` is `[n_images, 3, height_px, width_px]`, row-major, RGB, 0..=1; `sample_idxs` has one entry an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Position of the batch in its epoch or validation, from 0.
    pub batch_idx: usize,
    pub images: Vec<f32>,
    pub height_px: usize,
    pub width_px: usize,
    /// Which sample of the split each image was made for. A mosaic shows others too.
    pub sample_idxs: Vec<usize>,
    /// The boxes of all images, grouped by image in the order of the batch.
    pub targets: Vec<Target>,
    /// In validation how each image lies in the batch, to take predictions back; empty in training.
    pub letterboxes: Vec<Letterbox>,
    /// Images that could not be loaded and were replaced by plain grey without boxes.
    pub warnings: Vec<ImageWarning>,
}

/// A box that should be found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Position of the image in its batch.
    pub image_idx: usize,
    pub class_idx: usize,
    /// Relative to the batch's image, not to the original one.
    pub box_norm: BoxXywhNorm,
}

/// An image that could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageWarning {
    pub sample_idx: usize,
    pub image_path: PathBuf,
    /// What the decoder said.
    pub reason: String,
}

impl Batch {
    /// Hash of pixels and boxes, 16 hexadecimal digits: equal for batches that teach the same.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for pixel in &self.images {
            hasher.update(&pixel.to_le_bytes());
        }
        for target in &self.targets {
            let b = target.box_norm;
            hasher.update(&(target.image_idx as u64).to_le_bytes());
            hasher.update(&(target.class_idx as u64).to_le_bytes());
            for number in [b.cx, b.cy, b.w, b.h] {
                hasher.update(&number.to_le_bytes());
            }
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// A batch without images yet; all images to come have `size`, `n_images` of them are expected.
    pub fn with_capacity(batch_idx: usize, size: SizePx, n_images: usize) -> Self {
        let (width_px, height_px) = (size.width as usize, size.height as usize);
        Self {
            batch_idx,
            images: Vec::with_capacity(n_images * 3 * height_px * width_px),
            height_px,
            width_px,
            sample_idxs: Vec::with_capacity(n_images),
            targets: Vec::new(),
            letterboxes: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub fn n_images(&self) -> usize {
        self.sample_idxs.len()
    }

    /// The sample's image could not be read and was replaced.
    pub fn is_replaced(&self, sample_idx: usize) -> bool {
        self.warnings.iter().any(|warning| warning.sample_idx == sample_idx)
    }

    /// Adds an image of the batch's size and its targets.
    pub fn push(&mut self, sample_idx: usize, image: &RgbImage, targets: impl Iterator<Item = (usize, BoxXywhNorm)>) {
        debug_assert_eq!((image.width() as usize, image.height() as usize), (self.width_px, self.height_px));
        for channel in 0..3 {
            self.images.extend(image.as_raw().chunks_exact(3).map(|pixel| pixel[channel] as f32 / 255.0));
        }
        let image_idx = self.n_images();
        self.targets.extend(targets.map(|(class_idx, box_norm)| Target { image_idx, class_idx, box_norm }));
        self.sample_idxs.push(sample_idx);
    }

    /// As [`Batch::push`], for boxes in pixels of the image.
    pub fn push_labeled(&mut self, sample_idx: usize, image: &RgbImage, boxes: &[LabeledBox]) {
        let (width, height) = (image.width() as f64, image.height() as f64);
        let targets = boxes.iter().map(|label| (label.class_idx, label.box_px.to_norm(width, height)));
        self.push(sample_idx, image, targets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::BoxXyxyPx;

    #[test]
    fn pixels_are_laid_out_plane_by_plane() {
        let mut batch = Batch::with_capacity(0, SizePx::new(2, 1), 1);
        let image = RgbImage::from_raw(2, 1, vec![255, 51, 0, 0, 102, 255]).unwrap();
        batch.push_labeled(5, &image, &[]);
        assert_eq!(batch.images, [1.0, 0.0, 0.2, 0.4, 0.0, 1.0], "red, green, blue planes of two pixels");
    }

    #[test]
    fn targets_know_their_image() {
        let mut batch = Batch::with_capacity(0, SizePx::new(4, 2), 2);
        let image = RgbImage::new(4, 2);
        batch.push_labeled(8, &image, &[]);
        batch.push_labeled(3, &image, &[LabeledBox::new(2, BoxXyxyPx::new(1.0, 0.0, 3.0, 2.0))]);
        let box_norm = BoxXywhNorm { cx: 0.5, cy: 0.5, w: 0.5, h: 1.0 };
        assert_eq!(batch.targets, [Target { image_idx: 1, class_idx: 2, box_norm }], "the second image of the batch");
        assert_eq!((batch.n_images(), batch.sample_idxs), (2, vec![8, 3]), "in the order of pushing");
    }
}
