//! Letterbox geometry and pixels, rectangular batches and bilinear resizing against `letterbox.json`.

use std::path::Path;

use fermata::augment::{Letterbox, RectConfig, SizePx, fit_gain, loaded_size, rect_batches, resize_bilinear};
use fermata::geometry::BoxXywhNorm;
use image::{Rgb, RgbImage};
use serde_json::Value;

use crate::formula::{fnv1a64, u_hashed};
use crate::report::{Compared, Report};

/// Largest difference of a pixel, 0..=255.
const PIXEL_TOLERANCE: f64 = 1.0;
/// Largest difference of a channel's mean.
const MEAN_TOLERANCE: f64 = 0.05;
/// Relative; letterbox ratios are printed with 12 digits, those of the dataset with 9. Boxes are computed in f32.
const RATIO_TOLERANCE: f64 = 1e-9;
const DATASET_RATIO_TOLERANCE: f64 = 1e-8;
const BOX_TOLERANCE: f64 = 1e-6;
/// The label that every image of the file carries.
const LABEL: BoxXywhNorm = BoxXywhNorm { cx: 0.5, cy: 0.5, w: 0.5, h: 0.25 };
/// The stride of the `predict_auto` cases.
const PREDICT_STRIDE: u32 = 32;

/// A case's comparisons, or what in the file could not be read.
type Outcome = Result<Vec<Compared>, String>;

/// Runs every case of `letterbox.json` in `dir`.
pub fn run(dir: &Path, report: &mut Report) {
    let Some(file) = crate::read::<Value>(dir, "letterbox.json", report) else { return };
    for (section, compare) in
        [("cases", compare_case as fn(&Value) -> Outcome), ("rect", compare_rect), ("resize", compare_resize)]
    {
        let Some(cases) = file[section].as_array() else {
            report.broken(&format!("letterbox {section}"), "section is missing");
            continue;
        };
        for (case_idx, case) in cases.iter().enumerate() {
            let name = format!("letterbox {section}[{case_idx}]");
            match compare(case) {
                Ok(compared) => report.case(&name, compared),
                Err(reason) => report.broken(&name, &reason),
            }
        }
    }
}

fn compare_case(case: &Value) -> Outcome {
    let original = size_hw(&case["hw"])?;
    let imgsz = whole(&case["imgsz"])?;
    let image = formula_image(original, case["key"].as_str());
    let mut compared = vec![equal_crc("source crc", &image, &case["source"])?];

    let loaded = resize_bilinear(&image, loaded_size(original, imgsz));
    let square = SizePx::square(imgsz);
    let val = Letterbox::fit_down(SizePx::of(&loaded), square);
    let expected = &case["val_square"];
    compared.push(Compared::equal("val load size", SizePx::of(&loaded), size_hw(&expected["load_image_hw"])?));
    compare_geometry("val", &val, fit_gain(SizePx::of(&loaded), square).min(1.0), expected, &mut compared)?;
    compare_pixels("val", &val.apply(&loaded), &expected["pixels"], &mut compared)?;
    compare_label("val", &val, &expected["label_xywhn_0.5_0.5_0.5_0.25_becomes"], &mut compared)?;

    let gain = fit_gain(original, square);
    let direct = Letterbox::fit(original, square);
    compare_geometry("direct", &direct, gain, &case["direct_square"], &mut compared)?;
    compare_pixels("direct", &direct.apply(&image), &case["direct_square"]["pixels"], &mut compared)?;

    let minimal = Letterbox::minimal(original, imgsz, PREDICT_STRIDE);
    compare_geometry("predict", &minimal, gain, &case["predict_auto"], &mut compared)?;
    compare_pixels("predict", &minimal.apply(&image), &case["predict_auto"]["pixels"], &mut compared)?;

    let small = Letterbox::fit_down(original, square);
    compare_geometry("no scale-up", &small, gain.min(1.0), &case["direct_no_scaleup"], &mut compared)?;
    Ok(compared)
}

