//! A validation split where a dataset names none: a stated share of the training images, the same on every machine.

use super::Sample;

/// Takes `share` (0..1) of the samples out for validation, at least one where there are two.
///
/// Which ones depends on their file names alone: the order is that of the names' BLAKE3 hashes, so neither the folder
/// nor the file system matters, and adding an image moves few others.
pub(super) fn set_aside(samples: Vec<Sample>, share: f64) -> (Vec<Sample>, Vec<Sample>) {
    let n_samples = samples.len();
    if n_samples < 2 {
        return (samples, Vec::new());
    }
    let n_val = ((n_samples as f64 * share).round() as usize).clamp(1, n_samples - 1);
    let mut ranked: Vec<(blake3::Hash, usize)> = samples
        .iter()
        .enumerate()
        .map(|(i, sample)| {
            let name = sample.image_path.file_name().unwrap_or_default();
            (blake3::hash(name.as_encoded_bytes()), i)
        })
        .collect();
    ranked.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()).then(a.1.cmp(&b.1)));
    let mut is_val = vec![false; n_samples];
    for (_, i) in &ranked[..n_val] {
        is_val[*i] = true;
    }
    let (val, train): (Vec<_>, Vec<_>) = samples.into_iter().zip(is_val).partition(|(_, is_val)| *is_val);
    (train.into_iter().map(|(sample, _)| sample).collect(), val.into_iter().map(|(sample, _)| sample).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(folder: &str, n_samples: usize) -> Vec<Sample> {
        let name = |i| format!("{folder}/{i:03}.png").into();
        (0..n_samples)
            .map(|i| Sample { image_path: name(i), width_px: 64, height_px: 64, labels: Vec::new() })
            .collect()
    }

    #[test]
    fn a_tenth_is_set_aside_wherever_the_folder_lies() {
        let (train, val) = set_aside(samples("a", 50), 0.1);
        assert_eq!((train.len(), val.len()), (45, 5), "a tenth of 50");
        let (_, moved) = set_aside(samples("/elsewhere/b", 50), 0.1);
        let names = |samples: &[Sample]| -> Vec<_> {
            samples.iter().map(|sample| sample.image_path.file_name().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&val), names(&moved), "only the names count");
    }

    #[test]
    fn training_never_goes_empty() {
        let (train, val) = set_aside(samples("a", 1), 0.5);
        assert_eq!((train.len(), val.len()), (1, 0), "one image is for training");
        let (train, val) = set_aside(samples("a", 2), 0.99);
        assert_eq!((train.len(), val.len()), (1, 1), "one each");
    }
}
