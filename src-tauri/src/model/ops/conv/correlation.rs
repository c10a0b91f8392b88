//! Correlation of images with a kernel: the forward pass, and the backward pass to the input.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::layout::{Layout, VECTOR, apart, n_tasks_wanted, with_scratch};

/// Output channels whose weights lie side by side.
const PANEL: usize = 8;
/// Output channels of one task come in multiples of this, so that laying out the source is worth it.
const MIN_GROUP: usize = 4 * PANEL;
/// Vectors of grid positions in one tile.
const TILE_VECTORS: usize = 3;

/// A value that a grid position is made from: its distance in the layout, and its weight's place in the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap {
    pub offset: usize,
    pub weight_idx: usize,
}

/// Kernels in memory: those of the next output and of the next source channel are this far away.
pub(super) struct Weights<'a> {
    pub values: &'a [f32],
    pub output_stride: usize,
    pub source_stride: usize,
}

/// The outputs whose rows and columns leave one remainder by the output's step: which taps make them, and their weights.
pub(super) struct Part {
    offsets: Vec<usize>,
    panel_len: usize,
    /// `[output channels / PANEL, source channels * taps, PANEL]`, filled up with zeros.
    panels: Vec<[f32; PANEL]>,
}

impl Part {
    pub fn new(taps: &[Tap], weights: &Weights, c_out: usize, c_in: usize) -> Self {
        let panel_len = c_in * taps.len();
        let mut panels = vec![[0.0; PANEL]; c_out.div_ceil(PANEL) * panel_len];
        panels.par_chunks_exact_mut(panel_len.max(1)).enumerate().for_each(|(panel_idx, panel)| {
            let first = panel_idx * PANEL;
            let weights_of =
                |channel: usize| &weights.values[first * weights.output_stride + channel * weights.source_stride..];
            for (channel, panel) in panel.chunks_exact_mut(taps.len()).enumerate() {
                let weights_of_panel = weights_of(channel);
                if first + PANEL <= c_out {
                    fill_panel::<PANEL>(panel, taps, weights_of_panel, weights.output_stride);
                } else {
                    (0..c_out - first)
                        .for_each(|i| fill_row(panel, i, taps, &weights_of_panel[i * weights.output_stride..]));
                }
            }
        });
        Self { offsets: taps.iter().map(|tap| tap.offset).collect(), panel_len, panels }
    }
}

fn fill_panel<const N: usize>(panel: &mut [[f32; PANEL]], taps: &[Tap], weights: &[f32], stride: usize) {
    for (panel, tap) in panel.iter_mut().zip(taps) {
        for (i, weight) in panel.iter_mut().enumerate() {
            *weight = weights[i * stride + tap.weight_idx];
        }
    }
}

fn fill_row(panel: &mut [[f32; PANEL]], row: usize, taps: &[Tap], weights: &[f32]) {
    panel.iter_mut().zip(taps).for_each(|(panel, tap)| panel[row] = weights[tap.weight_idx]);
}

/// A correlation of `[batch, c_in, height, width]` (see [`Layout`]) to `[batch, c_out, out_height, out_width]`.
pub(super) struct Correlation {
    pub layout: Layout,
    pub c_in: usize,
    pub c_out: usize,
    pub out_height: usize,
    pub out_width: usize,
    /// Distance in the output of two grid positions; there are its square of parts.
    pub out_step: usize,
    pub parts: Vec<Part>,
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
    /// `source` as `[batch, c_in, height, width]`, `output` as `[batch, c_out, out_height, out_width]`, `bias` `[c_out]`.
    pub fn run(&self, source: &[f32], bias: Option<&[f32]>, output: &mut [f32]) {
        if source.is_empty() || output.is_empty() {
            return;
        }
        let plane = self.out_height * self.out_width;
        let band = self.layout.rows * self.out_step * self.out_width;
        let n_bands = plane.div_ceil(band);
        let images = source.chunks_exact(self.c_in * self.layout.height * self.layout.width);
        let n_tasks = n_bands * (source.len() / (self.c_in * self.layout.height * self.layout.width));
        // How the channels are shared out does not change how any value is computed.
        let n_groups = n_tasks_wanted().div_ceil(n_tasks);
        let group_len = self.c_out.div_ceil(n_groups).next_multiple_of(MIN_GROUP);
        let mut tasks = Vec::new();
        for (image, output) in images.zip(output.chunks_exact_mut(self.c_out * plane)) {
            for (group, output) in output.chunks_mut(group_len * plane).enumerate() {
                let first = tasks.len();
                tasks.extend((0..n_bands).map(|band| Task {
                    image,
                    first_row: band * self.layout.rows,
                    first_channel: group * group_len,
                    outputs: Vec::with_capacity(group_len),
                }));
                for plane in output.chunks_exact_mut(plane) {
                    plane.chunks_mut(band).zip(&mut tasks[first..]).for_each(|(band, task)| task.outputs.push(band));
                }
            }
        }
        tasks.into_par_iter().for_each(|task| self.run_task(task, bias));
    }

