//! `fermata pause`.

use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::ending::{Ending, Refusal};
use super::figures::size_text;
use super::print;
use super::run_words::RunWords;
use super::status::state_words;
use super::supervisor::{connect, not_reached};
use crate::checkpoint::CheckpointStore;
use crate::exit::Reason;
use crate::run::find::{RunState, state_by};
use crate::run::machine::StateWord;
use crate::trainer::event::PauseDepth;
use crate::trainer::run_folder::RunPaths;

#[derive(Debug, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    run: RunWords,
    /// Keep everything in memory; the next batch begins at once after `resume`.
    #[arg(long, conflicts_with = "free")]
    hold: bool,
    /// Save and give the device back completely. This is the default.
    #[arg(long)]
    free: bool,
    /// Print one JSON object: that of `status`, with "seconds" and "checkpoint_bytes".
    #[arg(long)]
    json: bool,
}

/// The state that was reached, and what it took.
#[derive(Debug, Serialize)]
struct PauseReport {
    #[serde(flatten)]
    state: RunState,
    /// From the command to the pause.
    seconds: f64,
    /// Of the checkpoint that resuming goes on from, if it has to.
    checkpoint_bytes: Option<u64>,
}

/// Returns when the run stands still.
pub fn run(args: &PauseArgs) -> Result<Ending, Refusal> {
    let paths = args.run.find()?;
    let mut client = connect(&paths)?;
    let began = Instant::now();
    let reached = client.pause(if args.hold { PauseDepth::Hold } else { PauseDepth::Free })?;
    let (seconds, is_paused) = (began.elapsed().as_secs_f64(), reached.state == StateWord::Paused);
    let state = state_by(&paths, reached);
    let report = PauseReport { checkpoint_bytes: checkpoint_bytes(&paths, &state), state, seconds };
    if args.json {
        print::json(&report)?;
    } else {
        print::out(&text(&report))?;
    }
    if is_paused {
        return Ok(Ending { reason: Reason::Finished, checkpoint: report.state.checkpoint });
    }
    Err(not_reached(&report.state, "paused"))
}

fn checkpoint_bytes(paths: &RunPaths, state: &RunState) -> Option<u64> {
    let name = state.checkpoint.as_ref()?.file_name()?.to_str()?;
    // Only a figure to show; the pause has been reached whether it can be read or not.
    CheckpointStore::of(paths.root()).find(name).ok().map(|checkpoint| checkpoint.bytes)
}

fn text(report: &PauseReport) -> String {
    let PauseReport { state, seconds, checkpoint_bytes } = report;
    let size = checkpoint_bytes.map_or_else(String::new, |bytes| format!(" ({})", size_text(bytes)));
    let checkpoint = state.checkpoint.as_ref().and_then(|path| path.file_name());
    let saved = checkpoint.map_or_else(String::new, |name| format!(", newest checkpoint {}{size}", name.display()));
    format!("{}: {} after {seconds:.1} s{saved}", state.name, state_words(state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::find::state_of;
    use crate::run::timeline::fixture::Run;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: PauseArgs,
    }

    #[test]
    fn one_depth_can_be_asked_for() {
        use clap::Parser;
        let hold =
            |words: &[&str]| Line::try_parse_from([&["pause", "exp"], words].concat()).map(|line| line.args.hold);
        assert!(!hold(&[]).unwrap() && !hold(&["--free"]).unwrap() && hold(&["--hold", "--json"]).unwrap());
        assert!(hold(&["--hold", "--free"]).is_err());
    }

    #[test]
    fn the_line_tells_time_and_size() {
        let run = Run::of_epochs(2);
        let mut state = state_of(run.paths()).unwrap();
        let bytes = checkpoint_bytes(run.paths(), &state);
        assert_eq!(bytes, Some(run.checkpoint(2).bytes));
        (state.state, state.reason, state.depth) = ("paused".into(), None, Some(PauseDepth::Free));
        let report = PauseReport { state, seconds: 0.94, checkpoint_bytes: Some(12_300_000) };
        assert_eq!(text(&report), "exp: paused (free) after 0.9 s, newest checkpoint e0002-b000004 (12.3 MB)");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["state"], &json["checkpoint_bytes"]), (&"paused".into(), &12_300_000.into()));
    }
}
