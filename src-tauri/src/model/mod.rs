//! The detector: YOLOv8's backbone, neck and decoupled anchor-free head, and its weights by name.
//!
//! Knows nothing of losses, training, files or clocks. Sizes come from [`ModelConfig`].
//!
//! Architecture: G. Jocher, A. Chaurasia, J. Qiu, "Ultralytics YOLOv8" (2023), whose layer numbers and tensor names are kept,
//! after C.-Y. Wang et al., "CSPNet" (2020), S. Liu et al., "Path Aggregation Network" (2018), and for the box distribution
//! X. Li et al., "Generalized Focal Loss" (2020).

mod blocks;
mod config;
mod decode;
mod flops;
mod graph;
mod head;
mod init;
mod ops;
mod tensors;

pub use blocks::{BN_EPSILON, BN_MOMENTUM, BatchNorm, Bottleneck, C2f, ConvBlock, Sppf};
pub use config::{LayerKind, LayerSpec, ModelConfig, Scale, UnknownModel};
pub use decode::{AnchorPoints, REG_MAX, STRIDES, corners_from_distances, decode_detections, distances_from_logits};
pub use flops::flops;
pub use graph::{Detector, Layer};
pub use head::{Detect, HeadOutput};
pub use ops::batch_norm_silu;
pub use tensors::{
    BATCH_COUNTER, MapTensor, NamedTensor, StateEntry, TensorKind, TensorSpec, dfl_tensor, export_tensors, list_state,
    list_tensors, map_named, replace_tensors,
};
