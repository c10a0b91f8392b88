//! The images of a split in the size in which they are used, kept in memory as far as a budget allows.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use image::{Rgb, RgbImage};

use crate::augment::{FILL, LabeledBox, LoadedImage, SizePx, loaded_size, resize_bilinear};
use crate::dataset::Sample;
use crate::dataset::batch::ImageWarning;
use crate::dataset::decode::DecodeError;

/// Reads an image file as it is to be shown, that is with its EXIF orientation applied.
pub type Decode = fn(&Path) -> Result<RgbImage, DecodeError>;

/// The cache budget unless the user sets another: 1 GiB.
pub const DEFAULT_CACHE_BYTES: usize = 1 << 30;

/// Loads images of one split; made once a run and shared by the loaders of all epochs.
///
/// The cache fills up and then stays as it is: every image is wanted equally often, so exchanging would gain nothing.
#[derive(Debug)]
pub struct SplitImages {
    samples: Arc<Vec<Sample>>,
    imgsz: u32,
    decode: Decode,
    cache: Mutex<Cache>,
}

#[derive(Debug)]
struct Cache {
    images: HashMap<usize, Arc<RgbImage>>,
    free_bytes: usize,
}

impl SplitImages {
    /// Images with their long side at `imgsz`; at most `cache_bytes` of pixels are kept, none for 0.
    pub fn new(samples: Arc<Vec<Sample>>, imgsz: u32, cache_bytes: usize, decode: Decode) -> Self {
        Self { samples, imgsz, decode, cache: Mutex::new(Cache { images: HashMap::new(), free_bytes: cache_bytes }) }
    }

    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    pub fn imgsz(&self) -> u32 {
        self.imgsz
    }

    /// Image and boxes of a sample; a grey square without boxes and a warning when the file cannot be decoded.
    ///
    /// # Panics
    /// When the split has no sample `sample_idx`.
    pub fn load(&self, sample_idx: usize, warnings: &mut Vec<ImageWarning>) -> LoadedImage {
        let sample = &self.samples[sample_idx];
        match self.image(sample_idx, sample) {
            Ok(image) => LoadedImage { boxes: boxes_px(sample, &image), image },
            Err(error) => {
                let (image_path, reason) = (sample.image_path.clone(), error.to_string());
                warnings.push(ImageWarning { sample_idx, image_path, reason });
                let image = Arc::new(RgbImage::from_pixel(self.imgsz, self.imgsz, Rgb([FILL; 3])));
                LoadedImage { image, boxes: Vec::new() }
            }
        }
    }

    fn image(&self, sample_idx: usize, sample: &Sample) -> Result<Arc<RgbImage>, DecodeError> {
        if let Some(image) = self.cache().images.get(&sample_idx) {
            return Ok(image.clone());
        }
        let decoded = (self.decode)(&sample.image_path)?;
        let image = Arc::new(resize_bilinear(&decoded, loaded_size(SizePx::of(&decoded), self.imgsz)));
        self.cache().keep(sample_idx, &image);
        Ok(image)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        // Entries are whole images put in by one call, so a thread that panicked cannot have left half of one.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn keep(&mut self, sample_idx: usize, image: &Arc<RgbImage>) {
        let size_bytes = image.as_raw().len();
        if size_bytes <= self.free_bytes && self.images.insert(sample_idx, image.clone()).is_none() {
            self.free_bytes -= size_bytes;
        }
    }
}

fn boxes_px(sample: &Sample, image: &RgbImage) -> Vec<LabeledBox> {
    let (width, height) = (image.width() as f64, image.height() as f64);
    let boxes = sample.labels.iter();
    boxes.map(|label| LabeledBox::new(label.class_idx, label.box_norm.to_xyxy_px(width, height))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::train::test_split;
    use super::*;

    #[test]
    fn the_long_side_is_imgsz_and_boxes_are_in_pixels_of_it() {
        let images = test_split::images(3, 32, 0);
        let loaded = images.load(1, &mut Vec::new());
        assert_eq!(SizePx::of(&loaded.image), SizePx::new(32, 24), "64 x 48 halved");
        assert_eq!(loaded.boxes[0].box_px, crate::geometry::BoxXyxyPx::new(8.0, 6.0, 24.0, 18.0), "the middle");
    }

    #[test]
    fn the_cache_stops_at_its_budget() {
        let images = test_split::images(3, 32, 2 * 32 * 24 * 3 + 1);
        for sample_idx in [0, 1, 2, 0] {
            images.load(sample_idx, &mut Vec::new());
        }
        let cache = images.cache();
        assert_eq!((cache.images.len(), cache.free_bytes), (2, 1), "two fit, the third does not");
    }

    #[test]
    fn an_unreadable_image_becomes_grey_with_a_warning() {
        let images = test_split::images(3, 32, 1 << 20);
        let mut warnings = Vec::new();
        let loaded = images.load(test_split::BROKEN_IDX, &mut warnings);
        assert!(loaded.boxes.is_empty() && loaded.image.pixels().all(|pixel| pixel.0 == [FILL; 3]), "a background");
        assert_eq!(warnings[0].sample_idx, test_split::BROKEN_IDX, "and it is told which");
    }
}
