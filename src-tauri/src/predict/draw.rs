//! Boxes, class names and confidences, drawn into an image.

use image::{Rgb, RgbImage};

use super::Detection;
use super::label_font::{LabelFont, TextMask};
use super::prediction::class_name;

/// Line width as part of the image's mean side: 2 px at 640, 3 px at 1000.
const LINE_OF_SIDE: f32 = 0.003;
const MIN_LINE_PX: u32 = 2;

/// Height of the text as part of the image's mean side: 16 px at 640.
const TEXT_OF_SIDE: f32 = 0.025;
const MIN_TEXT_PX: u32 = 12;

/// Draws every box with a label `name confidence`; boxes in pixels of `image`.
///
/// The more confident lies on top, and every label above every box. A label stands on its box, or inside at its top
/// where the image ends above it. A name that has characters no font can draw begins with the class index: `0:? 0.91`.
pub fn draw_detections(image: &mut RgbImage, detections: &[Detection], class_names: &[String], font: &LabelFont) {
    let (width, height) = (image.width() as f32, image.height() as f32);
    let is_visible = |d: &&Detection| {
        let b = &d.box_px;
        b.x1 < width && b.y1 < height && b.x2 > 0.0 && b.y2 > 0.0
    };
    let mut visible: Vec<&Detection> = detections.iter().filter(is_visible).collect();
    visible.sort_by(|a, b| a.confidence.total_cmp(&b.confidence));
    let (line_px, text_px) = sizes_px(image);
    for detection in &visible {
        draw_frame(image, Area::of_box(detection, image), line_px.into(), class_color(detection.class_idx));
    }
    for detection in &visible {
        let text = font.mask(&label(detection, class_names, font), text_px as usize);
        draw_label(image, Area::of_box(detection, image), &text, class_color(detection.class_idx));
    }
}

/// The colour of a class: hues a golden section apart, so that neighbours differ, in three strengths.
pub fn class_color(class_idx: usize) -> Rgb<u8> {
    const GOLDEN_SECTION: f64 = 0.618_033_988_749_895;
    let hue = (0.02 + class_idx as f64 * GOLDEN_SECTION).fract() * 6.0;
    let (saturation, value) = [(0.85, 0.95), (0.6, 1.0), (0.9, 0.7)][class_idx / 7 % 3];
    let channel = |offset: f64| {
        let position = (offset + hue) % 6.0;
        let share = position.min(4.0 - position).clamp(0.0, 1.0);
        (255.0 * value * (1.0 - saturation * share)).round() as u8
    };
    Rgb([channel(5.0), channel(3.0), channel(1.0)])
}

/// Line width and text height, in pixels.
fn sizes_px(image: &RgbImage) -> (u32, u32) {
    let mean_side = (image.width() as f32 + image.height() as f32) / 2.0;
    let size_px = |part: f32, least: u32| ((mean_side * part).round() as u32).max(least);
    (size_px(LINE_OF_SIDE, MIN_LINE_PX), size_px(TEXT_OF_SIDE, MIN_TEXT_PX))
}

fn label(detection: &Detection, class_names: &[String], font: &LabelFont) -> String {
    let name = class_name(class_names, detection.class_idx);
    let confidence = detection.confidence;
    if name.chars().all(|c| c.is_control() || font.has(c)) {
        format!("{name} {confidence:.2}")
    } else {
        format!("{}:{name} {confidence:.2}", detection.class_idx)
    }
}

/// A rectangle of whole pixels, upper ends excluded.
#[derive(Debug, Clone, Copy)]
struct Area {
    x1: i64,
    y1: i64,
    x2: i64,
    y2: i64,
}

impl Area {
    /// The detection's box inside the image, at least one pixel wide and high.
    fn of_box(detection: &Detection, image: &RgbImage) -> Self {
        let b = detection.box_px.clipped(image.width() as f32, image.height() as f32);
        let [x1, y1, x2, y2] = [b.x1, b.y1, b.x2, b.y2].map(|v| v.round() as i64);
        Self { x1, y1, x2: x2.max(x1 + 1), y2: y2.max(y1 + 1) }
    }
}

fn draw_frame(image: &mut RgbImage, area: Area, line_px: i64, color: Rgb<u8>) {
    let Area { x1, y1, x2, y2 } = area;
    let top = Area { y2: (y1 + line_px).min(y2), ..area };
    let bottom = Area { y1: (y2 - line_px).max(y1), ..area };
    let left = Area { x2: (x1 + line_px).min(x2), ..area };
    let right = Area { x1: (x2 - line_px).max(x1), ..area };
    for side in [top, bottom, left, right] {
        fill(image, side, color);
    }
}

