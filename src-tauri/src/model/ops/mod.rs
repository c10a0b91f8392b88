//! Operations with an implementation of our own on the processor; elsewhere they are put together from burn's.
//!
//! burn's flex back-end makes a pass over memory for each step of batch norm and SiLU, and calls the scalar exponential.
//! The functions here do the same arithmetic in as few passes as possible, with vector instructions.

mod conv;
mod conv_extension;
mod extension;
mod flex;
mod vector;

use burn::backend::{Dispatch, DispatchDevice};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation;
use burn::tensor::module::{batch_norm, batch_norm_train, conv2d};
use burn::tensor::ops::ConvOptions;

use conv::is_supported;
use conv_extension::SquareConv;
use extension::{NormSilu, NormSiluEval};

/// Convolution with a square kernel, padded by half of it, so that stride 1 keeps height and width; without a bias if
/// there is none.
///
/// # Shapes
/// `[batch, c_in, height, width]` to `[batch, c_out, ceil(height / stride), ceil(width / stride)]`; weight
/// `[c_out, c_in, kernel, kernel]`, bias `[c_out]`.
pub fn square_conv(x: Tensor<4>, weight: Tensor<4>, bias: Option<Tensor<1>>, stride: usize) -> Tensor<4> {
    if !is_on_flex(&x) || !is_supported(weight.dims()[2], stride) {
        return square_conv_of_burn(x, weight, bias, stride);
    }
    // A constant without autodiff, for which no gradient is made.
    let no_bias = || Tensor::zeros([weight.dims()[0]], &x.device().without_autodiff());
    let bias = bias.unwrap_or_else(no_bias);
    let output =
        <Dispatch as SquareConv>::square_conv(x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch(), stride);
    Tensor::from_dispatch(output)
}

/// The same by burn's convolution: for other devices, and to check ours by.
fn square_conv_of_burn(x: Tensor<4>, weight: Tensor<4>, bias: Option<Tensor<1>>, stride: usize) -> Tensor<4> {
    let pad = weight.dims()[2] / 2;
    conv2d(x, weight, bias, ConvOptions::new([stride; 2], [pad; 2], [1, 1], 1))
}

/// A batch-normalised activation and the statistics that it was normalised by.
pub struct Normalised {
    pub output: Tensor<4>,
    /// `[channels]`, without gradient.
    pub mean: Tensor<1>,
    /// `[channels]`, biased (divided by the count), without gradient.
    pub variance: Tensor<1>,
}

/// Batch normalisation by the batch's own statistics, then SiLU (S. Elfwing et al., 2017): z * sigmoid(z) with
/// z = (x - mean) / sqrt(variance + epsilon) * weight + bias.
///
/// # Shapes
/// `[batch, channels, height, width]` in and out; weight and bias `[channels]`.
pub fn batch_norm_silu(x: Tensor<4>, weight: Tensor<1>, bias: Tensor<1>, epsilon: f64) -> Normalised {
    if !is_on_flex(&x) {
        return batch_norm_silu_of_parts(x, weight, bias, epsilon);
    }
    let (output, mean, variance) =
        <Dispatch as NormSilu>::norm_silu(x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch(), epsilon);
    Normalised {
        output: Tensor::from_dispatch(output),
        mean: Tensor::from_dispatch(mean),
        variance: Tensor::from_dispatch(variance),
    }
}

/// The same put together from burn's operations: for other devices, and to check ours by.
pub fn batch_norm_silu_of_parts(x: Tensor<4>, weight: Tensor<1>, bias: Tensor<1>, epsilon: f64) -> Normalised {
    let normalised = batch_norm_train(x, weight, bias, epsilon);
    Normalised {
        output: activation::silu(normalised.output),
        mean: normalised.mean.detach(),
        variance: normalised.variance.detach(),
    }
}

/// Batch normalisation by given statistics, then SiLU, for tensors without autodiff.
///
/// # Shapes
/// `[batch, channels, height, width]` in and out; the others `[channels]`.
pub fn batch_norm_silu_eval(
    x: Tensor<4>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    running: [Tensor<1>; 2],
    epsilon: f64,
) -> Tensor<4> {
    let [mean, variance] = running;
    if !is_on_flex(&x) || x.is_autodiff() {
        return activation::silu(batch_norm(x, weight, bias, mean, variance, epsilon));
    }
    let scale = weight / variance.add_scalar(epsilon).sqrt();
    let shift = bias - mean * scale.clone();
    let output =
        <Dispatch as NormSiluEval>::scale_shift_silu(x.into_dispatch(), scale.into_dispatch(), shift.into_dispatch());
    Tensor::from_dispatch(output)
}

