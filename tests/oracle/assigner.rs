//! The task-aligned assigner, CIoU and its gradient, and the distribution focal loss, on explicit and formula inputs.

use std::collections::BTreeMap;
use std::path::Path;

use burn::prelude::*;
use fermata::geometry::{BoxXyxyPx, GroundTruth};
use fermata::loss::{Assigner, Candidates, box_ciou, complete_iou, distances_to_sides, distribution_focal_loss};
use fermata::model::{AnchorPoints, REG_MAX, STRIDES, corners_from_distances, distances_from_logits};
use serde::Deserialize;

use crate::formula::{fnv1a64, s_hashed, u_hashed};
use crate::network::to_vec;
use crate::report::{Compared, Report};
use crate::summary::{Sample, Summary, largest_difference, nan_max, relative};

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
    iou: Vec<Iou>,
    dfl: Vec<Dfl>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    key: String,
    h: usize,
    w: usize,
    nc: usize,
    gt: Vec<Vec<[f64; 5]>>,
    topk: usize,
    n_anchors: usize,
    fg: Vec<Foreground>,
    target_scores_sum: f64,
}

#[derive(Deserialize)]
struct Foreground {
    b: usize,
    a: usize,
    gt: usize,
    label: usize,
    score: f64,
}

#[derive(Deserialize)]
struct Iou {
    key: String,
    box1: Vec<[f32; 4]>,
    box2: Vec<[f32; 4]>,
    ciou: Vec<f64>,
    dciou_dbox1: Vec<[f64; 4]>,
    dciou_dbox1_f64: Vec<[f64; 4]>,
    iou_box_iou: Vec<f64>,
}

#[derive(Deserialize)]
struct Dfl {
    key: String,
    n: usize,
    amp: f64,
    targets: Vec<[f32; 4]>,
    loss_rows: Vec<f64>,
    grad_of_sum: Gradient,
    expected_dist: Vec<[f64; 4]>,
    dist2bbox_xyxy: Vec<[f64; 4]>,
    bbox2dist_regmax15_of_box_shifted: Vec<[f64; 4]>,
}

#[derive(Deserialize)]
struct Gradient {
    summary: Summary,
    sample: Sample,
}

/// Foreground entries with a smaller score answer for a box by the order of equal metrics alone.
const SMALLEST_SCORE: f64 = 1e-6;

pub fn run(dir: &Path, report: &mut Report) {
    let Some(file) = crate::read::<File>(dir, "assigner.json", report) else { return };
    for case in &file.cases {
        report.case(&format!("assigner/{}", case.id), compare_assignment(case));
    }
    for case in &file.iou {
        report.case(&format!("assigner/iou/{}", case.key), compare_iou(case));
    }
    for case in &file.dfl {
        report.case(&format!("assigner/dfl/{}", case.key), compare_dfl(case));
    }
}

