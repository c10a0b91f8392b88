//! Drawing an image through a plane map, bilinear, with grey where the map looks beyond the image.

use image::RgbImage;

use super::letterbox::{FILL, SizePx};
use super::matrix::Matrix3;

/// The image as `map` moves it, cut to `size`; all grey when the map cannot be undone.
///
/// `map` takes continuous image coordinates, in which pixel 0 covers 0..1, so that boxes can go through the same map.
/// (OpenCV's `warpAffine` puts pixel centres on whole numbers, by which boxes and pixels part by up to half a pixel
/// when the scale changes.) Positions are rounded to 1/256 pixel.
pub fn warp(image: &RgbImage, map: &Matrix3, size: SizePx) -> RgbImage {
    let mut warped = RgbImage::from_pixel(size.width, size.height, image::Rgb([FILL; 3]));
    let Some(inverse) = map.inverse() else { return warped };
    if image.width() == 0 || image.height() == 0 || size.width == 0 {
        return warped;
    }
    // From the centre of an output pixel to the source position that has pixel centres on whole numbers.
    let inverse = Matrix3::translation(0.5, 0.5).then(&inverse).then(&Matrix3::translation(-0.5, -0.5));
    let source = Source::new(image);
    for (y, row) in warped.chunks_exact_mut(3 * size.width as usize).enumerate() {
        if inverse.is_affine() {
            affine_row(&source, &inverse, y as f64, row);
        } else {
            projective_row(&source, &inverse, y as f64, row);
        }
    }
    warped
}

/// Bits behind the binary point of a source position.
const POSITION_BITS: u32 = 20;
/// Bits of a blending weight.
const WEIGHT_BITS: u32 = 8;
/// Positions further out are all the same grey; keeps sums of steps far from overflow.
const FARTHEST_PX: f64 = (1u64 << 30) as f64;

fn affine_row(source: &Source, inverse: &Matrix3, y: f64, row: &mut [u8]) {
    let [[step_x, slope_x, offset_x], [step_y, slope_y, offset_y], _] = inverse.0;
    let (mut source_x, mut source_y) = (position(slope_x * y + offset_x), position(slope_y * y + offset_y));
    let (step_x, step_y) = (position(step_x), position(step_y));
    for pixel in row.chunks_exact_mut(3) {
        source.blend_at(source_x, source_y, pixel);
        source_x += step_x;
        source_y += step_y;
    }
}

fn projective_row(source: &Source, inverse: &Matrix3, y: f64, row: &mut [u8]) {
    for (x, pixel) in row.chunks_exact_mut(3).enumerate() {
        if let Some((source_x, source_y)) = inverse.point(x as f64, y) {
            source.blend_at(position(source_x), position(source_y), pixel);
        }
    }
}

fn position(px: f64) -> i64 {
    (px.clamp(-FARTHEST_PX, FARTHEST_PX) * (1u64 << POSITION_BITS) as f64).round() as i64
}

/// The pixels that are read.
struct Source<'a> {
    pixels: &'a [u8],
    width: i64,
    height: i64,
}

impl<'a> Source<'a> {
    fn new(image: &'a RgbImage) -> Self {
        Self { pixels: image.as_raw(), width: image.width() as i64, height: image.height() as i64 }
    }

    /// Writes the blend of the four pixels around a position; leaves `pixel` as it is where all four are outside.
    #[inline(always)]
    fn blend_at(&self, source_x: i64, source_y: i64, pixel: &mut [u8]) {
        const HALF_WEIGHT: i64 = 1 << (POSITION_BITS - WEIGHT_BITS - 1);
        const WEIGHT_MASK: i64 = (1 << WEIGHT_BITS) - 1;
        let (source_x, source_y) = (source_x + HALF_WEIGHT, source_y + HALF_WEIGHT);
        let (x, y) = (source_x >> POSITION_BITS, source_y >> POSITION_BITS);
        let weight_x = ((source_x >> (POSITION_BITS - WEIGHT_BITS)) & WEIGHT_MASK) as u32;
        let weight_y = ((source_y >> (POSITION_BITS - WEIGHT_BITS)) & WEIGHT_MASK) as u32;
        if x >= 0 && y >= 0 && x < self.width - 1 && y < self.height - 1 {
            let at = 3 * (y * self.width + x) as usize;
            let top = &self.pixels[at..at + 6];
            let below = at + 3 * self.width as usize;
            let bottom = &self.pixels[below..below + 6];
            for channel in 0..3 {
                let corners = [top[channel], top[channel + 3], bottom[channel], bottom[channel + 3]];
                pixel[channel] = blend(corners, weight_x, weight_y);
            }
        } else if x >= -1 && y >= -1 && x < self.width && y < self.height {
            let corners = [self.at(x, y), self.at(x + 1, y), self.at(x, y + 1), self.at(x + 1, y + 1)];
            for channel in 0..3 {
                pixel[channel] = blend(corners.map(|corner| corner[channel]), weight_x, weight_y);
            }
        }
    }

    fn at(&self, x: i64, y: i64) -> [u8; 3] {
        if x < 0 || y < 0 || x >= self.width || y >= self.height {
            return [FILL; 3];
        }
        let at = 3 * (y * self.width + x) as usize;
        [self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]]
    }
}

#[inline(always)]
fn blend([top_left, top_right, bottom_left, bottom_right]: [u8; 4], weight_x: u32, weight_y: u32) -> u8 {
    const ONE: u32 = 1 << WEIGHT_BITS;
    let top = top_left as u32 * (ONE - weight_x) + top_right as u32 * weight_x;
    let bottom = bottom_left as u32 * (ONE - weight_x) + bottom_right as u32 * weight_x;
    ((top * (ONE - weight_y) + bottom * weight_y + (1 << (2 * WEIGHT_BITS - 1))) >> (2 * WEIGHT_BITS)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp() -> RgbImage {
        RgbImage::from_fn(4, 2, |x, _| image::Rgb([(40 * x) as u8; 3]))
    }

    fn first_row(image: &RgbImage) -> Vec<u8> {
        image.pixels().take(image.width() as usize).map(|pixel| pixel[0]).collect()
    }

    #[test]
    fn the_identity_gives_the_same_bytes() {
        assert_eq!(warp(&ramp(), &Matrix3::IDENTITY, SizePx::new(4, 2)), ramp(), "weights are whole");
    }

    #[test]
    fn half_a_pixel_to_the_right_blends_neighbours_and_border() {
        let moved = warp(&ramp(), &Matrix3::translation(0.5, 0.0), SizePx::new(6, 2));
        assert_eq!(first_row(&moved), [57, 20, 60, 100, 117, FILL], "(114 + 0) / 2, .. (120 + 114) / 2, all border");
    }

    #[test]
    fn a_projective_map_without_perspective_agrees_with_the_affine_one() {
        let map = Matrix3([[0.9, 0.2, 0.3], [-0.1, 1.1, 0.2], [0.0, 0.0, 1.0]]);
        let nearly_affine = Matrix3([map.0[0], map.0[1], [1e-15, 0.0, 1.0]]);
        let size = SizePx::new(5, 3);
        assert_eq!(warp(&ramp(), &nearly_affine, size), warp(&ramp(), &map, size), "two ways, one result");
    }

    #[test]
    fn a_map_that_cannot_be_undone_leaves_grey() {
        let collapsed = Matrix3([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
        assert_eq!(first_row(&warp(&ramp(), &collapsed, SizePx::new(2, 1))), [FILL, FILL], "nothing to see");
    }
}