/// The tensor lies in memory as f32, where our own loops can reach it.
fn is_on_flex(x: &Tensor<4>) -> bool {
    let device = x.device().without_autodiff();
    matches!(device.as_dispatch(), DispatchDevice::Flex(_)) && x.dtype() == DType::F32
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: [usize; 4] = [3, 5, 4, 7];

    fn wave(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * step).sin() * 2.0 + (i % 3) as f32).collect()
    }

    fn inputs(device: &Device) -> (Tensor<4>, Tensor<1>, Tensor<1>) {
        let x = Tensor::from_data(TensorData::new(wave(SHAPE.iter().product(), 0.37), SHAPE), device);
        let weight = Tensor::from_data(TensorData::new(wave(SHAPE[1], 1.1), [SHAPE[1]]), device);
        let bias = Tensor::from_data(TensorData::new(wave(SHAPE[1], 0.7), [SHAPE[1]]), device);
        (x, weight, bias)
    }

    fn leaves(device: &Device) -> (Tensor<4>, Tensor<1>, Tensor<1>) {
        let (x, weight, bias) = inputs(device);
        (x.require_grad(), weight.require_grad(), bias.require_grad())
    }

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().unwrap()
    }

    fn assert_near(ours: &[f32], theirs: &[f32], tolerance: f32) {
        assert_eq!(ours.len(), theirs.len());
        for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
            assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "at {i}: {a} and {b}");
        }
    }

    /// Output, statistics and the three gradients of a weighted sum of the output.
    fn run(
        op: fn(Tensor<4>, Tensor<1>, Tensor<1>, f64) -> Normalised,
        (x, weight, bias): (Tensor<4>, Tensor<1>, Tensor<1>),
    ) -> Vec<Vec<f32>> {
        let result = op(x.clone(), weight.clone(), bias.clone(), 1e-3);
        let factors = Tensor::from_data(TensorData::new(wave(SHAPE.iter().product(), 0.91), SHAPE), &x.device());
        let gradients = (result.output.clone() * factors).sum().backward();
        vec![
            values(result.output),
            values(result.mean),
            values(result.variance),
            values(x.grad(&gradients).unwrap()),
            values(weight.grad(&gradients).unwrap()),
            values(bias.grad(&gradients).unwrap()),
        ]
    }

    #[test]
    fn the_fused_training_form_equals_its_parts() {
        let device = Device::flex().autodiff();
        let ours = run(batch_norm_silu, leaves(&device));
        let theirs = run(batch_norm_silu_of_parts, leaves(&device));
        ours.iter().zip(&theirs).for_each(|(ours, theirs)| assert_near(ours, theirs, 1e-5));
    }

    #[test]
    fn a_permuted_view_gives_what_its_copy_gives() {
        let device = Device::flex().autodiff();
        let (x, weight, bias) = leaves(&device);
        let view = x.clone().swap_dims(2, 3);
        let copy = Tensor::from_data(view.clone().into_data(), &device).require_grad();
        let from_view = batch_norm_silu(view, weight.clone(), bias.clone(), 1e-3).output;
        let from_copy = batch_norm_silu(copy, weight, bias, 1e-3).output;
        assert_eq!(values(from_view), values(from_copy));
    }

    #[test]
    fn the_gradient_is_that_of_central_differences() {
        let device = Device::flex().autodiff();
        let gradients = run(batch_norm_silu, leaves(&device));
        let (x, weight, bias) = inputs(&Device::flex());
        let x = values(x);
        let loss = |x: &[f32]| -> f64 {
            let x = Tensor::from_data(TensorData::new(x.to_vec(), SHAPE), &Device::flex());
            let output = values(batch_norm_silu_of_parts(x, weight.clone(), bias.clone(), 1e-3).output);
            output.iter().zip(wave(output.len(), 0.91)).map(|(&y, f)| y as f64 * f as f64).sum()
        };
        for i in (0..x.len()).step_by(17) {
            let (mut above, mut below) = (x.clone(), x.clone());
            above[i] += 1e-2;
            below[i] -= 1e-2;
            let slope = (loss(&above) - loss(&below)) / 2e-2;
            assert!(
                (slope - gradients[3][i] as f64).abs() < 2e-3 * slope.abs().max(1.0),
                "at {i}: {slope} and {}",
                gradients[3][i]
            );
        }
    }

    #[test]
    fn the_fused_inference_form_equals_its_parts() {
        let (x, weight, bias) = inputs(&Device::flex());
        let mean = Tensor::<1>::from_floats([0.1, -0.2, 0.3, 0.0, 1.0], &Device::flex());
        let variance = Tensor::<1>::from_floats([1.0, 0.5, 2.0, 0.1, 0.0], &Device::flex());
        let ours =
            batch_norm_silu_eval(x.clone(), weight.clone(), bias.clone(), [mean.clone(), variance.clone()], 1e-3);
        let theirs = activation::silu(batch_norm(x, weight, bias, mean, variance, 1e-3));
        assert_near(&values(ours), &values(theirs), 1e-5);
    }

    type Conv = fn(Tensor<4>, Tensor<4>, Option<Tensor<1>>, usize) -> Tensor<4>;

    /// Output and the three gradients of a weighted sum of the output.
    fn run_conv(op: Conv, kernel: usize, stride: usize) -> Vec<Vec<f32>> {
        let device = Device::flex().autodiff();
        let (x, bias, _) = leaves(&device);
        let shape = [SHAPE[1], SHAPE[1], kernel, kernel];
        let weight =
            Tensor::from_data(TensorData::new(wave(shape.iter().product(), 0.53), shape), &device).require_grad();
        let output = op(x.clone(), weight.clone(), Some(bias.clone()), stride);
        let n_values = output.dims().iter().product();
        let factors = Tensor::from_data(TensorData::new(wave(n_values, 0.91), output.dims()), &device);
        let gradients = (output.clone() * factors).sum().backward();
        vec![
            values(output),
            values(x.grad(&gradients).unwrap()),
            values(weight.grad(&gradients).unwrap()),
            values(bias.grad(&gradients).unwrap()),
        ]
    }

    #[test]
    fn our_convolution_equals_burn_s() {
        for (kernel, stride) in [(1, 1), (3, 1), (3, 2), (5, 1)] {
            let ours = run_conv(square_conv, kernel, stride);
            let theirs = run_conv(square_conv_of_burn, kernel, stride);
            ours.iter().zip(&theirs).for_each(|(ours, theirs)| assert_near(ours, theirs, 1e-5));
        }
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let with_threads = |n: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
            pool.install(|| run(batch_norm_silu, leaves(&Device::flex().autodiff())))
        };
        assert_eq!(with_threads(1), with_threads(3));
    }
}
