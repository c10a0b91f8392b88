//! `fermata demo`: a first training that needs no download.

use std::path::PathBuf;

use super::ending::{Ending, Refusal};
use super::settings::SettingArgs;
use super::{print, train};
use crate::dataset::demo::{DemoError, write_demo};
use crate::durable::is_disk_full;
use crate::exit::Reason;
use crate::trainer::config::TrainConfig;

/// What the demo trains with: small images and few epochs, so that it ends soon on a CPU as well, and a step a batch, so that it
/// learns something in them.
pub fn defaults() -> TrainConfig {
    TrainConfig { imgsz: 160, epochs: 15, batch: 8, nbs: 8, name: "demo".to_owned(), ..TrainConfig::default() }
}

/// Checks the settings, writes the demo dataset to `demo-dataset` in the project's folder, and trains on it.
pub fn run(args: &SettingArgs) -> Result<Ending, Refusal> {
    train::begin("demo", args, |args| {
        let mut config = args.apply(defaults())?;
        if config.data != PathBuf::new() {
            let message = "the demo draws its own data; leave data= out, or use `fermata train`";
            return Err(Refusal::new(Reason::Contradiction, message));
        }
        let folder = config.project.join("demo-dataset");
        config.data.clone_from(&folder);
        train::warn_if_rounded(config.check_settings()?);
        config.data = write_demo(&folder)?;
        print::err(&format!("the demo dataset is in {}", folder.display()));
        Ok(config)
    })
}

impl From<DemoError> for Refusal {
    fn from(error: DemoError) -> Self {
        let reason = match &error {
            DemoError::Write { source, .. } if is_disk_full(source) => Reason::DiskFull,
            DemoError::Write { .. } | DemoError::NotOurs { .. } => Reason::CannotCreate,
            DemoError::Encode(_) => Reason::Internal,
        };
        Self::new(reason, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::*;

    #[test]
    fn the_demo_settings_need_no_rounding() {
        let mut config = TrainConfig { data: "demo-dataset".into(), ..defaults() };
        assert_eq!(config.check_settings().unwrap(), None);
    }

    #[test]
    fn a_demo_that_cannot_be_written_is_told_from_a_full_disk() {
        let reason = |kind: ErrorKind| {
            let error = DemoError::Write { path: "x".into(), source: io::Error::from(kind) };
            Refusal::from(error).ending.reason
        };
        assert_eq!(reason(ErrorKind::PermissionDenied), Reason::CannotCreate);
        assert_eq!(reason(ErrorKind::StorageFull), Reason::DiskFull);
    }
}
