//! What a run writes down as it goes: events, rows, weights, its status.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::config::TrainConfig;
use super::data::TrainData;
use super::event::{EpochResults, TrainEvent, ValReport};
use super::run_folder::{
    EventLog, RUN_RECORD_VERSION, ResultsCsv, RunFolder, RunFolderError, RunRecord, RunStatus, new_run_id,
    write_file_durably,
};
use super::start::Start;
use super::state::TrainState;
use super::{TrainError, TrainOutcome};
use crate::checkpoint::Weights;
use crate::dataset::batch::ImageWarning;
use crate::exit::Reason;

/// The version that `Cargo.toml` pins.
const BURN_VERSION: &str = "0.22.1";

/// Tensors that a message names, at most: those of the class branches at three levels.
const MAX_NAMED: usize = 6;

/// The open files of a run, and whoever watches.
pub struct Record<'a> {
    folder: RunFolder,
    run: RunRecord,
    events: EventLog,
    results: ResultsCsv,
    show: &'a mut dyn FnMut(&TrainEvent),
    began: Instant,
    best_epoch: Option<u32>,
    newest_weights: Option<PathBuf>,
    /// Images already warned of: each is told once.
    warned: std::collections::BTreeSet<PathBuf>,
}

impl<'a> Record<'a> {
    /// Makes the run folder and the files in it.
    ///
    /// # Errors
    /// When the folder or a file cannot be made.
    pub fn create(
        config: &TrainConfig,
        data: &TrainData,
        show: &'a mut dyn FnMut(&TrainEvent),
    ) -> Result<Self, TrainError> {
        let folder = RunFolder::create(config)?;
        let created_unix_ms = unix_ms();
        let run = RunRecord {
            version: RUN_RECORD_VERSION,
            id: new_run_id(folder.path(), created_unix_ms, std::process::id()),
            status: RunStatus::Running,
            reason: None,
            created_unix_ms,
            versions: BTreeMap::from(
                [("fermata", env!("CARGO_PKG_VERSION")), ("burn", BURN_VERSION)]
                    .map(|(name, version)| (name.to_owned(), version.to_owned())),
            ),
            seed: config.seed,
            dataset_fingerprint: data.fingerprint.clone(),
        };
        run.write(&folder.run_json())?;
        if config.exist_ok {
            remove_old(&folder.events_jsonl())?;
        }
        let events = EventLog::open(&folder.events_jsonl())?;
        let results = ResultsCsv::create(&folder.results_csv())?;
        Ok(Self {
            folder,
            run,
            events,
            results,
            show,
            began: Instant::now(),
            best_epoch: None,
            newest_weights: None,
            warned: Default::default(),
        })
    }

    /// Writes and shows the first event, and what was found wrong or left out before it.
    pub fn started(
        &mut self,
        config: &TrainConfig,
        data: &TrainData,
        start: &Start,
        n_batches: usize,
    ) -> Result<(), TrainError> {
        self.event(TrainEvent::RunStarted {
            run_folder: self.folder.path().to_owned(),
            device: start.device.clone(),
            model: start.info.scale.to_string(),
            class_names: data.class_names.clone(),
            n_train_images: data.n_train(),
            n_val_images: data.n_val(),
            epochs: config.epochs,
            n_batches,
            at_unix_ms: unix_ms(),
        })?;
        if !data.report.faults.is_empty() {
            let n_faults = data.report.faults.len();
            let faults = if n_faults == 1 { "fault" } else { "faults" };
            let message = format!(
                "{n_faults} {faults} in the dataset; `fermata dataset check {}` lists them",
                config.data.display()
            );
            self.warn("dataset_faults", message)?;
        }
        if let Some(transfer) = &start.transfer {
            let (n, all) = (transfer.n_transferred, transfer.n_tensors());
            let left = match transfer.left.as_slice() {
                [] => String::new(),
                left if left.len() <= MAX_NAMED => format!("; untrained are {}", left.join(", ")),
                left => format!("; untrained are {} and {} more", left[..MAX_NAMED].join(", "), left.len() - MAX_NAMED),
            };
            self.warn("weights_transferred", format!("transferred {n} of {all} tensors{left}"))?;
        }
        Ok(())
    }

    pub fn event(&mut self, event: TrainEvent) -> Result<(), TrainError> {
        self.events.append(&event)?;
        (self.show)(&event);
        Ok(())
    }

