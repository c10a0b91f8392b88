//! Letterboxed batches in order, for validation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::images::SplitImages;
use super::prefetch::Prefetch;
use super::{LoaderError, MakeBatch};
use crate::augment::{Letterbox, RectBatch, SizePx};
use crate::dataset::batch::Batch;

/// Planned batches without augmentation, in order; each image's [`Letterbox`] says how to take predictions back.
pub struct ValLoader {
    prefetch: Prefetch,
}

/// All samples in their order, on square canvases of `imgsz`: one shape, so kernels are tuned once.
pub fn square_batches(n_samples: usize, imgsz: u32, batch: usize) -> Vec<RectBatch> {
    let sample_idxs: Vec<usize> = (0..n_samples).collect();
    let batches = sample_idxs.chunks(batch.max(1));
    batches.map(|idxs| RectBatch { sample_idxs: idxs.to_vec(), canvas: SizePx::square(imgsz) }).collect()
}

impl ValLoader {
    /// `plan` comes from [`square_batches`] or [`crate::augment::rect_batches`]; `workers` as in training.
    ///
    /// # Errors
    /// When the image size is 0 or no thread can be started.
    pub fn new(images: Arc<SplitImages>, plan: Vec<RectBatch>, workers: usize) -> Result<Self, LoaderError> {
        if images.imgsz() == 0 {
            return Err(LoaderError::Zero { name: "imgsz" });
        }
        let n_batches = plan.len();
        let make: Arc<MakeBatch> =
            Arc::new(move |batch_idx, stop| val_batch(&images, plan.get(batch_idx)?, batch_idx, stop));
        Ok(Self { prefetch: Prefetch::new(make, 0, n_batches, workers)? })
    }

    /// Batches still to come.
    pub fn n_left(&self) -> usize {
        self.prefetch.n_left()
    }
}

impl Iterator for ValLoader {
    type Item = Result<Batch, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.prefetch.next()
    }
}

fn val_batch(images: &SplitImages, planned: &RectBatch, batch_idx: usize, stop: &AtomicBool) -> Option<Batch> {
    let mut batch = Batch::with_capacity(batch_idx, planned.canvas, planned.sample_idxs.len());
    for &sample_idx in &planned.sample_idxs {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let sample = &images.samples()[sample_idx];
        let n_warnings = batch.warnings.len();
        let loaded = images.load(sample_idx, &mut batch.warnings);
        let letterbox = Letterbox::fit_down(SizePx::of(&loaded.image), planned.canvas);
        // The labels themselves, not the loaded boxes, whose pixels are rounded to f32. None for a replaced image.
        let labels = if batch.warnings.len() == n_warnings { &sample.labels[..] } else { &[] };
        let targets = labels.iter().map(|label| (label.class_idx, letterbox.norm_to_canvas(&label.box_norm)));
        batch.push(sample_idx, &letterbox.apply(&loaded.image), targets);
        batch.letterboxes.push(letterbox.seen_from(SizePx::new(sample.width_px, sample.height_px)));
    }
    Some(batch)
}

#[cfg(test)]
mod tests {
    use super::super::train::test_split;
    use super::*;

    fn batches(workers: usize) -> Vec<Batch> {
        let images = test_split::images(5, 32, 1 << 20);
        ValLoader::new(images, square_batches(5, 32, 2), workers).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn samples_come_in_order_with_any_number_of_workers() {
        let sample_idxs: Vec<Vec<usize>> = batches(0).into_iter().map(|batch| batch.sample_idxs).collect();
        assert_eq!(sample_idxs, [vec![0, 1], vec![2, 3], vec![4]], "no shuffling");
        assert_eq!(batches(4), batches(0), "workers change nothing");
    }

    #[test]
    fn targets_go_back_to_the_original_image() {
        let batch = &batches(0)[0];
        let in_canvas = batch.targets[1].box_norm.to_xyxy_px(32.0, 32.0);
        let original = batch.letterboxes[1].to_original(&in_canvas);
        assert_eq!(original, crate::geometry::BoxXyxyPx::new(16.0, 12.0, 48.0, 36.0), "the middle of 64 x 48");
    }

    #[test]
    fn a_replaced_image_has_no_targets() {
        let batch = &batches(0)[1];
        let image_idxs: Vec<usize> = batch.targets.iter().map(|target| target.image_idx).collect();
        assert_eq!((image_idxs, batch.warnings.len()), (vec![1], 1), "only the readable image has something to find");
    }
}
