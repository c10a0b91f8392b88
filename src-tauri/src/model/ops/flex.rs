//! The operations on flex, burn's processor back-end.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Shape, TensorData};
use rayon::prelude::*;

use super::extension::{NormSilu, NormSiluEval};
use super::vector::{sigmoid, sum, sum_pairs, vectorised};

/// A contiguous f32 tensor `[batch, channels, height, width]` as planes of pixels.
pub(super) struct Planes<'a> {
    values: &'a [f32],
    channels: usize,
    pixels: usize,
}

impl<'a> Planes<'a> {
    /// # Panics
    /// When the tensor is not contiguous f32 of four axes: the callers made it so.
    pub fn of(tensor: &'a FlexTensor) -> Self {
        let shape = tensor.layout().shape();
        Self { values: contiguous(tensor), channels: shape[1], pixels: (shape[2] * shape[3]).max(1) }
    }

    /// The planes of one channel, image by image.
    fn of_channel(&self, channel: usize) -> impl Iterator<Item = &'a [f32]> {
        self.values.chunks_exact(self.pixels).skip(channel).step_by(self.channels)
    }

    /// Sum of each channel over all images.
    pub fn channel_sums(&self) -> Vec<f32> {
        let of_channel = |channel: usize| {
            vectorised(
                #[inline(always)]
                || self.of_channel(channel).map(|plane| sum(plane, |v| v)).sum::<f64>() as f32,
            )
        };
        (0..self.channels).into_par_iter().map(of_channel).collect()
    }

    /// Values in one channel.
    fn count(&self) -> f64 {
        (self.values.len() / self.channels.max(1)).max(1) as f64
    }
}

fn vector_of(tensor: &FlexTensor) -> Vec<f32> {
    contiguous(&tensor.to_contiguous()).to_vec()
}

/// The values of a contiguous f32 tensor.
///
/// # Panics
/// When it is not one: callers make it contiguous, and only f32 tensors are sent here.
pub(super) fn contiguous(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice::<f32>().expect("contiguous f32")
}

