//! The backward pass to the weights: every weight's gradient is the product of two long vectors.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::layout::{Layout, VECTOR, apart, n_tasks_wanted, with_scratch};

/// Grid positions, about, that are worked on at a time: one channel of them lies in the first cache.
const PIECE_POSITIONS: usize = 2048;
/// Values of laid-out input that a task has at a time, about: they stay in the second cache.
const TASK_VALUES: usize = 192 * 1024;
/// Sums of different rows of the batch, at most, that are made side by side and then added up ..
const MAX_SHARES: usize = 16;
/// .. and values that these may have together.
const SHARED_VALUES: usize = 1024 * 1024;
/// Channels in a group come in multiples of this ..
const GROUP_STEP: usize = 8;
/// .. and a task has at least as many rows and columns of the result.
const MIN_TASK: [usize; 2] = [16, 64];

/// The gradient of the weights of a convolution of `[batch, c_in, height, width]` (see [`Layout`]) to
/// `[batch, c_out, out_height, out_width]`.
pub(super) struct WeightGradient {
    pub layout: Layout,
    pub batch: usize,
    pub c_in: usize,
    pub c_out: usize,
    pub out_height: usize,
    pub out_width: usize,
    /// Distance of each tap from the grid position.
    pub offsets: Vec<usize>,
}

/// Rows of an image's output.
#[derive(Clone, Copy, Debug)]
struct Segment {
    image_idx: usize,
    first_row: usize,
}

impl WeightGradient {
    /// Rows of an image's grid that are laid out at a time, and how many images' together if that is all of them.
    pub fn piece(out_height: usize, pitch: usize, batch: usize, stride: usize) -> (usize, usize) {
        let piece = PIECE_POSITIONS / stride;
        let n_bands = (out_height * pitch).div_ceil(piece).clamp(1, out_height.max(1));
        let rows = out_height.div_ceil(n_bands).max(1);
        let n_stacked = if rows < out_height { 1 } else { (piece / (rows * pitch)).clamp(1, batch) };
        (rows, n_stacked)
    }

    /// # Shapes
    /// `x` as `[batch, c_in, height, width]`, `gradient` as `[batch, c_out, out_height, out_width]`; gives
    /// `[c_out, c_in, kernel, kernel]`.
    pub fn run(&self, x: &[f32], gradient: &[f32]) -> Vec<f32> {
        let row_len = self.c_in * self.offsets.len();
        let weight_len = self.c_out * row_len;
        if weight_len == 0 || x.is_empty() {
            return vec![0.0; weight_len];
        }
        let segments = self.segments();
        let n_pieces = segments.len().div_ceil(self.layout.n_stacked);
        let n_shares = (SHARED_VALUES / weight_len).clamp(1, MAX_SHARES).min(n_pieces);
        let shares = segments.chunks(n_pieces.div_ceil(n_shares) * self.layout.n_stacked);
        let [in_group, out_group] = self.group_lens(shares.len());
        let mut partial = vec![0.0; shares.len() * weight_len];
        let mut tasks = Vec::new();
        for (segments, partial) in shares.zip(partial.chunks_exact_mut(weight_len)) {
            for (group, sums) in partial.chunks_mut(out_group * row_len).enumerate() {
                let first = tasks.len();
                tasks.extend((0..self.c_in).step_by(in_group).map(|first_in| Task {
                    segments,
                    in_channels: first_in..self.c_in.min(first_in + in_group),
                    first_out: group * out_group,
                    sums: Vec::with_capacity(out_group),
                }));
                for row in sums.chunks_exact_mut(row_len) {
                    let parts = row.chunks_mut(in_group * self.offsets.len());
                    parts.zip(&mut tasks[first..]).for_each(|(part, task)| task.sums.push(part));
                }
            }
        }
        tasks.into_par_iter().for_each(|task| self.run_task(task, x, gradient));
        sum_of_parts(partial, weight_len)
    }

