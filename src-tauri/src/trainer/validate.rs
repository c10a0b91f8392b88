//! Measuring a model on a labelled split.

use std::sync::Arc;

use burn::prelude::*;
use rayon::prelude::*;

use super::config::{TrainConfig, ValConfig};
use super::event::{ClassScores, Losses, ValReport, ValScores};
use super::state::{MeanLosses, ground_truth, take_images};
use super::{TrainError, start};
use crate::augment::Letterbox;
use crate::checkpoint::Weights;
use crate::dataset::decode::decode_rgb;
use crate::dataset::loader::{SplitImages, ValLoader, square_batches};
use crate::dataset::{Sample, Split, open};
use crate::geometry::GroundTruth;
use crate::loss::{DetectionLoss, LossGains, LossItems};
use crate::metrics::nms::nms;
use crate::metrics::{Detection, DetectionMetrics, HeadOutput, MetricsReport, NmsSettings};
use crate::model::{Detector, ModelConfig, decode_detections};

/// How a model is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValSettings {
    pub batch: usize,
    pub workers: usize,
    pub nms: NmsSettings,
    pub gains: LossGains,
}

impl ValSettings {
    /// For validation during training: twice the training batch, since nothing is kept for a backward pass.
    pub fn of(config: &TrainConfig) -> Self {
        Self {
            batch: config.batch * 2,
            workers: config.workers,
            nms: NmsSettings::validate().with_limits(config.conf, config.iou, config.max_det),
            gains: config.loss_gains(),
        }
    }
}

/// What `fermata val` does: opens device, dataset and weights, and measures.
///
/// # Errors
/// When one of them cannot be opened, the split is not there, or the dataset's classes are not the model's.
pub fn val(config: &ValConfig) -> Result<ValReport, TrainError> {
    let device = start::open_device(config.device)?;
    let opened = open(&config.data, &config.open_options())?;
    let weights = Weights::read(&config.model)?;
    let class_names = weights.info.class_names.clone();
    let imgsz = if config.imgsz == 0 { weights.info.imgsz } else { config.imgsz };
    if class_names != opened.dataset.class_names {
        return Err(TrainError::OtherClasses { model: class_names, data: opened.dataset.class_names });
    }
    let mut splits = opened.dataset.splits;
    let samples = splits.remove(&config.split).filter(|samples| !samples.is_empty());
    let Some(samples) = samples else {
        return Err(TrainError::NoSplit { path: config.data.clone(), split: split_word(config.split), hint: "" });
    };
    let model = ModelConfig::new(weights.info.scale, class_names.len()).init(0, &device.device);
    let model = weights.fill(model, &config.model)?;
    let images = Arc::new(SplitImages::new(Arc::new(samples), imgsz, 0, decode_rgb));
    let settings = ValSettings {
        batch: config.batch,
        workers: config.workers,
        nms: NmsSettings::validate().with_limits(config.conf, config.iou, config.max_det),
        gains: LossGains::default(),
    };
    let measured = validate(&model, &images, &class_names, &settings, &mut || true)?;
    // It is always wanted, so it was not given up.
    Ok(measured.map(|(report, _)| report).unwrap_or_default())
}

/// Measures a model without autodiff on all images of a split, letterboxed to squares; gives also its mean losses.
/// `is_wanted` is asked before each batch; with `false` the rest is given up, and there is no result.
///
/// Images that cannot be read do not count. Waits for the device.
///
/// # Errors
/// When the loader cannot start its threads.
pub fn validate(
    model: &Detector,
    images: &Arc<SplitImages>,
    class_names: &[String],
    settings: &ValSettings,
    is_wanted: &mut dyn FnMut() -> bool,
) -> Result<Option<(ValReport, Losses)>, TrainError> {
    let samples = images.samples();
    let plan = square_batches(samples.len(), images.imgsz(), settings.batch);
    let loss = DetectionLoss::new(settings.gains);
    let mut losses = MeanLosses::default();
    let mut metrics = DetectionMetrics::default();
    let mut n_images = 0;
    for batch in ValLoader::new(images.clone(), plan, settings.workers)? {
        let mut batch = batch?;
        crate::fault::reached("validation_batch", batch.batch_idx as u64);
        if !is_wanted() {
            return Ok(None);
        }
        let output = model.forward(take_images(&mut batch, model));
        losses.add(&LossItems::read(loss.forward(&output, &ground_truth(&batch)).items));
        let detections = suppressed(decode_detections(&output), &batch.letterboxes, &settings.nms, class_names.len());
        for (&sample_idx, detections) in batch.sample_idxs.iter().zip(&detections) {
            if !batch.is_replaced(sample_idx) {
                metrics.add_image(&labelled_boxes(&samples[sample_idx]), detections);
                n_images += 1;
            }
        }
    }
    let losses = losses.mean();
    Ok(Some((report(&metrics.finish(), n_images, losses, class_names), losses)))
}

/// Suppressed detections of each image of a batch, in pixels of the original images. Waits for the device.
///
/// # Shapes
/// `decoded` is `[batch, 4 + n_classes, n_points]`.
pub fn suppressed(
    decoded: Tensor<3>,
    letterboxes: &[Letterbox],
    settings: &NmsSettings,
    n_classes: usize,
) -> Vec<Vec<Detection>> {
    let [_, rows, n_points] = decoded.dims();
    // Converted to f32 on the same line, so the cast cannot fail.
    let values: Vec<f32> = decoded.into_data().convert::<f32>().try_into_vec().expect("f32 data");
    let of_image = |(values, letterbox): (&[f32], &Letterbox)| {
        let Ok(output) = HeadOutput::new(values, n_classes) else { return Vec::new() };
        let kept = nms(&output, settings).into_iter().map(|kept| kept.detection);
        kept.map(|found| Detection { box_px: letterbox.to_original(&found.box_px), ..found }).collect()
    };
    values.par_chunks(rows * n_points).zip(letterboxes).map(of_image).collect()
}

fn labelled_boxes(sample: &Sample) -> Vec<GroundTruth> {
    let size = (sample.width_px as f64, sample.height_px as f64);
    let boxes = sample.labels.iter();
    boxes
        .map(|label| GroundTruth { class_idx: label.class_idx, box_px: label.box_norm.to_xyxy_px(size.0, size.1) })
        .collect()
}

fn report(metrics: &MetricsReport, n_images: usize, losses: Losses, class_names: &[String]) -> ValReport {
    let classes: Vec<ClassScores> = metrics
        .classes
        .iter()
        .map(|class| ClassScores {
            name: class_names.get(class.class_idx).cloned().unwrap_or_else(|| class.class_idx.to_string()),
            images: class.n_images,
            boxes: class.n_truths,
            precision: class.precision,
            recall: class.recall,
            ap50: class.ap50(),
            ap50_95: class.ap50_95(),
        })
        .collect();
    ValReport {
        images: n_images,
        boxes: classes.iter().map(|class| class.boxes).sum(),
        scores: ValScores {
            precision: metrics.precision(),
            recall: metrics.recall(),
            map50: metrics.map50(),
            map50_95: metrics.map50_95(),
        },
        losses: Some(losses),
        classes,
    }
}

fn split_word(split: Split) -> &'static str {
    match split {
        Split::Train => "train",
        Split::Val => "val",
        Split::Test => "test",
    }
}
