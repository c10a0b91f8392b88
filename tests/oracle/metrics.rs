//! Average precision, confusion matrices, the COCO figures and non-maximum suppression.

mod nms;

use std::collections::BTreeMap;
use std::path::Path;

use fermata::geometry::{BoxXyxyPx, GroundTruth};
use fermata::metrics::{
    ClassMetrics, CocoAveragePrecision, CocoGroundTruth, ConfusionMatrix, Detection, DetectionMetrics, N_THRESHOLDS,
    confusion_matrix, true_positives,
};
use serde::Deserialize;

use crate::report::{Compared, Report};
use crate::summary::nan_max;

/// AP, precision, recall and F1.
const METRIC_TOLERANCE: f64 = 1e-6;
/// The curves are given at every 111th of their points.
const CURVE_STRIDE: usize = 111;

#[derive(Deserialize)]
struct File {
    sets: Vec<Set>,
    nms: Vec<nms::Case>,
}

#[derive(Deserialize)]
struct Set {
    id: String,
    nc: usize,
    images: Vec<Image>,
    ultralytics: Ultralytics,
    /// Stands where equal confidences were left in an arbitrary order; then this one binds.
    ultralytics_if_sorted_stably: Option<Ultralytics>,
    coco: Coco,
}

#[derive(Deserialize)]
struct Image {
    /// `cls x1 y1 x2 y2`, for COCO perhaps also `iscrowd`.
    gt: Vec<Vec<f64>>,
    /// `cls conf x1 y1 x2 y2`
    pred: Vec<[f64; 6]>,
}

#[derive(Deserialize)]
#[allow(non_snake_case)]
struct Ultralytics {
    classes: Vec<usize>,
    tp_at_maxF1: Vec<f64>,
    fp_at_maxF1: Vec<f64>,
    P: Vec<f64>,
    R: Vec<f64>,
    F1: Vec<f64>,
    AP50: Vec<f64>,
    AP75: Vec<f64>,
    AP50_95: Vec<f64>,
    AP_all_thresholds: Vec<Vec<f64>>,
    mean: BTreeMap<String, f64>,
    p_curve_samples: Vec<Vec<f64>>,
    r_curve_samples: Vec<Vec<f64>>,
    f1_curve_samples: Vec<Vec<f64>>,
    tp_counts_per_threshold: [usize; N_THRESHOLDS],
    /// By confidence limit.
    confusion: BTreeMap<String, Vec<Vec<u64>>>,
}

#[derive(Deserialize)]
#[allow(non_snake_case)]
struct Coco {
    stats: BTreeMap<String, f64>,
    per_class_AP: Vec<f64>,
    per_class_AP50: Vec<f64>,
}

pub fn run(dir: &Path, report: &mut Report) {
    let Some(file) = crate::read::<File>(dir, "metrics.json", report) else { return };
    for set in &file.sets {
        let images: Vec<_> = set.images.iter().map(|image| (image.truths(), image.detections())).collect();
        let expected = set.ultralytics_if_sorted_stably.as_ref().unwrap_or(&set.ultralytics);
        report.case(&format!("metrics/{}/average precision", set.id), compare_average_precision(expected, &images));
        report.case(&format!("metrics/{}/confusion", set.id), compare_confusion(expected, set.nc, &images));
        report.case(&format!("metrics/{}/coco", set.id), compare_coco(set, &images));
    }
    for case in &file.nms {
        report.case(&case.name(), case.compare());
    }
}

impl Image {
    fn truths(&self) -> Vec<CocoGroundTruth> {
        let truth = |row: &Vec<f64>| CocoGroundTruth {
            is_crowd: row.get(5).is_some_and(|&flag| flag != 0.0),
            ..CocoGroundTruth::new(row[0] as usize, box_px(&row[1..5]))
        };
        self.gt.iter().map(truth).collect()
    }

    fn detections(&self) -> Vec<Detection> {
        let detection = |row: &[f64; 6]| Detection {
            class_idx: row[0] as usize,
            confidence: row[1] as f32,
            box_px: box_px(&row[2..6]),
        };
        self.pred.iter().map(detection).collect()
    }
}

fn box_px(corners: &[f64]) -> BoxXyxyPx {
    BoxXyxyPx::new(corners[0] as f32, corners[1] as f32, corners[2] as f32, corners[3] as f32)
}

/// Ultralytics knows no crowds: each is a box like any other.
fn plain(truths: &[CocoGroundTruth]) -> Vec<GroundTruth> {
    truths.iter().map(|truth| GroundTruth { class_idx: truth.class_idx, box_px: truth.box_px }).collect()
}

type Images = [(Vec<CocoGroundTruth>, Vec<Detection>)];

