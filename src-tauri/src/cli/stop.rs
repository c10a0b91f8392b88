//! `fermata stop`.

use clap::Args;

use super::ending::{Ending, Refusal};
use super::run_words::RunWords;
use super::status::show;
use super::supervisor::connect;
use crate::exit::Reason;
use crate::run::find::state_by;

#[derive(Debug, Args)]
pub struct StopArgs {
    #[command(flatten)]
    run: RunWords,
    /// Print one JSON object, as `status` does.
    #[arg(long)]
    json: bool,
}

/// Returns when the run has saved and ended.
pub fn run(args: &StopArgs) -> Result<Ending, Refusal> {
    let paths = args.run.find()?;
    let reached = connect(&paths)?.stop()?;
    let state = state_by(&paths, reached);
    show(&state, args.json)?;
    Ok(Ending { reason: Reason::Finished, checkpoint: state.checkpoint })
}
