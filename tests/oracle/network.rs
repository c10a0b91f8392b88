//! Networks, images and labels by formula.

use std::f64::consts::PI;

use burn::prelude::*;
use fermata::geometry::{BoxXywhNorm, GroundTruth};
use fermata::model::{Detector, ModelConfig, Scale, replace_tensors};
use serde::Deserialize;

use crate::formula::{fnv1a64, s_hashed, u, u_hashed};

#[derive(Deserialize)]
pub struct LabelRow {
    pub batch_idx: usize,
    pub cls: usize,
    pub xyxy_px: [f64; 4],
    xywhn: [f32; 4],
}

/// Why a case cannot run: another family than this program has.
pub fn config(model: &str, n_classes: usize) -> Result<ModelConfig, String> {
    let scale = Scale::from_model_name(model).map_err(|_| format!("model family of {model} is not built yet"))?;
    Ok(ModelConfig::new(scale, n_classes))
}

/// The case's network with weights by formula.
pub fn build(config: &ModelConfig, tag: &str, gain: [f64; 3], device: &Device) -> Detector {
    let model = config.init(0, device);
    replace_tensors(model, &mut |spec| Some(formula_tensor(&spec.name, &spec.shape, tag, gain)))
}

pub fn formula_tensor(name: &str, shape: &[usize], tag: &str, gain: [f64; 3]) -> Vec<f32> {
    let hash = fnv1a64(&format!("{tag}{name}"));
    let n_values: usize = shape.iter().product();
    let bias_of = |branch: &str| (0..3).any(|level| name.ends_with(&format!(".{branch}.{level}.2.bias")));
    let value = |s: f64| -> f64 {
        if name.ends_with("running_mean") || name.ends_with(".bn.bias") {
            0.1 * s
        } else if name.ends_with("running_var") || name.ends_with(".bn.weight") || bias_of("cv2") {
            1.0 + 0.1 * s
        } else if bias_of("cv3") {
            -4.0 + 0.5 * s
        } else {
            let g = match (name.ends_with(".conv.weight"), name.contains(".m.")) {
                (false, _) => gain[2],
                (true, true) => gain[1],
                (true, false) => gain[0],
            };
            let fan_in: usize = shape[1..].iter().product();
            g * (1.0 / fan_in as f64).sqrt() * s
        }
    };
    (0..n_values as u64).map(|i| value(s_hashed(hash, i)) as f32).collect()
}

/// Pixels of `[n, 3, height, width]` from a stream of hashes.
pub fn hash_images(key: &str, shape: [usize; 4]) -> Vec<f32> {
    let hash = fnv1a64(key);
    (0..shape.iter().product::<usize>() as u64).map(|i| u_hashed(hash, i) as f32).collect()
}

/// One smooth image `[3, height, width]`.
pub fn smooth_image(n: usize, height: usize, width: usize) -> Vec<f64> {
    let mut pixels = Vec::with_capacity(3 * height * width);
    for c in 0..3 {
        for y in 0..height {
            for x in 0..width {
                let (xf, yf) = (x as f64 / width as f64, y as f64 / height as f64);
                let a = 2.0 * PI * ((1 + (n + c) % 3) as f64 * xf + (1 + n % 2) as f64 * yf)
                    + 0.9 * n as f64
                    + 2.1 * c as f64;
                let b = 2.0 * PI * ((2 + n % 4) as f64 * xf - (1 + c) as f64 * yf) + 0.5 * n as f64;
                let d = 0.7 * x as f64 + 1.3 * y as f64 + c as f64;
                pixels.push(0.5 + 0.25 * a.sin() + 0.15 * b.sin() + 0.1 * d.sin());
            }
        }
    }
    pixels
}

/// A smooth image with rectangles painted over it: (class, x1, y1, x2, y2) in pixels.
pub fn scene_image(n: usize, height: usize, width: usize, rectangles: &[(usize, [f64; 4])]) -> Vec<f32> {
    let mut pixels = smooth_image(n, height, width);
    for &(class_idx, [x1, y1, x2, y2]) in rectangles {
        for c in 0..3 {
            let colour = 0.5 * u("color", (3 * class_idx + c) as u64);
            for y in y1 as usize..y2 as usize {
                for x in x1 as usize..x2 as usize {
                    let pixel = &mut pixels[(c * height + y) * width + x];
                    *pixel = 0.5 * *pixel + colour;
                }
            }
        }
    }
    pixels.into_iter().map(|p| p as f32).collect()
}

/// The labels that the formula gives to image `n`.
pub fn formula_labels(
    labels_key: &str,
    n: usize,
    height: usize,
    width: usize,
    n_classes: usize,
) -> Vec<(usize, [f64; 4])> {
    let key = format!("{labels_key}/{n}");
    let count = 1 + (5.0 * u(&key, 0)).floor() as u64;
    (0..count)
        .map(|j| {
            let q = |k: u64| u(&key, 1 + 5 * j + k);
            let box_w = 18.0 + 2.0 * (q(0) * (width / 4) as f64).floor();
            let box_h = 18.0 + 2.0 * (q(1) * (height / 4) as f64).floor();
            let x1 = 1.0 + 2.0 * (q(2) * ((width as f64 - box_w) / 2.0).floor()).floor();
            let y1 = 1.0 + 2.0 * (q(3) * ((height as f64 - box_h) / 2.0).floor()).floor();
            ((q(4) * n_classes as f64).floor() as usize, [x1, y1, x1 + box_w, y1 + box_h])
        })
        .collect()
}

/// Ground truth by image from the listed labels.
pub fn ground_truth(labels: &[LabelRow], batch: usize, height: usize, width: usize) -> Vec<Vec<GroundTruth>> {
    let mut by_image = vec![Vec::new(); batch];
    for label in labels {
        let [cx, cy, w, h] = label.xywhn.map(f64::from);
        let norm = BoxXywhNorm { cx, cy, w, h };
        by_image[label.batch_idx].push(GroundTruth::from_norm(label.cls, &norm, width, height));
    }
    by_image
}

pub fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().expect("f32 tensor")
}
