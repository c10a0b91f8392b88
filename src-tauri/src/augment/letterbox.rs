//! Fitting an image into a canvas without changing its shape, and the way back for boxes.
//!
//! Sizes, paddings and pixels are those of Ultralytics 8.4 to the bit; `tests/reference/oracle/letterbox.json` holds them.

use image::RgbImage;

use super::resize::resize_bilinear;
use crate::geometry::{BoxXywhNorm, BoxXyxyPx};

/// The grey, 0..=255, of everything that no image covers.
pub const FILL: u8 = 114;

/// A size in whole pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizePx {
    pub width: u32,
    pub height: u32,
}

/// Where an image lies in its canvas: scaled from `original` to `resized`, then padded with [`FILL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Letterbox {
    pub original: SizePx,
    pub resized: SizePx,
    pub left_px: u32,
    pub top_px: u32,
    pub right_px: u32,
    pub bottom_px: u32,
}

/// The size in which a dataset image is loaded: the long side is `imgsz`, the other is rounded up.
pub fn loaded_size(original: SizePx, imgsz: u32) -> SizePx {
    let gain = imgsz as f64 / original.width.max(original.height).max(1) as f64;
    let scaled = |side: u32| ((side as f64 * gain).ceil() as u32).clamp(1, imgsz.max(1));
    if gain == 1.0 { original } else { SizePx::new(scaled(original.width), scaled(original.height)) }
}

/// By how much an image is multiplied so that it just fits into `canvas`.
pub fn fit_gain(original: SizePx, canvas: SizePx) -> f64 {
    let along = |canvas: u32, original: u32| canvas as f64 / original.max(1) as f64;
    along(canvas.height, original.height).min(along(canvas.width, original.width))
}

impl SizePx {
    pub fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    pub fn square(side: u32) -> Self {
        Self::new(side, side)
    }

    pub fn of(image: &RgbImage) -> Self {
        Self::new(image.width(), image.height())
    }
}

impl Letterbox {
    /// Fits into `canvas`, enlarging a small image.
    pub fn fit(original: SizePx, canvas: SizePx) -> Self {
        Self::scaled(original, canvas, fit_gain(original, canvas))
    }

    /// Fits into `canvas`, but leaves a small image as it is.
    pub fn fit_down(original: SizePx, canvas: SizePx) -> Self {
        Self::scaled(original, canvas, fit_gain(original, canvas).min(1.0))
    }

    /// Fits into a square of `imgsz` and cuts the padding to the smallest canvas whose sides are multiples of `stride`.
    pub fn minimal(original: SizePx, imgsz: u32, stride: u32) -> Self {
        let square = Self::fit(original, SizePx::square(imgsz));
        let cut = |padding: u32| padding % stride.max(1);
        let canvas = SizePx::new(
            square.resized.width + cut(imgsz - square.resized.width),
            square.resized.height + cut(imgsz - square.resized.height),
        );
        Self::centered(original, square.resized, canvas)
    }

    /// The same place in the canvas, seen from an image of size `original` that was scaled before it was letterboxed.
    pub fn seen_from(self, original: SizePx) -> Self {
        Self { original, ..self }
    }

    pub fn canvas(&self) -> SizePx {
        SizePx::new(
            self.left_px + self.resized.width + self.right_px,
            self.top_px + self.resized.height + self.bottom_px,
        )
    }

    /// Draws the image into its canvas.
    pub fn apply(&self, image: &RgbImage) -> RgbImage {
        if SizePx::of(image) == self.resized {
            return self.padded(image);
        }
        self.padded(&resize_bilinear(image, self.resized))
    }

    /// A box of the original image, in pixels of the canvas.
    pub fn to_canvas(&self, box_px: &BoxXyxyPx) -> BoxXyxyPx {
        let (ratio_x, ratio_y) = self.ratios();
        let (left, top) = (self.left_px as f64, self.top_px as f64);
        let x = |value: f32| (value as f64 * ratio_x + left) as f32;
        let y = |value: f32| (value as f64 * ratio_y + top) as f32;
        BoxXyxyPx::new(x(box_px.x1), y(box_px.y1), x(box_px.x2), y(box_px.y2))
    }

    /// A box in the canvas, in pixels of the original image and clipped to it.
    pub fn to_original(&self, box_px: &BoxXyxyPx) -> BoxXyxyPx {
        let (ratio_x, ratio_y) = self.ratios();
        let (left, top) = (self.left_px as f64, self.top_px as f64);
        let x = |value: f32| ((value as f64 - left) / ratio_x) as f32;
        let y = |value: f32| ((value as f64 - top) / ratio_y) as f32;
        BoxXyxyPx::new(x(box_px.x1), y(box_px.y1), x(box_px.x2), y(box_px.y2))
            .clipped(self.original.width as f32, self.original.height as f32)
    }

