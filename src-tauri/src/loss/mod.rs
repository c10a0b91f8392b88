//! The training objective: which points answer for which boxes, and how wrong they are.
//!
//! Knows tensors and geometry; nothing of networks, files or schedules.

mod assigner;
mod detection;
mod dfl;
mod iou_loss;

pub use assigner::{Assigner, Assignment, Candidates};
pub use detection::{DetectionLoss, LossGains, LossItems, LossOutput, distances_to_sides};
pub use dfl::distribution_focal_loss;
pub use iou_loss::{box_ciou, complete_iou};
