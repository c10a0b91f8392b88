//! The content hash of a dataset: equal for equal classes, images, labels and splits, wherever the folder lies.

use std::fs::File;

use rayon::prelude::*;

use super::{Dataset, DatasetError, Sample, Split};

/// Says what is hashed and how; changes with either.
const FINGERPRINT_CONTEXT: &[u8] = b"fermata dataset fingerprint 1";

impl Dataset {
    /// BLAKE3, in hexadecimal, over the class names and, split by split in order, each image's file name, bytes, size
    /// and labels. Folder names, dates and label file formats are not in it.
    ///
    /// # Errors
    /// An image cannot be read.
    pub fn fingerprint(&self) -> Result<String, DatasetError> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(FINGERPRINT_CONTEXT);
        update_count(&mut hasher, self.class_names.len());
        for name in &self.class_names {
            update_bytes(&mut hasher, name.as_bytes());
        }
        for (split, samples) in &self.splits {
            update_bytes(&mut hasher, split_word(*split));
            update_count(&mut hasher, samples.len());
            let hashes: Vec<blake3::Hash> = samples.par_iter().map(sample_hash).collect::<Result<_, _>>()?;
            for hash in hashes {
                hasher.update(hash.as_bytes());
            }
        }
        Ok(hasher.finalize().to_hex().to_string())
    }
}

fn split_word(split: Split) -> &'static [u8] {
    match split {
        Split::Train => b"train",
        Split::Val => b"val",
        Split::Test => b"test",
    }
}

fn sample_hash(sample: &Sample) -> Result<blake3::Hash, DatasetError> {
    let unreadable = |error| DatasetError::unreadable(&sample.image_path, error);
    let mut image_hasher = blake3::Hasher::new();
    image_hasher.update_reader(File::open(&sample.image_path).map_err(unreadable)?).map_err(unreadable)?;
    let mut hasher = blake3::Hasher::new();
    update_bytes(&mut hasher, sample.image_path.file_name().unwrap_or_default().as_encoded_bytes());
    hasher.update(image_hasher.finalize().as_bytes());
    hasher.update(&sample.width_px.to_le_bytes());
    hasher.update(&sample.height_px.to_le_bytes());
    update_count(&mut hasher, sample.labels.len());
    for label in &sample.labels {
        update_count(&mut hasher, label.class_idx);
        let b = label.box_norm;
        for number in [b.cx, b.cy, b.w, b.h] {
            hasher.update(&number.to_le_bytes());
        }
    }
    Ok(hasher.finalize())
}

/// Length first, so that two lists never hash alike because their parts were joined.
fn update_bytes(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    update_count(hasher, bytes.len());
    hasher.update(bytes);
}

fn update_count(hasher: &mut blake3::Hasher, count: usize) {
    hasher.update(&(count as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::dataset::Label;
    use crate::geometry::BoxXywhNorm;

    fn dataset_in(folder: &Path, cx: f64) -> Dataset {
        let image_path = folder.join("a.png");
        fs::write(&image_path, b"pixels").unwrap();
        let label = Label { class_idx: 0, box_norm: BoxXywhNorm { cx, cy: 0.5, w: 0.2, h: 0.2 } };
        let sample = Sample { image_path, width_px: 64, height_px: 64, labels: vec![label] };
        Dataset {
            source: folder.to_owned(),
            class_names: vec!["a".to_owned()],
            splits: BTreeMap::from([(Split::Train, vec![sample])]),
        }
    }

    #[test]
    fn moving_the_folder_keeps_the_fingerprint() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let fingerprints = [&here, &there].map(|folder| dataset_in(folder.path(), 0.5).fingerprint().unwrap());
        assert_eq!(fingerprints[0], fingerprints[1], "content only");
    }

    #[test]
    fn any_change_of_content_changes_the_fingerprint() {
        let folder = tempfile::tempdir().unwrap();
        let original = dataset_in(folder.path(), 0.5);
        let fingerprint = original.fingerprint().unwrap();
        assert_ne!(dataset_in(folder.path(), 0.500001).fingerprint().unwrap(), fingerprint, "a label");
        let renamed = Dataset { class_names: vec!["b".to_owned()], ..original.clone() };
        assert_ne!(renamed.fingerprint().unwrap(), fingerprint, "a class name");
        fs::write(folder.path().join("a.png"), b"pixelt").unwrap();
        assert_ne!(original.fingerprint().unwrap(), fingerprint, "an image, same size");
    }
}
