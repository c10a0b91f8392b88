//! Shuffled, augmented batches of one epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::images::SplitImages;
use super::prefetch::Prefetch;
use super::{LoaderError, MakeBatch};
use crate::augment::{AugmentConfig, Draws, SizePx, TrainAugment, epoch_order};
use crate::dataset::batch::Batch;

/// Which batches of which epoch are wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainLoaderConfig {
    /// Images in a batch, at least 1; the last batch of an epoch may have fewer.
    pub batch: usize,
    /// The run's seed.
    pub seed: u64,
    /// The epoch; any numbering, but the same in every run that is to draw the same.
    pub epoch: usize,
    /// The first batch wanted, from 0: a run that is resumed inside an epoch begins here.
    pub start_batch: usize,
    /// Whether mosaic and mixup may be drawn; false in the last `close_mosaic` epochs.
    pub use_mosaic: bool,
    /// Threads that work ahead; 0 makes each batch in the caller's thread. Does not change the batches.
    pub workers: usize,
}

/// The batches of an epoch from `start_batch` on, each sample once an epoch.
///
/// Holds up to two batches a worker in memory.
pub struct TrainLoader {
    prefetch: Prefetch,
}

impl TrainLoader {
    /// # Errors
    /// When `batch` or the image size is 0, or no thread can be started.
    pub fn new(
        images: Arc<SplitImages>,
        augment: AugmentConfig,
        config: TrainLoaderConfig,
    ) -> Result<Self, LoaderError> {
        if config.batch == 0 {
            return Err(LoaderError::Zero { name: "batch" });
        }
        if images.imgsz() == 0 {
            return Err(LoaderError::Zero { name: "imgsz" });
        }
        let n_samples = images.samples().len();
        let augment = TrainAugment::new(augment, images.imgsz(), n_samples);
        let augment = if config.use_mosaic { augment } else { augment.close_mosaic() };
        let order = epoch_order(config.seed, config.epoch, n_samples);
        let make: Arc<MakeBatch> =
            Arc::new(move |batch_idx, stop| train_batch(&images, &augment, &config, &order, batch_idx, stop));
        let n_batches = n_samples.div_ceil(config.batch);
        Ok(Self { prefetch: Prefetch::new(make, config.start_batch, n_batches, config.workers)? })
    }

    /// Batches still to come.
    pub fn n_left(&self) -> usize {
        self.prefetch.n_left()
    }
}

impl Iterator for TrainLoader {
    type Item = Result<Batch, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.prefetch.next()
    }
}

fn train_batch(
    images: &SplitImages,
    augment: &TrainAugment,
    config: &TrainLoaderConfig,
    order: &[usize],
    batch_idx: usize,
    stop: &AtomicBool,
) -> Option<Batch> {
    let sample_idxs = order.chunks(config.batch).nth(batch_idx)?;
    let mut batch = Batch::with_capacity(batch_idx, SizePx::square(images.imgsz()), sample_idxs.len());
    for &sample_idx in sample_idxs {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let draws = Draws::of_sample(config.seed, config.epoch, sample_idx);
        let warnings = &mut batch.warnings;
        let sample = augment.sample(sample_idx, &draws, &mut |sample_idx| images.load(sample_idx, warnings));
        batch.push_labeled(sample_idx, &sample.image, &sample.boxes);
    }
    Some(batch)
}

/// A split of drawn images, of which one cannot be read.
#[cfg(test)]
pub(super) mod test_split {
    use std::path::Path;

    use image::{Rgb, RgbImage};

    use super::*;
    use crate::dataset::decode::{DecodeError, decode_rgb};
    use crate::dataset::{Label, Sample};
    use crate::geometry::BoxXywhNorm;

    pub const BROKEN_IDX: usize = 2;

    /// `n_samples` images of 64 x 48 pixels, a white rectangle in the middle of each.
    pub fn images(n_samples: usize, imgsz: u32, cache_bytes: usize) -> Arc<SplitImages> {
        let box_norm = BoxXywhNorm { cx: 0.5, cy: 0.5, w: 0.5, h: 0.5 };
        let sample = |sample_idx: usize| Sample {
            image_path: if sample_idx == BROKEN_IDX { "broken".into() } else { sample_idx.to_string().into() },
            width_px: 64,
            height_px: 48,
            labels: vec![Label { class_idx: sample_idx % 3, box_norm }],
        };
        let samples = Arc::new((0..n_samples).map(sample).collect());
        Arc::new(SplitImages::new(samples, imgsz, cache_bytes, drawn))
    }

