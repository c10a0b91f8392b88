//! Four images side by side around a random centre (Bochkovskiy et al., "YOLOv4", 2020, section 3.3).

use image::RgbImage;

use super::draws::{Draws, Purpose};
use super::labeled::{LabeledImage, LoadedImage};
use super::letterbox::FILL;
use crate::geometry::BoxXyxyPx;

/// Where the four images meet, in pixels of the canvas of twice `imgsz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MosaicCenter {
    pub x: u32,
    pub y: u32,
}

impl MosaicCenter {
    /// Draws from the middle half of the canvas: `imgsz / 2` to `1.5 * imgsz` along each axis.
    pub fn drawn(draws: &Draws, imgsz: u32) -> Self {
        let along = |counter| (imgsz as f64 * (0.5 + draws.unit(Purpose::MosaicCenter, counter))) as u32;
        Self { x: along(0), y: along(1) }
    }
}

/// A canvas of `2 * imgsz` square: tiles top left, top right, bottom left, bottom right, each with a corner at `center`.
///
/// What reaches beyond the canvas is cut off, what no tile covers is grey. Boxes are clipped to the canvas; those
/// outside it are left out.
pub fn mosaic(tiles: &[LoadedImage; 4], center: MosaicCenter, imgsz: u32) -> LabeledImage {
    let side = 2 * imgsz;
    let mut canvas = RgbImage::from_pixel(side, side, image::Rgb([FILL; 3]));
    let mut boxes = Vec::with_capacity(tiles.iter().map(|tile| tile.boxes.len()).sum());
    for (place, tile) in tiles.iter().enumerate() {
        let (width, height) = (tile.image.width() as i64, tile.image.height() as i64);
        let left = center.x as i64 - if place % 2 == 0 { width } else { 0 };
        let top = center.y as i64 - if place < 2 { height } else { 0 };
        paste(&mut canvas, &tile.image, left, top);
        boxes.extend(tile.boxes.iter().filter_map(|label| {
            let BoxXyxyPx { x1, y1, x2, y2 } = label.box_px;
            let (left, top) = (left as f32, top as f32);
            let moved = BoxXyxyPx::new(x1 + left, y1 + top, x2 + left, y2 + top).clipped(side as f32, side as f32);
            (moved.area() > 0.0).then(|| label.moved(moved))
        }));
    }
    LabeledImage { image: canvas, boxes }
}

/// Copies the part of `tile` that lies in the canvas when its corner is put at (`left`, `top`).
fn paste(canvas: &mut RgbImage, tile: &RgbImage, left: i64, top: i64) {
    let (canvas_width, canvas_height) = (canvas.width() as i64, canvas.height() as i64);
    let (x1, x2) = (left.max(0), (left + tile.width() as i64).min(canvas_width));
    let (y1, y2) = (top.max(0), (top + tile.height() as i64).min(canvas_height));
    if x1 >= x2 {
        return;
    }
    let length = 3 * (x2 - x1) as usize;
    let pixels: &mut [u8] = canvas;
    for y in y1..y2 {
        let from = 3 * ((y - top) * tile.width() as i64 + x1 - left) as usize;
        let to = 3 * (y * canvas_width + x1) as usize;
        pixels[to..to + length].copy_from_slice(&tile.as_raw()[from..from + length]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::labeled::painted;
    use super::*;

    fn tiles_with_box_in(place: usize) -> [LoadedImage; 4] {
        std::array::from_fn(|tile| {
            let mut loaded = painted::loaded(40, 30, BoxXyxyPx::new(5.0, 4.0, 15.0, 10.0));
            if tile != place {
                loaded = painted::loaded(40, 30, BoxXyxyPx::new(0.0, 0.0, 0.0, 0.0));
            }
            loaded
        })
    }

    #[test]
    fn each_tile_takes_its_box_along() {
        let expected = [(-10.0, 0.0), (30.0, 0.0), (-10.0, 30.0), (30.0, 30.0)];
        for (place, (left, top)) in expected.into_iter().enumerate() {
            let made = mosaic(&tiles_with_box_in(place), MosaicCenter { x: 30, y: 30 }, 40);
            let box_px = BoxXyxyPx::new(5.0 + left, 4.0 + top, 15.0 + left, 10.0 + top).clipped(80.0, 80.0);
            assert_eq!((made.boxes.len(), made.boxes[0].box_px), (1, box_px), "tile {place}, empty boxes left out");
            assert_eq!(painted::found(&made.image), box_px, "the paint went along with tile {place}");
        }
    }

    #[test]
    fn uncovered_canvas_is_grey() {
        let made = mosaic(&tiles_with_box_in(0), MosaicCenter { x: 30, y: 30 }, 40);
        let corners = [made.image[(79, 79)], made.image[(71, 20)], made.image[(20, 61)]];
        assert!(corners.iter().all(|pixel| pixel.0 == [FILL; 3]), "tiles end at x = 70 and y = 60");
        assert_eq!(made.image[(69, 59)].0, [60; 3], "the last covered pixel");
    }

    #[test]
    fn centres_stay_in_the_middle_half_and_fill_it() {
        let along = |sample_idx| MosaicCenter::drawn(&Draws::of_sample(1, 1, sample_idx), 320);
        let centers: Vec<MosaicCenter> = (0..2000).map(along).collect();
        assert!(centers.iter().all(|c| (160..480).contains(&c.x) && (160..480).contains(&c.y)), "160..480 of 640");
        let mean = centers.iter().map(|c| c.x as f64).sum::<f64>() / 2000.0;
        assert!((mean - 319.5).abs() < 8.3, "uniform: standard error 2.07, mean {mean}");
    }
}
