//! `fermata train`.

use super::ending::{Ending, Refusal};
use super::print;
use super::progress::Progress;
use super::settings::SettingArgs;
use crate::trainer::config::{ImgszRounded, TrainConfig};
use crate::trainer::{self, TrainError};

pub fn run(args: &SettingArgs) -> Result<Ending, Refusal> {
    train(args.apply(TrainConfig::default())?)
}

/// Trains with these settings, showing progress. What is checked here are the settings themselves and that named paths
/// are there; [`trainer::train`] goes on with the device, the dataset and the run folder, in this order.
pub fn train(mut config: TrainConfig) -> Result<Ending, Refusal> {
    warn_if_rounded(config.check()?);
    let outcome = {
        let mut progress = Progress::new();
        trainer::train(&config, &mut |event| progress.show(event))?
    };
    print::out(&format!("results are in {}", outcome.run_folder.display()))?;
    Ok(Ending { reason: outcome.reason, checkpoint: outcome.checkpoint })
}

/// Says that the size is not the one that was asked for.
pub fn warn_if_rounded(rounded: Option<ImgszRounded>) {
    if let Some(rounded) = rounded {
        print::warning(&rounded.to_string());
    }
}

impl From<TrainError> for Refusal {
    fn from(error: TrainError) -> Self {
        let ending = Ending { reason: error.reason(), checkpoint: error.checkpoint().map(Into::into) };
        Self { ending, message: error.to_string() }
    }
}
