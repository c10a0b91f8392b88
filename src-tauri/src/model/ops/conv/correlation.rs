//! Correlation of images with a kernel: the forward pass, and the backward pass to the input.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::buffer::{VECTOR, n_tasks_wanted, with_scratch};
use super::layout::Layout;
use super::panel::{PANEL, Panels, Source};

/// Output channels of one task come in multiples of this, so that laying out the source for them is worth it.
const GROUP_STEP: usize = 4 * PANEL;

/// A correlation of `[batch, c_in, height, width]` (see [`Layout`]) to `[batch, c_out, out_height, out_width]`.
pub(super) struct Correlation {
    pub layout: Layout,
    pub c_in: usize,
    pub c_out: usize,
    pub out_height: usize,
    pub out_width: usize,
    /// Distance in the output of two grid positions.
    pub out_step: usize,
    /// What makes the outputs at each remainder of row and column by the step: `[out_step, out_step]`.
    pub parts: Vec<Panels>,
}

/// What one task computes: some rows of some channels of an image.
struct Task<'a> {
    image: &'a [f32],
    first_row: usize,
    first_channel: usize,
    /// By channel.
    outputs: Vec<&'a mut [f32]>,
}

impl Correlation {
    /// # Shapes
    /// `source` `[batch, c_in, height, width]`, `output` `[batch, c_out, out_height, out_width]`, `bias` `[c_out]`, or empty for none.
    pub fn run(&self, source: &[f32], bias: &[f32], output: &mut [f32]) {
        if !source.is_empty() && !output.is_empty() {
            self.tasks(source, output).into_par_iter().for_each(|task| self.run_task(task, bias));
        }
    }

    /// Each value is made by one task, always in the same way.
    fn tasks<'a>(&self, source: &'a [f32], output: &'a mut [f32]) -> Vec<Task<'a>> {
        let plane_len = self.out_height * self.out_width;
        let band_len = self.layout.rows * self.out_step * self.out_width;
        let n_bands = plane_len.div_ceil(band_len);
        let image_len = self.c_in * self.layout.height * self.layout.width;
        let n_groups = n_tasks_wanted().div_ceil(n_bands * (source.len() / image_len));
        let group_len = self.c_out.div_ceil(n_groups).next_multiple_of(GROUP_STEP);
        let mut tasks = Vec::new();
        for (image, output) in source.chunks_exact(image_len).zip(output.chunks_exact_mut(self.c_out * plane_len)) {
            for (group, output) in output.chunks_mut(group_len * plane_len).enumerate() {
                let first_task = tasks.len();
                tasks.extend((0..n_bands).map(|band| Task {
                    image,
                    first_row: band * self.layout.rows,
                    first_channel: group * group_len,
                    outputs: Vec::with_capacity(group_len),
                }));
                for plane in output.chunks_exact_mut(plane_len) {
                    let bands = plane.chunks_mut(band_len).zip(&mut tasks[first_task..]);
                    bands.for_each(|(band, task)| task.outputs.push(band));
                }
            }
        }
        tasks
    }

    fn run_task(&self, task: Task, bias: &[f32]) {
        let (plane_len, staged_len) = if self.is_plain() {
            (VECTOR, VECTOR)
        } else {
            (self.layout.plane_len(), self.layout.n_positions().next_multiple_of(VECTOR))
        };
        with_scratch(self.c_in * plane_len + self.parts.len() * PANEL * staged_len, |scratch| {
            let (source, staged) = scratch.split_at_mut(self.c_in * plane_len);
            pulp::Arch::new().dispatch(Band { correlation: self, bias, task, source, plane_len, staged, staged_len });
        });
    }

    /// Source and output are arranged as the grid is.
    fn is_plain(&self) -> bool {
        self.layout.is_plain() && self.out_step == 1
    }

    /// Copies one channel's values from the staged ones.
    #[inline(always)]
    fn unstage(&self, staged: &[f32], staged_len: usize, channel: usize, output: &mut [f32]) {
        for (y, row) in output.chunks_exact_mut(self.out_width).enumerate() {
            let staged_row = |part_x: usize| {
                let part = y % self.out_step * self.out_step + part_x;
                let start = (part * PANEL + channel) * staged_len + y / self.out_step * self.layout.pitch;
                &staged[start..start + self.layout.pitch]
            };
            if self.out_step == 1 {
                row.copy_from_slice(&staged_row(0)[..self.out_width]);
            } else {
                interleave(row, staged_row(0), staged_row(1));
            }
        }
    }
}

