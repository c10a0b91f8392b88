//! The whole loss: on head outputs by formula with gradients of the logits, and through the network with gradients of
//! every parameter.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::prelude::*;
use fermata::loss::{DetectionLoss, LossGains, LossItems};
use fermata::model::{Detector, HeadOutput, REG_MAX, STRIDES};
use fermata::trainer::gradients::NamedGradients;
use serde::Deserialize;

use crate::formula::{fnv1a64, s_hashed};
use crate::network::{LabelRow, build, config, formula_labels, ground_truth, scene_image, to_vec};
use crate::report::{Compared, Report};
use crate::summary::{Sample, Summary, largest_difference, relative};

#[derive(Deserialize)]
struct File {
    raw: Vec<Raw>,
    net: Vec<Net>,
}

#[derive(Deserialize)]
struct Raw {
    id: String,
    h: usize,
    w: usize,
    nc: usize,
    batch: usize,
    key: String,
    labels: Vec<LabelRow>,
    gains: Gains,
    loss_items_box_cls_dfl: [f64; 3],
    total_times_batch: f64,
    grad_boxes: LogitGradient,
    grad_scores: LogitGradient,
}

#[derive(Deserialize)]
struct Gains {
    #[serde(rename = "box")]
    box_gain: f64,
    cls: f64,
    dfl: f64,
}

#[derive(Deserialize)]
struct LogitGradient {
    summary: Summary,
    norm: f64,
    sample: Sample,
    #[serde(default)]
    nonzero: Vec<(usize, f64)>,
}

#[derive(Deserialize)]
struct Net {
    id: String,
    model: String,
    nc: usize,
    tag: String,
    gain: [f64; 3],
    h: usize,
    w: usize,
    scene_idx: Vec<usize>,
    labels_key: String,
    labels_override: bool,
    image_summary: Summary,
    labels: Vec<LabelRow>,
    loss_items_box_cls_dfl: [f64; 3],
    total: f64,
    grad_global_norm: f64,
    grad_norms: BTreeMap<String, (f64, f64)>,
    grad_samples: BTreeMap<String, Sample>,
}

pub fn run(dir: &Path, report: &mut Report) {
    let Some(file) = crate::read::<File>(dir, "loss.json", report) else { return };
    for case in &file.raw {
        report.case(&format!("loss/{}", case.id), compare_raw(case));
    }
    for case in &file.net {
        let name = format!("loss/{}", case.id);
        match config(&case.model, case.nc) {
            Ok(config) => {
                let model = build(&config, &case.tag, case.gain, &Device::flex()).train();
                report.case(&name, compare_net(case, &model));
            }
            Err(reason) => report.skip(&name, &reason),
        }
    }
}

/// The three items relative, each by itself.
pub fn compare_items(ours: &LossItems, theirs: &[f64; 3], tolerance: f64) -> Vec<Compared> {
    let ours = [ours.box_loss, ours.cls_loss, ours.dfl_loss];
    let names = ["box loss", "cls loss", "dfl loss"];
    (0..3).map(|i| Compared::new(names[i], relative(ours[i] as f64, theirs[i], 1e-3), tolerance)).collect()
}

