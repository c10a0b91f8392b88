//! What a run keeps on disk of its model. Knows tensors by name and value; nothing of the loop or of devices.

mod weights;

pub use weights::{Transfer, Weights, WeightsError, WeightsInfo};