fn compare_assignment(case: &Case) -> Vec<Compared> {
    let sizes = STRIDES.map(|stride| [case.h / stride, case.w / stride]);
    let points = AnchorPoints::new(&sizes);
    let n_points = points.len();
    let centres_px: Vec<[f32; 2]> =
        points.xy_grid.iter().zip(&points.stride_px).map(|(xy, s)| [xy[0] * s, xy[1] * s]).collect();
    let (score_key, distance_key) = (fnv1a64(&format!("{}/scores", case.key)), fnv1a64(&format!("{}/dist", case.key)));
    let assigner = Assigner { top_k: case.topk, ..Assigner::default() };

    let mut ours = BTreeMap::new();
    for (b, rows) in case.gt.iter().enumerate() {
        let at = |a: usize| (b * n_points + a) as u64;
        let score = |k: usize, a: usize| (0.9 * u_hashed(score_key, at(a) * case.nc as u64 + k as u64).powi(2)) as f32;
        let class_scores: Vec<f32> = (0..case.nc).flat_map(|k| (0..n_points).map(move |a| score(k, a))).collect();
        let boxes_px: Vec<BoxXyxyPx> = (0..n_points)
            .map(|a| {
                let d = |j| (0.5 + 3.5 * u_hashed(distance_key, at(a) * 4 + j)) * points.stride_px[a] as f64;
                let [x, y] = centres_px[a].map(f64::from);
                BoxXyxyPx::new((x - d(0)) as f32, (y - d(1)) as f32, (x + d(2)) as f32, (y + d(3)) as f32)
            })
            .collect();
        // Rows whose coordinates do not add up to something positive are padding by the reference's rule.
        let valid: Vec<(usize, GroundTruth)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row[1..].iter().sum::<f64>() > 0.0)
            .map(|(i, row)| {
                (i, GroundTruth { class_idx: row[0] as usize, box_px: box_of(&[1, 2, 3, 4].map(|j| row[j] as f32)) })
            })
            .collect();
        let boxes: Vec<GroundTruth> = valid.iter().map(|(_, gt)| *gt).collect();
        let candidates = Candidates { class_scores: &class_scores, boxes_px: &boxes_px, centres_px: &centres_px };
        for assignment in assigner.assign(&candidates, &boxes) {
            let (row, gt) = valid[assignment.gt_idx];
            ours.insert((b, assignment.point_idx), (row, gt.class_idx, assignment.score as f64));
        }
    }
    ours.retain(|_, (_, _, score)| *score > SMALLEST_SCORE);

    let theirs: BTreeMap<_, _> =
        case.fg.iter().filter(|f| f.score > SMALLEST_SCORE).map(|f| ((f.b, f.a), (f.gt, f.label, f.score))).collect();
    let who = |map: &BTreeMap<(usize, usize), (usize, usize, f64)>| -> Vec<_> {
        map.iter().map(|(at, x)| (*at, x.0, x.1)).collect()
    };
    let worst = theirs.iter().filter_map(|(at, x)| Some((ours.get(at)?.2 - x.2).abs())).fold(0.0, nan_max);
    let sum: f64 = ours.values().map(|x| x.2).sum();
    vec![
        Compared::equal("points", n_points, case.n_anchors),
        Compared::equal("foreground points, boxes and classes", who(&ours), who(&theirs)),
        Compared::new("scores", worst, 1e-5),
        Compared::new("sum of scores", relative(sum, case.target_scores_sum, 1.0), 1e-5),
    ]
}

fn box_of(sides: &[f32; 4]) -> BoxXyxyPx {
    BoxXyxyPx::new(sides[0], sides[1], sides[2], sides[3])
}

/// Rows of four as a tensor `[1, 4, n]`.
fn columns(rows: &[[f32; 4]], device: &Device) -> Tensor<3> {
    let flat: Vec<f32> = (0..4).flat_map(|side| rows.iter().map(move |row| row[side])).collect();
    Tensor::from_data(TensorData::new(flat, [1, 4, rows.len()]), device)
}

/// A tensor `[1, 4, n]` as rows of four.
fn rows(tensor: Tensor<3>) -> Vec<[f32; 4]> {
    let n = tensor.dims()[2];
    let values = to_vec(tensor);
    (0..n).map(|i| [0, 1, 2, 3].map(|side| values[side * n + i])).collect()
}

fn worst_of_rows(theirs: &[[f64; 4]], ours: &[[f32; 4]]) -> f64 {
    largest_difference(theirs.iter().flatten().copied().zip(ours.iter().flatten().copied()))
}

