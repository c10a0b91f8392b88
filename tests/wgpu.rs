//! One whole training step on a graphics driver gives what it gives on the processor.
//!
//! Runs on a software adapter (Mesa's lavapipe), since that is there on every machine with the package. Where no adapter is
//! found at all it says so and passes, but fails where `CI=true` is set.

use std::path::PathBuf;

use burn::prelude::*;
use fermata::geometry::{BoxXyxyPx, GroundTruth};
use fermata::loss::{DetectionLoss, LossGains, LossItems};
use fermata::model::{ModelConfig, NamedTensor, Scale, export_tensors};
use fermata::trainer::device::{ANSWER_LIMIT, CHILD_OPTION, DeviceChoice, DeviceSurvey, ProbeCommand, open_from};
use fermata::trainer::gradients::NamedGradients;
use fermata::trainer::optimizer::{Optimizer, UpdateRule};
use fermata::trainer::schedule::Rates;

/// The coarsest feature map is then 2 x 2: batch norm needs more than one value.
const IMAGE_PX: usize = 64;
const N_CLASSES: usize = 3;
/// Of the largest value of a tensor, how far the two devices may lie apart. They add in a different order.
const TOLERANCE: f32 = 1e-3;

/// What one step leaves behind.
struct Step {
    loss: LossItems,
    gradients: Vec<NamedTensor>,
    weights: Vec<NamedTensor>,
}

#[test]
fn a_training_step_on_a_software_adapter_equals_the_step_on_flex() {
    let survey = probe().survey();
    let Some(device) = software_device(&survey) else { return };
    let on_flex = training_step(&Device::flex().autodiff());
    let on_wgpu = training_step(&device.autodiff());

    let losses = |step: &Step| [step.loss.box_loss, step.loss.cls_loss, step.loss.dfl_loss];
    for (expected, actual) in losses(&on_flex).into_iter().zip(losses(&on_wgpu)) {
        assert!((expected - actual).abs() <= TOLERANCE * expected.abs(), "loss {actual} on wgpu, {expected} on flex");
    }
    assert_close(&on_flex.gradients, &on_wgpu.gradients);
    assert_close(&on_flex.weights, &on_wgpu.weights);
}

/// Asks the drivers as the program itself does.
fn probe() -> ProbeCommand {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_fermata"));
    ProbeCommand { program, args: vec!["devices".into(), CHILD_OPTION.into()], limit: ANSWER_LIMIT }
}

/// The software adapter, or `None` after a visible word where there is no adapter at all.
fn software_device(survey: &DeviceSurvey) -> Option<Device> {
    match open_from(DeviceChoice::WgpuSoftware, survey, &std::env::temp_dir()) {
        Ok(opened) => {
            println!("computing on {} ({})", opened.info.name, opened.info.interface);
            Some(opened.device)
        }
        Err(reason) => {
            assert!(std::env::var_os("CI").is_none(), "CI needs a software adapter: {reason}");
            println!("SKIPPED, no software adapter: {reason}");
            None
        }
    }
}

/// Forward, loss, backward and one update of the tiny model, from fixed weights, images and boxes.
fn training_step(device: &Device) -> Step {
    let model = ModelConfig::new(Scale::T, N_CLASSES).init(7, device);
    let output = model.forward(images(device));
    let loss = DetectionLoss::new(LossGains::default()).forward(&output, &ground_truth());
    let mut gradients = loss.total.backward();
    let gradients = NamedGradients::take(&model, &mut gradients);
    let read = |(name, gradient): (&str, &Tensor<1>)| NamedTensor {
        name: name.to_owned(),
        shape: gradient.dims().to_vec(),
        values: gradient.clone().into_data().try_to_vec().unwrap(),
    };
    let read_gradients = gradients.iter().map(read).collect();
    let rates = Rates { lr_bias: 0.01, lr_weight: 0.01, lr_norm: 0.01, momentum: 0.9, accumulate: 1 };
    let model = Optimizer::new(UpdateRule::Sgd, 5e-4).step(model, gradients, &rates);
    Step { loss: LossItems::read(loss.items), gradients: read_gradients, weights: export_tensors(&model) }
}

/// Two images with waves of different length in each channel, 0..=1.
fn images(device: &Device) -> Tensor<4> {
    let n_values = 2 * 3 * IMAGE_PX * IMAGE_PX;
    let values: Vec<f32> =
        (0..n_values).map(|i| 0.5 + 0.5 * ((i % 977) as f32 * 0.37 + (i / 4096) as f32).sin()).collect();
    Tensor::from_data(TensorData::new(values, [2, 3, IMAGE_PX, IMAGE_PX]), device)
}

fn ground_truth() -> Vec<Vec<GroundTruth>> {
    let gt = |class_idx, [x1, y1, x2, y2]: [f32; 4]| GroundTruth { class_idx, box_px: BoxXyxyPx::new(x1, y1, x2, y2) };
    vec![vec![gt(0, [5.0, 7.0, 30.0, 40.0]), gt(2, [33.0, 20.0, 60.0, 62.0])], vec![gt(1, [12.0, 3.0, 50.0, 29.0])]]
}

fn assert_close(expected: &[NamedTensor], actual: &[NamedTensor]) {
    assert_eq!(expected.len(), actual.len());
    for (expected, actual) in expected.iter().zip(actual) {
        assert_eq!(expected.name, actual.name);
        let largest = expected.values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let differences =
            expected.values.iter().zip(&actual.values).map(|(expected, actual)| (expected - actual).abs());
        let apart = differences.fold(0.0f32, |apart, difference| apart.max(difference));
        assert!(apart <= TOLERANCE * largest.max(1e-3), "{}: {apart} apart, largest value {largest}", expected.name);
    }
}
