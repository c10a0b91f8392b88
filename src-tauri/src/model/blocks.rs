//! The building blocks of backbone and neck.

use burn::module::{Module, Param, RunningState};
use burn::prelude::*;
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;

use super::ops::{batch_norm_silu, batch_norm_silu_eval, square_conv};

/// Added to the variance before its square root; the reference's value.
pub const BN_EPSILON: f64 = 1e-3;
/// Share of the newest batch in the running statistics; the reference's value.
pub const BN_MOMENTUM: f64 = 0.03;

/// Batch normalisation with PyTorch's rules: normalised by the biased variance, running estimate of the unbiased one.
///
/// burn's own layer keeps the biased variance in its running estimate, and leaves the last update pending where
/// snapshots do not see it.
///
/// S. Ioffe, C. Szegedy, "Batch Normalization" (2015), algorithms 1 and 2.
#[derive(Module, Debug)]
pub struct BatchNorm {
    pub weight: Param<Tensor<1>>,
    pub bias: Param<Tensor<1>>,
    pub running_mean: RunningState<Tensor<1>>,
    pub running_var: RunningState<Tensor<1>>,
}

/// Convolution without bias, batch norm, SiLU.
#[derive(Module, Debug)]
pub struct ConvBlock {
    pub conv: Conv,
    pub bn: BatchNorm,
}

/// A square convolution kernel with "same" padding for odd kernel sizes.
#[derive(Module, Debug)]
pub struct Conv {
    /// `[c_out, c_in, kernel, kernel]`
    pub weight: Param<Tensor<4>>,
    #[module(skip)]
    stride: usize,
}

/// Two 3x3 convolutions with an optional skip connection.
#[derive(Module, Debug)]
pub struct Bottleneck {
    cv1: ConvBlock,
    cv2: ConvBlock,
    #[module(skip)]
    has_shortcut: bool,
}

/// Cross-stage partial block: every bottleneck's output goes to the closing convolution.
#[derive(Module, Debug)]
pub struct C2f {
    cv1: ConvBlock,
    cv2: ConvBlock,
    m: Vec<Bottleneck>,
}

/// Fast spatial pyramid pooling: three chained 5x5 max pools, concatenated with their input.
#[derive(Module, Debug)]
pub struct Sppf {
    cv1: ConvBlock,
    cv2: ConvBlock,
}

impl BatchNorm {
    fn new(channels: usize, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::ones([channels], device)),
            bias: Param::from_tensor(Tensor::zeros([channels], device)),
            running_mean: RunningState::new(Tensor::zeros([channels], device)),
            running_var: RunningState::new(Tensor::ones([channels], device)),
        }
    }

    /// Normalises and applies SiLU; in training mode by the batch's statistics, which also move the running ones.
    ///
    /// Training mode means that the weights live on an autodiff device; `valid()` takes them off it.
    ///
    /// # Shapes
    /// `[batch, channels, height, width]` in and out.
    fn forward_silu(&self, x: Tensor<4>) -> Tensor<4> {
        let weight = self.weight.val();
        let is_training = weight.is_autodiff();
        if !is_training {
            let running = [self.running_mean.value(), self.running_var.value()];
            return batch_norm_silu_eval(x, weight, self.bias.val(), running, BN_EPSILON);
        }
        let [batch, _, height, width] = x.dims();
        let count = (batch * height * width) as f64;
        let normalised = batch_norm_silu(x, weight, self.bias.val(), BN_EPSILON);
        // One value a channel has no spread: the unbiased estimate is undefined, and the biased one (zero) is kept.
        let unbiased = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
        blend(&self.running_mean, normalised.mean, 1.0);
        blend(&self.running_var, normalised.variance, unbiased);
        normalised.output
    }
}

/// Moves a running statistic towards the batch's, and leaves nothing pending: a snapshot must see this update.
fn blend(running: &RunningState<Tensor<1>>, batch: Tensor<1>, correction: f64) {
    let kept = running.value().mul_scalar(1.0 - BN_MOMENTUM);
    running.update(kept.add(batch.mul_scalar(BN_MOMENTUM * correction)).detach());
    let _ = running.value_sync();
}

impl Conv {
    pub(super) fn new(c_in: usize, c_out: usize, kernel: usize, stride: usize, device: &Device) -> Self {
        Self { weight: Param::from_tensor(Tensor::zeros([c_out, c_in, kernel, kernel], device)), stride }
    }

    /// # Shapes
    /// `[batch, c_in, height, width]` to `[batch, c_out, ceil(height / stride), ceil(width / stride)]`.
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        square_conv(x, self.weight.val(), None, self.stride)
    }
}

impl ConvBlock {
    pub(super) fn new(c_in: usize, c_out: usize, kernel: usize, stride: usize, device: &Device) -> Self {
        Self { conv: Conv::new(c_in, c_out, kernel, stride, device), bn: BatchNorm::new(c_out, device) }
    }

    /// # Shapes
    /// `[batch, c_in, height, width]` to `[batch, c_out, ceil(height / stride), ceil(width / stride)]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.bn.forward_silu(self.conv.forward(x))
    }
}

impl Bottleneck {
    fn new(channels: usize, has_shortcut: bool, device: &Device) -> Self {
        Self {
            cv1: ConvBlock::new(channels, channels, 3, 1, device),
            cv2: ConvBlock::new(channels, channels, 3, 1, device),
            has_shortcut,
        }
    }

    /// # Shapes
    /// `[batch, channels, height, width]` in and out.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let y = self.cv2.forward(self.cv1.forward(x.clone()));
        if self.has_shortcut { x.add(y) } else { y }
    }
}

impl C2f {
    pub(super) fn new(c_in: usize, c_out: usize, n_repeats: usize, has_shortcut: bool, device: &Device) -> Self {
        let hidden = c_out / 2;
        Self {
            cv1: ConvBlock::new(c_in, 2 * hidden, 1, 1, device),
            cv2: ConvBlock::new((2 + n_repeats) * hidden, c_out, 1, 1, device),
            m: (0..n_repeats).map(|_| Bottleneck::new(hidden, has_shortcut, device)).collect(),
        }
    }

    /// # Shapes
    /// `[batch, c_in, height, width]` to `[batch, c_out, height, width]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let mut parts = self.cv1.forward(x).chunk(2, 1);
        for bottleneck in &self.m {
            let newest = parts[parts.len() - 1].clone();
            parts.push(bottleneck.forward(newest));
        }
        self.cv2.forward(Tensor::cat(parts, 1))
    }
}

impl Sppf {
    pub(super) fn new(c_in: usize, c_out: usize, device: &Device) -> Self {
        let hidden = c_in / 2;
        Self { cv1: ConvBlock::new(c_in, hidden, 1, 1, device), cv2: ConvBlock::new(hidden * 4, c_out, 1, 1, device) }
    }

    /// # Shapes
    /// `[batch, c_in, height, width]` to `[batch, c_out, height, width]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let x = self.cv1.forward(x);
        let once = pool5(x.clone());
        let twice = pool5(once.clone());
        let thrice = pool5(twice.clone());
        self.cv2.forward(Tensor::cat(vec![x, once, twice, thrice], 1))
    }
}

/// 5x5 max pool that keeps the size.
fn pool5(x: Tensor<4>) -> Tensor<4> {
    max_pool2d(x, MaxPoolOptions::new([5, 5]).with_stride([1, 1]).with_padding([2, 2]))
}