fn compare_rect(case: &Value) -> Outcome {
    let sizes = list(&case["sizes"])?.iter().map(size_hw).collect::<Result<Vec<_>, _>>()?;
    let config = RectConfig {
        imgsz: whole(&case["imgsz"])?,
        batch: whole(&case["batch"])? as usize,
        stride: whole(&case["stride"])?,
        pad: number(&case["pad"])?,
    };
    let batches = rect_batches(&sizes, &config);
    let canvases = list(&case["batch_shapes_hw"])?.iter().map(size_hw).collect::<Result<Vec<_>, _>>()?;
    let mut compared = vec![Compared::equal("canvases", batches.iter().map(|batch| batch.canvas).collect(), canvases)];

    let placed = batches.iter().enumerate().flat_map(|(batch_idx, batch)| {
        batch.sample_idxs.iter().map(move |&sample_idx| (batch_idx, batch.canvas, sample_idx))
    });
    let expected = list(&case["images_sorted"])?;
    compared.push(Compared::equal("images", sizes.len(), expected.len()));
    for ((batch_idx, canvas, sample_idx), expected) in placed.zip(expected) {
        let name = format!("image {sample_idx}");
        compared.push(Compared::equal(format!("{name} order"), sample_idx, whole(&expected["file_index"])? as usize));
        compared.push(Compared::equal(format!("{name} batch"), batch_idx, whole(&expected["batch"])? as usize));
        let original = sizes[sample_idx];
        let image = formula_image(original, None);
        let loaded = resize_bilinear(&image, loaded_size(original, config.imgsz));
        let letterbox = Letterbox::fit_down(SizePx::of(&loaded), canvas).seen_from(original);
        compared.push(Compared::equal(
            format!("{name} load size"),
            SizePx::of(&loaded),
            size_hw(&expected["load_image_hw"])?,
        ));
        compared.push(Compared::equal(format!("{name} canvas"), letterbox.canvas(), size_hw(&expected["final_hw"])?));
        compare_ratio_pad(&name, &letterbox, &expected["ratio_pad"], &mut compared)?;
        compare_pixels(&name, &letterbox.apply(&loaded), &expected["pixels"], &mut compared)?;
        compare_label(&name, &letterbox, &expected["bbox"], &mut compared)?;
    }
    Ok(compared)
}

fn compare_resize(case: &Value) -> Outcome {
    let image = formula_image(size_hw(&case["hw"])?, case["key"].as_str());
    let resized = resize_bilinear(&image, size_hw(&case["to_hw"])?);
    let mut compared = Vec::new();
    compare_pixels("resized", &resized, &case["inter_linear"], &mut compared)?;
    let Some(rows) = case["full_inter_linear"].as_array() else { return Ok(compared) };
    let mut values = Vec::new();
    for pixel in rows.iter().flat_map(|row| row.as_array().into_iter().flatten()) {
        for value in list(pixel)? {
            values.push(number(value)?);
        }
    }
    compared.push(Compared::equal("number of values", resized.as_raw().len(), values.len()));
    let errors = resized.as_raw().iter().zip(&values).map(|(ours, theirs)| (*ours as f64 - theirs).abs());
    compared.push(Compared::new("every pixel", errors.fold(0.0, f64::max), PIXEL_TOLERANCE));
    Ok(compared)
}

fn compare_geometry(
    name: &str,
    letterbox: &Letterbox,
    gain: f64,
    expected: &Value,
    compared: &mut Vec<Compared>,
) -> Result<(), String> {
    let ratio = number(&expected["ratio"])?;
    compared.push(Compared::new(format!("{name} ratio"), (gain - ratio).abs() / ratio, RATIO_TOLERANCE));
    let [width, height] = pair(&expected["new_wh"])?;
    let resized = [letterbox.resized.width as f64, letterbox.resized.height as f64];
    compared.push(Compared::equal(format!("{name} size"), resized, [width, height]));
    for (side, ours) in [
        ("left", letterbox.left_px),
        ("top", letterbox.top_px),
        ("right", letterbox.right_px),
        ("bottom", letterbox.bottom_px),
    ] {
        compared.push(Compared::equal(format!("{name} {side}"), ours, whole(&expected[side])?));
    }
    Ok(())
}

/// `[[ratio along y, ratio along x], [left, top]]`; null where the dataset gave none.
fn compare_ratio_pad(
    name: &str,
    letterbox: &Letterbox,
    expected: &Value,
    compared: &mut Vec<Compared>,
) -> Result<(), String> {
    if expected.is_null() {
        return Ok(());
    }
    let [ratio_y, ratio_x] = pair(&expected[0])?;
    let ratio = |resized: u32, original: u32| resized as f64 / original as f64;
    let error_y = ratio(letterbox.resized.height, letterbox.original.height) / ratio_y - 1.0;
    let error_x = ratio(letterbox.resized.width, letterbox.original.width) / ratio_x - 1.0;
    compared.push(Compared::new(format!("{name} ratios"), error_y.abs().max(error_x.abs()), DATASET_RATIO_TOLERANCE));
    let pads = [letterbox.left_px as f64, letterbox.top_px as f64];
    compared.push(Compared::equal(format!("{name} pads"), pads, pair(&expected[1])?));
    Ok(())
}

