//! The innermost products of the weights' gradient: those of all channels of a task, for a piece of the batch.

use pulp::{Simd, WithSimd};

use super::buffer::out_of_line;
use super::weight_gradient::{Segment, Task, WeightGradient};

/// Segments of a task that are laid out together, with buffers for them.
pub(super) struct Piece<'a, 'b> {
    pub operation: &'a WeightGradient,
    pub task: &'a mut Task<'b>,
    pub segments: &'a [Segment],
    /// Grid positions of the layout, filled up to whole vectors.
    pub n_positions: usize,
    pub x: &'a [f32],
    pub gradient: &'a [f32],
    /// `[input channels, plane_len]`
    pub x_buffer: &'a mut [f32],
    /// `[output channels, n_positions]`
    pub gradient_buffer: &'a mut [f32],
}

impl WithSimd for Piece<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        self.fill_x();
        self.fill_gradient();
        if S::REGISTER_COUNT >= 32 { self.run::<S, 4, 6>(simd) } else { self.run::<S, 3, 3>(simd) }
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

    /// Arranges the gradient like the grid, with zeros wherever it has no value.
    #[inline(always)]
    fn fill_gradient(&mut self) {
        let WeightGradient { layout, c_out, out_height, out_width, .. } = self.operation;
        let plane_len = out_height * out_width;
        for (channel, buffer) in self.gradient_buffer.chunks_exact_mut(self.n_positions).enumerate() {
            let mut rest = buffer;
            for segment in self.segments {
                let plane_idx = segment.image_idx * c_out + self.task.first_out_channel + channel;
                let plane = &self.gradient[plane_idx * plane_len..][..plane_len];
                for row in plane[segment.first_row * out_width..].chunks_exact(*out_width).take(layout.rows) {
                    let buffer;
                    (buffer, rest) = rest.split_at_mut(layout.pitch);
                    let (values, pad) = buffer.split_at_mut(*out_width);
                    values.copy_from_slice(row);
                    pad.fill(0.0);
                }
                let gap;
                (gap, rest) = rest.split_at_mut((layout.lead * layout.pitch).min(rest.len()));
                gap.fill(0.0);
            }
            rest.fill(0.0);
        }
    }

    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const COLUMNS: usize>(self, simd: S) {
        let WeightGradient { layout, offsets, .. } = self.operation;
        let column_starts = (0..self.task.in_channels.len())
            .flat_map(|channel| offsets.iter().map(move |offset| channel * layout.plane_len() + offset));
        let columns = column_starts.map(|start| &self.x_buffer[start..][..self.n_positions]);
        let columns = filled_up::<COLUMNS>(columns.collect());
        let rows = filled_up::<ROWS>(self.gradient_buffer.chunks_exact(self.n_positions).collect());
        // The rows stay in the first cache meanwhile, and columns of one channel are nearly the same values.
        for (rows, sums) in rows.as_chunks::<ROWS>().0.iter().zip(self.task.sums.chunks_mut(ROWS)) {
            for (block, columns) in columns.as_chunks::<COLUMNS>().0.iter().enumerate() {
                let products = out_of_line(simd, Products { rows, columns });
                for (sums, products) in sums.iter_mut().zip(&products) {
                    let sums = sums[block * COLUMNS..].iter_mut().zip(products);
                    sums.for_each(|(sum, product)| *sum += product);
                }
            }
        }
    }
}

/// Repeats the last slice until there is a multiple of `N`.
fn filled_up<const N: usize>(mut slices: Vec<&[f32]>) -> Vec<&[f32]> {
    if let Some(&last) = slices.last() {
        slices.resize(slices.len().next_multiple_of(N), last);
    }
    slices
}

/// The scalar product of every row with every column, all of one length.
struct Products<'a, const ROWS: usize, const COLUMNS: usize> {
    rows: &'a [&'a [f32]; ROWS],
    columns: &'a [&'a [f32]; COLUMNS],
}

impl<const ROWS: usize, const COLUMNS: usize> WithSimd for Products<'_, ROWS, COLUMNS> {
    type Output = [[f32; COLUMNS]; ROWS];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let n_vectors = self.rows[0].len() / S::F32_LANES;
        let rows: [&[S::f32s]; ROWS] = std::array::from_fn(|i| &S::as_simd_f32s(self.rows[i]).0[..n_vectors]);
        let columns: [&[S::f32s]; COLUMNS] = std::array::from_fn(|i| &S::as_simd_f32s(self.columns[i]).0[..n_vectors]);
        let mut sums = [[simd.splat_f32s(0.0); COLUMNS]; ROWS];
        for i in 0..n_vectors {
            let rows: [S::f32s; ROWS] = std::array::from_fn(|row| rows[row][i]);
            for column in 0..COLUMNS {
                let x = columns[column][i];
                for row in 0..ROWS {
                    sums[row][column] = simd.mul_add_e_f32s(rows[row], x, sums[row][column]);
                }
            }
        }
        let mut products = [[0.0; COLUMNS]; ROWS];
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                products[row][column] = simd.reduce_sum_f32s(sums[row][column]);
            }
        }
        products
    }
}
