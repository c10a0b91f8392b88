//! Random rotation, scale, shear, shift and perspective of an image and its boxes.

use image::RgbImage;

use super::config::AugmentConfig;
use super::draws::{Draws, Purpose};
use super::labeled::{LabeledBox, LabeledImage};
use super::letterbox::SizePx;
use super::matrix::Matrix3;
use super::warp::warp;
use crate::geometry::BoxXyxyPx;

/// A box must keep more than this many pixels along each side.
const SHORTEST_SIDE_PX: f32 = 2.0;
/// A box must keep more than this share of its area, compared at the drawn scale.
const SMALLEST_AREA_SHARE: f32 = 0.1;
/// The long side of a box must be less than this many times the short one.
const LARGEST_ASPECT: f32 = 100.0;
/// The largest change of scale downwards; protects the inverse of the map when `scale` is 1.
const SMALLEST_GAIN: f64 = 0.01;
/// Protects the area ratio against boxes without area.
const AREA_EPSILON: f32 = 1e-6;

/// A map from an input image to an output image, and the part of it that is pure scaling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine {
    /// In continuous pixel coordinates of input and output.
    pub map: Matrix3,
    /// How much longer lengths become, before shear and perspective.
    pub gain: f64,
    pub output: SizePx,
}

impl Affine {
    /// Draws a map about the input's centre, which goes to the output's centre when `translate` is 0.
    ///
    /// Without rotation, shear and so on an input larger than the output is cropped to its middle, as is wanted for a
    /// mosaic, whose canvas has twice the side.
    pub fn drawn(config: &AugmentConfig, draws: &Draws, input: SizePx, output: SizePx) -> Self {
        let signed = |purpose, counter, amplitude| draws.around_zero(purpose, counter, amplitude);
        let gain = (1.0 + signed(Purpose::Scale, 0, config.scale)).max(SMALLEST_GAIN);
        let (sin, cos) = signed(Purpose::Rotation, 0, config.degrees).to_radians().sin_cos();
        let tan = |counter| signed(Purpose::Shear, counter, config.shear).to_radians().tan();
        let shift = |counter| 0.5 + signed(Purpose::Translation, counter, config.translate);

        let mut perspective = Matrix3::IDENTITY;
        perspective.0[2][0] = signed(Purpose::Perspective, 0, config.perspective);
        perspective.0[2][1] = signed(Purpose::Perspective, 1, config.perspective);
        let rotation = Matrix3([[gain * cos, gain * sin, 0.0], [-gain * sin, gain * cos, 0.0], [0.0, 0.0, 1.0]]);
        let shear = Matrix3([[1.0, tan(0), 0.0], [tan(1), 1.0, 0.0], [0.0, 0.0, 1.0]]);
        let map = Matrix3::translation(-(input.width as f64) / 2.0, -(input.height as f64) / 2.0)
            .then(&perspective)
            .then(&rotation)
            .then(&shear)
            .then(&Matrix3::translation(shift(0) * output.width as f64, shift(1) * output.height as f64));
        Self { map, gain, output }
    }

    /// Moves image and boxes; boxes that hardly remain are left out.
    pub fn apply(&self, image: &RgbImage, boxes: &[LabeledBox]) -> LabeledImage {
        let kept = boxes.iter().filter_map(|label| {
            let moved = self.moved(&label.box_px)?;
            let moved = moved.clipped(self.output.width as f32, self.output.height as f32);
            self.remains(&label.box_px, &moved).then(|| label.moved(moved))
        });
        LabeledImage { boxes: kept.collect(), image: warp(image, &self.map, self.output) }
    }

    /// The envelope of the four moved corners; `None` when one has no place in the output plane.
    pub fn moved(&self, box_px: &BoxXyxyPx) -> Option<BoxXyxyPx> {
        let (x1, y1, x2, y2) = (box_px.x1 as f64, box_px.y1 as f64, box_px.x2 as f64, box_px.y2 as f64);
        let mut envelope = BoxXyxyPx::new(f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY);
        for (x, y) in [(x1, y1), (x2, y1), (x2, y2), (x1, y2)] {
            let (x, y) = self.map.point(x, y)?;
            let (x, y) = (x as f32, y as f32);
            envelope.x1 = envelope.x1.min(x);
            envelope.y1 = envelope.y1.min(y);
            envelope.x2 = envelope.x2.max(x);
            envelope.y2 = envelope.y2.max(y);
        }
        Some(envelope)
    }

    fn remains(&self, before: &BoxXyxyPx, after: &BoxXyxyPx) -> bool {
        let (w, h) = (after.width(), after.height());
        let scaled_area = before.area() * (self.gain * self.gain) as f32;
        w > SHORTEST_SIDE_PX
            && h > SHORTEST_SIDE_PX
            && after.area() / (scaled_area + AREA_EPSILON) > SMALLEST_AREA_SHARE
            && (w / h).max(h / w) < LARGEST_ASPECT
    }
}

