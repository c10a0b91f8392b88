//! Work done ahead by threads, handed out in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use super::LoaderError;
use crate::dataset::batch::Batch;

/// Makes batch number `batch_idx`; `None` when the given flag told it to stop.
pub(super) type MakeBatch = dyn Fn(usize, &AtomicBool) -> Option<Batch> + Send + Sync;

/// Batches `next_idx..n_batches`, in order.
///
/// Batch `i` belongs to worker `i % n_workers`, which keeps at most one finished batch waiting while it makes the
/// next. Without workers each batch is made when it is asked for. Dropping it stops and joins the threads; they end
/// after the image in hand.
pub(super) struct Prefetch {
    make: Arc<MakeBatch>,
    workers: Vec<Worker>,
    stop: Arc<AtomicBool>,
    next_idx: usize,
    n_batches: usize,
}

struct Worker {
    finished: Option<Receiver<Batch>>,
    thread: Option<JoinHandle<()>>,
}

impl Prefetch {
    /// # Errors
    /// [`LoaderError::Spawn`] when the system gives no thread; those already started are stopped.
    pub fn new(
        make: Arc<MakeBatch>,
        first_idx: usize,
        n_batches: usize,
        n_workers: usize,
    ) -> Result<Self, LoaderError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut prefetch = Self { make, workers: Vec::new(), stop, next_idx: first_idx, n_batches };
        let n_workers = n_workers.min(n_batches.saturating_sub(first_idx));
        for place in 0..n_workers {
            let first_of_worker = (first_idx..first_idx + n_workers).find(|idx| idx % n_workers == place);
            let batch_idxs = (first_of_worker.unwrap_or(n_batches)..n_batches).step_by(n_workers);
            let worker = prefetch.worker(batch_idxs)?;
            prefetch.workers.push(worker);
        }
        Ok(prefetch)
    }

    fn worker(&self, batch_idxs: impl Iterator<Item = usize> + Send + 'static) -> Result<Worker, LoaderError> {
        let (sender, receiver) = sync_channel(1);
        let (make, stop) = (self.make.clone(), self.stop.clone());
        let work = move || {
            for batch_idx in batch_idxs {
                let Some(batch) = make(batch_idx, &stop) else { return };
                // Fails when the receiver is gone, that is when nobody wants batches any more.
                if sender.send(batch).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("loader".into()).spawn(work).map_err(LoaderError::Spawn)?;
        Ok(Worker { finished: Some(receiver), thread: Some(thread) })
    }

    pub fn n_left(&self) -> usize {
        self.n_batches.saturating_sub(self.next_idx)
    }

    fn made(&self, batch_idx: usize) -> Option<Batch> {
        if self.workers.is_empty() {
            return (self.make)(batch_idx, &self.stop);
        }
        let worker = &self.workers[batch_idx % self.workers.len()];
        worker.finished.as_ref()?.recv().ok()
    }
}

impl Iterator for Prefetch {
    type Item = Result<Batch, LoaderError>;

    /// After an error nothing follows.
    fn next(&mut self) -> Option<Self::Item> {
        if self.n_left() == 0 {
            return None;
        }
        let batch_idx = self.next_idx;
        let Some(batch) = self.made(batch_idx) else {
            self.next_idx = self.n_batches;
            return Some(Err(LoaderError::WorkerEnded { batch_idx }));
        };
        self.next_idx += 1;
        Some(Ok(batch))
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // All receivers first: a worker that waits to hand over its batch is freed by that.
        for worker in &mut self.workers {
            worker.finished = None;
        }
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            // A worker's panic has been reported as a missing batch.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::SizePx;

    fn numbered() -> Arc<MakeBatch> {
        Arc::new(|batch_idx, _| Some(Batch::with_capacity(batch_idx, SizePx::square(1), 0)))
    }

    #[test]
    fn batches_come_in_order_with_any_number_of_workers() {
        for n_workers in [0, 1, 2, 3, 9] {
            let prefetch = Prefetch::new(numbered(), 2, 7, n_workers).unwrap();
            let batch_idxs: Vec<usize> = prefetch.map(|batch| batch.unwrap().batch_idx).collect();
            assert_eq!(batch_idxs, [2, 3, 4, 5, 6], "{n_workers} workers");
        }
    }

    #[test]
    fn dropping_it_early_ends_its_threads() {
        let make = numbered();
        let mut prefetch = Prefetch::new(make.clone(), 0, 1_000_000, 3).unwrap();
        prefetch.next();
        drop(prefetch);
        assert_eq!(Arc::strong_count(&make), 1, "no thread holds the work any more");
    }

    #[test]
    fn a_dead_worker_is_an_error_and_then_the_end() {
        let make: Arc<MakeBatch> =
            Arc::new(|batch_idx, _| (batch_idx < 2).then(|| Batch::with_capacity(batch_idx, SizePx::square(1), 0)));
        let mut prefetch = Prefetch::new(make, 0, 5, 2).unwrap();
        assert!(prefetch.next().unwrap().is_ok() && prefetch.next().unwrap().is_ok(), "two good ones");
        assert!(matches!(prefetch.next(), Some(Err(LoaderError::WorkerEnded { batch_idx: 2 }))), "then it is told");
        assert!(prefetch.next().is_none(), "after an error nothing follows");
    }
}
