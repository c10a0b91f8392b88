//! The images a training uses.

use std::sync::Arc;

use super::TrainError;
use super::config::TrainConfig;
use crate::dataset::decode::decode_rgb;
use crate::dataset::loader::{DEFAULT_CACHE_BYTES, SplitImages};
use crate::dataset::{CheckReport, Sample, Split, open};

/// A dataset, opened for training.
pub struct TrainData {
    pub train: Arc<SplitImages>,
    /// Absent when the dataset has no val split and `val=False`.
    pub val: Option<Arc<SplitImages>>,
    pub class_names: Vec<String>,
    /// Hash of the dataset's contents.
    pub fingerprint: String,
    /// What was wrong in the dataset's files.
    pub report: CheckReport,
}

impl TrainData {
    /// # Errors
    /// When the dataset cannot be read or has nothing to learn from, or when validation is wanted and there is no val split.
    pub fn open(config: &TrainConfig) -> Result<Self, TrainError> {
        let opened = open(&config.data, &config.open_options())?.into_trainable()?;
        let fingerprint = opened.dataset.fingerprint()?;
        let mut splits = opened.dataset.splits;
        let mut split = |split| splits.remove(&split).filter(|samples: &Vec<Sample>| !samples.is_empty());
        let train = first_part(split(Split::Train).unwrap_or_default(), config.fraction);
        let val = split(Split::Val);
        if val.is_none() && config.val {
            let hint = "; name one in the dataset, set val_split=0.1 to set a tenth of the training images aside, or val=False";
            return Err(TrainError::NoSplit { path: config.data.clone(), split: "val", hint });
        }
        let cache_bytes = if config.cache { usize::MAX } else { DEFAULT_CACHE_BYTES / 2 };
        let images = |samples| Arc::new(SplitImages::new(Arc::new(samples), config.imgsz, cache_bytes, decode_rgb));
        Ok(Self {
            train: images(train),
            val: val.map(images),
            class_names: opened.dataset.class_names,
            fingerprint,
            report: opened.report,
        })
    }

    pub fn n_train(&self) -> usize {
        self.train.samples().len()
    }

    pub fn n_val(&self) -> usize {
        self.val.as_ref().map_or(0, |images| images.samples().len())
    }
}

/// The first `fraction` of the samples, at least one.
fn first_part(mut samples: Vec<Sample>, fraction: f64) -> Vec<Sample> {
    let n_kept = (samples.len() as f64 * fraction).round_ties_even().max(1.0) as usize;
    samples.truncate(n_kept);
    samples
}