fn draw_label(image: &mut RgbImage, area: Area, text: &TextMask, background: Rgb<u8>) {
    let margin = (text.height_px / 8).max(1) as i64;
    let (width, height) = (text.width_px as i64 + 2 * margin, text.height_px as i64 + 2 * margin);
    let x1 = area.x1.min(i64::from(image.width()) - width).max(0);
    let y1 = if area.y1 >= height { area.y1 - height } else { area.y1 };
    fill(image, Area { x1, y1, x2: x1 + width, y2: y1 + height }, background);
    let ink_color = readable_on(background);
    for (i, &ink) in text.coverage.iter().enumerate().filter(|(_, ink)| **ink > 0.0) {
        let (x, y) = (x1 + margin + (i % text.width_px) as i64, y1 + margin + (i / text.width_px) as i64);
        if let Some(pixel) = pixel_mut(image, x, y) {
            *pixel = mixed(*pixel, ink_color, ink);
        }
    }
}

/// Paints the part of `area` that lies in the image.
fn fill(image: &mut RgbImage, area: Area, color: Rgb<u8>) {
    let (width, height) = (i64::from(image.width()), i64::from(image.height()));
    for y in area.y1.max(0)..area.y2.min(height) {
        for x in area.x1.max(0)..area.x2.min(width) {
            image.put_pixel(x as u32, y as u32, color);
        }
    }
}

fn pixel_mut(image: &mut RgbImage, x: i64, y: i64) -> Option<&mut Rgb<u8>> {
    image.get_pixel_mut_checked(u32::try_from(x).ok()?, u32::try_from(y).ok()?)
}

/// Black on light colours, white on dark ones, by luma (ITU-R BT.601).
fn readable_on(Rgb([r, g, b]): Rgb<u8>) -> Rgb<u8> {
    let luma = 0.299 * f32::from(r) + 0.587 * f32::from(g) + 0.114 * f32::from(b);
    if luma > 140.0 { Rgb([0; 3]) } else { Rgb([255; 3]) }
}

fn mixed(below: Rgb<u8>, above: Rgb<u8>, share: f32) -> Rgb<u8> {
    let channel = |i: usize| f32::from(below[i]) + share * (f32::from(above[i]) - f32::from(below[i]));
    Rgb([channel(0), channel(1), channel(2)].map(|value| value.round() as u8))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::geometry::BoxXyxyPx;

    const GRAY: Rgb<u8> = Rgb([100; 3]);

    fn drawn(box_px: BoxXyxyPx, name: &str) -> RgbImage {
        let mut image = RgbImage::from_pixel(100, 80, GRAY);
        let detection = Detection { class_idx: 0, confidence: 0.9, box_px };
        draw_detections(&mut image, &[detection], &[name.to_owned()], &LabelFont::built_in());
        image
    }

    #[test]
    fn a_frame_is_two_pixels_wide_and_leaves_the_inside() {
        let image = drawn(BoxXyxyPx::new(10.0, 30.0, 90.0, 70.0), "a");
        let color = class_color(0);
        for (x, y) in [(10, 50), (11, 50), (88, 50), (89, 50), (50, 68), (50, 69)] {
            assert_eq!(*image.get_pixel(x, y), color, "on the frame at {x}, {y}");
        }
        for (x, y) in [(9, 50), (12, 50), (87, 50), (90, 50), (50, 67), (50, 70)] {
            assert_eq!(*image.get_pixel(x, y), GRAY, "beside the frame at {x}, {y}");
        }
    }

    #[test]
    fn a_label_stands_on_its_box_or_inside_where_there_is_no_room() {
        let ink = readable_on(class_color(0));
        let has_ink = |image: &RgbImage, rows: std::ops::Range<u32>| {
            rows.into_iter().any(|y| (0..100).any(|x| *image.get_pixel(x, y) == ink))
        };
        assert!(has_ink(&drawn(BoxXyxyPx::new(10.0, 30.0, 90.0, 70.0), "a"), 16..30), "above the box");
        assert!(has_ink(&drawn(BoxXyxyPx::new(10.0, 5.0, 90.0, 70.0), "a"), 5..19), "inside the box");
    }

    #[test]
    fn boxes_beyond_the_image_or_not_finite_do_no_harm() {
        let outside = [
            BoxXyxyPx::new(200.0, 200.0, 300.0, 300.0),
            BoxXyxyPx::new(-50.0, -50.0, -10.0, -10.0),
            BoxXyxyPx::new(f32::NAN, 0.0, 10.0, 10.0),
        ];
        for box_px in outside {
            assert!(drawn(box_px, "a").pixels().all(|&pixel| pixel == GRAY), "{box_px:?} is not visible");
        }
        drawn(BoxXyxyPx::new(f32::NEG_INFINITY, -1e30, f32::INFINITY, 1e30), "a very long name that leaves the image");
    }

    #[test]
    fn a_name_that_cannot_be_drawn_is_led_by_its_class_index() {
        let detection = Detection { class_idx: 3, confidence: 0.914, box_px: BoxXyxyPx::new(0.0, 0.0, 1.0, 1.0) };
        let names = ["", "", "", "鱼"].map(str::to_owned);
        assert_eq!(label(&detection, &names, &LabelFont::built_in()), "3:鱼 0.91");
        assert_eq!(label(&detection, &["a".to_owned()], &LabelFont::built_in()), "class 3 0.91");
    }

    #[test]
    fn eighty_classes_have_eighty_colors() {
        let colors: HashSet<_> = (0..80).map(class_color).collect();
        assert_eq!(colors.len(), 80);
    }
}
