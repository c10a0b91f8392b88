//! What a training writes down as it goes, and what it tells its host: events, rows, checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::clock::{ActiveClock, unix_ms};
use super::config::TrainConfig;
use super::data::TrainData;
use super::event::{EpochResults, Position, TrainEvent, ValReport};
use super::host::{DiskTrouble, Host, Wish};
use super::journal::Journal;
use super::run_folder::{FileLock, RunFolderError, RunPaths};
use super::start::{Origin, Restored, Start};
use super::{Assignment, TrainError};
use crate::checkpoint::Transfer;
use crate::dataset::batch::ImageWarning;

/// The version that `Cargo.toml` pins.
const BURN_VERSION: &str = "0.22.1";

/// Tensors that a message names, at most: those of the class branches at three levels.
const MAX_NAMED: usize = 6;

/// The open files of a run, and its host.
pub struct Record<'a> {
    pub paths: RunPaths,
    pub clock: ActiveClock,
    host: &'a mut dyn Host,
    journal: Journal,
    n_holds: u64,
    /// Images already warned of: each is told once.
    warned: BTreeSet<PathBuf>,
    _lock: FileLock,
}

impl<'a> Record<'a> {
    /// Opens the run's files for what is to come; rows beyond the start are taken back.
    ///
    /// # Errors
    /// When a file cannot be opened, or another worker is at work in the folder.
    pub fn open(assignment: &Assignment, start: &Start, host: &'a mut dyn Host) -> Result<Self, TrainError> {
        let paths = RunPaths::of(&assignment.run_folder);
        let lock = FileLock::take(&paths.run_lock())?;
        let journal = Journal::open(&paths, start.state.position().epochs_done())?;
        let before_s = match &start.origin {
            Origin::Beginning { .. } => 0.0,
            Origin::Checkpoint(restored) => restored.saved.time_s,
        };
        let clock = ActiveClock::going(before_s);
        Ok(Self { paths, clock, host, journal, n_holds: 0, warned: BTreeSet::new(), _lock: lock })
    }

    /// Writes and shows the first event, and what was found wrong, left out or changed before it.
    ///
    /// # Errors
    /// When an event cannot be written; as all that follow.
    pub fn started(
        &mut self,
        config: &TrainConfig,
        data: &TrainData,
        start: &Start,
        n_batches: usize,
    ) -> Result<(), TrainError> {
        match &start.origin {
            Origin::Beginning { transfer } => {
                self.event(TrainEvent::RunStarted {
                    run_folder: self.paths.root().to_owned(),
                    device: start.device.clone(),
                    model: start.state.info.scale.to_string(),
                    class_names: data.class_names.clone(),
                    n_train_images: data.n_train(),
                    n_val_images: data.n_val(),
                    epochs: config.epochs,
                    n_batches,
                    at_unix_ms: unix_ms(),
                })?;
                self.transferred(transfer.as_ref())?;
            }
            Origin::Checkpoint(restored) => self.restored(config, start, restored, n_batches)?,
        }
        self.faults(config, data)
    }

    pub fn event(&mut self, event: TrainEvent) -> Result<(), TrainError> {
        self.journal.event(&event)?;
        self.host.event(&event);
        Ok(())
    }

    pub fn warn(&mut self, code: &str, message: String) -> Result<(), TrainError> {
        self.event(TrainEvent::Warning { code: code.to_owned(), message })
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
        self.journal.row(results)?;
        self.event(TrainEvent::EpochFinished(results))
    }

    /// Waits until all lines are on the disk, so that no checkpoint is ahead of them; while the disk is full, this holds.
    pub fn flush(&mut self, position: Position) -> Result<(), TrainError> {
        loop {
            match self.journal.flush() {
                Err(RunFolderError::DiskFull { path, .. }) => {
                    let message = format!("disk full while writing `{}`", path.display());
                    let bytes_needed = Some(self.journal.bytes_behind());
                    self.hold(position, Some(DiskTrouble { message, bytes_needed }));
                }
                flushed => return Ok(flushed?),
            }
        }
    }

    /// Tells the host that a batch begins.
    pub fn running(&mut self) {
        self.host.running();
    }

    /// What the host wants now; while it wants to hold, this waits. Gives `Go` or `Leave`.
    ///
    /// # Errors
    /// When lines that waited for a full disk cannot be written for another reason.
    pub fn wish(&mut self, position: Position) -> Result<Wish, TrainError> {
        if self.journal.is_behind() {
            self.flush(position)?;
        }
        Ok(match self.host.wish(position) {
            Wish::Hold => self.hold(position, None),
            wish => wish,
        })
    }

    /// Stands still until the host wants something else.
    pub fn hold(&mut self, position: Position, trouble: Option<DiskTrouble>) -> Wish {
        self.n_holds += 1;
        self.clock.halt();
        let mut wish = self.host.hold(position, trouble);
        while wish == Wish::Hold {
            wish = self.host.hold(position, None);
        }
        self.clock.go_on();
        if wish == Wish::Go {
            self.running();
        }
        wish
    }

    /// Times that the training has stood still so far.
    pub fn n_holds(&self) -> u64 {
        self.n_holds
    }

    fn transferred(&mut self, transfer: Option<&Transfer>) -> Result<(), TrainError> {
        let Some(transfer) = transfer else { return Ok(()) };
        let (n, all) = (transfer.n_transferred, transfer.n_tensors());
        let left = match transfer.left.as_slice() {
            [] => String::new(),
            left if left.len() <= MAX_NAMED => format!("; untrained are {}", left.join(", ")),
            left => format!("; untrained are {} and {} more", left[..MAX_NAMED].join(", "), left.len() - MAX_NAMED),
        };
        self.warn("weights_transferred", format!("transferred {n} of {all} tensors{left}"))
    }

    fn restored(
        &mut self,
        config: &TrainConfig,
        start: &Start,
        restored: &Restored,
        n_batches: usize,
    ) -> Result<(), TrainError> {
        let Restored { checkpoint, saved, changes } = restored;
        self.event(TrainEvent::Restored {
            checkpoint: checkpoint.clone(),
            position: saved.position,
            device: start.device.clone(),
            epochs: config.epochs,
            n_batches_per_epoch: n_batches,
            at_unix_ms: unix_ms(),
        })?;
        for change in changes {
            let (key, old, new) = (change.key.to_owned(), change.old.clone(), change.new.clone());
            self.event(TrainEvent::Edited { key, old, new, position: saved.position })?;
        }
        if saved.device != start.device_identity {
            let message = format!(
                "the run goes on on {}, after {}; it trains as well there, but not to the same last bit",
                start.device_identity, saved.device
            );
            self.warn("other_device", message)?;
        }
        Ok(())
    }

    fn faults(&mut self, config: &TrainConfig, data: &TrainData) -> Result<(), TrainError> {
        let n_faults = data.report.faults.len();
        if n_faults == 0 {
            return Ok(());
        }
        let faults = if n_faults == 1 { "fault" } else { "faults" };
        let path = config.data.display();
        let message = format!("{n_faults} {faults} in the dataset; `fermata dataset check {path}` lists them");
        self.warn("dataset_faults", message)
    }
}

/// Versions of this program and of what its numbers depend on.
pub fn versions() -> BTreeMap<String, String> {
    let named = [("fermata", env!("CARGO_PKG_VERSION")), ("burn", BURN_VERSION)];
    named.map(|(name, version)| (name.to_owned(), version.to_owned())).into()
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
