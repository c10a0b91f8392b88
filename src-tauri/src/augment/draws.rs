//! Random numbers as pure functions of where they are used.
//!
//! A draw depends on (run seed, epoch, sample, purpose, counter) and on nothing that ran before it. So neither the
//! number of loader threads, nor the order in which they work, nor a pause can change it.

/// The draws of one sample in one epoch of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draws {
    key: u64,
}

/// What a draw decides. The numbers enter the draws: changing one changes what a resumed run draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    EpochOrder = 1,
    MosaicUse = 2,
    MosaicPartner = 3,
    MosaicCenter = 4,
    Perspective = 5,
    Rotation = 6,
    Scale = 7,
    Shear = 8,
    Translation = 9,
    Hsv = 10,
    FlipUd = 11,
    FlipLr = 12,
    MixupUse = 13,
    MixupPartner = 14,
    MixupRatio = 15,
    /// Not a number but a new key: the draws of the second image of a mixup.
    MixupImage = 16,
}

impl Draws {
    pub fn of_sample(run_seed: u64, epoch: usize, sample_idx: usize) -> Self {
        let key = [epoch as u64, sample_idx as u64].into_iter().fold(mix(run_seed), |key, part| mix(key ^ mix(part)));
        Self { key }
    }

    /// The draws of an image that is made as a part of this sample.
    pub fn nested(&self, purpose: Purpose) -> Self {
        Self { key: self.bits(purpose, 0) }
    }

    /// The `counter`-th draw for `purpose`, all 64 bits of it.
    pub fn bits(&self, purpose: Purpose, counter: u64) -> u64 {
        mix(mix(self.key ^ mix(purpose as u64)).wrapping_add(counter))
    }

    /// A draw in `[0, 1)`.
    pub fn unit(&self, purpose: Purpose, counter: u64) -> f64 {
        (self.bits(purpose, counter) >> 11) as f64 * 2f64.powi(-53)
    }

    /// A draw in `[-amplitude, amplitude)`.
    pub fn around_zero(&self, purpose: Purpose, counter: u64, amplitude: f64) -> f64 {
        (2.0 * self.unit(purpose, counter) - 1.0) * amplitude
    }

    /// A draw in `0..n`; 0 when `n` is 0.
    pub fn below(&self, purpose: Purpose, counter: u64, n: usize) -> usize {
        ((self.bits(purpose, counter) as u128 * n as u128) >> 64) as usize
    }

    /// True with the given probability.
    pub fn happens(&self, purpose: Purpose, probability: f64) -> bool {
        self.unit(purpose, 0) < probability
    }
}

/// The order in which an epoch visits `n_samples` samples: each index once, shuffled by Fisher and Yates.
pub fn epoch_order(run_seed: u64, epoch: usize, n_samples: usize) -> Vec<usize> {
    let draws = Draws { key: mix(mix(run_seed) ^ mix(epoch as u64)) };
    let mut order: Vec<usize> = (0..n_samples).collect();
    for last in (1..n_samples).rev() {
        order.swap(last, draws.below(Purpose::EpochOrder, last as u64, last + 1));
    }
    order
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014): one step of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn draws_never_change_between_versions() {
        let draws = Draws::of_sample(0, 1, 2);
        let drawn = [draws.bits(Purpose::Scale, 0), draws.bits(Purpose::Hsv, 2)];
        assert_eq!(
            drawn,
            [0xc4d0_65ed_9f2d_47d8, 0xcf8a_20ae_7f4c_0260],
            "a resumed run must draw what the first would have drawn"
        );
    }

    #[test]
    fn seed_epoch_sample_purpose_and_counter_each_matter() {
        let first = Draws::of_sample(1, 1, 1).bits(Purpose::Scale, 0);
        let others = [
            Draws::of_sample(2, 1, 1).bits(Purpose::Scale, 0),
            Draws::of_sample(1, 2, 1).bits(Purpose::Scale, 0),
            Draws::of_sample(1, 1, 2).bits(Purpose::Scale, 0),
            Draws::of_sample(1, 1, 1).bits(Purpose::Shear, 0),
            Draws::of_sample(1, 1, 1).bits(Purpose::Scale, 1),
            Draws::of_sample(1, 1, 1).nested(Purpose::MixupImage).bits(Purpose::Scale, 0),
        ];
        assert!(!others.contains(&first), "no argument may be ignored");
    }

    #[test]
    fn units_are_spread_evenly() {
        let mut n_in_tenth = [0usize; 10];
        for sample_idx in 0..10_000 {
            let unit = Draws::of_sample(7, 3, sample_idx).unit(Purpose::Translation, 1);
            n_in_tenth[(unit * 10.0) as usize] += 1;
        }
        // 1000 expected, standard deviation 30.
        assert!(n_in_tenth.iter().all(|n| (880..1120).contains(n)), "four standard deviations: {n_in_tenth:?}");
    }

    #[test]
    fn order_holds_each_index_once() {
        let order = epoch_order(3, 5, 1000);
        let distinct: HashSet<usize> = order.iter().copied().collect();
        assert_eq!((order.len(), distinct.len(), order.iter().max()), (1000, 1000, Some(&999)), "a permutation");
    }

    #[test]
    fn order_is_the_same_again_and_another_in_the_next_epoch() {
        assert_eq!(epoch_order(3, 5, 100), epoch_order(3, 5, 100), "no hidden state");
        assert_ne!(epoch_order(3, 5, 100), epoch_order(3, 6, 100), "each epoch has its own order");
    }

    #[test]
    fn orders_of_nothing_and_of_one_sample_exist() {
        assert_eq!((epoch_order(0, 1, 0), epoch_order(0, 1, 1)), (vec![], vec![0]), "nothing to shuffle");
    }
}
