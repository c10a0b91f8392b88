//! Two-dimensional convolution.

mod correlation;
mod layout;
mod weight;

use correlation::{Correlation, Part, Tap, Weights};
use layout::Layout;
use weight::WeightGradient;

/// Sizes of a convolution with a square kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    pub batch: usize,
    pub c_in: usize,
    pub height: usize,
    pub width: usize,
    pub c_out: usize,
    pub kernel: usize,
    pub stride: usize,
}

impl ConvShape {
    pub fn out_height(&self) -> usize {
        self.height.div_ceil(self.stride)
    }

    pub fn out_width(&self) -> usize {
        self.width.div_ceil(self.stride)
    }

    /// The same convolution with as long rows as possible: without neighbours it does not matter where a row ends.
    fn with_long_rows(&self) -> Self {
        if self.kernel > 1 || self.stride > 1 || self.width == 0 {
            return *self;
        }
        let fits = |n: &usize| self.height.is_multiple_of(*n) && n * self.width <= 1024;
        let n_joined = (1..=self.height).rev().find(fits).unwrap_or(1);
        Self { height: self.height / n_joined, width: self.width * n_joined, ..*self }
    }

    fn layout(&self) -> Layout {
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
}

fn band_rows(rows: usize, row_len: usize) -> usize {
    let n = (128 * 1024 / row_len.max(1)).clamp(4, rows.max(4)).min(rows.max(1));
    rows.max(1).div_ceil(rows.max(1).div_ceil(n))
}

pub fn forward(shape: &ConvShape, x: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let layout = shape.layout();
    let k = shape.kernel;
    let taps: Vec<Tap> = (0..k * k).map(|i| Tap { offset: layout.offset(i / k, i % k), weight_idx: i }).collect();
    let weights = Weights { values: weight, output_stride: shape.c_in * k * k, source_stride: k * k };
    let part = Part::new(&taps, &weights, shape.c_out, shape.c_in);
    let mut out = vec![0.0; shape.batch * shape.c_out * shape.out_height() * shape.out_width()];
    let correlation = Correlation {
        layout,
        c_in: shape.c_in,
        c_out: shape.c_out,
        out_height: shape.out_height(),
        out_width: shape.out_width(),
        out_step: 1,
        parts: vec![part],
    };
    correlation.run(x, bias, &mut out);
    out
}

pub fn input_gradient(shape: &ConvShape, weight: &[f32], gradient: &[f32]) -> Vec<f32> {
    let layout = shape.gradient_layout();
    let (k, s) = (shape.kernel, shape.stride);
    // Output row y reads row s y + i - k / 2 with row i of the kernel; turned round, row r is read by ..
    let taps_of = |part: usize| {
        let source = |position: usize, i: usize| {
            let distance = (layout.lead * s + position + k / 2).checked_sub(i)?;
            distance.is_multiple_of(s).then_some(distance / s)
        };
        let tap = |i: usize| {
            let (y, x) = (source(part / s, i / k)?, source(part % s, i % k)?);
            Some(Tap { offset: layout.offset(y, x), weight_idx: i })
        };
        (0..k * k).filter_map(tap).collect::<Vec<Tap>>()
    };
    let weights = Weights { values: weight, output_stride: k * k, source_stride: shape.c_in * k * k };
    let parts = (0..s * s).map(|part| Part::new(&taps_of(part), &weights, shape.c_in, shape.c_out)).collect();
    let mut out = vec![0.0; shape.batch * shape.c_in * shape.height * shape.width];
    let correlation = Correlation {
        layout,
        c_in: shape.c_out,
        c_out: shape.c_in,
        out_height: shape.height,
        out_width: shape.width,
        out_step: s,
        parts,
    };
    correlation.run(gradient, None, &mut out);
    out
}

pub fn weight_gradient(shape: &ConvShape, x: &[f32], gradient: &[f32]) -> Vec<f32> {
    let shape = &shape.with_long_rows();
    let mut layout = shape.layout();
    (layout.rows, layout.n_stacked) =
        WeightGradient::piece(shape.out_height(), layout.pitch, shape.batch.max(1), shape.stride);
    let k = shape.kernel;
    let operation = WeightGradient {
        layout,
        batch: shape.batch,
        c_in: shape.c_in,
        c_out: shape.c_out,
        out_height: shape.out_height(),
        out_width: shape.out_width(),
        offsets: (0..k * k).map(|i| layout.offset(i / k, i % k)).collect(),
    };
    operation.run(x, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape([batch, c_in, height, width, c_out, kernel, stride]: [usize; 7]) -> ConvShape {
        ConvShape { batch, c_in, height, width, c_out, kernel, stride }
    }

    fn noise(n: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    struct Case {
        shape: ConvShape,
        x: Vec<f32>,
        weight: Vec<f32>,
        bias: Vec<f32>,
        gradient: Vec<f32>,
    }

    fn case(shape: ConvShape) -> Case {
        Case {
            shape,
            x: noise(shape.batch * shape.c_in * shape.height * shape.width, 1),
            weight: noise(shape.c_out * shape.c_in * shape.kernel * shape.kernel, 2),
            bias: noise(shape.c_out, 3),
            gradient: noise(shape.batch * shape.c_out * shape.out_height() * shape.out_width(), 4),
        }
    }

    /// Calls `f` with the places of (output, input, weight) of every multiplication.
    fn for_each_product(shape: &ConvShape, mut f: impl FnMut(usize, usize, usize)) {
        let (k, s) = (shape.kernel, shape.stride);
        let (out_height, out_width) = (shape.out_height(), shape.out_width());
        for n in 0..shape.batch {
            for co in 0..shape.c_out {
                for ci in 0..shape.c_in {
                    for (y, x) in (0..out_height).flat_map(|y| (0..out_width).map(move |x| (y, x))) {
                        for (i, j) in (0..k).flat_map(|i| (0..k).map(move |j| (i, j))) {
                            let (Some(in_y), Some(in_x)) =
                                ((s * y + i).checked_sub(k / 2), (s * x + j).checked_sub(k / 2))
                            else {
                                continue;
                            };
                            if in_y < shape.height && in_x < shape.width {
                                f(
                                    ((n * shape.c_out + co) * out_height + y) * out_width + x,
                                    ((n * shape.c_in + ci) * shape.height + in_y) * shape.width + in_x,
                                    ((co * shape.c_in + ci) * k + i) * k + j,
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    fn assert_near(ours: &[f32], exact: &[f64], what: &str) {
        assert_eq!(ours.len(), exact.len(), "{what}");
        let scale = exact.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
        for (i, (a, b)) in ours.iter().zip(exact).enumerate() {
            assert!((*a as f64 - b).abs() <= 1e-5 * scale, "{what} at {i}: {a} and {b}");
        }
    }

    fn check(sizes: [usize; 7]) {
        let case = case(shape(sizes));
        let plane = case.shape.out_height() * case.shape.out_width();
        let mut y = vec![0.0; case.gradient.len()];
        y.iter_mut().enumerate().for_each(|(i, y)| *y = case.bias[i / plane % case.shape.c_out] as f64);
        let (mut dx, mut dweight) = (vec![0.0; case.x.len()], vec![0.0; case.weight.len()]);
        for_each_product(&case.shape, |o, i, w| {
            y[o] += case.x[i] as f64 * case.weight[w] as f64;
            dx[i] += case.gradient[o] as f64 * case.weight[w] as f64;
            dweight[w] += case.gradient[o] as f64 * case.x[i] as f64;
        });
        assert_near(
            &forward(&case.shape, &case.x, &case.weight, Some(&case.bias)),
            &y,
            &format!("forward of {sizes:?}"),
        );
        assert_near(&input_gradient(&case.shape, &case.weight, &case.gradient), &dx, &format!("dx of {sizes:?}"));
        assert_near(&weight_gradient(&case.shape, &case.x, &case.gradient), &dweight, &format!("dweight of {sizes:?}"));
    }

    #[test]
    fn all_equal() {
        for kernel in [1, 3] {
            for stride in [1, 2] {
                for [batch, c_in, height, width, c_out] in [
                    [1, 1, 1, 1, 1],
                    [2, 3, 5, 7, 4],
                    [1, 5, 8, 6, 80],
                    [3, 16, 20, 20, 10],
                    [2, 8, 41, 52, 9],
                    [1, 2, 130, 33, 3],
                    [1, 20, 1, 40, 70],
                ] {
                    check([batch, c_in, height, width, c_out, kernel, stride]);
                }
            }
        }
    }
}