    /// Input and output channels that one task has. How they are shared out does not change how any value is computed.
    fn group_lens(&self, n_shares: usize) -> [usize; 2] {
        let len = |channels: usize, n_groups: usize| channels.div_ceil(n_groups).next_multiple_of(GROUP_STEP);
        let n_tasks = n_tasks_wanted();
        let plane_len = self.layout.plane_len();
        let mut n_in = (self.c_in * plane_len).div_ceil(TASK_VALUES);
        let mut n_out = 1;
        while n_shares * n_in * n_out < n_tasks {
            // Each group of one kind lays out its channels for every group of the other.
            let split_out = self.c_in * plane_len <= self.c_out * self.layout.positions();
            let can_split_in = self.c_in / n_in * self.offsets.len() >= 2 * MIN_TASK[1];
            let can_split_out = self.c_out / n_out >= 2 * MIN_TASK[0];
            match (can_split_in, can_split_out) {
                (false, false) => break,
                (true, false) => n_in *= 2,
                (false, true) => n_out *= 2,
                (true, true) if split_out => n_out *= 2,
                (true, true) => n_in *= 2,
            }
        }
        [len(self.c_in, n_in), len(self.c_out, n_out)]
    }

    fn segments(&self) -> Vec<Segment> {
        let of_image = |image_idx| {
            (0..self.out_height).step_by(self.layout.rows).map(move |first_row| Segment { image_idx, first_row })
        };
        (0..self.batch).flat_map(of_image).collect()
    }

    fn run_task(&self, mut task: Task, x: &[f32], gradient: &[f32]) {
        let positions = self.layout.positions().next_multiple_of(VECTOR);
        let x_len = task.in_channels.len() * self.layout.plane_len();
        with_scratch(x_len + task.sums.len() * positions, |scratch| {
            let (x_buffer, gradient_buffer) = scratch.split_at_mut(x_len);
            for segments in task.segments.chunks(self.layout.n_stacked) {
                pulp::Arch::new().dispatch(Piece {
                    operation: self,
                    task: &mut task,
                    segments,
                    positions,
                    x,
                    gradient,
                    x_buffer,
                    gradient_buffer,
                });
            }
        });
    }
}

/// What one task computes: the gradients for some input and some output channels, from some rows of the batch.
struct Task<'a> {
    segments: &'a [Segment],
    in_channels: Range<usize>,
    first_out: usize,
    /// By output channel, `[input channels * taps]`.
    sums: Vec<&'a mut [f32]>,
}

/// Adds up arrays of `len` values, in order and in f64.
fn sum_of_parts(mut parts: Vec<f32>, len: usize) -> Vec<f32> {
    const BLOCK: usize = 256;
    if parts.len() > len {
        let (first, rest) = parts.split_at_mut(len);
        first.par_chunks_mut(BLOCK).enumerate().for_each(|(block, sums)| {
            let mut totals = [0.0f64; BLOCK];
            let mut add =
                |values: &[f32]| totals.iter_mut().zip(values).for_each(|(total, &value)| *total += value as f64);
            add(sums);
            rest.chunks_exact(len).for_each(|part| add(&part[block * BLOCK..][..sums.len()]));
            sums.iter_mut().zip(&totals).for_each(|(sum, &total)| *sum = total as f32);
        });
        parts.truncate(len);
    }
    parts
}

/// Some segments of a task, with buffers for them.
struct Piece<'a, 'b> {
    operation: &'a WeightGradient,
    task: &'a mut Task<'b>,
    segments: &'a [Segment],
    /// Grid positions, filled up to whole vectors.
    positions: usize,
    x: &'a [f32],
    gradient: &'a [f32],
    /// `[input channels, plane_len]`
    x_buffer: &'a mut [f32],
    /// `[output channels, positions]`
    gradient_buffer: &'a mut [f32],
}

impl WithSimd for Piece<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        self.fill_x();
        self.fill_gradient();
        if S::REGISTER_COUNT >= 32 { self.run::<S, 4, 5>(simd) } else { self.run::<S, 3, 3>(simd) }
    }
}

impl Piece<'_, '_> {
    #[inline(always)]
    fn fill_x(&mut self) {
        let WeightGradient { layout, c_in, .. } = self.operation;
        let plane_len = layout.height * layout.width;
        for (stack_idx, segment) in self.segments.iter().enumerate() {
            let first = segment.image_idx * c_in + self.task.in_channels.start;
            let planes = self.x[first * plane_len..].chunks_exact(plane_len);
            for (buffer, plane) in self.x_buffer.chunks_exact_mut(layout.plane_len()).zip(planes) {
                layout.fill(buffer, plane, segment.first_row, stack_idx);
            }
        }
    }

