//! Planes laid out so that what a tap of the kernel multiplies is the whole plane, shifted by one number.

use super::buffer::VECTOR;

/// Zeros after the last value of a channel: vectors of grid positions may reach this far beyond the band.
const SLACK: usize = 32;

/// Where the values of one channel lie in a buffer, for a band of rows of the grid of kernel positions.
///
/// The rows of the grid are `pitch` apart, and what a tap of the kernel multiplies at grid position `p` (row times
/// pitch plus column) lies at `p` plus a number that depends on the tap alone. A column beyond the grid's last holds
/// the padding of this row and of the next; what is computed there is thrown away. With a step of two the plane is
/// first split by odd and even rows and columns, so that neighbours of the grid are neighbours in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Size of the planes that are laid out.
    pub height: usize,
    pub width: usize,
    /// Distance in the plane of two grid positions.
    pub step: usize,
    /// Parts per axis that the plane is split into: as many as the step, unless the kernel does not reach them all.
    pub n_parts: usize,
    /// Rows and columns of zeros before the plane's first, 0 or 1.
    pub lead: usize,
    /// Rows that the kernel reads beyond those of the grid.
    pub extra: usize,
    pub pitch: usize,
    /// Rows of the grid in one band, at least 1.
    pub rows: usize,
    /// Bands one below the other with `lead` rows between them, at least 1; more than one only of whole planes.
    pub n_stacked: usize,
}

impl Layout {
    /// The buffer would hold what the plane holds, in the same order.
    pub fn is_plain(&self) -> bool {
        self.step == 1 && self.lead == 0 && self.extra == 0 && self.pitch == self.width
    }

    /// Values from one channel to the next, a multiple of [`VECTOR`].
    pub fn plane_len(&self) -> usize {
        (self.n_parts * self.n_parts * self.part_len() + SLACK).next_multiple_of(VECTOR)
    }

    /// Grid positions in one channel, those to throw away included.
    pub fn n_positions(&self) -> usize {
        self.stack_len() * (self.n_stacked - 1) + self.rows * self.pitch
    }

    /// Grid positions from one stacked band to the next.
    pub fn stack_len(&self) -> usize {
        (self.rows + self.lead) * self.pitch
    }

    /// Distance from a grid position to what lies `row` rows and `column` columns after it, counted in the plane with
    /// its leading zeros.
    pub fn offset(&self, row: usize, column: usize) -> usize {
        let part = row % self.step * self.n_parts + column % self.step;
        part * self.part_len() + row / self.step * self.pitch + column / self.step
    }

    /// Values of one channel in one of the parts.
    fn part_len(&self) -> usize {
        self.n_positions() + self.extra * self.pitch
    }

    /// Lays out one channel of the band that begins at `first_row` of the grid, as number `stack_idx` of those stacked.
    #[inline(always)]
    pub fn fill(&self, buffer: &mut [f32], plane: &[f32], first_row: usize, stack_idx: usize) {
        let stack_start = stack_idx * self.stack_len();
        let stack_end = stack_start + (self.rows + self.extra) * self.pitch;
        let mut rest = buffer;
        for part_y in 0..self.n_parts {
            for part_x in 0..self.n_parts {
                let part;
                (part, rest) = rest.split_at_mut(self.part_len());
                let mut y = self.step * first_row + part_y;
                for row in part[stack_start..stack_end].chunks_exact_mut(self.pitch) {
                    match y.checked_sub(self.lead).filter(|&y| y < self.height) {
                        Some(y) => self.fill_row(row, &plane[y * self.width..][..self.width], part_x),
                        None => row.fill(0.0),
                    }
                    y += self.step;
                }
            }
        }
        rest[..SLACK].copy_from_slice(&[0.0; SLACK]);
    }

    #[inline(always)]
    fn fill_row(&self, buffer: &mut [f32], row: &[f32], part_x: usize) {
        // No other value can lie outside the plane.
        if let [first, .., last] = buffer {
            *first = 0.0;
            *last = 0.0;
        }
        let n_before = if part_x < self.lead { 1 } else { 0 };
        let row = row.get(self.step * n_before + part_x - self.lead..).unwrap_or_default();
        let values = buffer.get_mut(n_before..).unwrap_or_default();
        if self.step == 1 {
            let n = row.len().min(values.len());
            values[..n].copy_from_slice(&row[..n]);
            return;
        }
        let (pairs, last) = row.as_chunks::<2>();
        values.iter_mut().zip(pairs).for_each(|(value, pair)| *value = pair[0]);
        if let ([x], Some(value)) = (last, values.get_mut(pairs.len())) {
            *value = *x;
        }
    }
}