    fn run_task(&self, task: Task, bias: Option<&[f32]>) {
        if self.is_direct() {
            with_scratch(self.c_in * VECTOR + PANEL * VECTOR, |scratch| {
                let (source, staged) = scratch.split_at_mut(self.c_in * VECTOR);
                pulp::Arch::new().dispatch(Band { correlation: self, bias, task, source, staged, staged_len: VECTOR });
            });
            return;
        }
        let source_len = self.c_in * self.layout.plane_len();
        let staged_len = (self.layout.positions() + VECTOR).next_multiple_of(VECTOR);
        with_scratch(source_len + self.parts.len() * PANEL * staged_len, |scratch| {
            let (source, staged) = scratch.split_at_mut(source_len);
            pulp::Arch::new().dispatch(Band { correlation: self, bias, task, source, staged, staged_len });
        });
    }

    /// Source and output have the grid's own arrangement.
    fn is_direct(&self) -> bool {
        let Layout { n_parts, step, extra, lead, .. } = self.layout;
        n_parts == 1 && step == 1 && extra == 0 && lead == 0 && self.out_step == 1
    }
}

/// A task with its buffers.
struct Band<'a> {
    correlation: &'a Correlation,
    bias: Option<&'a [f32]>,
    task: Task<'a>,
    source: &'a mut [f32],
    staged: &'a mut [f32],
    staged_len: usize,
}

impl WithSimd for Band<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if self.correlation.is_direct() {
            self.run_direct(simd);
        } else {
            self.run(simd);
        }
    }
}

impl Band<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Correlation { layout, parts, .. } = self.correlation;
        let plane_len = layout.plane_len();
        let planes = self.task.image.chunks_exact(layout.height * layout.width);
        for (buffer, plane) in self.source.chunks_exact_mut(plane_len).zip(planes) {
            layout.fill(buffer, plane, self.task.first_row, 0);
        }
        let n_vectors = layout.positions().div_ceil(S::F32_LANES);
        for (panel_idx, outputs) in self.task.outputs.chunks_mut(PANEL).enumerate() {
            let first_channel = self.task.first_channel + panel_idx * PANEL;
            for (part, staged) in parts.iter().zip(self.staged.chunks_exact_mut(PANEL * self.staged_len)) {
                let source = Source { values: self.source, plane_len, start: 0, offsets: &part.offsets };
                let mut rows: [&mut [f32]; PANEL] = Default::default();
                rows.iter_mut().zip(staged.chunks_exact_mut(self.staged_len)).for_each(|(row, staged)| *row = staged);
                part.panel(first_channel, self.bias).correlate(simd, &source, n_vectors, &mut rows);
            }
            for (channel, output) in outputs.iter_mut().enumerate() {
                self.correlation.unstage(self.staged, self.staged_len, channel, output);
            }
        }
    }

    #[inline(always)]
    fn run_direct<S: Simd>(mut self, simd: S) {
        let Correlation { layout, parts, .. } = self.correlation;
        let plane_len = layout.height * layout.width;
        let first = self.task.first_row * layout.pitch;
        let n_positions = self.task.outputs.first().map_or(0, |output| output.len());
        let n_vectors = n_positions / S::F32_LANES;
        let n_direct = n_vectors * S::F32_LANES;
        for (buffer, plane) in self.source.chunks_exact_mut(VECTOR).zip(self.task.image.chunks_exact(plane_len)) {
            let rest = &plane[first + n_direct..first + n_positions];
            buffer[..rest.len()].copy_from_slice(rest);
        }
        for part in parts {
            for (panel_idx, outputs) in self.task.outputs.chunks_mut(PANEL).enumerate() {
                let panel = part.panel(self.task.first_channel + panel_idx * PANEL, self.bias);
                let mut rows: [&mut [f32]; PANEL] = Default::default();
                rows.iter_mut().zip(outputs).for_each(|(row, output)| *row = output);
                let source = Source { values: self.task.image, plane_len, start: first, offsets: &part.offsets };
                panel.correlate(simd, &source, n_vectors, &mut rows);
                if n_direct < n_positions {
                    let source = Source { values: self.source, plane_len: VECTOR, start: 0, offsets: &part.offsets };
                    let mut staged: [&mut [f32]; PANEL] = Default::default();
                    staged.iter_mut().zip(self.staged.chunks_exact_mut(VECTOR)).for_each(|(row, staged)| *row = staged);
                    panel.correlate(simd, &source, 1, &mut staged);
                    for (row, staged) in rows.iter_mut().zip(&staged).filter(|(row, _)| !row.is_empty()) {
                        row[n_direct..].copy_from_slice(&staged[..n_positions - n_direct]);
                    }
                }
            }
        }
    }
}

