//! A training sample from the images it is made of: mosaic or letterbox, then affine, mixup, colour, flips.

use super::affine::Affine;
use super::config::AugmentConfig;
use super::draws::{Draws, Purpose};
use super::flip::{flip_lr, flip_ud};
use super::hsv::{HsvChange, apply_hsv};
use super::labeled::{LabeledImage, LoadedImage};
use super::letterbox::{Letterbox, SizePx};
use super::mixup::mixup;
use super::mosaic::{MosaicCenter, mosaic};

/// Makes training samples of one epoch.
#[derive(Debug, Clone)]
pub struct TrainAugment {
    config: AugmentConfig,
    imgsz: u32,
    n_samples: usize,
}

impl TrainAugment {
    /// `n_samples` is the size of the training set, from all of which partners of a mosaic are drawn.
    pub fn new(config: AugmentConfig, imgsz: u32, n_samples: usize) -> Self {
        Self { config, imgsz, n_samples }
    }

    /// The same without mosaic and mixup, as used in the last `close_mosaic` epochs.
    pub fn close_mosaic(self) -> Self {
        Self { config: AugmentConfig { mosaic: 0.0, mixup: 0.0, ..self.config }, ..self }
    }

    /// Makes sample `sample_idx`, an image of `imgsz` square; `load` gives the images it asks for.
    pub fn sample(&self, sample_idx: usize, draws: &Draws, load: &mut dyn FnMut(usize) -> LoadedImage) -> LabeledImage {
        let mut sample = self.composed(sample_idx, draws, load);
        if draws.happens(Purpose::MixupUse, self.config.mixup) {
            let partner_idx = draws.below(Purpose::MixupPartner, 0, self.n_samples);
            let partner = self.composed(partner_idx, &draws.nested(Purpose::MixupImage), load);
            mixup(&mut sample, partner, draws);
        }
        apply_hsv(&mut sample.image, &HsvChange::drawn(&self.config, draws));
        if draws.happens(Purpose::FlipUd, self.config.flipud) {
            flip_ud(&mut sample);
        }
        if draws.happens(Purpose::FlipLr, self.config.fliplr) {
            flip_lr(&mut sample);
        }
        sample
    }

    /// One or four images, moved to a square of `imgsz`.
    fn composed(&self, sample_idx: usize, draws: &Draws, load: &mut dyn FnMut(usize) -> LoadedImage) -> LabeledImage {
        let canvas = if draws.happens(Purpose::MosaicUse, self.config.mosaic) {
            let tiles = std::array::from_fn(|tile| match tile {
                0 => load(sample_idx),
                _ => load(draws.below(Purpose::MosaicPartner, tile as u64, self.n_samples)),
            });
            mosaic(&tiles, MosaicCenter::drawn(draws, self.imgsz), self.imgsz)
        } else {
            self.letterboxed(&load(sample_idx))
        };
        let output = SizePx::square(self.imgsz);
        Affine::drawn(&self.config, draws, SizePx::of(&canvas.image), output).apply(&canvas.image, &canvas.boxes)
    }