    pub fn unreadable_images(&mut self, warnings: &[ImageWarning]) -> Result<(), TrainError> {
        for warning in warnings {
            if self.warned.insert(warning.image_path.clone()) {
                let message = format!(
                    "`{}` cannot be read and counts as an empty image: {}",
                    warning.image_path.display(),
                    warning.reason
                );
                self.warn("image_unreadable", message)?;
            }
        }
        Ok(())
    }

    pub fn validated(&mut self, epoch: u32, report: &ValReport) -> Result<(), TrainError> {
        if report.losses.is_some_and(|losses| !losses.is_finite()) {
            let message = format!("the averaged model's loss on the validation images is not finite in epoch {epoch}");
            self.warn("val_loss_not_finite", message)?;
        }
        self.event(TrainEvent::Validated { epoch, scores: report.scores, classes: report.classes.clone() })
    }

    pub fn epoch(&mut self, results: EpochResults) -> Result<(), TrainError> {
        self.results.append(&results)?;
        self.event(TrainEvent::EpochFinished(results))
    }

    /// Keeps the averaged weights: as the last, as the best if they are, and by their number if it is due.
    pub fn save(
        &mut self,
        config: &TrainConfig,
        state: &TrainState,
        epoch: u32,
        is_best: bool,
    ) -> Result<(), TrainError> {
        let bytes = Weights::to_bytes(state.averaged(), &state.weights_info(epoch))?;
        let mut names = vec!["last.safetensors".to_owned()];
        if is_best {
            names.push("best.safetensors".to_owned());
            self.best_epoch = Some(epoch);
        }
        if config.save_period > 0 && i64::from(epoch) % config.save_period == 0 {
            names.push(format!("epoch{epoch}.safetensors"));
        }
        let path = self.folder.weights().join("last.safetensors");
        for name in names {
            let file = self.folder.weights().join(name);
            write_file_durably(&file, &bytes).map_err(|error| RunFolderError::io(&file, error))?;
            // The first of them is the last weights: they are good whatever becomes of the others.
            self.newest_weights = Some(path.clone());
        }
        let step = state.n_steps() as u64;
        self.event(TrainEvent::CheckpointSaved { path, epoch, batch: 0, step, is_best })
    }

    /// Seconds since training began.
    pub fn elapsed_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Writes down that the run ended well.
    pub fn finish(mut self, reason: Reason) -> Result<TrainOutcome, TrainError> {
        let event = TrainEvent::Finished {
            reason: reason.word().to_owned(),
            best_epoch: self.best_epoch,
            time_s: self.elapsed_s(),
            checkpoint: self.newest_weights.clone(),
        };
        self.event(event)?;
        self.events.sync()?;
        self.end(RunStatus::Finished, reason)?;
        Ok(TrainOutcome { reason, run_folder: self.folder.path().to_owned(), checkpoint: self.newest_weights })
    }

    /// Writes down that the run failed, as far as the disk allows, and gives the error with the newest good weights in it.
    pub fn fail(mut self, error: TrainError) -> TrainError {
        let event = TrainEvent::Failed {
            reason: error.reason().word().to_owned(),
            message: error.to_string(),
            checkpoint: self.newest_weights.clone(),
        };
        // The first error is the one to tell: on a full disk these fail as well.
        let _ = self.event(event);
        let _ = self.end(RunStatus::Failed, error.reason());
        TrainError::Underway { error: Box::new(error), checkpoint: self.newest_weights }
    }

    fn warn(&mut self, code: &str, message: String) -> Result<(), TrainError> {
        self.event(TrainEvent::Warning { code: code.to_owned(), message })
    }

    fn end(&mut self, status: RunStatus, reason: Reason) -> Result<(), TrainError> {
        self.run.status = status;
        self.run.reason = Some(reason.word().to_owned());
        Ok(self.run.write(&self.folder.run_json())?)
    }
}

/// With `exist_ok` the run begins anew in its old folder.
fn remove_old(path: &Path) -> Result<(), TrainError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(RunFolderError::io(path, error).into()),
        _ => Ok(()),
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burn_version_is_the_pinned_one() {
        let pin = format!("burn = {{ version = \"={BURN_VERSION}\"");
        assert!(include_str!("../../../Cargo.toml").contains(&pin), "run.json must not name another version");
    }
}
