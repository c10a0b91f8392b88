//! Planes laid out so that a whole image, shifted by one number, is what a tap of the kernel multiplies.

use std::cell::RefCell;

use pulp::{Simd, WithSimd};

/// Values in the widest vectors that there are.
pub(super) const VECTOR: usize = 16;
/// Values that may be read beyond the last one that counts.
const SLACK: usize = 32;

/// Where the values of one channel lie in a buffer, for a band of rows of a grid of kernel positions.
///
/// Rows are `pitch` apart, and what a tap at row `r`, column `c` of the kernel multiplies at grid position `p = row * pitch +
/// column` lies at `p` plus a number that depends on the tap alone. The columns beyond the grid's hold the padding of
/// this row and of the next; what is computed there is thrown away. With a step of two the plane is split by odd and
/// even rows and columns first, so that here, too, neighbours of the grid are neighbours in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Size of the planes that are laid out.
    pub height: usize,
    pub width: usize,
    /// Distance in the plane of two grid positions.
    pub step: usize,
    /// Parts per axis that the plane is split into: as many as the step, but for a kernel that does not reach them all.
    pub n_parts: usize,
    /// Rows and columns of zeros before the first.
    pub lead: usize,
    /// Rows that the kernel reads beyond those of the grid.
    pub extra: usize,
    /// Values from one row to the next.
    pub pitch: usize,
    /// Rows of the grid in one band.
    pub rows: usize,
    /// Bands of one channel, one below the other, with `lead` rows between them; more than one only of whole images.
    pub n_stacked: usize,
}

impl Layout {
    /// Values in one of the parts.
    fn part_len(&self) -> usize {
        ((self.rows + self.lead) * (self.n_stacked - 1) + self.rows + self.extra) * self.pitch
    }

    /// Values from one channel to the next, a multiple of 16.
    pub fn plane_len(&self) -> usize {
        (self.n_parts * self.n_parts * self.part_len() + SLACK).next_multiple_of(16)
    }

    /// Grid positions from one stacked band to the next.
    pub fn stack_len(&self) -> usize {
        (self.rows + self.lead) * self.pitch
    }

    /// Grid positions in a buffer, those to throw away included.
    pub fn positions(&self) -> usize {
        self.stack_len() * (self.n_stacked - 1) + self.rows * self.pitch
    }

    /// Distance from a grid position to the value that lies `row` rows and `column` columns after it, counted in the
    /// plane with its leading zeros.
    pub fn offset(&self, row: usize, column: usize) -> usize {
        let part = row % self.step * self.n_parts + column % self.step;
        part * self.part_len() + row / self.step * self.pitch + column / self.step
    }

    /// Lays out one plane for the band that begins at `first_row` of the grid, as the one with index `stack_idx`.
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

    /// Only the first and the last value can lie beyond the row.
    #[inline(always)]
    fn fill_row(&self, buffer: &mut [f32], row: &[f32], part_x: usize) {
        if let [first, .., last] = buffer {
            *first = 0.0;
            *last = 0.0;
        }
        let first = if part_x < self.lead { 1 } else { 0 };
        let row = row.get(self.step * first + part_x - self.lead..).unwrap_or_default();
        let values = buffer.get_mut(first..).unwrap_or_default();
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

/// Tasks to share the work out into, so that all threads finish at nearly the same time.
pub(super) fn n_tasks_wanted() -> usize {
    match rayon::current_num_threads() {
        1 => 1,
        n => 4 * n,
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Lends this thread's buffer, aligned to vectors; what is in it is left over from earlier loans. `f` must not borrow it
/// again.
pub(super) fn with_scratch<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < len + VECTOR {
            scratch.resize(len + VECTOR, 0.0);
        }
        let start = scratch.as_ptr().align_offset(VECTOR * size_of::<f32>()).min(VECTOR);
        f(&mut scratch[start..start + len])
    })
}

/// Runs a vectorised loop in a function of its own: inlined into larger ones, its sums would not stay in registers.
#[inline(never)]
pub(super) fn apart<S: Simd, F: WithSimd>(simd: S, f: F) -> F::Output {
    simd.vectorize(f)
}
