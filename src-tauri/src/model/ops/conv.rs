//! Two-dimensional convolution and its gradients on slices in memory.
//!
//! There is no matrix of patches: a kernel's taps read shifted views of one padded copy of the image, some rows at a
//! time. A 1x1 kernel reads the image itself. The gradient of the input is a convolution of the output's gradient, also
//! for stride 2, where odd and even rows and columns are each made by the taps that reach them. The gradient of the
//! weights is a product of the output's gradient with the shifted views.
//!
//! Each value is computed by the same operations in the same order for any number of threads. They do depend on the
//! processor's instruction set: its vectors' length, and whether a multiplication and an addition are one operation.

mod buffer;
mod correlation;
mod layout;
mod panel;
mod piece;
mod weight_gradient;

use correlation::Correlation;
use layout::Layout;
use panel::{Kernels, Panels, Tap};
use weight_gradient::WeightGradient;

/// Values of the source, about, that a task lays out at a time: they stay in the second cache.
const BAND_VALUES: usize = 128 * 1024;
/// Rows of a band, at least, so that those that two bands read are not too many.
const MIN_BAND_ROWS: usize = 4;
/// Values of a row made of several, at most: see [`ConvShape::with_long_rows`].
const LONG_ROW: usize = 1024;

/// Sizes of a convolution with a square kernel, zero padding by half the kernel, and one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    pub batch: usize,
    pub c_in: usize,
    /// Of the input, pixels.
    pub height: usize,
    pub width: usize,
    pub c_out: usize,
    /// 1 or 3.
    pub kernel: usize,
    /// 1 or 2.
    pub stride: usize,
}

/// There are functions here for this kernel and stride.
pub fn is_supported(kernel: usize, stride: usize) -> bool {
    matches!((kernel, stride), (1 | 3, 1 | 2))
}

impl ConvShape {
    pub fn out_height(&self) -> usize {
        self.height.div_ceil(self.stride)
    }

    pub fn out_width(&self) -> usize {
        self.width.div_ceil(self.stride)
    }

    /// Values of the input, `[batch, c_in, height, width]`.
    pub fn input_len(&self) -> usize {
        self.batch * self.c_in * self.height * self.width
    }

    /// Values of the output, `[batch, c_out, out_height, out_width]`.
    pub fn output_len(&self) -> usize {
        self.batch * self.c_out * self.out_height() * self.out_width()
    }

    /// Values of the weights, `[c_out, c_in, kernel, kernel]`.
    pub fn weight_len(&self) -> usize {
        self.c_out * self.c_in * self.kernel * self.kernel
    }

    /// The input for the kernel's grid of positions, which is the output's.
    fn input_layout(&self) -> Layout {
        let pad = self.kernel / 2;
        let pitch = self.out_width() + pad;
        Layout {
            height: self.height,
            width: self.width,
            step: self.stride,
            n_parts: self.kernel.min(self.stride),
            lead: pad,
            extra: (self.kernel - 1) / self.stride,
            pitch,
            rows: band_rows(self.out_height(), self.c_in * self.stride * self.stride * pitch),
            n_stacked: 1,
        }
    }

    /// The output's gradient for a grid that has one position for `stride * stride` pixels of the input.
    fn gradient_layout(&self) -> Layout {
        let pad = self.kernel / 2;
        let pitch = self.out_width() + pad;
        Layout {
            height: self.out_height(),
            width: self.out_width(),
            step: 1,
            n_parts: 1,
            lead: if self.stride == 1 { pad } else { 0 },
            extra: (self.kernel - 1) / self.stride,
            pitch,
            rows: band_rows(self.out_height(), self.c_out * pitch),
            n_stacked: 1,
        }
    }

    /// The same convolution with longer rows, if the kernel takes no neighbours, so that it does not matter where a row
    /// ends.
    fn with_long_rows(self) -> Self {
        if self.kernel > 1 || self.stride > 1 {
            return self;
        }
        let fits = |n: &usize| self.height.is_multiple_of(*n) && n * self.width <= LONG_ROW;
        let n_joined = (1..=self.height).rev().find(fits).unwrap_or(1);
        Self { height: self.height / n_joined, width: self.width * n_joined, ..self }
    }

    /// # Panics
    /// When kernel, stride or a slice's length are not those of a convolution of this shape.
    fn check(&self, lens: &[(usize, usize)]) {
        assert!(
            is_supported(self.kernel, self.stride),
            "no convolution of kernel {} and stride {}",
            self.kernel,
            self.stride
        );
        lens.iter().for_each(|(len, expected)| assert_eq!(len, expected, "values for {self:?}"));
    }
}

