//! `fermata stop`.

use clap::Args;

use super::ending::{Ending, Refusal};
use super::run_words::RunWords;
use super::status::show;
use super::supervisor::{connect, not_reached};
use crate::exit::Reason;
use crate::run::find::state_by;

#[derive(Debug, Args)]
pub struct StopArgs {
    #[command(flatten)]
    run: RunWords,
    /// End at once, without saving; what was trained since the newest checkpoint is lost.
    #[arg(long)]
    now: bool,
    /// Print one JSON object, as `status` does.
    #[arg(long)]
    json: bool,
}

/// Returns when the run has saved and ended.
pub fn run(args: &StopArgs) -> Result<Ending, Refusal> {
    let paths = args.run.find()?;
    let mut client = connect(&paths)?;
    let reached = if args.now { client.stop_now()? } else { client.stop()? };
    let has_ended = reached.state.is_end();
    let state = state_by(&paths, reached);
    show(&state, args.json)?;
    if !has_ended {
        return Err(not_reached(&state, "stopped"));
    }
    Ok(Ending { reason: Reason::Finished, checkpoint: state.checkpoint })
}
