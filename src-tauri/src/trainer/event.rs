//! What a training reports while it goes on: shown as progress, kept in `events.jsonl`.
//!
//! Plain data. Times come in as fields, nothing here reads a clock.

mod pause;
mod position;

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

pub use pause::{PauseDepth, PausedBy};
pub use position::Position;

/// One report of a training, in `events.jsonl` one JSON object on a line with its name under `event`.
///
/// They come in this order:
///
/// ```text
/// run_started
/// ( epoch_started  ([samples]  batch)*  [validated]  epoch_finished  checkpoint_saved* )*     once for each epoch
/// finished | stopped | failed                                                    one for each sitting
/// ```
///
/// `warning` and `checkpoint_saved` may come anywhere between the first and the last, `paused` and then `resumed` between two
/// batches. A sitting that goes on from a checkpoint begins with `restored` in place of `run_started`: what stands above it
/// and lies behind its position has been taken back, and will come once more. A process that is killed leaves out the
/// closing event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TrainEvent {
    RunStarted {
        run_folder: PathBuf,
        /// The device that was chosen, with the reason where it was chosen by the program.
        device: String,
        model: String,
        class_names: Vec<String>,
        n_train_images: usize,
        n_val_images: usize,
        /// Number of epochs asked for.
        epochs: u32,
        /// Batches in one epoch.
        n_batches: usize,
        /// Milliseconds since 1970, UTC.
        at_unix_ms: u64,
    },
    /// The run goes on from a checkpoint.
    Restored {
        checkpoint: PathBuf,
        #[serde(flatten)]
        position: Position,
        device: String,
        /// Number of epochs asked for.
        epochs: u32,
        /// Batches in one epoch.
        n_batches_per_epoch: usize,
        at_unix_ms: u64,
    },
    /// A setting is another than it was when the checkpoint was saved; told once, right after `restored`.
    Edited {
        key: String,
        old: String,
        new: String,
        #[serde(flatten)]
        position: Position,
    },
    EpochStarted {
        /// Counted from 1.
        epoch: u32,
    },
    Batch {
        epoch: u32,
        /// Number of the batch in its epoch, counted from 1.
        batch: usize,
        n_batches: usize,
        /// Optimizer steps taken since the run began.
        step: u64,
        /// Losses of this batch, each times its gain.
        losses: Losses,
        /// Learning rates in force.
        lr: LearningRates,
        images_per_s: f64,
    },
    /// What the batch that follows is made of; only with `log_samples=True`.
    Samples {
        epoch: u32,
        batch: usize,
        /// Positions in the training split, in the batch's order.
        sample_idxs: Vec<usize>,
        /// Hash of the batch's pixels and boxes as they enter the network, 16 hexadecimal digits.
        digest: String,
    },
    /// The numbers of a validation, and of each class that has boxes.
    Validated {
        epoch: u32,
        scores: ValScores,
        classes: Vec<ClassScores>,
    },
    EpochFinished(EpochResults),
    /// A checkpoint is complete on the disk.
    CheckpointSaved {
        path: PathBuf,
        #[serde(flatten)]
        position: Position,
        is_best: bool,
        size_bytes: u64,
        /// Seconds that training stood still for it.
        stall_s: f64,
        /// Seconds from the copy in memory to the checkpoint on the disk.
        write_s: f64,
    },
    /// The run stands still.
    Paused {
        depth: PauseDepth,
        by: PausedBy,
        #[serde(flatten)]
        position: Position,
        /// The newest good one.
        checkpoint: Option<PathBuf>,
        /// Bytes of the checkpoint that was written for this pause; 0 if none had to be.
        size_bytes: u64,
        /// Seconds from the command to this state.
        seconds: f64,
        at_unix_ms: u64,
    },
    /// The run goes on after a pause in this sitting.
    Resumed {
        depth: PauseDepth,
        /// Seconds in the pause.
        paused_s: f64,
        /// Seconds from the command until the next batch began.
        seconds: f64,
        at_unix_ms: u64,
    },
    Warning {
        /// One word that a program can act on, such as `image_unreadable`.
        code: String,
        message: String,
    },
    Finished {
        /// `finished` or `patience`, as in [`crate::exit::Reason`].
        reason: String,
        best_epoch: Option<u32>,
        /// Seconds of training, pauses left out.
        time_s: f64,
        checkpoint: Option<PathBuf>,
    },
    /// Ended before its last epoch; it can be resumed.
    Stopped {
        /// `stopped` or `terminated`.
        reason: String,
        checkpoint: Option<PathBuf>,
    },
    Failed {
        /// A word of [`crate::exit::Reason`].
        reason: String,
        message: String,
        /// The newest good one.
        checkpoint: Option<PathBuf>,
    },
}

