//! Which settings a run may change on its way.

use crate::checkpoint::Checkpoint;
use crate::cli::ending::Refusal;
use crate::exit::Reason;
use crate::trainer::config::{ConfigError, OF_THE_FOLDER, OF_WHOLE_EPOCHS, Settings, TrainConfig};

/// Settings that fix what every checkpoint holds.
const OF_THE_BEGINNING: [&str; 3] = ["model", "pretrained", "optimizer"];

/// Refuses changes with which training cannot go on from this checkpoint.
///
/// # Errors
/// At the first such change, with the reason.
pub fn check(old: &TrainConfig, new: &TrainConfig, from: &Checkpoint) -> Result<(), Refusal> {
    refuse_other_folder(old, new)?;
    if let Some(key) = changed(old, new, &OF_THE_BEGINNING) {
        return refuse(key, "what a run began with is part of every checkpoint; begin a new run with `fermata train`");
    }
    if let Some(key) = changed(old, new, &["val_split"]) {
        return refuse(key, "images that were validated on would be trained on");
    }
    let (id, is_epoch_end) = (from.id(), from.manifest.about.is_epoch_end);
    match changed(old, new, &OF_WHOLE_EPOCHS).filter(|_| !is_epoch_end) {
        Some(key) => refuse(
            key,
            &format!(
                "{id} lies inside epoch {}; go on from the end of an epoch, such as --from {}",
                id.epoch + 1,
                id.epoch
            ),
        ),
        None => Ok(()),
    }
}

/// A run keeps its folder.
///
/// # Errors
/// When one of the folder's settings is another.
pub fn refuse_other_folder(old: &TrainConfig, new: &TrainConfig) -> Result<(), Refusal> {
    match changed(old, new, &OF_THE_FOLDER) {
        Some(key) => refuse(key, "a run keeps its folder; --branch NAME makes a new one"),
        None => Ok(()),
    }
}

/// The dataset is where the settings say. What else they name was read when the run began.
///
/// # Errors
/// [`ConfigError::PathMissing`].
pub fn require_data(config: &TrainConfig) -> Result<(), ConfigError> {
    if config.data.exists() {
        return Ok(());
    }
    let hint = " (if it was moved, data= names its new place)";
    Err(ConfigError::PathMissing { key: "data", path: config.data.clone(), hint })
}

/// The first of these keys whose value is another.
fn changed(old: &TrainConfig, new: &TrainConfig, keys: &[&str]) -> Option<&'static str> {
    let table = TrainConfig::table().iter().filter(|setting| keys.contains(&setting.key));
    table.into_iter().find(|setting| (setting.show)(old) != (setting.show)(new)).map(|setting| setting.key)
}

fn refuse(key: &str, why: &str) -> Result<(), Refusal> {
    Err(Refusal::new(Reason::Contradiction, format!("`{key}` cannot be changed here: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::timeline::fixture::Run;
    use crate::trainer::event::Position;

    fn with(key: &str, value: &str) -> TrainConfig {
        let mut config = TrainConfig::default();
        config.set(key, value).unwrap();
        config
    }

    #[test]
    fn every_key_of_the_lists_is_a_setting() {
        for key in OF_THE_BEGINNING {
            assert!(TrainConfig::find(key).is_some(), "{key}");
        }
    }

    #[test]
    fn what_a_run_began_with_stays() {
        let run = Run::of_epochs(1);
        let (old, from) = (TrainConfig::default(), run.checkpoint(1));
        for (key, value) in
            [("model", "yolov8s"), ("optimizer", "AdamW"), ("name", "b"), ("exist_ok", "True"), ("val_split", "0.1")]
        {
            let refusal = check(&old, &with(key, value), &from).unwrap_err();
            assert_eq!(refusal.ending.reason, Reason::Contradiction);
            assert!(refusal.message.starts_with(&format!("`{key}` cannot be changed here: ")), "{}", refusal.message);
        }
        for (key, value) in [("imgsz", "320"), ("seed", "7"), ("mosaic", "0"), ("lr0", "1"), ("model", "yolov8n")] {
            check(&old, &with(key, value), &from).unwrap();
        }
    }

    #[test]
    fn the_batch_size_changes_only_between_epochs() {
        let run = Run::of_epochs(1);
        run.save(Position { epoch: 2, batch: 1, n_batches: 3, step: 3, is_epoch_done: false });
        let (old, inside) = (TrainConfig::default(), run.store().find("last").unwrap());
        for (key, value) in [("batch", "8"), ("nbs", "8"), ("fraction", "0.5"), ("seed", "7")] {
            check(&old, &with(key, value), &run.checkpoint(1)).unwrap();
            let refusal = check(&old, &with(key, value), &inside).unwrap_err();
            assert!(refusal.message.contains("inside epoch 2") && refusal.message.ends_with("--from 1"));
        }
    }
}