#[cfg(test)]
mod tests {
    use super::super::labeled::painted;
    use super::*;

    const CANVAS: SizePx = SizePx { width: 200, height: 160 };

    fn drawn(config: AugmentConfig, sample_idx: usize) -> Affine {
        Affine::drawn(&config, &Draws::of_sample(0, 1, sample_idx), CANVAS, CANVAS)
    }

    fn largest_gap(a: &BoxXyxyPx, b: &BoxXyxyPx) -> f32 {
        [a.x1 - b.x1, a.y1 - b.y1, a.x2 - b.x2, a.y2 - b.y2].iter().fold(0.0, |gap, side| gap.max(side.abs()))
    }

    #[test]
    fn image_and_box_move_together_under_scale_and_shift() {
        for sample_idx in 0..50 {
            let labeled = painted::labeled(200, 160, BoxXyxyPx::new(80.0, 60.0, 125.0, 96.0));
            let config = AugmentConfig { translate: 0.1, scale: 0.5, ..AugmentConfig::none() };
            let moved = drawn(config, sample_idx).apply(&labeled.image, &labeled.boxes);
            let gap = largest_gap(&painted::found(&moved.image), &moved.boxes[0].box_px);
            assert!(gap <= 0.6, "an edge is found to half a pixel, but sample {sample_idx} is off by {gap}");
        }
    }

    #[test]
    fn image_and_box_move_together_under_rotation_shear_and_perspective() {
        let config = AugmentConfig { degrees: 30.0, shear: 10.0, perspective: 0.001, ..AugmentConfig::none() };
        for sample_idx in 0..50 {
            let labeled = painted::labeled(200, 160, BoxXyxyPx::new(80.0, 60.0, 125.0, 96.0));
            let moved = drawn(config, sample_idx).apply(&labeled.image, &labeled.boxes);
            let gap = largest_gap(&painted::found(&moved.image), &moved.boxes[0].box_px);
            assert!(gap <= 2.5, "pointed corners fade by a pixel or two, but sample {sample_idx} is off by {gap}");
        }
    }

    #[test]
    fn undo_gives_back_the_box() {
        let config = AugmentConfig { translate: 0.1, scale: 0.5, ..AugmentConfig::none() };
        let affine = drawn(config, 4);
        let undo = Affine { map: affine.map.inverse().unwrap(), ..affine };
        let box_px = BoxXyxyPx::new(80.0, 60.0, 125.0, 96.0);
        let back = affine.moved(&box_px).and_then(|moved| undo.moved(&moved)).unwrap();
        assert!(largest_gap(&back, &box_px) < 1e-3, "{back:?}");
    }

    #[test]
    fn without_settings_the_middle_is_cropped_out() {
        let none = AugmentConfig::none();
        let affine = Affine::drawn(&none, &Draws::of_sample(0, 1, 0), SizePx::square(40), SizePx::square(20));
        assert_eq!(affine.moved(&BoxXyxyPx::new(12.0, 10.0, 20.0, 30.0)), Some(BoxXyxyPx::new(2.0, 0.0, 10.0, 20.0)));
    }

    #[test]
    fn gains_fill_the_range_of_scale_evenly() {
        let config = AugmentConfig { scale: 0.5, ..AugmentConfig::none() };
        let gains: Vec<f64> = (0..2000).map(|sample_idx| drawn(config, sample_idx).gain).collect();
        let mean = gains.iter().sum::<f64>() / 2000.0;
        assert!(gains.iter().all(|gain| (0.5..1.5).contains(gain)), "1 - scale to 1 + scale");
        assert!((mean - 1.0).abs() < 0.026, "uniform: standard error 0.0065, mean {mean}");
    }

    #[test]
    fn boxes_that_hardly_remain_are_left_out() {
        let affine = drawn(AugmentConfig::none(), 0);
        let before = BoxXyxyPx::new(0.0, 0.0, 100.0, 10.0);
        assert!(!affine.remains(&before, &BoxXyxyPx::new(0.0, 0.0, 9.9, 10.0)), "less than a tenth of the area");
        assert!(affine.remains(&before, &BoxXyxyPx::new(0.0, 0.0, 10.1, 10.0)), "a little more than a tenth");
        assert!(!affine.remains(&before, &BoxXyxyPx::new(0.0, 0.0, 100.0, 2.0)), "two pixels are too few");
        let thin = BoxXyxyPx::new(0.0, 0.0, 400.0, 3.0);
        assert!(!affine.remains(&thin, &thin), "133 times as long as it is high");
    }
}
