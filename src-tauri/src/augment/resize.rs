//! Bilinear resizing of 8-bit images with the very integers of OpenCV.
//!
//! Written after the description of `cv2.resize(.., INTER_LINEAR)`: weights of 11 bits, no smoothing when shrinking, and
//! the average of four pixels when both sides are exactly halved. Integers only, so every machine gives the same bytes.

use image::RgbImage;

use super::letterbox::SizePx;

/// Weights are multiples of 1 / 2048.
const WEIGHT_ONE: f32 = 2048.0;

/// The image at another size; a copy when the size is the same.
pub fn resize_bilinear(image: &RgbImage, size: SizePx) -> RgbImage {
    let source = SizePx::of(image);
    if source == size {
        return image.clone();
    }
    if [source.width, source.height, size.width, size.height].contains(&0) {
        return RgbImage::new(size.width, size.height);
    }
    if source.width == 2 * size.width && source.height == 2 * size.height {
        return halved(image, size);
    }
    interpolated(image, size)
}

/// One output position along an axis: the two source positions it lies between and their weights.
struct Tap {
    low: usize,
    high: usize,
    low_weight: i32,
    high_weight: i32,
}

fn interpolated(image: &RgbImage, size: SizePx) -> RgbImage {
    let columns = column_taps(image.width() as usize, size.width as usize);
    let rows = row_taps(image.height() as usize, size.height as usize);
    let source_stride = 3 * image.width() as usize;
    let stride = 3 * size.width as usize;
    let mut resized = RgbImage::new(size.width, size.height);
    // The two source rows in use, already resized along x; `None` before the first.
    let mut low_row = (None, vec![0i32; stride]);
    let mut high_row = (None, vec![0i32; stride]);
    for (row, tap) in resized.chunks_exact_mut(stride).zip(&rows) {
        if high_row.0 == Some(tap.low) {
            std::mem::swap(&mut low_row, &mut high_row);
        }
        for (held, wanted) in [(&mut low_row, tap.low), (&mut high_row, tap.high)] {
            if held.0 != Some(wanted) {
                resize_row(&image.as_raw()[wanted * source_stride..][..source_stride], &columns, &mut held.1);
                held.0 = Some(wanted);
            }
        }
        for ((value, low), high) in row.iter_mut().zip(&low_row.1).zip(&high_row.1) {
            *value = blended(*low, *high, tap);
        }
    }
    resized
}

fn resize_row(source: &[u8], columns: &[Tap], row: &mut [i32]) {
    for (pixel, tap) in row.chunks_exact_mut(3).zip(columns) {
        let low = &source[3 * tap.low..][..3];
        let high = &source[3 * tap.high..][..3];
        for channel in 0..3 {
            pixel[channel] = low[channel] as i32 * tap.low_weight + high[channel] as i32 * tap.high_weight;
        }
    }
}

/// Rounds in the two places in which OpenCV does, so that the result is the same to the bit.
fn blended(low: i32, high: i32, tap: &Tap) -> u8 {
    let low = (tap.low_weight * (low >> 4)) >> 16;
    let high = (tap.high_weight * (high >> 4)) >> 16;
    ((low + high + 2) >> 2).clamp(0, 255) as u8
}

fn column_taps(source_len: usize, len: usize) -> Vec<Tap> {
    positions(source_len, len)
        .map(|(low, fraction)| {
            let last = source_len as i64 - 1;
            // Beyond the edge pixels' centres the edge pixel alone counts.
            let (low, fraction) = if low < 0 {
                (0, 0.0)
            } else if low >= last {
                (last, 0.0)
            } else {
                (low, fraction)
            };
            tap(low, fraction, source_len)
        })
        .collect()
}

fn row_taps(source_len: usize, len: usize) -> Vec<Tap> {
    positions(source_len, len).map(|(low, fraction)| tap(low, fraction, source_len)).collect()
}

/// For each output position the source position left of its centre and how far right of that the centre lies.
fn positions(source_len: usize, len: usize) -> impl Iterator<Item = (i64, f32)> {
    let step = 1.0 / (len as f64 / source_len as f64);
    (0..len).map(move |idx| {
        let center = ((idx as f64 + 0.5) * step - 0.5) as f32;
        (center.floor() as i64, center - center.floor())
    })
}

fn tap(low: i64, fraction: f32, source_len: usize) -> Tap {
    let inside = |position: i64| position.clamp(0, source_len as i64 - 1) as usize;
    Tap {
        low: inside(low),
        high: inside(low + 1),
        low_weight: ((1.0 - fraction) * WEIGHT_ONE).round_ties_even() as i32,
        high_weight: (fraction * WEIGHT_ONE).round_ties_even() as i32,
    }
}

fn halved(image: &RgbImage, size: SizePx) -> RgbImage {
    let source_stride = 3 * image.width() as usize;
    let stride = 3 * size.width as usize;
    let mut resized = RgbImage::new(size.width, size.height);
    for (row, rows) in resized.chunks_exact_mut(stride).zip(image.as_raw().chunks_exact(2 * source_stride)) {
        let (top, bottom) = rows.split_at(source_stride);
        for ((pixel, top), bottom) in row.chunks_exact_mut(3).zip(top.chunks_exact(6)).zip(bottom.chunks_exact(6)) {
            for channel in 0..3 {
                let sum = [top[channel], top[channel + 3], bottom[channel], bottom[channel + 3]].map(u16::from);
                pixel[channel] = ((sum.iter().sum::<u16>() + 2) >> 2) as u8;
            }
        }
    }
    resized
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[u8]) -> RgbImage {
        RgbImage::from_fn(values.len() as u32, 1, |x, _| image::Rgb([values[x as usize]; 3]))
    }

    #[test]
    fn doubling_a_row_puts_quarters_between_its_pixels() {
        let doubled = resize_bilinear(&row(&[0, 100]), SizePx::new(4, 1));
        let reds: Vec<u8> = doubled.pixels().map(|pixel| pixel[0]).collect();
        assert_eq!(reds, [0, 25, 75, 100], "centres lie at -0.25, 0.25, 0.75 and 1.25 of the source");
    }

    #[test]
    fn halving_both_sides_averages_four_pixels() {
        let image = RgbImage::from_fn(2, 2, |x, y| image::Rgb([(10 * x + 20 * y) as u8; 3]));
        assert_eq!(resize_bilinear(&image, SizePx::new(1, 1)).get_pixel(0, 0)[0], 15, "mean of 0, 10, 20 and 30");
    }

    #[test]
    fn an_even_colour_stays_what_it_is() {
        let image = RgbImage::from_pixel(37, 53, image::Rgb([255, 114, 1]));
        let resized = resize_bilinear(&image, SizePx::new(24, 61));
        assert!(resized.pixels().all(|pixel| pixel.0 == [255, 114, 1]), "the weights add up to one");
    }
}