/// Rows of a band of which each has `row_len` values: as nearly equal in all bands as possible.
fn band_rows(n_rows: usize, row_len: usize) -> usize {
    let n_rows = n_rows.max(1);
    let most = (BAND_VALUES / row_len.max(1)).max(MIN_BAND_ROWS);
    n_rows.div_ceil(n_rows.div_ceil(most))
}

/// The convolution's output.
///
/// # Shapes
/// `x` `[batch, c_in, height, width]`, `weight` `[c_out, c_in, kernel, kernel]`, `bias` `[c_out]`; gives
/// `[batch, c_out, out_height, out_width]`.
///
/// # Panics
/// When the shape is not supported or a slice has another length.
pub fn forward(shape: &ConvShape, x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    shape.check(&[(x.len(), shape.input_len()), (weight.len(), shape.weight_len()), (bias.len(), shape.c_out)]);
    let layout = shape.input_layout();
    let kernel = shape.kernel;
    let tap = |i: usize| Tap { offset: layout.offset(i / kernel, i % kernel), weight_idx: i };
    let taps: Vec<Tap> = (0..kernel * kernel).map(tap).collect();
    let kernels = Kernels { values: weight, out_stride: shape.c_in * taps.len(), in_stride: taps.len() };
    let correlation = Correlation {
        layout,
        c_in: shape.c_in,
        c_out: shape.c_out,
        out_height: shape.out_height(),
        out_width: shape.out_width(),
        out_step: 1,
        parts: vec![Panels::new(&taps, &kernels, shape.c_out, shape.c_in)],
    };
    let mut output = vec![0.0; shape.output_len()];
    correlation.run(x, bias, &mut output);
    output
}

/// Gradient of the input, from that of the output.
///
/// # Shapes
/// `weight` `[c_out, c_in, kernel, kernel]`, `gradient` `[batch, c_out, out_height, out_width]`; gives
/// `[batch, c_in, height, width]`.
///
/// # Panics
/// As [`forward`].
pub fn input_gradient(shape: &ConvShape, weight: &[f32], gradient: &[f32]) -> Vec<f32> {
    shape.check(&[(weight.len(), shape.weight_len()), (gradient.len(), shape.output_len())]);
    let layout = shape.gradient_layout();
    let (stride, n_taps) = (shape.stride, shape.kernel * shape.kernel);
    let kernels = Kernels { values: weight, out_stride: n_taps, in_stride: shape.c_in * n_taps };
    let panels_of = |part: usize| {
        let taps = input_gradient_taps(shape, &layout, part / stride, part % stride);
        Panels::new(&taps, &kernels, shape.c_in, shape.c_out)
    };
    let correlation = Correlation {
        layout,
        c_in: shape.c_out,
        c_out: shape.c_in,
        out_height: shape.height,
        out_width: shape.width,
        out_step: stride,
        parts: (0..stride * stride).map(panels_of).collect(),
    };
    let mut input_gradient = vec![0.0; shape.input_len()];
    correlation.run(gradient, &[], &mut input_gradient);
    input_gradient
}

/// Taps that reach the input's rows and columns that leave the remainders `part_y` and `part_x` by the stride.
///
/// Tap i of output row y reads input row `stride * y + i - kernel / 2`. Read backwards, input row `stride * r + part_y`
/// has a value from output row `r + (part_y + kernel / 2 - i) / stride` if that can be divided.
fn input_gradient_taps(shape: &ConvShape, layout: &Layout, part_y: usize, part_x: usize) -> Vec<Tap> {
    let distance = |part: usize, i: usize| {
        let pixels = (layout.lead * shape.stride + part + shape.kernel / 2).checked_sub(i)?;
        pixels.is_multiple_of(shape.stride).then_some(pixels / shape.stride)
    };
    let tap = |i: usize| {
        let (row, column) = (distance(part_y, i / shape.kernel)?, distance(part_x, i % shape.kernel)?);
        Some(Tap { offset: layout.offset(row, column), weight_idx: i })
    };
    (0..shape.kernel * shape.kernel).filter_map(tap).collect()
}

