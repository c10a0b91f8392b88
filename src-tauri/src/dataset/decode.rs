//! Image files to upright RGB pixels, whatever their format, colour type or EXIF orientation. Only reads.
//!
//! The format is told from the content, never from the file's ending. Damaged or hostile files are errors: sizes are
//! bounded before anything is allocated, and a decoder that panics is caught.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, RgbImage};
use thiserror::Error;

use super::png_exif::{PNG_SIGNATURE, png_orientation};

/// Longest side that is decoded, the limit of JPEG.
pub const MAX_SIDE_PX: u32 = 65_535;
/// Most pixels that are decoded: the limit at which Pillow speaks of a decompression bomb, so that what opens in common
/// tools opens here.
pub const MAX_PIXELS: u64 = 178_956_970;
/// Most memory a decoder may ask for.
const MAX_ALLOC_BYTES: u64 = 2 << 30;
/// The headers of nearly all JPEG files end before this; the others are read whole.
const JPEG_PREFIX_BYTES: u64 = 256 << 10;

/// The size of an image as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSize {
    /// Pixels, after the EXIF orientation.
    pub width_px: u32,
    pub height_px: u32,
    /// How the stored pixels are turned to be shown.
    pub orientation: Orientation,
}

/// Why an image has no pixels for us.
#[derive(Debug, Error)]
pub enum DecodeError {
    #[error("cannot read the file: {0}")]
    Io(#[from] io::Error),
    #[error("file is empty")]
    Empty,
    #[error("not an image of a known format")]
    UnknownFormat,
    #[error("{width_px} x {height_px} pixels is more than the {MAX_PIXELS} pixels that are decoded")]
    TooLarge { width_px: u32, height_px: u32 },
    #[error("cannot decode: {0}")]
    Decode(#[from] ImageError),
    #[error("the decoder failed on this file")]
    Panicked,
}

/// Pixels as RGB, 8 bits each, upright.
///
/// Gray, palette, 16-bit, float and CMYK images are converted. Alpha is dropped without blending, as OpenCV's
/// `IMREAD_COLOR` does, which is what detectors of this family are trained with. Of several frames the first is taken.
///
/// # Errors
/// The file cannot be read or decoded, or is larger than [`MAX_PIXELS`].
pub fn decode_rgb(path: &Path) -> Result<RgbImage, DecodeError> {
    let bytes = std::fs::read(path)?;
    guarded(|| {
        let (decoder, orientation) = open_decoder(Cursor::new(&bytes))?;
        let mut image = DynamicImage::from_decoder(decoder)?;
        image.apply_orientation(orientation);
        Ok(image.into_rgb8())
    })
}

/// The size of an image, from as little of the file as its format allows.
///
/// # Errors
/// As [`decode_rgb`], for what the headers show.
pub fn header_size(path: &Path) -> Result<ImageSize, DecodeError> {
    let mut file = File::open(path)?;
    let mut prefix = Vec::new();
    file.by_ref().take(JPEG_PREFIX_BYTES).read_to_end(&mut prefix)?;
    let is_jpeg = prefix.starts_with(b"\xff\xd8\xff");
    if is_jpeg && let Ok(size) = guarded(|| size_in(Cursor::new(&prefix))) {
        return Ok(size);
    }
    file.seek(SeekFrom::Start(0))?;
    guarded(|| size_in(BufReader::new(file)))
}

fn size_in(file: impl BufRead + Seek) -> Result<ImageSize, DecodeError> {
    let (decoder, orientation) = open_decoder(file)?;
    let (width_px, height_px) = decoder.dimensions();
    let (width_px, height_px) = match orientation {
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH => {
            (height_px, width_px)
        }
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => (width_px, height_px),
    };
    Ok(ImageSize { width_px, height_px, orientation })
}

/// A decoder that has read the headers and found a size within limits, and the orientation they ask for.
fn open_decoder<'a>(mut file: impl BufRead + Seek + 'a) -> Result<(impl ImageDecoder + 'a, Orientation), DecodeError> {
    let head = file.fill_buf()?;
    if head.is_empty() {
        return Err(DecodeError::Empty);
    }
    let png_says = if head.starts_with(&PNG_SIGNATURE) { png_orientation(&mut file) } else { None };
    file.seek(SeekFrom::Start(0))?;

    let mut reader = ImageReader::new(file).with_guessed_format()?;
    let format: Option<ImageFormat> = reader.format();
    if format.is_none() {
        return Err(DecodeError::UnknownFormat);
    }
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE_PX);
    limits.max_image_height = Some(MAX_SIDE_PX);
    limits.max_alloc = Some(MAX_ALLOC_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let (width_px, height_px) = decoder.dimensions();
    let n_pixels = u64::from(width_px) * u64::from(height_px);
    if n_pixels > MAX_PIXELS || decoder.total_bytes() > MAX_ALLOC_BYTES {
        return Err(DecodeError::TooLarge { width_px, height_px });
    }
    let orientation = png_says.unwrap_or_else(|| stated_orientation(&mut decoder));
    Ok((decoder, orientation))
}

/// The orientation in the metadata; EXIF that cannot be parsed says nothing, and the pixels are still good.
fn stated_orientation(decoder: &mut impl ImageDecoder) -> Orientation {
    // Some writers keep JPEG's `Exif` prefix in a WebP's chunk, where the decoder does not look for it.
    let exif = decoder.exif_metadata().ok().flatten();
    let prefixed = exif.as_deref().and_then(|exif| exif.strip_prefix(b"Exif\0\0".as_slice()));
    let from_prefixed = prefixed.and_then(Orientation::from_exif_chunk);
    from_prefixed.or_else(|| decoder.orientation().ok()).unwrap_or(Orientation::NoTransforms)
}

/// Runs a decoder; a panic inside it becomes an error. Nothing it has touched outlives the call.
fn guarded<T>(decode: impl FnOnce() -> Result<T, DecodeError>) -> Result<T, DecodeError> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or(Err(DecodeError::Panicked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ImageBuffer, Luma, Rgba};

    fn saved(image: &DynamicImage, name: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        image.save_with_format(&path, ImageFormat::Png).unwrap();
        (folder, path)
    }

    #[test]
    fn alpha_is_dropped_and_the_content_decides_the_format() {
        let transparent = DynamicImage::ImageRgba8(ImageBuffer::from_pixel(12, 10, Rgba([200, 100, 50, 0])));
        let (_folder, path) = saved(&transparent, "a.jpg");
        let rgb = decode_rgb(&path).unwrap();
        assert_eq!(rgb.get_pixel(3, 3).0, [200, 100, 50], "not blended, and a PNG in spite of its name");
    }

    #[test]
    fn sixteen_bit_gray_becomes_rgb() {
        let gray = DynamicImage::ImageLuma16(ImageBuffer::from_pixel(12, 10, Luma([0x8080])));
        let (_folder, path) = saved(&gray, "a.png");
        assert_eq!(decode_rgb(&path).unwrap().get_pixel(0, 0).0, [0x80, 0x80, 0x80], "half of the range");
        let size = header_size(&path).unwrap();
        assert_eq!((size.width_px, size.height_px), (12, 10), "as stored");
    }

    #[test]
    fn files_that_are_no_images_are_named_for_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        std::fs::write(&path, b"").unwrap();
        assert!(matches!(decode_rgb(&path), Err(DecodeError::Empty)), "no bytes");
        std::fs::write(&path, [0; 4096]).unwrap();
        assert!(matches!(header_size(&path), Err(DecodeError::UnknownFormat)), "zeros");
        assert!(matches!(decode_rgb(&folder.path().join("b.png")), Err(DecodeError::Io(_))), "no file");
    }

    #[test]
    fn a_panicking_decoder_is_an_error() {
        let outcome = guarded(|| -> Result<(), DecodeError> { panic!("as a broken decoder would") });
        assert!(matches!(outcome, Err(DecodeError::Panicked)), "caught");
    }
}
