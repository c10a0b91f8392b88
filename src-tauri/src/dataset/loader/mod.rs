//! Batches in a fixed order, made ahead of time by worker threads.
//!
//! What a batch holds depends on the settings, the seed, the epoch and the batch's position alone: never on the number
//! of workers, on the cache or on where in the epoch the loader began. Knows nothing of tensors or the trainer.

mod images;
mod prefetch;
mod train;
mod val;

use prefetch::MakeBatch;
use thiserror::Error;

pub use images::{DEFAULT_CACHE_BYTES, Decode, SplitImages};
pub use train::{TrainLoader, TrainLoaderConfig};
pub use val::{ValLoader, square_batches};

/// Why no batch can be made. A single bad image is not an error but a warning in its batch.
#[derive(Debug, Error)]
pub enum LoaderError {
    #[error("{name} is 0, but must be at least 1")]
    Zero { name: &'static str },
    #[error("a loader thread could not be started")]
    Spawn(#[source] std::io::Error),
    #[error("a loader thread ended before it had made batch {batch_idx}")]
    WorkerEnded { batch_idx: usize },
}
