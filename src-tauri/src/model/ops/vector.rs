//! Loops over slices that the compiler turns into vector instructions of whatever this processor has.
//!
//! Multiplications and additions are not contracted, and sums run in a fixed number of lanes, so that every instruction
//! set gives the same bits.

/// Partial sums kept side by side.
const LANES: usize = 16;
/// Values summed in f32 before the sum goes on in f64.
const CHUNK: usize = 1024;

/// Runs `f`, compiled for the widest vectors of this processor. Everything it calls must be `#[inline(always)]`.
#[inline(always)]
pub fn vectorised<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}

/// e^x with a relative error of about 1e-7; x is cut to -87..=88, where the result is neither zero nor infinite.
///
/// Splits x = n ln 2 + r with |r| <= ln 2 / 2 and takes e^r by its Taylor polynomial (W. Cody, W. Waite, "Software Manual
/// for the Elementary Functions", 1980, chapter 6, for the method).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// Adding it rounds a number below 2^22 to a whole one, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let polynomial = 1.0 / 5040.0;
    let polynomial = polynomial * r + 1.0 / 720.0;
    let polynomial = polynomial * r + 1.0 / 120.0;
    let polynomial = polynomial * r + 1.0 / 24.0;
    let polynomial = polynomial * r + 1.0 / 6.0;
    let polynomial = polynomial * r + 0.5;
    let polynomial = polynomial * r + 1.0;
    let polynomial = polynomial * r + 1.0;
    let two_to_n = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    polynomial * two_to_n
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Sum of `f` over a slice, in f64 from chunk to chunk.
#[inline(always)]
pub fn sum(values: &[f32], f: impl Fn(f32) -> f32) -> f64 {
    values.chunks(CHUNK).map(|chunk| sum_chunk(chunk, &f)).sum()
}

#[inline(always)]
fn sum_chunk(chunk: &[f32], f: &impl Fn(f32) -> f32) -> f64 {
    let mut lanes = [0.0f32; LANES];
    let (blocks, rest) = chunk.as_chunks::<LANES>();
    for block in blocks {
        for lane in 0..LANES {
            lanes[lane] += f(block[lane]);
        }
    }
    for (lane, &value) in rest.iter().enumerate() {
        lanes[lane] += f(value);
    }
    lanes.iter().map(|&lane| lane as f64).sum()
}

/// Sums of both results of `f` over pairs of values.
#[inline(always)]
pub fn sum_pairs(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> (f32, f32)) -> (f64, f64) {
    let chunks = a.chunks(CHUNK).zip(b.chunks(CHUNK)).map(|(a, b)| sum_pairs_chunk(a, b, &f));
    chunks.fold((0.0, 0.0), |sums, chunk| (sums.0 + chunk.0, sums.1 + chunk.1))
}

#[inline(always)]
fn sum_pairs_chunk(a: &[f32], b: &[f32], f: &impl Fn(f32, f32) -> (f32, f32)) -> (f64, f64) {
    let mut first = [0.0f32; LANES];
    let mut second = [0.0f32; LANES];
    let ((a_blocks, a_rest), (b_blocks, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            let (x, y) = f(a[lane], b[lane]);
            first[lane] += x;
            second[lane] += y;
        }
    }
    for (lane, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        let (x, y) = f(a, b);
        first[lane] += x;
        second[lane] += y;
    }
    let total = |lanes: [f32; LANES]| lanes.iter().map(|&lane| lane as f64).sum();
    (total(first), total(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_near_the_library_s() {
        for i in -8700..=8800 {
            let x = i as f32 / 100.0;
            let (ours, exact) = (exp(x) as f64, (x as f64).exp());
            assert!((ours - exact).abs() <= 3e-7 * exact, "at {x}: {ours} and {exact}");
        }
        assert!(exp(-1e30) > 0.0 && exp(1e30).is_finite() && exp(f32::NAN).is_nan());
    }

    #[test]
    fn sums_of_any_length_are_right() {
        for n in [0usize, 1, 15, 16, 17, 1024, 1025, 5000] {
            let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let exact = (n * n.saturating_sub(1)) as f64 / 2.0;
            assert_eq!(sum(&values, |v| v), exact, "the sum of 0..{n}");
            assert_eq!(sum_pairs(&values, &values, |a, b| (a, 2.0 * b)), (exact, 2.0 * exact));
        }
    }
}