    fn drawn(path: &Path) -> Result<RgbImage, DecodeError> {
        let Some(grey) = path.to_str().and_then(|name| name.parse::<u8>().ok()) else {
            return decode_rgb(Path::new("there is no such file"));
        };
        Ok(RgbImage::from_fn(64, 48, |x, y| {
            Rgb([if (16..48).contains(&x) && (12..36).contains(&y) { 255 } else { grey }; 3])
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::test_split::BROKEN_IDX;
    use super::*;

    const CONFIG: TrainLoaderConfig =
        TrainLoaderConfig { batch: 4, seed: 7, epoch: 2, start_batch: 0, use_mosaic: true, workers: 0 };

    fn batches(augment: AugmentConfig, config: TrainLoaderConfig) -> Vec<Batch> {
        let images = test_split::images(10, 32, 1 << 20);
        TrainLoader::new(images, augment, config).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn batches_do_not_depend_on_the_number_of_workers() {
        let config = AugmentConfig { mixup: 0.3, degrees: 10.0, ..AugmentConfig::default() };
        let expected = batches(config, CONFIG);
        for workers in [1, 4] {
            assert_eq!(batches(config, TrainLoaderConfig { workers, ..CONFIG }), expected, "{workers} workers");
        }
    }

    #[test]
    fn batches_do_not_depend_on_the_cache() {
        let uncached = TrainLoader::new(test_split::images(10, 32, 0), AugmentConfig::default(), CONFIG).unwrap();
        let uncached: Vec<Batch> = uncached.map(Result::unwrap).collect();
        assert_eq!(uncached, batches(AugmentConfig::default(), CONFIG), "kept or decoded again, the same pixels");
    }

    #[test]
    fn each_sample_comes_once_an_epoch_and_the_last_batch_is_kept() {
        let batches = batches(AugmentConfig::default(), CONFIG);
        let sizes: Vec<usize> = batches.iter().map(Batch::n_images).collect();
        let mut sample_idxs: Vec<usize> = batches.into_iter().flat_map(|batch| batch.sample_idxs).collect();
        sample_idxs.sort();
        assert_eq!(sizes, [4, 4, 2], "ten samples");
        assert_eq!(sample_idxs, (0..10).collect::<Vec<_>>(), "each once");
    }

    #[test]
    fn starting_inside_an_epoch_gives_its_tail() {
        let whole = batches(AugmentConfig::default(), CONFIG);
        for workers in [0, 2] {
            let tail = batches(AugmentConfig::default(), TrainLoaderConfig { start_batch: 1, workers, ..CONFIG });
            assert_eq!(tail, whole[1..], "{workers} workers");
        }
        let nothing = batches(AugmentConfig::default(), TrainLoaderConfig { start_batch: 3, ..CONFIG });
        assert!(nothing.is_empty(), "a run may have been saved at the very end of an epoch");
    }

    #[test]
    fn an_unreadable_image_is_a_warning_and_the_epoch_goes_on() {
        let batches = batches(AugmentConfig::none(), CONFIG);
        let warnings: Vec<usize> =
            batches.iter().flat_map(|batch| &batch.warnings).map(|warning| warning.sample_idx).collect();
        let n_targets: usize = batches.iter().map(|batch| batch.targets.len()).sum();
        assert_eq!((warnings, n_targets), (vec![BROKEN_IDX], 9), "one image of ten lost, its box with it");
    }

    #[test]
    fn a_batch_of_no_images_is_refused() {
        let loader = TrainLoader::new(
            test_split::images(1, 32, 0),
            AugmentConfig::none(),
            TrainLoaderConfig { batch: 0, ..CONFIG },
        );
        assert!(matches!(loader, Err(LoaderError::Zero { name: "batch" })), "it would never end");
    }
}
