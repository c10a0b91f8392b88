//! Blending two images and keeping the boxes of both (Zhang et al., "mixup", 2018, <https://arxiv.org/abs/1710.09412>).

use super::draws::{Draws, Purpose};
use super::labeled::LabeledImage;

/// Blends `second` into `first`; both must have the same size. The shares are drawn from Beta(32, 32): about one half.
pub fn mixup(first: &mut LabeledImage, second: LabeledImage, draws: &Draws) {
    let share = (drawn_share(draws) * 65_536.0).round() as u32;
    for (value, other) in first.image.iter_mut().zip(second.image.iter()) {
        *value = ((*value as u32 * share + *other as u32 * (65_536 - share)) >> 16) as u8;
    }
    first.boxes.extend(second.boxes);
}

/// Beta(32, 32), which is how the 32nd smallest of 63 uniform numbers is distributed.
fn drawn_share(draws: &Draws) -> f64 {
    let mut units: [f64; 63] = std::array::from_fn(|counter| draws.unit(Purpose::MixupRatio, counter as u64));
    *units.select_nth_unstable_by(31, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::super::labeled::painted;
    use super::*;
    use crate::geometry::BoxXyxyPx;

    #[test]
    fn both_images_and_their_boxes_are_there() {
        let mut first = painted::labeled(20, 20, BoxXyxyPx::new(0.0, 0.0, 8.0, 8.0));
        let second = painted::labeled(20, 20, BoxXyxyPx::new(10.0, 10.0, 20.0, 20.0));
        mixup(&mut first, second, &Draws::of_sample(0, 1, 0));
        assert_eq!(first.boxes.len(), 2, "the boxes of both");
        assert_eq!(first.image[(9, 9)][0], 60, "background over background");
        assert!(first.image[(4, 4)][0] > 100 && first.image[(15, 15)][0] > 100, "both rectangles shine through");
    }

    #[test]
    fn shares_have_the_mean_and_spread_of_beta_32_32() {
        let shares: Vec<f64> = (0..2000).map(|sample_idx| drawn_share(&Draws::of_sample(0, 1, sample_idx))).collect();
        let mean = shares.iter().sum::<f64>() / 2000.0;
        let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / 2000.0;
        // Variance of Beta(a, a): 1 / (4 * (2a + 1)) = 1 / 260.
        assert!((mean - 0.5).abs() < 0.006 && (variance * 260.0 - 1.0).abs() < 0.13, "mean {mean}, var {variance}");
    }
}