fn compare_average_precision(expected: &Ultralytics, images: &Images) -> Vec<Compared> {
    let mut metrics = DetectionMetrics::default();
    let mut n_true_positives = [0; N_THRESHOLDS];
    for (truths, detections) in images {
        metrics.add_image(&plain(truths), detections);
        for hits in true_positives(&plain(truths), detections) {
            n_true_positives.iter_mut().zip(hits).for_each(|(n, hit)| *n += usize::from(hit));
        }
    }
    let ours = metrics.finish();
    let of_class = |value: &dyn Fn(&ClassMetrics) -> f64| ours.classes.iter().map(value).collect::<Vec<_>>();
    let curve = |points: &dyn Fn(&ClassMetrics) -> &[f64]| -> Vec<f64> {
        ours.classes.iter().flat_map(|class| points(class).iter().copied().step_by(CURVE_STRIDE)).collect()
    };
    let class_idxs: Vec<_> = ours.classes.iter().map(|class| class.class_idx).collect();
    let mut compared = vec![
        Compared::equal("classes", class_idxs, expected.classes.clone()),
        Compared::equal("true positives at each threshold", n_true_positives, expected.tp_counts_per_threshold),
        numbers("true positives", &of_class(&|c| c.counts_at_best_confidence().0 as f64), &expected.tp_at_maxF1),
        numbers("false positives", &of_class(&|c| c.counts_at_best_confidence().1 as f64), &expected.fp_at_maxF1),
        numbers("precision", &of_class(&|c| c.precision), &expected.P),
        numbers("recall", &of_class(&|c| c.recall), &expected.R),
        numbers("F1", &of_class(&|c| c.f1), &expected.F1),
        numbers("AP50", &of_class(&ClassMetrics::ap50), &expected.AP50),
        numbers("AP75", &of_class(&ClassMetrics::ap75), &expected.AP75),
        numbers("AP50-95", &of_class(&ClassMetrics::ap50_95), &expected.AP50_95),
        numbers(
            "AP at each threshold",
            &ours.classes.iter().flat_map(|class| class.ap).collect::<Vec<_>>(),
            &expected.AP_all_thresholds.concat(),
        ),
        numbers("precision curve", &curve(&|c| &c.curves.precision), &expected.p_curve_samples.concat()),
        numbers("recall curve", &curve(&|c| &c.curves.recall), &expected.r_curve_samples.concat()),
        numbers("F1 curve", &curve(&|c| &c.curves.f1), &expected.f1_curve_samples.concat()),
    ];
    let means = [
        ("P", ours.precision()),
        ("R", ours.recall()),
        ("mAP50", ours.map50()),
        ("mAP75", ours.map75()),
        ("mAP50_95", ours.map50_95()),
    ];
    compared.extend(named("mean", &means, &expected.mean));
    compared
}

fn compare_confusion(expected: &Ultralytics, n_classes: usize, images: &Images) -> Vec<Compared> {
    let compare = |(conf, expected): (&String, &Vec<Vec<u64>>)| {
        let what = format!("counts above confidence {conf}");
        let Ok(limit) = conf.parse() else { return Compared::new(what, f64::NAN, 0.0) };
        let mut matrix = ConfusionMatrix::new(n_classes, limit, confusion_matrix::DEFAULT_IOU);
        let all_added = images.iter().all(|(truths, found)| matrix.add_image(&plain(truths), found).is_ok());
        let differing: u64 = matrix.rows().flatten().zip(expected.iter().flatten()).map(|(a, b)| a.abs_diff(*b)).sum();
        let fits = all_added && expected.iter().map(Vec::len).eq(matrix.rows().map(<[u64]>::len));
        Compared::new(what, if fits { differing as f64 } else { f64::NAN }, 0.0)
    };
    expected.confusion.iter().map(compare).collect()
}

fn compare_coco(set: &Set, images: &Images) -> Vec<Compared> {
    let mut coco = CocoAveragePrecision::new(set.nc);
    for (truths, detections) in images {
        coco.add_image(truths, detections);
    }
    let ours = coco.finish();
    let number = |value: Option<f64>| value.unwrap_or(-1.0);
    let stats = [
        ("AP", number(ours.stats.ap)),
        ("AP50", number(ours.stats.ap50)),
        ("AP75", number(ours.stats.ap75)),
        ("AP_small", number(ours.stats.ap_small)),
        ("AP_medium", number(ours.stats.ap_medium)),
        ("AP_large", number(ours.stats.ap_large)),
        ("AR1", number(ours.stats.ar1)),
        ("AR10", number(ours.stats.ar10)),
        ("AR100", number(ours.stats.ar100)),
        ("AR_small", number(ours.stats.ar_small)),
        ("AR_medium", number(ours.stats.ar_medium)),
        ("AR_large", number(ours.stats.ar_large)),
    ];
    let of_class = |values: &[Option<f64>]| values.iter().copied().map(number).collect::<Vec<_>>();
    let mut compared = named("stats", &stats, &set.coco.stats);
    compared.push(numbers("AP of each class", &of_class(&ours.ap_of_class), &set.coco.per_class_AP));
    compared.push(numbers("AP50 of each class", &of_class(&ours.ap50_of_class), &set.coco.per_class_AP50));
    compared
}

/// The largest difference of two lists; not a number if they are not equally long.
fn numbers(what: &str, ours: &[f64], theirs: &[f64]) -> Compared {
    let largest = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, nan_max);
    Compared::new(what, if ours.len() == theirs.len() { largest } else { f64::NAN }, METRIC_TOLERANCE)
}

/// Every figure expected, by name; one that we do not have is not a number.
fn named(what: &str, ours: &[(&str, f64)], theirs: &BTreeMap<String, f64>) -> Vec<Compared> {
    let compare = |(name, theirs): (&String, &f64)| {
        let value = ours.iter().find(|(ours, _)| ours == name).map_or(f64::NAN, |(_, value)| *value);
        Compared::new(format!("{what} {name}"), (value - theirs).abs(), METRIC_TOLERANCE)
    };
    theirs.iter().map(compare).collect()
}
