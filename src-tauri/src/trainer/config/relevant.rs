//! Which settings decide what is trained, and which only where, how fast and what is kept.

use std::collections::BTreeMap;

use super::{Settings, TrainConfig};

/// Settings that leave every weight as it is. A path is none that does not: what it leads to has a hash of its own.
const WITHOUT_EFFECT: [&str; 16] = [
    "cache",
    "data",
    "device",
    "exist_ok",
    "grace",
    "keep_best",
    "keep_every",
    "keep_last",
    "log_samples",
    "model",
    "name",
    "pretrained",
    "project",
    "save",
    "save_minutes",
    "save_period",
];

/// Of these also the number of threads, on which nothing depends.
const THREADS: &str = "workers";

/// Settings by which an epoch is cut into batches and steps; they can change between two epochs alone.
pub const OF_WHOLE_EPOCHS: [&str; 4] = ["batch", "fraction", "nbs", "seed"];

/// Settings of the folder, which a run does not take along when it is moved or branched.
pub const OF_THE_FOLDER: [&str; 3] = ["exist_ok", "name", "project"];

/// A setting that is another than it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: &'static str,
    pub old: String,
    pub new: String,
}

impl TrainConfig {
    /// The settings that decide what is trained, as a user would write them.
    pub fn relevant(&self) -> BTreeMap<&'static str, String> {
        let table = Self::table().iter().filter(|setting| is_relevant(setting.key));
        table.map(|setting| (setting.key, (setting.show)(self))).collect()
    }

    /// What is different from an earlier state of the settings, but for those of the folder.
    pub fn changes_since(&self, earlier: &Self) -> Vec<Change> {
        let table = Self::table().iter().filter(|setting| !OF_THE_FOLDER.contains(&setting.key));
        let all =
            table.map(|setting| Change { key: setting.key, old: (setting.show)(earlier), new: (setting.show)(self) });
        all.filter(|change| change.old != change.new).collect()
    }
}

fn is_relevant(key: &str) -> bool {
    key != THREADS && !WITHOUT_EFFECT.contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_lists_is_a_setting() {
        for key in WITHOUT_EFFECT.iter().chain(&OF_THE_FOLDER).chain(&OF_WHOLE_EPOCHS).chain([&THREADS]) {
            assert!(TrainConfig::find(key).is_some(), "`{key}`");
        }
    }

    #[test]
    fn what_is_trained_does_not_depend_on_the_folder_or_the_threads() {
        let config = TrainConfig::default();
        let elsewhere = TrainConfig {
            name: "other".into(),
            workers: config.workers + 1,
            data: "moved/data.yaml".into(),
            ..config.clone()
        };
        assert_eq!(elsewhere.relevant(), config.relevant());
        let stronger = TrainConfig { lr0: 0.02, ..config.clone() };
        assert_ne!(stronger.relevant(), config.relevant());
        let change = Change { key: "lr0", old: "0.01".into(), new: "0.02".into() };
        assert_eq!(stronger.changes_since(&config), [change]);
        assert!(TrainConfig { name: "other".into(), ..config.clone() }.changes_since(&config).is_empty());
    }
}