/// Gradient of the weights, from that of the output.
///
/// # Shapes
/// `x` `[batch, c_in, height, width]`, `gradient` `[batch, c_out, out_height, out_width]`; gives
/// `[c_out, c_in, kernel, kernel]`.
///
/// # Panics
/// As [`forward`].
pub fn weight_gradient(shape: &ConvShape, x: &[f32], gradient: &[f32]) -> Vec<f32> {
    shape.check(&[(x.len(), shape.input_len()), (gradient.len(), shape.output_len())]);
    let shape = shape.with_long_rows();
    let layout = WeightGradient::cut_to_pieces(shape.input_layout(), shape.out_height(), shape.batch);
    let kernel = shape.kernel;
    let operation = WeightGradient {
        layout,
        batch: shape.batch,
        c_in: shape.c_in,
        c_out: shape.c_out,
        out_height: shape.out_height(),
        out_width: shape.out_width(),
        offsets: (0..kernel * kernel).map(|i| layout.offset(i / kernel, i % kernel)).collect(),
    };
    operation.run(x, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batch, channels in, height, width, channels out.
    const SIZES: [[usize; 5]; 9] = [
        [1, 1, 1, 1, 1],
        [2, 3, 5, 7, 4],
        [1, 5, 8, 6, 80],
        [3, 16, 20, 20, 10],
        [2, 8, 41, 52, 9],
        [1, 2, 130, 33, 3],
        [1, 20, 1, 40, 70],
        [3, 17, 30, 30, 33],
        [1, 300, 12, 40, 5],
    ];

    struct Case {
        shape: ConvShape,
        x: Vec<f32>,
        weight: Vec<f32>,
        bias: Vec<f32>,
        gradient: Vec<f32>,
    }

    fn case([batch, c_in, height, width, c_out]: [usize; 5], kernel: usize, stride: usize) -> Case {
        let shape = ConvShape { batch, c_in, height, width, c_out, kernel, stride };
        Case {
            x: noise(shape.input_len(), 1),
            weight: noise(shape.weight_len(), 2),
            bias: noise(c_out, 3),
            gradient: noise(shape.output_len(), 4),
            shape,
        }
    }

    fn cases() -> impl Iterator<Item = Case> {
        let kinds = [(1, 1), (3, 1), (3, 2), (1, 2)];
        SIZES.into_iter().flat_map(move |sizes| kinds.map(|(kernel, stride)| case(sizes, kernel, stride)))
    }

    /// Numbers in -1..1.
    fn noise(n: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    /// Calls `f` with the places of output, input and weight of every multiplication.
    fn for_each_product(shape: &ConvShape, mut f: impl FnMut(usize, usize, usize)) {
        let (kernel, stride, pad) = (shape.kernel, shape.stride, shape.kernel / 2);
        let (out_height, out_width) = (shape.out_height(), shape.out_width());
        for out_idx in 0..shape.output_len() {
            let (plane, pixel) = (out_idx / (out_height * out_width), out_idx % (out_height * out_width));
            let (image, c_out) = (plane / shape.c_out, plane % shape.c_out);
            for tap in 0..kernel * kernel {
                let y = (stride * (pixel / out_width) + tap / kernel).wrapping_sub(pad);
                let x = (stride * (pixel % out_width) + tap % kernel).wrapping_sub(pad);
                if y >= shape.height || x >= shape.width {
                    continue;
                }
                for c_in in 0..shape.c_in {
                    let in_idx = ((image * shape.c_in + c_in) * shape.height + y) * shape.width + x;
                    f(out_idx, in_idx, (c_out * shape.c_in + c_in) * kernel * kernel + tap);
                }
            }
        }
    }

    fn assert_near(ours: &[f32], exact: &[f64], what: &str, shape: &ConvShape) {
        assert_eq!(ours.len(), exact.len(), "{what} of {shape:?}");
        let scale = exact.iter().fold(1e-30f64, |scale, value| scale.max(value.abs()));
        for (i, (a, b)) in ours.iter().zip(exact).enumerate() {
            assert!((*a as f64 - b).abs() <= 1e-5 * scale, "{what} of {shape:?} at {i}: {a} and {b}");
        }
    }

    #[test]
    fn results_are_those_of_the_definition_in_f64() {
        for case in cases() {
            let shape = &case.shape;
            let plane_len = shape.out_height() * shape.out_width();
            let bias_of = |i: usize| case.bias[i / plane_len % shape.c_out] as f64;
            let mut output: Vec<f64> = (0..shape.output_len()).map(bias_of).collect();
            let (mut dx, mut dweight) = (vec![0.0; case.x.len()], vec![0.0; case.weight.len()]);
            for_each_product(shape, |o, i, w| {
                output[o] += case.x[i] as f64 * case.weight[w] as f64;
                dx[i] += case.gradient[o] as f64 * case.weight[w] as f64;
                dweight[w] += case.gradient[o] as f64 * case.x[i] as f64;
            });
            assert_near(&forward(shape, &case.x, &case.weight, &case.bias), &output, "output", shape);
            assert_near(&input_gradient(shape, &case.weight, &case.gradient), &dx, "input gradient", shape);
            assert_near(&weight_gradient(shape, &case.x, &case.gradient), &dweight, "weight gradient", shape);
        }
    }

    #[test]
    fn a_kernel_of_ones_adds_up_the_neighbours() {
        let shape = ConvShape { batch: 1, c_in: 1, height: 2, width: 3, c_out: 1, kernel: 3, stride: 1 };
        let output = forward(&shape, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[1.0; 9], &[0.0]);
        assert_eq!(output, [12.0, 21.0, 16.0, 12.0, 21.0, 16.0]);
        let strided = forward(&ConvShape { stride: 2, ..shape }, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[1.0; 9], &[0.0]);
        assert_eq!(strided, [12.0, 16.0]);
    }

    #[test]
    fn gradients_are_those_of_central_differences() {
        for (kernel, stride) in [(1, 1), (3, 1), (3, 2)] {
            let case = case([2, 3, 5, 4, 2], kernel, stride);
            let loss = |x: &[f32], weight: &[f32]| -> f64 {
                let output = forward(&case.shape, x, weight, &vec![0.0; case.shape.c_out]);
                output.iter().zip(&case.gradient).map(|(&y, &g)| y as f64 * g as f64).sum()
            };
            // The loss is linear in each, so that large differences are as good as small ones.
            let slope = |values: &[f32], i: usize, loss: &dyn Fn(&[f32]) -> f64| {
                let moved = |by: f32| {
                    values.iter().enumerate().map(|(j, v)| if j == i { v + by } else { *v }).collect::<Vec<_>>()
                };
                (loss(&moved(1.0)) - loss(&moved(-1.0))) / 2.0
            };
            let dx = input_gradient(&case.shape, &case.weight, &case.gradient);
            for (i, &dx) in dx.iter().enumerate() {
                let slope = slope(&case.x, i, &|x| loss(x, &case.weight));
                assert!(
                    (slope - dx as f64).abs() < 1e-5,
                    "kernel {kernel}, stride {stride}, x at {i}: {dx} and {slope}"
                );
            }
            let dweight = weight_gradient(&case.shape, &case.x, &case.gradient);
            for (i, &dweight) in dweight.iter().enumerate() {
                let slope = slope(&case.weight, i, &|weight| loss(&case.x, weight));
                assert!((slope - dweight as f64).abs() < 1e-5, "kernel {kernel}, weight at {i}: {dweight} and {slope}");
            }
        }
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let with_threads = |n: usize| -> Vec<[Vec<f32>; 3]> {
            let of_case = |case: Case| {
                [
                    forward(&case.shape, &case.x, &case.weight, &case.bias),
                    input_gradient(&case.shape, &case.weight, &case.gradient),
                    weight_gradient(&case.shape, &case.x, &case.gradient),
                ]
            };
            let large =
                [case([2, 64, 24, 24, 64], 3, 1), case([2, 64, 24, 24, 160], 3, 2), case([5, 96, 30, 30, 64], 1, 1)];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
            pool.install(|| cases().chain(large).map(of_case).collect())
        };
        let of_one = with_threads(1);
        for n in [2, 3, 7] {
            assert!(with_threads(n) == of_one, "{n} threads give what one gives");
        }
    }

    #[test]
    fn what_is_left_in_memory_does_not_matter() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let case = case([3, 17, 30, 30, 33], 3, 1);
        let run = || weight_gradient(&case.shape, &case.x, &case.gradient);
        let clean = run();
        for _ in 0..20 {
            pool.broadcast(|_| buffer::with_scratch(1 << 20, |scratch| scratch.fill(f32::NAN)));
            assert!(pool.install(run) == clean, "what is not laid out has zeros");
        }
    }

    #[test]
    fn an_empty_batch_gives_nothing_and_no_gradient() {
        let shape = ConvShape { batch: 0, c_in: 3, height: 8, width: 8, c_out: 4, kernel: 3, stride: 2 };
        let weight = noise(shape.weight_len(), 1);
        assert!(forward(&shape, &[], &weight, &[0.0; 4]).is_empty());
        assert!(input_gradient(&shape, &weight, &[]).is_empty());
        assert_eq!(weight_gradient(&shape, &[], &[]), vec![0.0; weight.len()]);
    }
}