    /// Brings the gradient into the same arrangement, with zeros wherever it has no value.
    #[inline(always)]
    fn fill_gradient(&mut self) {
        let WeightGradient { layout, c_out, out_height, out_width, .. } = self.operation;
        let plane_len = out_height * out_width;
        for (channel, buffer) in self.gradient_buffer.chunks_exact_mut(self.positions).enumerate() {
            let mut n_filled = 0;
            for (segment, buffer) in self.segments.iter().zip(buffer.chunks_mut(layout.stack_len())) {
                let plane = &self.gradient[(segment.image_idx * c_out + self.task.first_out + channel) * plane_len..]
                    [..plane_len];
                let n_rows = layout.rows.min(out_height - segment.first_row);
                let rows = plane[segment.first_row * out_width..].chunks_exact(*out_width).take(n_rows);
                for (buffer, row) in buffer.chunks_exact_mut(layout.pitch).zip(rows) {
                    let (values, pad) = buffer.split_at_mut(*out_width);
                    values.copy_from_slice(row);
                    pad.fill(0.0);
                }
                buffer[n_rows * layout.pitch..].fill(0.0);
                n_filled += buffer.len();
            }
            buffer[n_filled..].fill(0.0);
        }
    }

    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const COLUMNS: usize>(self, simd: S) {
        let WeightGradient { layout, offsets, .. } = self.operation;
        let n_channels = self.task.sums.len();
        let row_len = self.task.in_channels.len() * offsets.len();
        let column_of = |column: usize| {
            let start = column / offsets.len() * layout.plane_len() + offsets[column % offsets.len()];
            &self.x_buffer[start..][..self.positions]
        };
        let row_of = |row: usize| &self.gradient_buffer[row * self.positions..][..self.positions];
        let mut columns: Vec<&[f32]> = (0..row_len).map(column_of).collect();
        columns.extend(std::iter::repeat_n(columns[row_len - 1], row_len.next_multiple_of(COLUMNS) - row_len));
        let mut rows: Vec<&[f32]> = (0..n_channels).map(row_of).collect();
        rows.extend(std::iter::repeat_n(rows[n_channels - 1], n_channels.next_multiple_of(ROWS) - n_channels));
        // The rows stay in the first cache, and columns of one channel are nearly the same values.
        for (rows, sums) in rows.as_chunks::<ROWS>().0.iter().zip(self.task.sums.chunks_mut(ROWS)) {
            for (column_block, columns) in columns.as_chunks::<COLUMNS>().0.iter().enumerate() {
                let totals = apart(simd, Dots { rows, columns });
                for (sums, totals) in sums.iter_mut().zip(&totals) {
                    sums[column_block * COLUMNS..].iter_mut().zip(totals).for_each(|(sum, total)| *sum += total);
                }
            }
        }
    }
}

/// The scalar products of every row with every column.
struct Dots<'a, const ROWS: usize, const COLUMNS: usize> {
    rows: &'a [&'a [f32]; ROWS],
    columns: &'a [&'a [f32]; COLUMNS],
}

impl<const ROWS: usize, const COLUMNS: usize> WithSimd for Dots<'_, ROWS, COLUMNS> {
    type Output = [[f32; COLUMNS]; ROWS];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let n_vectors = self.rows[0].len() / S::F32_LANES;
        let rows: [&[S::f32s]; ROWS] = std::array::from_fn(|i| &S::as_simd_f32s(self.rows[i]).0[..n_vectors]);
        let columns: [&[S::f32s]; COLUMNS] = std::array::from_fn(|i| &S::as_simd_f32s(self.columns[i]).0[..n_vectors]);
        let mut totals = [[simd.splat_f32s(0.0); COLUMNS]; ROWS];
        for i in 0..n_vectors {
            let rows: [S::f32s; ROWS] = std::array::from_fn(|row| rows[row][i]);
            for column in 0..COLUMNS {
                let x = columns[column][i];
                for row in 0..ROWS {
                    totals[row][column] = simd.mul_add_e_f32s(rows[row], x, totals[row][column]);
                }
            }
        }
        let mut sums = [[0.0; COLUMNS]; ROWS];
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                sums[row][column] = simd.reduce_sum_f32s(totals[row][column]);
            }
        }
        sums
    }
}
