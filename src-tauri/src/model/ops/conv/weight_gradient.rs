//! The backward pass to the weights: each weight's gradient is the scalar product of two long vectors.

use std::ops::Range;

use rayon::prelude::*;

use super::buffer::{VECTOR, n_tasks_wanted, with_scratch};
use super::layout::Layout;
use super::piece::Piece;

/// Grid positions, about, that are laid out at a time: a few channels of them lie in the first cache.
const PIECE_POSITIONS: usize = 2048;
/// Values of input, about, that a task lays out at a time: they stay in the second cache.
const TASK_VALUES: usize = 192 * 1024;
/// Sums over different parts of the batch that are made side by side and then added up, at most ..
const MAX_SHARES: usize = 16;
/// .. and how many values they may have together.
const SHARED_VALUES: usize = 1024 * 1024;
/// Channels of one task come in multiples of this ..
const GROUP_STEP: usize = 8;
/// .. and it has at least as many output channels, and input channels times taps.
const MIN_ROWS: usize = 16;
const MIN_COLUMNS: usize = 64;

/// The gradient of the weights of a convolution of `[batch, c_in, height, width]` (see [`Layout`]) to
/// `[batch, c_out, out_height, out_width]`.
pub(super) struct WeightGradient {
    pub layout: Layout,
    pub batch: usize,
    pub c_in: usize,
    pub c_out: usize,
    pub out_height: usize,
    pub out_width: usize,
    /// Of the taps.
    pub offsets: Vec<usize>,
}

/// Rows of one image's grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub image_idx: usize,
    pub first_row: usize,
}

/// What one task computes: the gradients for some input and some output channels, from some segments of the batch.
pub(super) struct Task<'a> {
    segments: &'a [Segment],
    pub in_channels: Range<usize>,
    pub first_out_channel: usize,
    /// By output channel, `[input channels * taps]`.
    pub sums: Vec<&'a mut [f32]>,
}

impl WeightGradient {
    /// Sets how many rows are laid out at a time and, if that is all of them, how many images.
    pub fn cut_to_pieces(layout: Layout, out_height: usize, batch: usize) -> Layout {
        let piece = PIECE_POSITIONS / layout.step;
        let n_bands = (out_height * layout.pitch).div_ceil(piece).clamp(1, out_height.max(1));
        let rows = out_height.div_ceil(n_bands).max(1);
        let n_images = if rows < out_height { 1 } else { piece / (rows * layout.pitch).max(1) };
        Layout { rows, n_stacked: n_images.clamp(1, batch.max(1)), ..layout }
    }

    /// # Shapes
    /// `x` as `[batch, c_in, height, width]`, `gradient` as `[batch, c_out, out_height, out_width]`; gives
    /// `[c_out, c_in, kernel, kernel]`.
    pub fn run(&self, x: &[f32], gradient: &[f32]) -> Vec<f32> {
        let weight_len = self.c_out * self.c_in * self.offsets.len();
        if weight_len == 0 || x.is_empty() {
            return vec![0.0; weight_len];
        }
        let segments = self.segments();
        let n_pieces = segments.len().div_ceil(self.layout.n_stacked);
        let n_shares = (SHARED_VALUES / weight_len).clamp(1, MAX_SHARES).min(n_pieces);
        let shares: Vec<_> = segments.chunks(n_pieces.div_ceil(n_shares) * self.layout.n_stacked).collect();
        let mut partial = vec![0.0; shares.len() * weight_len];
        let tasks = self.tasks(&shares, &mut partial);
        tasks.into_par_iter().for_each(|task| self.run_task(task, x, gradient));
        sum_of_parts(partial, weight_len)
    }

    fn segments(&self) -> Vec<Segment> {
        let first_rows = || (0..self.out_height).step_by(self.layout.rows);
        let of_image = |image_idx| first_rows().map(move |first_row| Segment { image_idx, first_row });
        (0..self.batch).flat_map(of_image).collect()
    }