impl Part {
    fn panel(&self, first_channel: usize, bias: Option<&[f32]>) -> Panel<'_> {
        let n_panels_before = first_channel / PANEL;
        let mut first = [0.0; PANEL];
        if let Some(bias) = bias.and_then(|bias| bias.get(first_channel..)) {
            first.iter_mut().zip(bias).for_each(|(first, &bias)| *first = bias);
        }
        Panel { weights: &self.panels[n_panels_before * self.panel_len..][..self.panel_len], bias: first }
    }
}

impl Correlation {
    /// Copies one channel's values out of the staged parts.
    #[inline(always)]
    fn unstage(&self, staged: &[f32], staged_len: usize, channel: usize, output: &mut [f32]) {
        for (y, row) in output.chunks_exact_mut(self.out_width).enumerate() {
            let part = |column: usize| {
                let part = y % self.out_step * self.out_step + column;
                &staged[(part * PANEL + channel) * staged_len..][y / self.out_step * self.layout.pitch..]
                    [..self.layout.pitch]
            };
            if self.out_step == 1 {
                row.copy_from_slice(&part(0)[..self.out_width]);
            } else {
                interleave(row, part(0), part(1));
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

/// Laid-out planes of one image.
#[derive(Clone, Copy)]
struct Source<'a> {
    values: &'a [f32],
    plane_len: usize,
    /// Where the first grid position lies.
    start: usize,
    offsets: &'a [usize],
}

/// What makes [`PANEL`] output channels.
struct Panel<'a> {
    /// `[source channels * taps]`
    weights: &'a [[f32; PANEL]],
    bias: [f32; PANEL],
}

impl Panel<'_> {
    /// Computes `n_vectors` vectors of grid positions; empty outputs are left out.
    #[inline(always)]
    fn correlate<S: Simd>(&self, simd: S, source: &Source, n_vectors: usize, outputs: &mut [&mut [f32]; PANEL]) {
        const HALF: usize = PANEL / 2;
        let mut vector = 0;
        while vector < n_vectors {
            let n = match n_vectors - vector {
                4 => 2,
                n => n.min(TILE_VECTORS),
            };
            let start = vector * S::F32_LANES;
            if S::REGISTER_COUNT >= 32 {
                self.rows::<S, PANEL>(simd, source, start, n, 0, outputs);
            } else {
                self.rows::<S, HALF>(simd, source, start, n, 0, outputs);
                self.rows::<S, HALF>(simd, source, start, n, HALF, outputs);
            }
            vector += n;
        }
    }

    #[inline(always)]
    fn rows<S: Simd, const ROWS: usize>(
        &self,
        simd: S,
        source: &Source,
        start: usize,
        n_vectors: usize,
        first_row: usize,
        outputs: &mut [&mut [f32]; PANEL],
    ) {
        let source = Source { start: source.start + start, ..*source };
        let outputs = &mut outputs[first_row..first_row + ROWS];
        match n_vectors {
            1 => apart(simd, Tile::<ROWS, 1> { panel: self, source, start, first_row, outputs }),
            2 => apart(simd, Tile::<ROWS, 2> { panel: self, source, start, first_row, outputs }),
            _ => apart(simd, Tile::<ROWS, TILE_VECTORS> { panel: self, source, start, first_row, outputs }),
        }
    }
}

/// Some vectors of grid positions of some output channels.
struct Tile<'a, 'b, const ROWS: usize, const VECTORS: usize> {
    panel: &'a Panel<'a>,
    source: Source<'a>,
    start: usize,
    first_row: usize,
    outputs: &'a mut [&'b mut [f32]],
}

impl<const ROWS: usize, const VECTORS: usize> WithSimd for Tile<'_, '_, ROWS, VECTORS> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Source { values, plane_len, start, offsets } = self.source;
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
        for row in 0..ROWS {
            sums[row] = [simd.splat_f32s(self.panel.bias[self.first_row + row]); VECTORS];
        }
        let weights = self.panel.weights.chunks_exact(offsets.len().max(1));
        for (plane, weights) in values.chunks_exact(plane_len).zip(weights) {
            for (&offset, weights) in offsets.iter().zip(weights) {
                let (x, _) = S::as_simd_f32s(&plane[offset + start..][..VECTORS * S::F32_LANES]);
                let weights = &weights[self.first_row..self.first_row + ROWS];
                for row in 0..ROWS {
                    let weight = simd.splat_f32s(weights[row]);
                    for vector in 0..VECTORS {
                        sums[row][vector] = simd.mul_add_e_f32s(weight, x[vector], sums[row][vector]);
                    }
                }
            }
        }
        for row in 0..ROWS {
            if let Some(output) = self.outputs[row].get_mut(self.start..self.start + VECTORS * S::F32_LANES) {
                let (output, _) = S::as_mut_simd_f32s(output);
                for vector in 0..VECTORS {
                    output[vector] = sums[row][vector];
                }
            }
        }
    }
}
