//! The pictures of the demo dataset: circles, squares and triangles on textured ground, drawn from a seed.

use image::{Rgb, RgbImage};

use super::Label;
use crate::geometry::{BoxXyxyPx, iou};

/// Class names in order of class index.
pub(super) const SHAPE_NAMES: [&str; 3] = ["circle", "square", "triangle"];
/// Width and height of a picture in pixels.
pub(super) const PICTURE_SIDE_PX: u32 = 160;

const MIN_SHAPE_PX: u64 = 28;
const MAX_SHAPE_PX: u64 = 64;
const MAX_SHAPES: u64 = 4;
/// Overlap that two shapes may have at most, so that each stays recognisable.
const MAX_IOU: f32 = 0.08;
/// Places tried for a shape before the picture goes without it.
const N_PLACEMENT_TRIES: usize = 40;
/// Distance of the points between which the ground's brightness is interpolated.
const GROUND_CELL_PX: u32 = 20;

/// One picture and the labels of its shapes.
pub(super) struct Picture {
    pub image: RgbImage,
    pub labels: Vec<Label>,
}

struct Shape {
    class_idx: usize,
    box_xyxy_px: BoxXyxyPx,
    color: [f32; 3],
}

/// Draws a picture of 1 to 4 shapes; equal seeds give equal pixels on every machine.
pub(super) fn draw_picture(seed: u64) -> Picture {
    let mut draws = Draws { seed, n_drawn: 0 };
    let mut image = draw_ground(&mut draws);
    let mut shapes: Vec<Shape> = Vec::new();
    for _ in 0..1 + draws.below(MAX_SHAPES) {
        let class_idx = draws.below(SHAPE_NAMES.len() as u64) as usize;
        let free_place = (0..N_PLACEMENT_TRIES)
            .map(|_| place_box(&mut draws))
            .find(|place| shapes.iter().all(|shape| iou(&shape.box_xyxy_px, place) <= MAX_IOU));
        let color = shape_color(class_idx, &mut draws);
        shapes.extend(free_place.map(|box_xyxy_px| Shape { class_idx, box_xyxy_px, color }));
    }
    for shape in &shapes {
        draw_shape(&mut image, shape, &mut draws);
    }
    let side = f64::from(PICTURE_SIDE_PX);
    let label = |shape: &Shape| Label { class_idx: shape.class_idx, box_norm: shape.box_xyxy_px.to_norm(side, side) };
    Picture { labels: shapes.iter().map(label).collect(), image }
}

/// Gray-brown ground whose brightness changes slowly, with fine grain.
fn draw_ground(draws: &mut Draws) -> RgbImage {
    let n_cells = PICTURE_SIDE_PX / GROUND_CELL_PX;
    let n_points = n_cells + 1;
    let levels: Vec<f32> = (0..n_points * n_points).map(|_| 70.0 + 90.0 * draws.unit()).collect();
    let tint = [0, 1, 2].map(|_| 0.9 + 0.2 * draws.unit());
    RgbImage::from_fn(PICTURE_SIDE_PX, PICTURE_SIDE_PX, |x, y| {
        let (column, row) = (x / GROUND_CELL_PX, y / GROUND_CELL_PX);
        let along = |position: u32| (position % GROUND_CELL_PX) as f32 / GROUND_CELL_PX as f32;
        let level = |dx: u32, dy: u32| levels[((row + dy) * n_points + column + dx) as usize];
        let mix = |a: f32, b: f32, share: f32| a + (b - a) * share;
        let above = mix(level(0, 0), level(1, 0), along(x));
        let below = mix(level(0, 1), level(1, 1), along(x));
        let brightness = mix(above, below, along(y)) + 16.0 * (draws.unit() - 0.5);
        Rgb(tint.map(|factor| channel(brightness * factor)))
    })
}

fn place_box(draws: &mut Draws) -> BoxXyxyPx {
    let side = MIN_SHAPE_PX + draws.below(MAX_SHAPE_PX - MIN_SHAPE_PX + 1);
    let n_places = u64::from(PICTURE_SIDE_PX) - side + 1;
    let (x, y, side) = (draws.below(n_places) as f32, draws.below(n_places) as f32, side as f32);
    BoxXyxyPx::new(x, y, x + side, y + side)
}

/// Red circles, blue squares, green triangles, each a little different.
fn shape_color(class_idx: usize, draws: &mut Draws) -> [f32; 3] {
    let strong = 190.0 + 60.0 * draws.unit();
    let weak = [0, 1].map(|_| 20.0 + 60.0 * draws.unit());
    match class_idx {
        0 => [strong, weak[0], weak[1]],
        1 => [weak[0], weak[1], strong],
        _ => [weak[0], strong, weak[1]],
    }
}

fn draw_shape(image: &mut RgbImage, shape: &Shape, draws: &mut Draws) {
    let place = shape.box_xyxy_px;
    for y in place.y1 as u32..place.y2 as u32 {
        for x in place.x1 as u32..place.x2 as u32 {
            // The pixel's centre, from -1 to 1 across the box.
            let across = (x as f32 + 0.5 - place.x1) / place.width() * 2.0 - 1.0;
            let down = (y as f32 + 0.5 - place.y1) / place.height() * 2.0 - 1.0;
            let is_inside = match shape.class_idx {
                0 => across * across + down * down <= 1.0,
                1 => true,
                _ => across.abs() <= (down + 1.0) / 2.0,
            };
            if is_inside {
                let grain = 14.0 * (draws.unit() - 0.5);
                image.put_pixel(x, y, Rgb(shape.color.map(|value| channel(value + grain))));
            }
        }
    }
}

fn channel(value: f32) -> u8 {
    value.round().clamp(0.0, 255.0) as u8
}

/// Numbers that depend on the seed and on how many were drawn before: SplitMix64 (Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", OOPSLA 2014), figure 16.
struct Draws {
    seed: u64,
    n_drawn: u64,
}

impl Draws {
    fn next(&mut self) -> u64 {
        self.n_drawn += 1;
        let z = self
            .seed
            .wrapping_mul(0xD134_2543_DE82_EF95)
            .wrapping_add(self.n_drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0..n, `n` itself excluded; `n` is small, so that the remainder's bias is nothing.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// 0..1 with 24 bits.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equal_pictures() {
        assert_eq!(draw_picture(3).image, draw_picture(3).image, "same seed");
        assert_ne!(draw_picture(3).image, draw_picture(4).image, "another seed");
    }

    #[test]
    fn every_label_lies_inside_and_has_its_colour_in_the_middle() {
        for seed in 0..20 {
            let picture = draw_picture(seed);
            assert!((1..=4).contains(&picture.labels.len()), "one to four shapes");
            let last = picture.labels.last().unwrap();
            let b = last.box_norm.to_xyxy_px(160.0, 160.0);
            assert!(b.x1 >= 0.0 && b.y1 >= 0.0 && b.x2 <= 160.0 && b.y2 <= 160.0, "inside the picture");
            let middle = picture.image.get_pixel(((b.x1 + b.x2) / 2.0) as u32, ((b.y1 + b.y2) / 2.0) as u32).0;
            let strongest = (0..3).max_by_key(|i| middle[*i]).unwrap();
            assert_eq!(strongest, [0, 2, 1][last.class_idx], "red, blue, green; the last is drawn on top");
        }
    }
}
