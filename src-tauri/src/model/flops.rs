//! Arithmetic of one forward pass, counted as the reference reports it.

use super::config::{LayerKind, ModelConfig};
use super::decode::{REG_MAX, STRIDES};

/// Operations a batch-normalised value counts for, in multiply-adds.
const NORM_COST: usize = 4;

/// Floating-point operations of one image of `height` x `width` pixels: two for each multiply-add of the convolutions, of
/// batch norm (four a value) and of the box distributions' expectation; activations, pooling and resizing count nothing.
pub fn flops(config: &ModelConfig, height: usize, width: usize) -> f64 {
    let specs = config.layers();
    let mut pixels: Vec<usize> = Vec::with_capacity(specs.len());
    let mut multiply_adds = 0;
    for spec in &specs {
        let input = spec.from.first().map_or(height * width, |&source| pixels[source]);
        let (output, cost) = match spec.kind {
            LayerKind::Downsample { c_in, c_out } => (input / 4, block(c_in, c_out, 3, input / 4)),
            LayerKind::C2f { c_in, c_out, n_repeats, .. } => (input, c2f(c_in, c_out, n_repeats, input)),
            LayerKind::Sppf { c_in, c_out } => {
                (input, block(c_in, c_in / 2, 1, input) + block(c_in * 2, c_out, 1, input))
            }
            LayerKind::Upsample => (input * 4, 0),
            LayerKind::Concat => (input, 0),
            LayerKind::Detect { channels } => (0, head(config, channels, height * width)),
        };
        pixels.push(output);
        multiply_adds += cost;
    }
    2.0 * multiply_adds as f64
}

/// A convolution with batch norm.
fn block(c_in: usize, c_out: usize, kernel: usize, pixels: usize) -> usize {
    c_out * pixels * (c_in * kernel * kernel + NORM_COST)
}

fn c2f(c_in: usize, c_out: usize, n_repeats: usize, pixels: usize) -> usize {
    let hidden = c_out / 2;
    block(c_in, 2 * hidden, 1, pixels)
        + block((2 + n_repeats) * hidden, c_out, 1, pixels)
        + 2 * n_repeats * block(hidden, hidden, 3, pixels)
}

fn head(config: &ModelConfig, channels: [usize; 3], image_pixels: usize) -> usize {
    let (box_channels, class_channels) = config.head_channels(channels);
    let branch = |c_in, c_mid, c_out, pixels| {
        block(c_in, c_mid, 3, pixels) + block(c_mid, c_mid, 3, pixels) + c_mid * c_out * pixels
    };
    channels
        .iter()
        .zip(STRIDES)
        .map(|(&c_in, stride)| {
            let pixels = image_pixels / (stride * stride);
            let expectation = 4 * REG_MAX * pixels;
            branch(c_in, box_channels, 4 * REG_MAX, pixels)
                + branch(c_in, class_channels, config.n_classes, pixels)
                + expectation
        })
        .sum()
}