#[inline(always)]
fn interleave(row: &mut [f32], even: &[f32], odd: &[f32]) {
    let (pairs, last) = row.as_chunks_mut::<2>();
    let n_pairs = pairs.len();
    for ((pair, &even), &odd) in pairs.iter_mut().zip(even).zip(odd) {
        *pair = [even, odd];
    }
    if let [last] = last {
        *last = even[n_pairs];
    }
}

/// A task with its buffers.
struct Band<'a> {
    correlation: &'a Correlation,
    bias: &'a [f32],
    task: Task<'a>,
    /// `[c_in, plane_len]`
    source: &'a mut [f32],
    plane_len: usize,
    /// `[parts, PANEL, staged_len]`
    staged: &'a mut [f32],
    staged_len: usize,
}

impl WithSimd for Band<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if self.correlation.is_plain() {
            self.run_plain(simd);
        } else {
            self.run(simd);
        }
    }
}

impl Band<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Correlation { layout, parts, .. } = self.correlation;
        let planes = self.task.image.chunks_exact(layout.height * layout.width);
        for (buffer, plane) in self.source.chunks_exact_mut(self.plane_len).zip(planes) {
            layout.fill(buffer, plane, self.task.first_row, 0);
        }
        let n_vectors = layout.n_positions().div_ceil(S::F32_LANES);
        for (panel_idx, outputs) in self.task.outputs.chunks_mut(PANEL).enumerate() {
            for (part, staged) in parts.iter().zip(self.staged.chunks_exact_mut(PANEL * self.staged_len)) {
                let panel = part.panel(self.task.first_channel + panel_idx * PANEL, self.bias);
                let source =
                    Source { values: self.source, plane_len: self.plane_len, start: 0, offsets: &part.offsets };
                let mut rows = Default::default();
                fill_array(&mut rows, staged.chunks_exact_mut(self.staged_len));
                panel.correlate(simd, &source, n_vectors, &mut rows);
            }
            for (channel, output) in outputs.iter_mut().enumerate() {
                self.correlation.unstage(self.staged, self.staged_len, channel, output);
            }
        }
    }

    /// Without laying out or staging, but for the positions that do not fill a vector.
    #[inline(always)]
    fn run_plain<S: Simd>(mut self, simd: S) {
        let Correlation { layout, parts, .. } = self.correlation;
        let image_plane_len = layout.height * layout.width;
        let start = self.task.first_row * layout.pitch;
        let n_positions = self.task.outputs.first().map_or(0, |output| output.len());
        let n_vectors = n_positions / S::F32_LANES;
        let n_whole = n_vectors * S::F32_LANES;
        let planes = self.task.image.chunks_exact(image_plane_len);
        for (buffer, plane) in self.source.chunks_exact_mut(self.plane_len).zip(planes) {
            let rest = &plane[start + n_whole..start + n_positions];
            buffer.fill(0.0);
            buffer[..rest.len()].copy_from_slice(rest);
        }
        for part in parts {
            let image = Source { values: self.task.image, plane_len: image_plane_len, start, offsets: &part.offsets };
            let rest = Source { values: self.source, plane_len: self.plane_len, start: 0, offsets: &part.offsets };
            for (panel_idx, outputs) in self.task.outputs.chunks_mut(PANEL).enumerate() {
                let panel = part.panel(self.task.first_channel + panel_idx * PANEL, self.bias);
                let mut rows = Default::default();
                fill_array(&mut rows, outputs.iter_mut().map(|output| &mut **output));
                panel.correlate(simd, &image, n_vectors, &mut rows);
                if n_whole == n_positions {
                    continue;
                }
                let mut rows = Default::default();
                fill_array(&mut rows, self.staged.chunks_exact_mut(self.staged_len));
                panel.correlate(simd, &rest, 1, &mut rows);
                for (output, row) in outputs.iter_mut().zip(&rows) {
                    output[n_whole..].copy_from_slice(&row[..n_positions - n_whole]);
                }
            }
        }
    }
}

#[inline(always)]
fn fill_array<'a>(array: &mut [&'a mut [f32]; PANEL], slices: impl Iterator<Item = &'a mut [f32]>) {
    array.iter_mut().zip(slices).for_each(|(place, slice)| *place = slice);
}