fn compare_raw(case: &Raw) -> Vec<Compared> {
    let device = Device::flex().autodiff();
    let level_sizes: Vec<[usize; 2]> = STRIDES.iter().map(|s| [case.h / s, case.w / s]).collect();
    let n_points = level_sizes.iter().map(|[h, w]| h * w).sum();
    let logits = |stream: &str, channels: usize, offset: f64, amplitude: f64| {
        let hash = fnv1a64(&format!("{}/{stream}", case.key));
        let n_values = case.batch * channels * n_points;
        let values: Vec<f32> = (0..n_values as u64).map(|i| (offset + amplitude * s_hashed(hash, i)) as f32).collect();
        Tensor::<3>::from_data(TensorData::new(values, [case.batch, channels, n_points]), &device).require_grad()
    };
    let boxes = logits("boxes", 4 * REG_MAX, 0.0, 2.0);
    let scores = logits("cls", case.nc, -3.0, 3.0);
    let output = HeadOutput { box_logits: boxes.clone(), class_logits: scores.clone(), level_sizes };
    let gains = LossGains { box_gain: case.gains.box_gain, cls_gain: case.gains.cls, dfl_gain: case.gains.dfl };
    let loss = DetectionLoss::new(gains).forward(&output, &ground_truth(&case.labels, case.batch, case.h, case.w));
    let gradients = loss.total.backward();

    let mut compared = compare_items(&LossItems::read(loss.items), &case.loss_items_box_cls_dfl, 1e-5);
    compared.push(Compared::new("total", relative(to_vec(loss.total)[0] as f64, case.total_times_batch, 1.0), 1e-5));
    for (what, logits, theirs) in [("boxes", boxes, &case.grad_boxes), ("scores", scores, &case.grad_scores)] {
        let shape = logits.dims();
        let ours = logits.grad(&gradients).map_or_else(|| vec![0.0; shape.iter().product()], to_vec);
        let norm = ours.iter().map(|&g| (g as f64).powi(2)).sum::<f64>().sqrt();
        compared.push(Compared::new(format!("gradient norm of {what}"), relative(norm, theirs.norm, 1.0), 1e-5));
        compared.push(Compared::new(format!("gradient samples of {what}"), theirs.sample.largest_error(&ours), 2e-6));
        let nonzero = largest_difference(theirs.nonzero.iter().map(|&(i, g)| (g, ours[i])));
        compared.push(Compared::new(format!("nonzero gradients of {what}"), nonzero, 2e-6));
        compared.extend(theirs.summary.compare(&format!("gradient of {what}"), &shape, &ours, 1.0, 2e-6));
    }
    compared
}

fn compare_net(case: &Net, model: &Detector) -> Vec<Compared> {
    let images: Vec<f32> = case
        .scene_idx
        .iter()
        .enumerate()
        .flat_map(|(b, &n)| {
            // The picture shows the formula's labels, also where the loss is given others.
            let painted = match case.labels_override {
                true => formula_labels(&case.labels_key, n, case.h, case.w, case.nc),
                false => case.labels.iter().filter(|l| l.batch_idx == b).map(|l| (l.cls, l.xyxy_px)).collect(),
            };
            scene_image(n, case.h, case.w, &painted)
        })
        .collect();
    let shape = [case.scene_idx.len(), 3, case.h, case.w];
    let mut compared = case.image_summary.compare("image", &shape, &images, 1.0, 1e-6);

    let output = model.forward(Tensor::from_data(TensorData::new(images, shape), &Device::flex()));
    let boxes = ground_truth(&case.labels, shape[0], case.h, case.w);
    let loss = DetectionLoss::new(LossGains::default()).forward(&output, &boxes);
    let total = to_vec(loss.total.clone().inner())[0] as f64;
    let gradients = NamedGradients::take(model, &mut loss.total.backward());

    compared.extend(compare_items(&LossItems::read(loss.items), &case.loss_items_box_cls_dfl, 5e-4));
    compared.push(Compared::new("total", relative(total, case.total, 1.0), 5e-4));
    compared.push(Compared::new(
        "global gradient norm",
        relative(gradients.global_norm(), case.grad_global_norm, 1e-9),
        2e-3,
    ));
    for (name, &(theirs, _)) in case.grad_norms.iter().filter(|(_, (norm, _))| *norm > 1e-6 * case.grad_global_norm) {
        let ours = gradients.get(name).map_or(f64::NAN, |g| norm(&to_vec(g.clone())));
        compared.push(Compared::new(format!("gradient norm of {name}"), relative(ours, theirs, 1e-9), 2e-3));
    }
    for (name, sample) in &case.grad_samples {
        let Some(ours) = gradients.get(name).map(|g| to_vec(g.clone())) else { continue };
        let scale = norm(&ours) / (ours.len() as f64).sqrt();
        if scale > 0.0 {
            compared.push(Compared::new(
                format!("gradient samples of {name}"),
                sample.largest_error(&ours) / scale,
                1e-2,
            ));
        }
    }
    compared
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&v| (v as f64).powi(2)).sum::<f64>().sqrt()
}