    /// A box relative to the original image, relative to the canvas.
    pub fn norm_to_canvas(&self, box_norm: &BoxXywhNorm) -> BoxXywhNorm {
        let canvas = self.canvas();
        let (width, height) = (canvas.width as f64, canvas.height as f64);
        let (resized_width, resized_height) = (self.resized.width as f64, self.resized.height as f64);
        BoxXywhNorm {
            cx: (box_norm.cx * resized_width + self.left_px as f64) / width,
            cy: (box_norm.cy * resized_height + self.top_px as f64) / height,
            w: box_norm.w * resized_width / width,
            h: box_norm.h * resized_height / height,
        }
    }

    fn scaled(original: SizePx, canvas: SizePx, gain: f64) -> Self {
        let side =
            |original: u32, canvas: u32| ((original as f64 * gain).round_ties_even() as u32).clamp(1, canvas.max(1));
        let resized = SizePx::new(side(original.width, canvas.width), side(original.height, canvas.height));
        Self::centered(original, resized, canvas)
    }

    /// An odd pixel of padding goes to the right or to the bottom.
    fn centered(original: SizePx, resized: SizePx, canvas: SizePx) -> Self {
        let (across, down) = (canvas.width.saturating_sub(resized.width), canvas.height.saturating_sub(resized.height));
        Self {
            original,
            resized,
            left_px: across / 2,
            top_px: down / 2,
            right_px: across - across / 2,
            bottom_px: down - down / 2,
        }
    }

    /// Resized over original, along x and along y; they differ by the rounding of the resized size.
    fn ratios(&self) -> (f64, f64) {
        let ratio = |resized: u32, original: u32| resized as f64 / original.max(1) as f64;
        (ratio(self.resized.width, self.original.width), ratio(self.resized.height, self.original.height))
    }

    fn padded(&self, image: &RgbImage) -> RgbImage {
        let canvas = self.canvas();
        if canvas == SizePx::of(image) {
            return image.clone();
        }
        let mut padded = RgbImage::from_pixel(canvas.width, canvas.height, image::Rgb([FILL; 3]));
        let stride = 3 * canvas.width as usize;
        let (skipped, length) = (3 * self.left_px as usize, 3 * image.width() as usize);
        let rows = padded.chunks_exact_mut(stride).skip(self.top_px as usize);
        for (row, source) in rows.zip(image.chunks_exact(length)) {
            row[skipped..skipped + length].copy_from_slice(source);
        }
        padded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_image_gets_equal_bars_above_and_below() {
        let letterbox = Letterbox::fit(SizePx::new(1280, 720), SizePx::square(640));
        assert_eq!((letterbox.resized, letterbox.top_px, letterbox.bottom_px), (SizePx::new(640, 360), 140, 140));
    }

    #[test]
    fn boxes_come_back_from_the_canvas() {
        let letterbox = Letterbox::fit(SizePx::new(301, 200), SizePx::square(160));
        let box_px = BoxXyxyPx::new(10.0, 20.0, 250.5, 199.0);
        let back = letterbox.to_original(&letterbox.to_canvas(&box_px));
        let error = [back.x1 - box_px.x1, back.y1 - box_px.y1, back.x2 - box_px.x2, back.y2 - box_px.y2];
        assert!(error.iter().all(|error| error.abs() < 1e-3), "undo gives back the box: {error:?}");
    }

    #[test]
    fn normalised_and_pixel_boxes_go_to_the_same_place() {
        let letterbox = Letterbox::fit(SizePx::new(90, 60), SizePx::square(64));
        let norm = BoxXywhNorm { cx: 0.5, cy: 0.25, w: 0.25, h: 0.5 };
        let through_pixels = letterbox.to_canvas(&norm.to_xyxy_px(90.0, 60.0)).to_norm(64.0, 64.0);
        let direct = letterbox.norm_to_canvas(&norm);
        assert!((through_pixels.cy - direct.cy).abs() < 1e-6 && (through_pixels.h - direct.h).abs() < 1e-6);
    }

    #[test]
    fn a_painted_rectangle_lies_where_its_box_says() {
        let image = RgbImage::from_fn(80, 40, |x, y| {
            image::Rgb(if (20..60).contains(&x) && (10..30).contains(&y) { [255, 0, 0] } else { [0; 3] })
        });
        let letterbox = Letterbox::fit(SizePx::of(&image), SizePx::square(160));
        let canvas = letterbox.apply(&image);
        let box_px = letterbox.to_canvas(&BoxXyxyPx::new(20.0, 10.0, 60.0, 30.0));
        assert_eq!(box_px, BoxXyxyPx::new(40.0, 60.0, 120.0, 100.0), "doubled, 40 px of padding above");
        assert_eq!((canvas[(41, 61)][0], canvas[(118, 98)][0]), (255, 255), "red inside the box");
        assert_eq!((canvas[(38, 61)][0], canvas[(80, 102)][0], canvas[(80, 5)][0]), (0, 0, FILL), "not outside");
    }

    #[test]
    fn the_thinnest_image_keeps_a_pixel() {
        let letterbox = Letterbox::fit(SizePx::new(5000, 1), SizePx::square(64));
        assert_eq!(letterbox.resized, SizePx::new(64, 1), "0.0128 px would vanish");
    }
}