    fn tasks<'a>(&self, shares: &[&'a [Segment]], partial: &'a mut [f32]) -> Vec<Task<'a>> {
        let row_len = self.c_in * self.offsets.len();
        let [in_len, out_len] = self.group_lens(shares.len());
        let mut tasks = Vec::new();
        for (segments, sums) in shares.iter().zip(partial.chunks_exact_mut(self.c_out * row_len)) {
            for (group, sums) in sums.chunks_mut(out_len * row_len).enumerate() {
                let first_task = tasks.len();
                tasks.extend((0..self.c_in).step_by(in_len).map(|first| Task {
                    segments,
                    in_channels: first..self.c_in.min(first + in_len),
                    first_out_channel: group * out_len,
                    sums: Vec::with_capacity(out_len),
                }));
                for row in sums.chunks_exact_mut(row_len) {
                    let parts = row.chunks_mut(in_len * self.offsets.len()).zip(&mut tasks[first_task..]);
                    parts.for_each(|(part, task)| task.sums.push(part));
                }
            }
        }
        tasks
    }

    /// Input and output channels of one task. How they are divided does not change how any value is computed.
    fn group_lens(&self, n_shares: usize) -> [usize; 2] {
        let x_len = self.c_in * self.layout.plane_len();
        let gradient_len = self.c_out * self.layout.n_positions();
        let (mut n_in, mut n_out) = (x_len.div_ceil(TASK_VALUES), 1);
        while n_shares * n_in * n_out < n_tasks_wanted() {
            let can_split_in = self.c_in / n_in * self.offsets.len() >= 2 * MIN_COLUMNS;
            let can_split_out = self.c_out / n_out >= 2 * MIN_ROWS;
            // Every group of output channels lays out all the input once more, and the other way round.
            match (can_split_in, can_split_out) {
                (false, false) => break,
                (false, true) => n_out *= 2,
                (true, false) => n_in *= 2,
                (true, true) if x_len < gradient_len => n_out *= 2,
                (true, true) => n_in *= 2,
            }
        }
        let len = |channels: usize, n_groups: usize| channels.div_ceil(n_groups).next_multiple_of(GROUP_STEP);
        [len(self.c_in, n_in), len(self.c_out, n_out)]
    }

    fn run_task(&self, mut task: Task, x: &[f32], gradient: &[f32]) {
        let n_positions = self.layout.n_positions().next_multiple_of(VECTOR);
        let x_len = task.in_channels.len() * self.layout.plane_len();
        with_scratch(x_len + task.sums.len() * n_positions, |scratch| {
            let (x_buffer, gradient_buffer) = scratch.split_at_mut(x_len);
            for segments in task.segments.chunks(self.layout.n_stacked) {
                if segments.len() < self.layout.n_stacked {
                    x_buffer.fill(0.0);
                }
                pulp::Arch::new().dispatch(Piece {
                    operation: self,
                    task: &mut task,
                    segments,
                    n_positions,
                    x,
                    gradient,
                    x_buffer,
                    gradient_buffer,
                });
            }
        });
    }
}

/// Adds up arrays of `len` values, in order and in f64.
fn sum_of_parts(mut parts: Vec<f32>, len: usize) -> Vec<f32> {
    const BLOCK: usize = 256;
    if parts.len() == len {
        return parts;
    }
    let (sums, others) = parts.split_at_mut(len);
    sums.par_chunks_mut(BLOCK).enumerate().for_each(|(block, sums)| {
        let mut totals = [0.0f64; BLOCK];
        let mut add = |part: &[f32]| totals.iter_mut().zip(part).for_each(|(total, &value)| *total += value as f64);
        add(sums);
        others.chunks_exact(len).for_each(|part| add(&part[block * BLOCK..][..sums.len()]));
        sums.iter_mut().zip(&totals).for_each(|(sum, &total)| *sum = total as f32);
    });
    parts.truncate(len);
    parts
}
