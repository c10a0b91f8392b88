//! Times whole training steps of yolov8n with 80 classes on the processor, and prints a hash of the weights afterwards.
//!
//! `cargo run --no-default-features --example step_time -- [IMGSZ] [BATCH] [STEPS]`; `RAYON_NUM_THREADS` sets the threads.
//! The same arguments give the same hash in every process and with any number of threads.

use std::time::Instant;

use burn::module::Module;
use burn::prelude::*;
use fermata::geometry::{BoxXywhNorm, GroundTruth};
use fermata::loss::{DetectionLoss, LossGains};
use fermata::model::{ModelConfig, Scale, export_tensors};
use fermata::trainer::ema::Ema;
use fermata::trainer::gradients::NamedGradients;
use fermata::trainer::optimizer::{Optimizer, UpdateRule};
use fermata::trainer::schedule::Rates;

fn main() {
    let argument =
        |n: usize, default: usize| std::env::args().nth(n).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (imgsz, batch, n_steps) = (argument(1, 320), argument(2, 4), argument(3, 7));
    let device = Device::flex();
    let mut model = ModelConfig::new(Scale::N, 80).init(0, &device).train();
    let mut ema = Ema::new(&model);
    let mut optimizer = Optimizer::new(UpdateRule::Sgd, 5e-4);
    let rates = Rates { lr_bias: 0.001, lr_weight: 0.001, lr_norm: 0.001, momentum: 0.937, accumulate: 1 };
    let loss = DetectionLoss::new(LossGains::default());
    let boxes: Vec<Vec<GroundTruth>> = (0..batch).map(|image| eight_boxes(image, imgsz)).collect();

    let mut step_s = Vec::new();
    for step in 0..n_steps {
        let began = Instant::now();
        let output = model.forward(noise_images(batch, imgsz, &device));
        let forward_s = began.elapsed().as_secs_f64();
        let result = loss.forward(&output, &boxes);
        let loss_s = began.elapsed().as_secs_f64() - forward_s;
        let mut gradients = NamedGradients::take(&model, &mut result.total.backward());
        let backward_s = began.elapsed().as_secs_f64() - forward_s - loss_s;
        gradients.clip_global_norm(10.0);
        model = optimizer.step(model, gradients, &rates);
        ema.update(&model);
        let all_s = began.elapsed().as_secs_f64();
        let rest_s = all_s - forward_s - loss_s - backward_s;
        println!(
            "step {step}: {all_s:.3} s = forward {forward_s:.3} + loss {loss_s:.3} + backward {backward_s:.3} + update {rest_s:.3}"
        );
        step_s.push(all_s);
    }
    step_s.sort_by(f64::total_cmp);
    let mut hasher = blake3::Hasher::new();
    for tensor in export_tensors(&model) {
        let bytes: Vec<u8> = tensor.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        hasher.update(&bytes);
    }
    println!(
        "median {:.3} s, least {:.3} s, weights {}",
        step_s[step_s.len() / 2],
        step_s[0],
        hasher.finalize().to_hex()
    );
}

fn noise_images(batch: usize, imgsz: usize, device: &Device) -> Tensor<4> {
    let n_values = batch * 3 * imgsz * imgsz;
    let pixels: Vec<f32> =
        (0..n_values as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0).collect();
    Tensor::from_data(TensorData::new(pixels, [batch, 3, imgsz, imgsz]), device)
}

fn eight_boxes(image: usize, imgsz: usize) -> Vec<GroundTruth> {
    let norm = |i: usize| {
        let at = |k: usize| ((image * 8 + i) * 7 + k * 3) % 11;
        let size = |k: usize| 0.05 + 0.03 * at(k) as f64;
        BoxXywhNorm { cx: 0.25 + 0.05 * at(2) as f64, cy: 0.25 + 0.05 * at(3) as f64, w: size(0), h: size(1) }
    };
    (0..8).map(|i| GroundTruth::from_norm((image * 8 + i) * 13 % 80, &norm(i), imgsz, imgsz)).collect()
}