/// The three parts of the detection loss, each times its gain: of one batch, or the mean over an epoch.
///
/// JSON has no NaN and no infinity: both are written as `null` and read as NaN.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Losses {
    #[serde(rename = "box_loss", deserialize_with = "number_or_null")]
    pub box_iou: f64,
    #[serde(rename = "cls_loss", deserialize_with = "number_or_null")]
    pub cls: f64,
    #[serde(rename = "dfl_loss", deserialize_with = "number_or_null")]
    pub dfl: f64,
}

impl Losses {
    pub fn is_finite(&self) -> bool {
        self.box_iou.is_finite() && self.cls.is_finite() && self.dfl.is_finite()
    }
}

/// Learning rates of the three parameter groups, in the order of the columns `lr/pg0..2`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LearningRates {
    /// `pg0`: convolution weights, with decay.
    pub weight: f64,
    /// `pg1`: batch norm weights, without decay.
    pub norm: f64,
    /// `pg2`: biases.
    pub bias: f64,
}

/// Quality of detections over all classes, each in 0..=1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ValScores {
    /// At the confidence where the mean F1 is highest, as is `recall`.
    pub precision: f64,
    pub recall: f64,
    /// Mean over classes of the average precision at IoU 0.5.
    pub map50: f64,
    /// The same, mean over IoU 0.5, 0.55 .. 0.95.
    pub map50_95: f64,
}

/// Quality of detections of one class, as [`ValScores`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    pub name: String,
    /// Images that hold this class.
    pub images: usize,
    pub boxes: usize,
    pub precision: f64,
    pub recall: f64,
    pub ap50: f64,
    pub ap50_95: f64,
}

/// What validating a model gives.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ValReport {
    pub images: usize,
    pub boxes: usize,
    pub scores: ValScores,
    /// Mean losses; absent where only detections were looked at.
    pub losses: Option<Losses>,
    /// Classes with boxes, in order of class index.
    pub classes: Vec<ClassScores>,
}

/// One row of `results.csv`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EpochResults {
    /// Counted from 1.
    pub epoch: u32,
    /// Seconds of training since the run began, validation included and pauses left out.
    pub time_s: f64,
    /// Mean losses over the epoch's batches.
    pub train: Losses,
    /// Validation, if this epoch had one.
    pub val: Option<EpochValidation>,
    /// Learning rates at the epoch's end.
    pub lr: LearningRates,
}

/// The part of an epoch's row that comes from validation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EpochValidation {
    pub scores: ValScores,
    pub losses: Losses,
}

fn number_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_json_object_with_its_name() {
        let event = TrainEvent::Warning { code: "image_unreadable".into(), message: "a.jpg: cut short".into() };
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(json, r#"{"event":"warning","code":"image_unreadable","message":"a.jpg: cut short"}"#);
        assert_eq!(serde_json::from_str::<TrainEvent>(&json).unwrap(), event);
    }

    #[test]
    fn a_loss_that_is_not_a_number_can_be_read_again() {
        let losses = Losses { box_iou: f64::NAN, cls: 1.0, dfl: f64::INFINITY };
        let json = serde_json::to_string(&losses).unwrap();
        assert_eq!(json, r#"{"box_loss":null,"cls_loss":1.0,"dfl_loss":null}"#);
        assert!(serde_json::from_str::<Losses>(&json).unwrap().dfl.is_nan());
    }

    #[test]
    fn an_epoch_event_lies_flat_in_its_object() {
        let results = EpochResults {
            epoch: 2,
            time_s: 1.5,
            train: Losses { box_iou: 1.0, cls: 2.0, dfl: 3.0 },
            val: None,
            lr: LearningRates { weight: 0.01, norm: 0.01, bias: 0.1 },
        };
        let json = serde_json::to_value(TrainEvent::EpochFinished(results)).unwrap();
        assert_eq!(json["event"], "epoch_finished");
        assert_eq!(json["epoch"], 2);
        assert_eq!(json["train"]["box_loss"], 1.0);
        assert_eq!(serde_json::from_value::<TrainEvent>(json).unwrap(), TrainEvent::EpochFinished(results));
    }
}
