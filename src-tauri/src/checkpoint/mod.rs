//! What a run keeps on disk of its training: weights, and checkpoints that hold the whole state. Knows tensors by name and value,
//! files and folders; nothing of the loop or of devices.

mod id;
mod manifest;
mod prune;
mod retention;
mod store;
pub mod tensor_file;
mod weights;

pub use id::{CheckpointId, InvalidCheckpointId};
pub use manifest::{
    About, EMA_FILE, FileEntry, Grade, MANIFEST_FILE, Manifest, ManifestError, OPTIMIZER_FILE, STATE_FILE, WEIGHTS_FILE,
};
pub use prune::{PruneError, PrunePlan, PruneRequest, Pruned};
pub use retention::{Removed, RetentionPolicy, Why, apply_retention, keep};
pub use store::{
    Checkpoint, CheckpointStore, Damage, Draft, Fault, Recovery, Saved, SetAside, StoreError, Trashed, Verdict,
    Verified,
};
pub use weights::{Transfer, Weights, WeightsError, WeightsInfo};
