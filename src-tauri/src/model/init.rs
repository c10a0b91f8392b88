//! Initial weights, drawn from the seed and each tensor's name alone.

use burn::prelude::*;

use super::config::ModelConfig;
use super::decode::STRIDES;
use super::graph::Detector;
use super::tensors::{TensorKind, TensorSpec, replace_tensors};

impl ModelConfig {
    /// A fresh detector on `device`.
    ///
    /// Kernels are uniform in ±1/sqrt(fan-in), PyTorch's default (K. He et al., "Delving Deep into Rectifiers", 2015, with
    /// a = sqrt(5)). Batch norm starts as the identity. The head's box bias is 2 and its class bias such that about five
    /// objects are expected in an image of 640 x 640 pixels (T.-Y. Lin et al., "Focal Loss", 2017, section 4.1, has the idea).
    pub fn init(&self, seed: u64, device: &Device) -> Detector {
        let n_classes = self.n_classes;
        let model = Detector::zeroed(self, device);
        replace_tensors(model, &mut |spec| match spec.kind {
            TensorKind::Weight => Some(uniform_kernel(spec, seed)),
            TensorKind::Bias => head_bias(spec, n_classes),
            TensorKind::NormWeight | TensorKind::Buffer => None,
        })
    }
}

fn uniform_kernel(spec: &TensorSpec, seed: u64) -> Vec<f32> {
    let fan_in: usize = spec.shape[1..].iter().product();
    let bound = 1.0 / (fan_in as f64).sqrt();
    let mut key = blake3::Hasher::new();
    key.update(b"fermata initial weights 1").update(&seed.to_le_bytes()).update(spec.name.as_bytes());
    let mut stream = key.finalize_xof();
    let n_values: usize = spec.shape.iter().product();
    (0..n_values)
        .map(|_| {
            let mut word = [0; 4];
            stream.fill(&mut word);
            let unit = (u32::from_le_bytes(word) as f64 + 0.5) / 2f64.powi(32);
            ((2.0 * unit - 1.0) * bound) as f32
        })
        .collect()
}

/// The bias of the last convolution of a head branch; other biases belong to batch norm and stay zero.
fn head_bias(spec: &TensorSpec, n_classes: usize) -> Option<Vec<f32>> {
    let mut parts = spec.name.strip_prefix("model.22.")?.split('.');
    let (branch, level, position) = (parts.next()?, parts.next()?, parts.next()?);
    if position != "2" {
        return None;
    }
    let value = match branch {
        "cv2" => 2.0,
        _ => {
            let cells = (640.0 / STRIDES[level.parse::<usize>().ok()?] as f64).powi(2);
            (5.0 / n_classes as f64 / cells).ln()
        }
    };
    Some(vec![value as f32; spec.shape[0]])
}
