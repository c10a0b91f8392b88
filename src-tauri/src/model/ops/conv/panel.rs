//! The innermost product of a correlation: some output channels at some grid positions.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::buffer::out_of_line;

/// Output channels whose weights lie side by side.
pub(super) const PANEL: usize = 8;
/// Vectors of grid positions in one tile.
const TILE_VECTORS: usize = 3;

/// A value that a grid position is made from: its distance in the layout, and its weight's place in the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap {
    pub offset: usize,
    pub weight_idx: usize,
}

/// Kernels in memory, and how far apart those for neighbouring output and source channels are.
pub(super) struct Kernels<'a> {
    pub values: &'a [f32],
    pub out_stride: usize,
    pub in_stride: usize,
}

/// Taps with the weights of all channels, in the order in which they are read.
pub(super) struct Panels {
    pub offsets: Vec<usize>,
    /// `[panels, source channels * taps]`, zero for channels beyond the last.
    weights: Vec<[f32; PANEL]>,
    panel_len: usize,
}

impl Panels {
    pub fn new(taps: &[Tap], kernels: &Kernels, c_out: usize, c_in: usize) -> Self {
        let panel_len = c_in * taps.len();
        let mut weights = vec![[0.0; PANEL]; c_out.div_ceil(PANEL) * panel_len];
        weights.par_chunks_exact_mut(panel_len.max(1)).enumerate().for_each(|(panel_idx, panel)| {
            let n_rows = PANEL.min(c_out - panel_idx * PANEL);
            let first = panel_idx * PANEL * kernels.out_stride;
            for (channel, weights) in panel.chunks_exact_mut(taps.len()).enumerate() {
                let values = &kernels.values[first + channel * kernels.in_stride..];
                for (weights, tap) in weights.iter_mut().zip(taps) {
                    for (row, weight) in weights[..n_rows].iter_mut().enumerate() {
                        *weight = values[row * kernels.out_stride + tap.weight_idx];
                    }
                }
            }
        });
        Self { offsets: taps.iter().map(|tap| tap.offset).collect(), weights, panel_len }
    }

    /// What makes the [`PANEL`] channels that begin at `first_channel`, a multiple of it.
    pub fn panel(&self, first_channel: usize, bias: &[f32]) -> Panel<'_> {
        let mut initial = [0.0; PANEL];
        let bias = bias.get(first_channel..).unwrap_or_default();
        initial.iter_mut().zip(bias).for_each(|(initial, &bias)| *initial = bias);
        Panel { weights: &self.weights[first_channel / PANEL * self.panel_len..][..self.panel_len], initial }
    }
}

/// Channels of one image, laid out.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub values: &'a [f32],
    pub plane_len: usize,
    /// Where the first grid position lies.
    pub start: usize,
    /// Of the taps.
    pub offsets: &'a [usize],
}

pub(super) struct Panel<'a> {
    weights: &'a [[f32; PANEL]],
    initial: [f32; PANEL],
}

impl Panel<'_> {
    /// Computes `n_vectors` vectors of grid positions of each output; those that are empty are left so.
    #[inline(always)]
    pub fn correlate<S: Simd>(&self, simd: S, source: &Source, n_vectors: usize, outputs: &mut [&mut [f32]; PANEL]) {
        // Half the registers, half the sums.
        if S::REGISTER_COUNT >= 32 {
            self.correlate_rows::<S, PANEL>(simd, source, n_vectors, outputs);
        } else {
            self.correlate_rows::<S, { PANEL / 2 }>(simd, source, n_vectors, outputs);
        }
    }

    #[inline(always)]
    fn correlate_rows<S: Simd, const ROWS: usize>(
        &self,
        simd: S,
        source: &Source,
        n_vectors: usize,
        outputs: &mut [&mut [f32]; PANEL],
    ) {
        let mut n_done = 0;
        while n_done < n_vectors {
            let n = match n_vectors - n_done {
                4 => 2,
                n => n.min(TILE_VECTORS),
            };
            let start = n_done * S::F32_LANES;
            for (block, outputs) in outputs.chunks_exact_mut(ROWS).enumerate() {
                let source = Source { start: source.start + start, ..*source };
                let (panel, first_row) = (self, block * ROWS);
                match n {
                    1 => out_of_line(simd, Tile::<ROWS, 1> { panel, source, first_row, outputs, start }),
                    2 => out_of_line(simd, Tile::<ROWS, 2> { panel, source, first_row, outputs, start }),
                    _ => out_of_line(simd, Tile::<ROWS, TILE_VECTORS> { panel, source, first_row, outputs, start }),
                }
            }
            n_done += n;
        }
    }
}

/// Some vectors of grid positions of some channels of a panel.
struct Tile<'a, 'b, const ROWS: usize, const VECTORS: usize> {
    panel: &'a Panel<'a>,
    source: Source<'a>,
    first_row: usize,
    outputs: &'a mut [&'b mut [f32]],
    /// Where in the outputs the tile begins.
    start: usize,
}

impl<const ROWS: usize, const VECTORS: usize> WithSimd for Tile<'_, '_, ROWS, VECTORS> {
    type Output = ();

    #[expect(
        clippy::needless_range_loop,
        clippy::manual_memcpy,
        reason = "a reference takes the sums out of registers"
    )]
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Source { values, plane_len, start, offsets } = self.source;
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
        for row in 0..ROWS {
            sums[row] = [simd.splat_f32s(self.panel.initial[self.first_row + row]); VECTORS];
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