fn compare_iou(case: &Iou) -> Vec<Compared> {
    let device = Device::flex().autodiff();
    let predicted = columns(&case.box1, &device).require_grad();
    let ciou = complete_iou(predicted.clone(), columns(&case.box2, &device));
    let gradients = ciou.clone().sum().backward();
    let gradient = rows(predicted.grad(&gradients).expect("a leaf's gradient"));
    let ciou = to_vec(ciou);
    let worst = |ours: &[f64], theirs: &[f64]| {
        ours.iter().zip(theirs).map(|(&o, &t)| ((o - t).abs() - 1e-6).max(0.0) / t.abs().max(1e-3)).fold(0.0, nan_max)
    };
    let tensor_form: Vec<f64> = ciou.iter().map(|&v| v as f64).collect();
    let pairs = || case.box1.iter().zip(&case.box2);
    let plain_form: Vec<f64> = pairs().map(|(a, b)| box_ciou(&box_of(a), &box_of(b)) as f64).collect();
    let iou: Vec<f64> = pairs().map(|(a, b)| fermata::geometry::iou(&box_of(a), &box_of(b)) as f64).collect();
    // Where the reference's own f32 and f64 gradients differ, its difference is the measure of what f32 can tell.
    let gradient_error = gradient
        .iter()
        .zip(case.dciou_dbox1.iter().zip(&case.dciou_dbox1_f64))
        .flat_map(|(ours, (theirs, exact))| (0..4).map(move |j| (ours[j] as f64, theirs[j], exact[j])))
        .map(|(ours, theirs, exact)| (ours - theirs).abs() / theirs.abs().max(1e-2).max(1e5 * (theirs - exact).abs()))
        .fold(0.0, nan_max);
    vec![
        Compared::new("CIoU, tensor form", worst(&tensor_form, &case.ciou), 1e-5),
        Compared::new("CIoU, plain form", worst(&plain_form, &case.ciou), 1e-5),
        Compared::new("IoU", worst(&iou, &case.iou_box_iou), 1e-5),
        Compared::new("gradient of CIoU", gradient_error, 1e-4),
    ]
}

fn compare_dfl(case: &Dfl) -> Vec<Compared> {
    let device = Device::flex().autodiff();
    let hash = fnv1a64(&format!("{}/logits", case.key));
    // Row r = 4 * point + side holds the sixteen bins; the network has [side, bin] by point.
    let at = |point: usize, side: usize, bin: usize| (point * 4 + side) * REG_MAX + bin;
    let mut logits = Vec::with_capacity(4 * REG_MAX * case.n);
    for side in 0..4 {
        for bin in 0..REG_MAX {
            logits.extend((0..case.n).map(|point| (case.amp * s_hashed(hash, at(point, side, bin) as u64)) as f32));
        }
    }
    let logits = Tensor::<3>::from_data(TensorData::new(logits, [1, 4 * REG_MAX, case.n]), &device).require_grad();
    let loss = distribution_focal_loss(logits.clone(), columns(&case.targets, &device));
    let gradients = loss.clone().sum().backward();
    let by_point = to_vec(logits.grad(&gradients).expect("a leaf's gradient"));
    let mut gradient = vec![0.0; by_point.len()];
    for side in 0..4 {
        for bin in 0..REG_MAX {
            for point in 0..case.n {
                gradient[at(point, side, bin)] = by_point[(side * REG_MAX + bin) * case.n + point];
            }
        }
    }
    let loss_error = case
        .loss_rows
        .iter()
        .zip(to_vec(loss))
        .map(|(&theirs, ours)| relative(ours as f64, theirs, 1e-1))
        .fold(0.0, nan_max);

    let mut points = AnchorPoints::new(&[[8, 8]]);
    points.xy_grid.truncate(case.n);
    points.stride_px.truncate(case.n);
    let plain = device.without_autodiff();
    let distances = distances_from_logits(logits.inner());
    let corners = corners_from_distances(points.xy_tensor(&plain), distances.clone());
    let shift = columns(&vec![[0.7, -0.3, 9.0, 0.2]; case.n], &plain);
    let shifted = distances_to_sides(points.xy_tensor(&plain), corners.clone() + shift);

    let mut compared = vec![
        Compared::new("loss", loss_error, 1e-5),
        Compared::new("expected distances", worst_of_rows(&case.expected_dist, &rows(distances)), 1e-5),
        Compared::new("corners from distances", worst_of_rows(&case.dist2bbox_xyxy, &rows(corners)), 1e-5),
        Compared::new(
            "distances from corners",
            worst_of_rows(&case.bbox2dist_regmax15_of_box_shifted, &rows(shifted)),
            1e-5,
        ),
        Compared::new("gradient samples", case.grad_of_sum.sample.largest_error(&gradient), 2e-6),
    ];
    compared.extend(case.grad_of_sum.summary.compare("gradient", &[4 * case.n, REG_MAX], &gradient, 1.0, 2e-6));
    compared
}
