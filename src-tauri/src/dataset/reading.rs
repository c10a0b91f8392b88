//! What every format reader gives, and the step they share: from an image and its labels to a [`Sample`].

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::decode::{ImageSize, decode_rgb, header_size};
use super::report::{Fault, FaultCode};
use super::{Label, Sample, Split};

/// Images with a shorter side than this are left out: nothing of them is left on the coarsest feature map.
const MIN_SIDE_PX: u32 = 10;

/// How far images are read to check them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImageCheck {
    /// Sizes from the files' headers: quick, and does not notice a file that is cut short.
    #[default]
    Header,
    /// Every image is decoded.
    Pixels,
}

/// A dataset as one format describes it.
pub(super) struct Reading {
    pub class_names: Vec<String>,
    pub splits: BTreeMap<Split, Vec<Sample>>,
    pub faults: Vec<Fault>,
    /// The file or folder that faults about the whole dataset belong to.
    pub root: PathBuf,
    /// The format cannot say, or here does not say, which images are for validation.
    pub splits_are_unnamed: bool,
}

/// Labels and faults of one image; `None` leaves the image out.
pub(super) type ImageLabels = (Option<Vec<Label>>, Vec<Fault>);

/// Samples of `items` sorted by path, read in parallel; an unusable image is a fault and is left out.
pub(super) fn read_samples<T: Sync>(
    items: &[T],
    check: ImageCheck,
    image_of: impl Fn(&T) -> &Path + Sync,
    labels_of: impl Fn(&T, ImageSize) -> ImageLabels + Sync,
) -> (Vec<Sample>, Vec<Fault>) {
    let read: Vec<_> = items.par_iter().map(|item| read_sample(item, check, &image_of, &labels_of)).collect();
    let (samples, faults): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    let mut samples: Vec<Sample> = samples.into_iter().flatten().collect();
    samples.sort_by(|a, b| a.image_path.cmp(&b.image_path));
    (samples, faults.into_iter().flatten().collect())
}

fn read_sample<T>(
    item: &T,
    check: ImageCheck,
    image_of: impl Fn(&T) -> &Path,
    labels_of: impl Fn(&T, ImageSize) -> ImageLabels,
) -> (Option<Sample>, Vec<Fault>) {
    let image = image_of(item);
    let size = match checked_size(image, check) {
        Ok(size) => size,
        Err(fault) => return (None, vec![fault]),
    };
    let (labels, faults) = labels_of(item, size);
    let sample = labels.map(|labels| Sample {
        image_path: image.to_owned(),
        width_px: size.width_px,
        height_px: size.height_px,
        labels,
    });
    (sample, faults)
}

fn checked_size(image: &Path, check: ImageCheck) -> Result<ImageSize, Fault> {
    let unreadable = |reason: String| Fault::new(image, None, FaultCode::UnreadableImage, reason);
    let size = header_size(image).map_err(|error| unreadable(error.to_string()))?;
    if size.width_px.min(size.height_px) < MIN_SIDE_PX {
        let message =
            format!("{} x {} pixels; a side of at least {MIN_SIDE_PX} is needed", size.width_px, size.height_px);
        return Err(Fault::new(image, None, FaultCode::ImageTooSmall, message));
    }
    if check == ImageCheck::Pixels {
        decode_rgb(image).map_err(|error| unreadable(error.to_string()))?;
    }
    Ok(size)
}

/// Each image once, sorted; those that come again are faults.
pub(super) fn without_repeats(images: Vec<PathBuf>, faults: &mut Vec<Fault>) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    let mut once = Vec::new();
    for image in images {
        if seen.insert(image.clone()) {
            once.push(image);
        } else {
            let message = "named twice in one split; it is used once";
            faults.push(Fault::new(&image, None, FaultCode::DuplicateImage, message));
        }
    }
    once.sort();
    once
}

/// The split that a folder called so holds.
pub(super) fn split_of_folder(name: &str) -> Option<Split> {
    match name.to_ascii_lowercase().as_str() {
        "train" | "training" => Some(Split::Train),
        "val" | "valid" | "validation" => Some(Split::Val),
        "test" | "testing" => Some(Split::Test),
        _ => None,
    }
}
