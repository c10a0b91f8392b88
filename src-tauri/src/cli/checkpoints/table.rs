//! Checkpoints as rows, for programs and for people.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::checkpoint::{Checkpoint, CheckpointId, Grade};
use crate::cli::figures::{columns, size_text};

/// What `fermata checkpoints list --json` tells of each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckpointRow {
    pub id: CheckpointId,
    pub timeline: u32,
    /// Epochs completed.
    pub epoch: u32,
    /// Batches trained since the run began.
    pub batch: u64,
    /// Optimizer steps since the run began.
    pub step: u64,
    pub grade: Grade,
    pub bytes: u64,
    pub state_hash: String,
    pub weights_hash: String,
    pub metrics: BTreeMap<String, f64>,
    pub tags: Vec<String>,
    pub pinned: bool,
    pub parent: Option<String>,
}

impl CheckpointRow {
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let about = checkpoint.manifest.about.clone();
        Self {
            id: about.id,
            timeline: about.timeline,
            epoch: about.id.epoch,
            batch: about.id.n_batches,
            step: about.step,
            grade: checkpoint.grade(),
            bytes: checkpoint.bytes,
            state_hash: about.state_hash,
            weights_hash: about.weights_hash,
            metrics: about.metrics,
            tags: about.tags,
            pinned: checkpoint.is_pinned,
            parent: about.parent,
        }
    }
}

pub fn table(rows: &[CheckpointRow]) -> String {
    let head = ["id", "epoch", "step", "mAP50-95", "grade", "size", "state", ""].map(str::to_owned).to_vec();
    let lines: Vec<_> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
    columns(&lines)
}

fn cells(row: &CheckpointRow) -> Vec<String> {
    let grade = match row.grade {
        Grade::Full => "full",
        Grade::Weights => "weights",
        Grade::Record => "record",
    };
    let pinned = row.pinned.then(|| "pinned".to_owned());
    let marks: Vec<_> = pinned.into_iter().chain(row.tags.iter().cloned()).collect();
    vec![
        row.id.to_string(),
        row.epoch.to_string(),
        row.step.to_string(),
        row.metrics.get("mAP50-95").map_or_else(|| "-".to_owned(), |value| format!("{value:.3}")),
        grade.to_owned(),
        size_text(row.bytes),
        // The beginning tells two states apart, and fits the line.
        row.state_hash.chars().take(12).collect(),
        marks.join(", "),
    ]
}
