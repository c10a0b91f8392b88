//! Comparing a tensor with its summary: shape, mean, spread, largest value, first values, samples.

use serde::Deserialize;

use crate::report::Compared;

#[derive(Deserialize)]
pub struct Summary {
    pub shape: Vec<usize>,
    mean: f64,
    std: f64,
    absmax: f64,
    first: Vec<f64>,
    pub sample: Option<Sample>,
}

/// Values at flat row-major indices.
#[derive(Deserialize)]
pub struct Sample {
    pub idx: Vec<usize>,
    pub val: Vec<f64>,
}

impl Summary {
    pub fn absmax(&self) -> f64 {
        self.absmax
    }

    /// Every number of the summary against ours; errors are absolute, in units of `scale`.
    pub fn compare(&self, what: &str, shape: &[usize], values: &[f32], scale: f64, tolerance: f64) -> Vec<Compared> {
        if shape != self.shape {
            return vec![Compared::equal(format!("{what} shape {shape:?}, expected {:?}", self.shape), false, true)];
        }
        let n = values.len() as f64;
        let mean = values.iter().map(|&v| v as f64).sum::<f64>() / n;
        let std = (values.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n).sqrt();
        let absmax = values.iter().map(|&v| (v as f64).abs()).fold(0.0, f64::max);
        let first = largest_difference(self.first.iter().zip(values).map(|(&theirs, &ours)| (theirs, ours)));
        let mut errors = vec![(mean - self.mean).abs(), (std - self.std).abs(), (absmax - self.absmax).abs(), first];
        if let Some(sample) = &self.sample {
            errors.push(sample.largest_error(values));
        }
        let worst = errors.into_iter().fold(0.0, nan_max);
        vec![Compared::new(what, worst / scale, tolerance)]
    }
}

impl Sample {
    pub fn largest_error(&self, values: &[f32]) -> f64 {
        largest_difference(self.idx.iter().zip(&self.val).map(|(&i, &theirs)| (theirs, values[i])))
    }
}

/// Largest absolute difference; not-a-number wins.
pub fn largest_difference(pairs: impl Iterator<Item = (f64, f32)>) -> f64 {
    pairs.map(|(theirs, ours)| (theirs - ours as f64).abs()).fold(0.0, nan_max)
}

/// The larger of two, where not-a-number is largest of all.
pub fn nan_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// |ours - theirs| / max(|theirs|, floor).
pub fn relative(ours: f64, theirs: f64, floor: f64) -> f64 {
    (ours - theirs).abs() / theirs.abs().max(floor)
}
