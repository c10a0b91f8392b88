//! Progress of a training: a bar with the time left on a terminal, a line an epoch elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use super::print;
use crate::trainer::event::{EpochResults, Losses, PauseDepth, PausedBy, Position, TrainEvent};

/// Shows a training on stderr as its events come in.
pub struct Progress {
    /// `None` where stderr is no terminal.
    bar: Option<ProgressBar>,
    epochs: u32,
}

impl Progress {
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::no_length);
        Self { bar, epochs: 0 }
    }

    /// Shows one event; they come in the order that [`TrainEvent`] documents.
    pub fn show(&mut self, event: &TrainEvent) {
        match event {
            TrainEvent::RunStarted { epochs, n_batches, .. } => {
                self.epochs = *epochs;
                self.start_bar(u64::from(*epochs) * *n_batches as u64);
                self.line(&start_line(event));
            }
            TrainEvent::Batch { epoch, batch, n_batches, losses, images_per_s, .. } => {
                let Some(bar) = &self.bar else { return };
                bar.set_prefix(format!("epoch {epoch}/{}", self.epochs));
                bar.set_message(format!("{}  {images_per_s:.1} images/s", losses_text(losses)));
                bar.set_position(u64::from(epoch - 1) * *n_batches as u64 + *batch as u64);
            }
            TrainEvent::EpochFinished(results) => self.line(&epoch_line(results, self.epochs)),
            TrainEvent::Warning { message, .. } => self.line(&format!("warning: {message}")),
            TrainEvent::Finished { time_s, best_epoch, .. } => {
                let best = best_epoch.map_or(String::new(), |epoch| format!(", best epoch {epoch}"));
                self.line(&format!("trained for {}{best}", duration_text(*time_s)));
            }
            TrainEvent::Restored { epochs, n_batches_per_epoch, position, checkpoint, device, .. } => {
                self.epochs = *epochs;
                self.start_bar(u64::from(*epochs) * *n_batches_per_epoch as u64);
                self.line(&format!("going on from {} on {device}: {}", checkpoint.display(), place(position)));
            }
            TrainEvent::Edited { key, old, new, .. } => self.line(&format!("{key} is now {new}, was {old}")),
            TrainEvent::Paused { by: PausedBy::Disk, position, .. } => {
                let what = "the disk does not take more; once there is room, `fermata resume` goes on";
                self.line(&format!("paused {} (everything stays in memory): {what}", place(position)));
            }
            TrainEvent::Paused { depth, position, size_bytes, seconds, .. } => {
                self.line(&paused_line(*depth, position, *size_bytes, *seconds));
            }
            TrainEvent::Resumed { paused_s, .. } => {
                self.line(&format!("goes on after a pause of {}", duration_text(*paused_s)));
            }
            // Each of these is told by another line: the epoch's, or the refusal's.
            TrainEvent::EpochStarted { .. }
            | TrainEvent::Samples { .. }
            | TrainEvent::Validated { .. }
            | TrainEvent::CheckpointSaved { .. }
            | TrainEvent::Stopped { .. }
            | TrainEvent::Failed { .. } => {}
        }
    }

    fn start_bar(&self, n_batches: u64) {
        let Some(bar) = &self.bar else { return };
        // The template is a constant that `the_bar_has_a_valid_template` checks; a bar without style would do as well.
        if let Ok(style) = ProgressStyle::with_template(BAR_TEMPLATE) {
            bar.set_style(style);
        }
        bar.set_length(n_batches);
    }

    /// A line that stays, above the bar if there is one.
    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => print::err(text),
        }
    }
}

