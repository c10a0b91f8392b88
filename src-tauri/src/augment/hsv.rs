//! Random hue, saturation and brightness, in OpenCV's 8-bit HSV: hue 0..180, saturation and value 0..=255.

use image::RgbImage;

use super::config::AugmentConfig;
use super::draws::{Draws, Purpose};

/// How the colours of an image are changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HsvChange {
    /// By how much the hue is turned, as a fraction of the circle; 0 changes nothing.
    pub hue_turn: f64,
    /// By what the saturation is multiplied; 1 changes nothing.
    pub saturation_gain: f64,
    /// By what the value is multiplied; 1 changes nothing.
    pub value_gain: f64,
}

impl HsvChange {
    pub const NONE: Self = Self { hue_turn: 0.0, saturation_gain: 1.0, value_gain: 1.0 };

    pub fn drawn(config: &AugmentConfig, draws: &Draws) -> Self {
        Self {
            hue_turn: draws.around_zero(Purpose::Hsv, 0, config.hsv_h),
            saturation_gain: 1.0 + draws.around_zero(Purpose::Hsv, 1, config.hsv_s),
            value_gain: 1.0 + draws.around_zero(Purpose::Hsv, 2, config.hsv_v),
        }
    }
}

/// Turns the hue and multiplies saturation and value (up to 255) of every pixel. Boxes stay where they are.
///
/// Older detectors of the family multiplied the hue, which left red alone; here all hues turn by the same angle, as
/// Ultralytics 8.4 was seen to do.
pub fn apply_hsv(image: &mut RgbImage, change: &HsvChange) {
    if *change == HsvChange::NONE {
        return;
    }
    let hues: [u8; 256] = std::array::from_fn(|hue| (hue as f64 + 180.0 * change.hue_turn).rem_euclid(180.0) as u8);
    let saturations: [u8; 256] = std::array::from_fn(|saturation| (saturation as f64 * change.saturation_gain) as u8);
    let values: [u8; 256] = std::array::from_fn(|value| (value as f64 * change.value_gain) as u8);
    let reciprocals = Reciprocals::new();
    for pixel in image.chunks_exact_mut(3) {
        let [hue, saturation, value] = hsv_from_rgb([pixel[0], pixel[1], pixel[2]], &reciprocals);
        let changed = [hues[hue as usize], saturations[saturation as usize], values[value as usize]];
        pixel.copy_from_slice(&rgb_from_hsv(changed));
    }
}

/// Bits behind the binary point in [`Reciprocals`].
const SHIFT: u32 = 12;

/// `255 / value` and `30 / spread` (a sixth of the hue circle) as fixed-point numbers.
struct Reciprocals {
    of_value: [i32; 256],
    of_spread: [i32; 256],
}

impl Reciprocals {
    fn new() -> Self {
        let table = |scale: f64| {
            std::array::from_fn(|divisor| match divisor {
                0 => 0,
                _ => (scale * (1 << SHIFT) as f64 / divisor as f64).round_ties_even() as i32,
            })
        };
        Self { of_value: table(255.0), of_spread: table(30.0) }
    }
}

fn hsv_from_rgb([red, green, blue]: [u8; 3], reciprocals: &Reciprocals) -> [u8; 3] {
    let (red, green, blue) = (red as i32, green as i32, blue as i32);
    let value = red.max(green).max(blue);
    let spread = value - red.min(green).min(blue);
    let rounded = |product: i32| (product + (1 << (SHIFT - 1))) >> SHIFT;
    // Distance along the circle in units of its sixth, times the spread.
    let along = if value == red {
        green - blue
    } else if value == green {
        blue - red + 2 * spread
    } else {
        red - green + 4 * spread
    };
    let hue = rounded(along * reciprocals.of_spread[spread as usize]);
    let hue = if hue < 0 { hue + 180 } else { hue };
    let saturation = rounded(spread * reciprocals.of_value[value as usize]);
    [hue as u8, saturation.min(255) as u8, value as u8]
}

fn rgb_from_hsv([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    let (sixth, within) = ((hue / 30) % 6, hue as u32 % 30);
    let (saturation, value) = (saturation as u32, value as u32);
    // `value` lessened by `thirtieths / 30` of the saturation, rounded to the nearest.
    let lessened = |thirtieths: u32| ((value * (7650 - saturation * thirtieths) + 3825) / 7650) as u8;
    let levels = [value as u8, lessened(30), lessened(within), lessened(30 - within)];
    LEVEL_OF_CHANNEL[sixth as usize].map(|level| levels[level])
}

/// For each sixth of the hue circle which of (highest, lowest, falling, rising) red, green and blue are.
const LEVEL_OF_CHANNEL: [[usize; 3]; 6] = [[0, 3, 1], [2, 0, 1], [1, 0, 3], [1, 2, 0], [3, 1, 0], [0, 1, 2]];

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(rgb: [u8; 3], hue_turn: f64, saturation_gain: f64, value_gain: f64) -> [u8; 3] {
        let mut image = RgbImage::from_pixel(1, 1, image::Rgb(rgb));
        apply_hsv(&mut image, &HsvChange { hue_turn, saturation_gain, value_gain });
        image.get_pixel(0, 0).0
    }

    #[test]
    fn colours_survive_the_way_to_hsv_and_back() {
        let reciprocals = Reciprocals::new();
        for red in (0..=255).step_by(15) {
            for green in (0..=255).step_by(15) {
                for blue in (0..=255).step_by(15) {
                    let rgb = [red, green, blue];
                    let back = rgb_from_hsv(hsv_from_rgb(rgb, &reciprocals));
                    let error = rgb.iter().zip(back).map(|(a, b)| a.abs_diff(b)).max();
                    assert!(error <= Some(5), "180 hues cannot be exact, but close: {rgb:?} became {back:?}");
                }
            }
        }
    }

    #[test]
    fn primary_colours_have_the_hues_0_60_and_120() {
        let reciprocals = Reciprocals::new();
        assert_eq!(hsv_from_rgb([255, 0, 0], &reciprocals), [0, 255, 255], "red");
        assert_eq!(hsv_from_rgb([0, 128, 0], &reciprocals), [60, 255, 128], "half green");
        assert_eq!(hsv_from_rgb([127, 127, 255], &reciprocals), [120, 128, 255], "pale blue");
    }

    #[test]
    fn value_gain_darkens_and_stops_at_white() {
        assert_eq!(changed([200, 100, 0], 0.0, 1.0, 0.5), [100, 50, 0], "half as bright");
        assert_eq!(changed([200, 200, 200], 0.0, 1.0, 2.0), [255, 255, 255], "no overflow");
    }

    #[test]
    fn saturation_gain_of_zero_leaves_grey() {
        assert_eq!(changed([200, 100, 0], 0.0, 0.0, 1.0), [200, 200, 200], "the value alone remains");
    }

    #[test]
    fn hue_turns_around_the_circle_both_ways() {
        assert_eq!(changed([0, 255, 0], -1.0 / 6.0, 1.0, 1.0), [255, 255, 0], "green to yellow");
        assert_eq!(changed([255, 0, 0], -1.0 / 6.0, 1.0, 1.0), [255, 0, 255], "red to magenta, across zero");
    }
}