fn compare_pixels(name: &str, image: &RgbImage, expected: &Value, compared: &mut Vec<Compared>) -> Result<(), String> {
    compared.push(Compared::equal(format!("{name} image size"), SizePx::of(image), size_hw(&expected["shape_hw"])?));
    let mut sums = [0u64; 3];
    for pixel in image.pixels() {
        for channel in 0..3 {
            sums[channel] += pixel[channel] as u64;
        }
    }
    let n_pixels = image.pixels().len() as f64;
    for (channel, expected) in list(&expected["sum_per_channel"])?.iter().enumerate().take(3) {
        let error = (sums[channel] as f64 - number(expected)?).abs() / n_pixels;
        compared.push(Compared::new(format!("{name} mean of channel {channel}"), error, MEAN_TOLERANCE));
    }
    for sample in list(&expected["samples_y_x_c0_c1_c2"])? {
        let (y, x) = (whole(&sample[0])?, whole(&sample[1])?);
        let Some(pixel) = image.get_pixel_checked(x, y) else {
            return Err(format!("{name}: pixel ({x}, {y}) lies outside our image"));
        };
        for channel in 0..3 {
            let error = (pixel[channel] as f64 - number(&sample[2 + channel])?).abs();
            compared.push(Compared::new(format!("{name} pixel ({x}, {y})"), error, PIXEL_TOLERANCE));
        }
    }
    Ok(())
}

fn compare_label(
    name: &str,
    letterbox: &Letterbox,
    expected: &Value,
    compared: &mut Vec<Compared>,
) -> Result<(), String> {
    let ours = letterbox.norm_to_canvas(&LABEL);
    for (idx, ours) in [ours.cx, ours.cy, ours.w, ours.h].into_iter().enumerate() {
        let error = (ours - number(&expected[0][idx])?).abs();
        compared.push(Compared::new(format!("{name} label[{idx}]"), error, BOX_TOLERANCE));
    }
    Ok(())
}

/// The hash image of `key`, or the smooth image number 0 without a key, as bytes.
fn formula_image(size: SizePx, key: Option<&str>) -> RgbImage {
    let (width, height) = (size.width as u64, size.height as u64);
    let hash = key.map(fnv1a64);
    RgbImage::from_fn(size.width, size.height, |x, y| {
        let channel = |channel: u64| {
            let value = match hash {
                // The generator's hash image is f32.
                Some(hash) => u_hashed(hash, (channel * height + y as u64) * width + x as u64) as f32 as f64,
                None => smooth(channel, x as f64 / width as f64, y as f64 / height as f64, [x as f64, y as f64]),
            };
            (255.0 * value + 0.5).floor().clamp(0.0, 255.0) as u8
        };
        Rgb([channel(0), channel(1), channel(2)])
    })
}

fn smooth(channel: u64, across: f64, down: f64, [x, y]: [f64; 2]) -> f64 {
    let turn = std::f64::consts::TAU;
    let c = channel as f64;
    let a = turn * ((1 + channel % 3) as f64 * across + down) + 2.1 * c;
    let b = turn * (2.0 * across - (1.0 + c) * down);
    let d = 0.7 * x + 1.3 * y + c;
    0.5 + 0.25 * a.sin() + 0.15 * b.sin() + 0.1 * d.sin()
}

fn equal_crc(name: &str, image: &RgbImage, expected: &Value) -> Result<Compared, String> {
    Ok(Compared::equal(name, crc32(image.as_raw()), whole(&expected["crc32_hwc"])?))
}

/// CRC-32 of zip and PNG, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u32, |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    });
    !bytes.iter().fold(!0, |crc: u32, byte| (crc >> 8) ^ table[((crc ^ *byte as u32) & 0xff) as usize])
}

fn list(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("{value} is no list"))
}

fn number(value: &Value) -> Result<f64, String> {
    value.as_f64().ok_or_else(|| format!("{value} is no number"))
}

fn whole(value: &Value) -> Result<u32, String> {
    value.as_u64().and_then(|whole| u32::try_from(whole).ok()).ok_or_else(|| format!("{value} is no whole number"))
}

fn pair(value: &Value) -> Result<[f64; 2], String> {
    Ok([number(&value[0])?, number(&value[1])?])
}

fn size_hw(value: &Value) -> Result<SizePx, String> {
    Ok(SizePx::new(whole(&value[1])?, whole(&value[0])?))
}
