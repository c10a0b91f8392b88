//! Every layer's output, the head's logits and the decoded boxes, with running and with batch statistics.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::Module;
use burn::prelude::*;
use fermata::model::{Detector, HeadOutput, decode_detections, export_tensors};
use serde::Deserialize;

use crate::network::{build, config, hash_images, smooth_image, to_vec};
use crate::report::{Compared, Report};
use crate::summary::{Summary, largest_difference, nan_max};

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    model: String,
    nc: usize,
    tag: String,
    gain: [f64; 3],
    input: Input,
    eval: Pass,
    train: Pass,
}

#[derive(Deserialize)]
struct Input {
    kind: String,
    shape: [usize; 4],
    key: Option<String>,
    smooth_idx: Option<Vec<usize>>,
    summary: Summary,
}

#[derive(Deserialize)]
struct Pass {
    layers: Vec<LayerOutput>,
    raw_levels: Vec<Level>,
    decoded: Option<Decoded>,
    bn_after_one_train_forward: Option<BTreeMap<String, Statistic>>,
}

#[derive(Deserialize)]
struct LayerOutput {
    i: usize,
    #[serde(flatten)]
    summary: Summary,
}

#[derive(Deserialize)]
struct Level {
    stride: f64,
    boxes: Summary,
    scores: Summary,
}

#[derive(Deserialize)]
struct Decoded {
    shape: [usize; 3],
    summary_boxes: Summary,
    summary_scores: Summary,
    samples: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    b: usize,
    a: usize,
    xywh: Vec<f64>,
    scores: Vec<f64>,
}

#[derive(Deserialize)]
struct Statistic {
    sum_sumsq: [f64; 2],
    first: Vec<f64>,
}

/// Tolerances of one pass: layers relative to their largest value, logits absolute.
struct Tolerance {
    layer: f64,
    logit: f64,
}

pub fn run(dir: &Path, report: &mut Report) {
    for name in ["forward.json", "forward_extra.json"] {
        let Some(file) = crate::read::<File>(dir, name, report) else { continue };
        for case in &file.cases {
            run_case(case, report);
        }
    }
}

fn run_case(case: &Case, report: &mut Report) {
    let name = format!("forward/{}", case.id);
    let config = match config(&case.model, case.nc) {
        Ok(config) => config,
        Err(reason) => return report.skip(&name, &reason),
    };
    let device = Device::flex();
    let images = images(&case.input);
    let mut compared = case.input.summary.compare("input", &case.input.shape, &images, 1.0, 1e-6);
    let images = Tensor::<4>::from_data(TensorData::new(images, case.input.shape), &device);

    let model = build(&config, &case.tag, case.gain, &device);
    compared.extend(compare_pass(&case.eval, &model, images.clone(), &Tolerance { layer: 2e-5, logit: 1e-4 }));
    report.case(&format!("{name}/eval"), compared);

    let model = model.train();
    let mut compared = compare_pass(&case.train, &model, images, &Tolerance { layer: 2e-4, logit: 2e-3 });
    compared.extend(compare_statistics(&case.train, &model));
    report.case(&format!("{name}/train"), compared);
}

fn images(input: &Input) -> Vec<f32> {
    let [n, _, height, width] = input.shape;
    match (input.kind.as_str(), &input.key, &input.smooth_idx) {
        ("hash", Some(key), _) => hash_images(key, input.shape),
        (_, _, Some(indices)) => {
            indices.iter().take(n).flat_map(|&i| smooth_image(i, height, width)).map(|p| p as f32).collect()
        }
        _ => Vec::new(),
    }
}