impl Drop for Progress {
    /// Takes the bar away, so that what is printed next begins on a clean line.
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

const BAR_TEMPLATE: &str = "{prefix} [{bar:20}] {percent}%  {eta} left  {wide_msg}";

fn start_line(event: &TrainEvent) -> String {
    let TrainEvent::RunStarted { run_folder, device, model, class_names, n_train_images, n_val_images, .. } = event
    else {
        return String::new();
    };
    let n_classes = class_names.len();
    let classes = if n_classes == 1 { "class" } else { "classes" };
    let images = format!("{n_train_images} images, {n_val_images} for validation");
    format!("training {model} ({n_classes} {classes}) on {device}: {images}, into {}", run_folder.display())
}

/// Where a training stands, in words.
fn place(position: &Position) -> String {
    match position {
        Position { epoch: 0, .. } => "before the first batch".to_owned(),
        Position { epoch, is_epoch_done: true, .. } => format!("after epoch {epoch}"),
        Position { epoch, batch, .. } => format!("in epoch {epoch}, after batch {batch}"),
    }
}

fn paused_line(depth: PauseDepth, position: &Position, size_bytes: u64, seconds: f64) -> String {
    let how = match depth {
        PauseDepth::Hold => "everything stays in memory".to_owned(),
        PauseDepth::Free if size_bytes == 0 => "the device is given back".to_owned(),
        PauseDepth::Free => format!("the device is given back, {:.1} MB were saved", size_bytes as f64 / 1e6),
    };
    format!("paused {} ({how}) within {seconds:.1} s", place(position))
}

/// Everything about an epoch, with the time that the remaining ones will take if they are like the ones before.
fn epoch_line(results: &EpochResults, epochs: u32) -> String {
    let scores = results.val.map_or(String::new(), |val| {
        let scores = val.scores;
        format!(
            "  P {:.3}  R {:.3}  mAP50 {:.3}  mAP50-95 {:.3}",
            scores.precision, scores.recall, scores.map50, scores.map50_95
        )
    });
    let n_left = epochs.saturating_sub(results.epoch);
    let left = match n_left {
        0 => String::new(),
        _ => format!("  {} left", duration_text(results.time_s / f64::from(results.epoch.max(1)) * f64::from(n_left))),
    };
    format!("epoch {}/{epochs}  {}{scores}{left}", results.epoch, losses_text(&results.train))
}

fn losses_text(losses: &Losses) -> String {
    format!("box {:.4}  cls {:.4}  dfl {:.4}", losses.box_iou, losses.cls, losses.dfl)
}

/// A time in its two largest units.
fn duration_text(seconds: f64) -> String {
    // A negative or non-finite time becomes 0 in the conversion.
    let s = seconds.round() as u64;
    match (s / 86_400, s / 3600, s / 60) {
        (0, 0, 0) => format!("{s} s"),
        (0, 0, minutes) => format!("{minutes} min {:02} s", s % 60),
        (0, hours, minutes) => format!("{hours} h {:02} min", minutes % 60),
        (days, hours, _) => format!("{days} d {:02} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::event::{EpochValidation, LearningRates, ValScores};

    #[test]
    fn the_bar_has_a_valid_template() {
        assert!(ProgressStyle::with_template(BAR_TEMPLATE).is_ok());
    }

    #[test]
    fn an_epoch_line_tells_losses_scores_and_the_time_left() {
        let losses = Losses { box_iou: 1.5, cls: 2.25, dfl: 1.0 };
        let scores = ValScores { precision: 0.9, recall: 0.8, map50: 0.7, map50_95: 0.5 };
        let val = Some(EpochValidation { scores, losses });
        let results = EpochResults { epoch: 2, time_s: 20.0, train: losses, val, lr: LearningRates::default() };
        assert_eq!(
            epoch_line(&results, 14),
            "epoch 2/14  box 1.5000  cls 2.2500  dfl 1.0000  \
             P 0.900  R 0.800  mAP50 0.700  mAP50-95 0.500  2 min 00 s left"
        );
        let last = EpochResults { val: None, ..results };
        assert_eq!(epoch_line(&last, 2), "epoch 2/2  box 1.5000  cls 2.2500  dfl 1.0000");
    }

    #[test]
    fn times_are_told_in_two_units() {
        for (seconds, text) in [(0.4, "0 s"), (59.6, "1 min 00 s"), (3_725.0, "1 h 02 min"), (90_000.0, "1 d 01 h")] {
            assert_eq!(duration_text(seconds), text);
        }
        assert_eq!(duration_text(f64::NAN), "0 s");
    }
}
