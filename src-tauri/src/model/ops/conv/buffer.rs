//! Memory that is used again from call to call, and what the loops over it need.

use std::cell::RefCell;

use pulp::{Simd, WithSimd};

/// Values in the widest vectors that there are.
pub(super) const VECTOR: usize = 16;

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Lends this thread's buffer, aligned to vectors; it holds whatever earlier loans left in it.
///
/// # Panics
/// When `f` borrows it again. It must not run other tasks of the thread pool either, which might.
pub(super) fn with_scratch<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < len + VECTOR {
            scratch.resize(len + VECTOR, 0.0);
        }
        let start = scratch.as_ptr().align_offset(VECTOR * size_of::<f32>()).min(VECTOR);
        f(&mut scratch[start..start + len])
    })
}

/// Tasks to divide work into so that all threads finish at nearly the same time. How a value is computed must not
/// depend on it.
pub(super) fn n_tasks_wanted() -> usize {
    match rayon::current_num_threads() {
        1 => 1,
        n => 4 * n,
    }
}

/// Runs a vectorised loop as a function of its own. Inlined into a larger one, its sums would not stay in registers.
#[inline(never)]
pub(super) fn out_of_line<S: Simd, F: WithSimd>(simd: S, f: F) -> F::Output {
    simd.vectorize(f)
}