fn compare_pass(expected: &Pass, model: &Detector, images: Tensor<4>, tolerance: &Tolerance) -> Vec<Compared> {
    let mut outputs = BTreeMap::new();
    let head = model.forward_observed(images, &mut |i, output| {
        outputs.insert(i, (output.dims(), to_vec(output.clone())));
    });
    let mut compared = Vec::new();
    for layer in &expected.layers {
        let what = format!("layer {}", layer.i);
        match outputs.get(&layer.i) {
            Some((shape, values)) => {
                let scale = layer.summary.absmax().max(f64::MIN_POSITIVE);
                compared.extend(layer.summary.compare(&what, shape, values, scale, tolerance.layer));
            }
            None => compared.push(Compared::equal(what, false, true)),
        }
    }
    compared.extend(compare_levels(expected, &head, tolerance));
    if let Some(decoded) = &expected.decoded {
        compared.extend(compare_decoded(decoded, &head));
    }
    compared
}

fn compare_levels(expected: &Pass, head: &HeadOutput, tolerance: &Tolerance) -> Vec<Compared> {
    let mut compared = Vec::new();
    let mut start = 0;
    for (level, &[height, width]) in expected.raw_levels.iter().zip(&head.level_sizes) {
        for (what, expected, logits) in
            [("boxes", &level.boxes, &head.box_logits), ("scores", &level.scores, &head.class_logits)]
        {
            let part = logits.clone().narrow(2, start, height * width);
            let [batch, channels, _] = part.dims();
            let what = format!("stride {} {what}", level.stride);
            compared.extend(expected.compare(
                &what,
                &[batch, channels, height, width],
                &to_vec(part),
                1.0,
                tolerance.logit,
            ));
        }
        start += height * width;
    }
    compared
}

fn compare_decoded(expected: &Decoded, head: &HeadOutput) -> Vec<Compared> {
    let decoded = decode_detections(head);
    let [batch, rows, n_points] = decoded.dims();
    let boxes = to_vec(decoded.clone().narrow(1, 0, 4));
    let scores = to_vec(decoded.clone().narrow(1, 4, rows - 4));
    let values = to_vec(decoded);
    let mut compared = vec![Compared::equal("decoded shape", [batch, rows, n_points], expected.shape)];
    compared.extend(expected.summary_boxes.compare("decoded boxes", &[batch, 4, n_points], &boxes, 1.0, 5e-3));
    compared.extend(expected.summary_scores.compare(
        "decoded scores",
        &[batch, rows - 4, n_points],
        &scores,
        1.0,
        2e-5,
    ));
    let column = |point: &Point, from: usize, theirs: &[f64]| {
        largest_difference(
            theirs.iter().enumerate().map(|(row, &v)| (v, values[(point.b * rows + from + row) * n_points + point.a])),
        )
    };
    let box_error = expected.samples.iter().map(|p| column(p, 0, &p.xywh)).fold(0.0, nan_max);
    let score_error = expected.samples.iter().map(|p| column(p, 4, &p.scores)).fold(0.0, nan_max);
    compared.push(Compared::new("sampled boxes", box_error, 5e-3));
    compared.push(Compared::new("sampled scores", score_error, 2e-5));
    compared
}

fn compare_statistics(expected: &Pass, model: &Detector) -> Vec<Compared> {
    let Some(statistics) = &expected.bn_after_one_train_forward else { return Vec::new() };
    let tensors: BTreeMap<_, _> = export_tensors(model).into_iter().map(|t| (t.name, t.values)).collect();
    statistics
        .iter()
        .map(|(name, theirs)| {
            let Some(ours) = tensors.get(name) else { return Compared::equal(name, false, true) };
            let sum: f64 = ours.iter().map(|&v| v as f64).sum();
            let sumsq: f64 = ours.iter().map(|&v| (v as f64).powi(2)).sum();
            let first = largest_difference(theirs.first.iter().zip(ours).map(|(&a, &b)| (a, b)));
            // Sums are compared by their mean, so that the tolerance stays one of single values.
            let n = ours.len() as f64;
            let sums = ((sum - theirs.sum_sumsq[0]).abs() / n).max((sumsq - theirs.sum_sumsq[1]).abs() / n);
            Compared::new(name, nan_max(first, sums), 1e-5)
        })
        .collect()
}