    fn letterboxed(&self, loaded: &LoadedImage) -> LabeledImage {
        let letterbox = Letterbox::fit(SizePx::of(&loaded.image), SizePx::square(self.imgsz));
        let boxes = loaded.boxes.iter().map(|label| label.moved(letterbox.to_canvas(&label.box_px)));
        LabeledImage { image: letterbox.apply(&loaded.image), boxes: boxes.collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use image::RgbImage;

    use super::super::labeled::{LabeledBox, painted};
    use super::*;
    use crate::geometry::BoxXyxyPx;

    fn load(_: usize) -> LoadedImage {
        painted::loaded(64, 48, BoxXyxyPx::new(20.0, 10.0, 50.0, 40.0))
    }

    #[test]
    fn without_augmentation_only_the_letterbox_remains() {
        let augment = TrainAugment::new(AugmentConfig::none(), 64, 1);
        let sample = augment.sample(0, &Draws::of_sample(0, 1, 0), &mut load);
        assert_eq!(sample.boxes[0].box_px, BoxXyxyPx::new(20.0, 18.0, 50.0, 48.0), "8 px of padding above");
        assert_eq!(painted::found(&sample.image), sample.boxes[0].box_px, "the paint went along");
    }

    #[test]
    fn the_same_draws_make_the_same_sample() {
        let config = AugmentConfig { mixup: 0.5, ..AugmentConfig::default() };
        let augment = TrainAugment::new(config, 64, 9);
        let sample = |epoch| augment.sample(3, &Draws::of_sample(0, epoch, 3), &mut load);
        assert_eq!(sample(1), sample(1), "no hidden state");
        assert_ne!(sample(1), sample(2), "each epoch draws anew");
    }

    #[test]
    fn a_closed_mosaic_asks_for_one_image() {
        let mut n_loaded = 0;
        let augment = TrainAugment::new(AugmentConfig::default(), 64, 9).close_mosaic();
        augment.sample(3, &Draws::of_sample(0, 1, 3), &mut |sample_idx| {
            n_loaded += 1;
            load(sample_idx)
        });
        assert_eq!(n_loaded, 1, "no partners");
    }

    #[test]
    fn half_of_the_samples_are_mirrored() {
        let augment = TrainAugment::new(AugmentConfig { fliplr: 0.5, ..AugmentConfig::none() }, 64, 1);
        let is_mirrored = |sample_idx: &usize| {
            let sample = augment.sample(0, &Draws::of_sample(0, 1, *sample_idx), &mut load);
            sample.boxes[0].box_px.x1 == 14.0
        };
        let n_mirrored = (0..1000).filter(is_mirrored).count();
        assert!((437..563).contains(&n_mirrored), "binomial, four standard deviations of 15.8: {n_mirrored}");
    }

    /// Means over many samples: large and small boxes an image, width and height of the large ones relative to the
    /// image, red, green and blue in 0..=1. The images are those of `tests/reference/augment/augment_statistics.py`.
    fn statistics(config: AugmentConfig) -> [f64; 7] {
        const N_SAMPLES: usize = 2000;
        let image = Arc::new(RgbImage::from_pixel(128, 96, image::Rgb([200, 120, 60])));
        let large = LabeledBox::new(0, BoxXyxyPx::new(48.0, 36.0, 80.0, 60.0));
        let small = LabeledBox::new(1, BoxXyxyPx::new(22.4, 25.92, 28.8, 31.68));
        let loaded = LoadedImage { image, boxes: vec![large, small] };
        let augment = TrainAugment::new(config, 128, 8);
        let mut sums = [0.0; 7];
        for epoch in 0..N_SAMPLES {
            let sample = augment.sample(epoch % 8, &Draws::of_sample(0, epoch, epoch % 8), &mut |_| loaded.clone());
            for label in &sample.boxes {
                sums[label.class_idx] += 1.0;
                if label.class_idx == 0 {
                    sums[2] += label.box_px.width() as f64 / 128.0;
                    sums[3] += label.box_px.height() as f64 / 128.0;
                }
            }
            for channel in 0..3 {
                let sum: u64 = sample.image.pixels().map(|pixel| pixel[channel] as u64).sum();
                sums[4 + channel] += sum as f64 / (128.0 * 128.0 * 255.0);
            }
        }
        let n_large = sums[0];
        std::array::from_fn(|idx| sums[idx] / if idx == 2 || idx == 3 { n_large } else { N_SAMPLES as f64 })
    }

    /// About four standard errors of the difference to the reference's 6000 samples.
    const TOLERANCES: [f64; 7] = [0.10, 0.10, 0.005, 0.004, 0.013, 0.012, 0.015];

    #[test]
    fn mosaic_samples_have_the_statistics_of_the_reference() {
        let expected = [1.9697, 1.5132, 0.18431, 0.14876, 0.73524, 0.46409, 0.27161];
        let ours = statistics(AugmentConfig::default());
        let is_close = (0..7).all(|idx| (ours[idx] - expected[idx]).abs() < TOLERANCES[idx]);
        assert!(is_close, "expected about {expected:?}, got {ours:?}");
    }

    #[test]
    fn samples_without_mosaic_have_the_statistics_of_the_reference() {
        let expected = [1.0, 0.9940, 0.25067, 0.18800, 0.66599, 0.46038, 0.31466];
        let ours = statistics(AugmentConfig { mosaic: 0.0, ..AugmentConfig::default() });
        let is_close = (0..7).all(|idx| (ours[idx] - expected[idx]).abs() < TOLERANCES[idx]);
        assert!(is_close, "expected about {expected:?}, got {ours:?}");
    }
}