pub(super) fn tensor_of(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

fn channels_tensor(values: Vec<f32>) -> FlexTensor {
    let shape = Shape::new([values.len()]);
    tensor_of(values, shape)
}

/// y = z * sigmoid(z) with z = x * scale + shift, channel by channel.
fn scale_shift_silu(x: &Planes, scale: &[f32], shift: &[f32]) -> Vec<f32> {
    let mut output = vec![0.0; x.values.len()];
    output.par_chunks_mut(x.pixels).zip(x.values.par_chunks(x.pixels)).enumerate().for_each(
        |(plane, (output, x_plane))| {
            let channel = plane % x.channels;
            let (scale, shift) = (scale[channel], shift[channel]);
            vectorised(
                #[inline(always)]
                || {
                    for (y, &x) in output.iter_mut().zip(x_plane) {
                        let z = x * scale + shift;
                        *y = z * sigmoid(z);
                    }
                },
            );
        },
    );
    output
}

/// Mean and biased variance of each channel.
fn statistics(x: &Planes) -> (Vec<f32>, Vec<f32>) {
    let of_channel = |channel: usize| {
        vectorised(
            #[inline(always)]
            || {
                let mean = x.of_channel(channel).map(|plane| sum(plane, |v| v)).sum::<f64>() / x.count();
                let centre = mean as f32;
                let squares = x.of_channel(channel).map(|plane| sum(plane, |v| (v - centre) * (v - centre)));
                (centre, (squares.sum::<f64>() / x.count()) as f32)
            },
        )
    };
    (0..x.channels).into_par_iter().map(of_channel).unzip()
}

impl NormSilu for Flex {
    fn norm_silu(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        epsilon: f64,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let x = x.to_contiguous();
        let planes = Planes::of(&x);
        let (mean, variance) = statistics(&planes);
        let (weight, bias) = (vector_of(&weight), vector_of(&bias));
        let scale: Vec<f32> = weight.iter().zip(&variance).map(|(w, v)| w * inverse_std(*v, epsilon)).collect();
        let shift: Vec<f32> = bias.iter().zip(&mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
        let output = scale_shift_silu(&planes, &scale, &shift);
        (tensor_of(output, x.layout().shape().clone()), channels_tensor(mean), channels_tensor(variance))
    }

    fn norm_silu_backward(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        mean: FlexTensor,
        variance: FlexTensor,
        epsilon: f64,
        gradient: FlexTensor,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let (x, gradient) = (x.to_contiguous(), gradient.to_contiguous());
        let (planes, gradients) = (Planes::of(&x), Planes::of(&gradient));
        let (weight, bias, mean, variance) =
            (vector_of(&weight), vector_of(&bias), vector_of(&mean), vector_of(&variance));
        let norms: Vec<Norm> = (0..planes.channels)
            .map(|c| Norm {
                mean: mean[c],
                inverse_std: inverse_std(variance[c], epsilon),
                weight: weight[c],
                bias: bias[c],
            })
            .collect();
        let (dbias, dweight): (Vec<f32>, Vec<f32>) =
            (0..planes.channels).into_par_iter().map(|c| norms[c].parameter_gradients(&planes, &gradients, c)).unzip();
        let mut dx = vec![0.0; planes.values.len()];
        let chunks = dx.par_chunks_mut(planes.pixels).zip(planes.values.par_chunks(planes.pixels));
        chunks.zip(gradients.values.par_chunks(planes.pixels)).enumerate().for_each(|(plane, ((dx, x), gradient))| {
            let channel = plane % planes.channels;
            let means = [dbias[channel], dweight[channel]].map(|sum| (sum as f64 / planes.count()) as f32);
            norms[channel].input_gradient(dx, x, gradient, means);
        });
        (tensor_of(dx, x.layout().shape().clone()), channels_tensor(dweight), channels_tensor(dbias))
    }
}

impl NormSiluEval for Flex {
    fn scale_shift_silu(x: FlexTensor, scale: FlexTensor, shift: FlexTensor) -> FlexTensor {
        let x = x.to_contiguous();
        let output = scale_shift_silu(&Planes::of(&x), &vector_of(&scale), &vector_of(&shift));
        tensor_of(output, x.layout().shape().clone())
    }
}

fn inverse_std(variance: f32, epsilon: f64) -> f32 {
    (1.0 / (variance as f64 + epsilon).sqrt()) as f32
}

/// One channel's normalisation.
struct Norm {
    mean: f32,
    inverse_std: f32,
    weight: f32,
    bias: f32,
}

impl Norm {
    /// The normalised value, and the gradient of the loss before SiLU: silu'(z) = s (1 + z (1 - s)) with s = sigmoid(z).
    #[inline(always)]
    fn inner_gradient(&self, x: f32, gradient: f32) -> (f32, f32) {
        let normalised = (x - self.mean) * self.inverse_std;
        let z = normalised * self.weight + self.bias;
        let s = sigmoid(z);
        (normalised, gradient * (s * (1.0 + z * (1.0 - s))))
    }

    /// Gradients of bias and weight: sums of the inner gradient, alone and times the normalised value.
    fn parameter_gradients(&self, x: &Planes, gradients: &Planes, channel: usize) -> (f32, f32) {
        vectorised(
            #[inline(always)]
            || {
                let planes = x.of_channel(channel).zip(gradients.of_channel(channel));
                let sums = planes.map(|(x, gradient)| {
                    sum_pairs(x, gradient, |x, gradient| {
                        let (normalised, inner) = self.inner_gradient(x, gradient);
                        (inner, inner * normalised)
                    })
                });
                let (dbias, dweight) = sums.fold((0.0, 0.0), |total, sums| (total.0 + sums.0, total.1 + sums.1));
                (dbias as f32, dweight as f32)
            },
        )
    }

    /// Gradient of the input (S. Ioffe, C. Szegedy, 2015, the equations after algorithm 1, simplified); `means` are those
    /// of the inner gradient, alone and times the normalised value.
    fn input_gradient(&self, dx: &mut [f32], x: &[f32], gradient: &[f32], means: [f32; 2]) {
        let factor = self.weight * self.inverse_std;
        vectorised(
            #[inline(always)]
            || {
                for ((dx, &x), &gradient) in dx.iter_mut().zip(x).zip(gradient) {
                    let (normalised, inner) = self.inner_gradient(x, gradient);
                    *dx = factor * (inner - means[0] - normalised * means[1]);
                }
            },
        );
    }
}
