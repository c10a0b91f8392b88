//! Operations that several layers share.

use burn::prelude::*;
use burn::tensor::activation;
use burn::tensor::module::batch_norm_train;

/// A batch-normalised activation and the statistics that it was normalised by.
pub struct Normalised {
    pub output: Tensor<4>,
    /// `[channels]`, without gradient.
    pub mean: Tensor<1>,
    /// `[channels]`, biased (divided by the count), without gradient.
    pub variance: Tensor<1>,
}

/// SiLU of the batch-normalised input: z * sigmoid(z) with z = (x - mean) / sqrt(variance + epsilon) * weight + bias.
///
/// # Shapes
/// `[batch, channels, height, width]` in and out; weight and bias `[channels]`.
pub fn batch_norm_silu(x: Tensor<4>, weight: Tensor<1>, bias: Tensor<1>, epsilon: f64) -> Normalised {
    let normalised = batch_norm_train(x, weight, bias, epsilon);
    Normalised {
        output: silu(normalised.output),
        mean: normalised.mean.detach(),
        variance: normalised.variance.detach(),
    }
}

/// x * sigmoid(x) (S. Elfwing et al., 2017).
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    activation::silu(x)
}
