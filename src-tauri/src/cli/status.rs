//! `fermata status`.

use std::fmt::Write;

use clap::Args;

use super::ending::{Ending, Refusal};
use super::figures::size_text;
use super::print;
use super::run_words::RunWords;
use crate::exit::Reason;
use crate::run::find::{RunState, state_of};
use crate::trainer::event::{PauseDepth, PausedBy};
use crate::trainer::host::StartPhase;

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    run: RunWords,
    /// Print one JSON object: {"state","depth","reason","epoch","batch","step","device","supervisor_pid","worker_pid",
    /// "checkpoint",..}.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &StatusArgs) -> Result<Ending, Refusal> {
    show(&state_of(&args.run.find()?)?, args.json)?;
    Ok(Ending::of(Reason::Finished))
}

/// Prints a state, for a program or for people.
pub fn show(state: &RunState, is_json: bool) -> Result<(), Refusal> {
    if is_json { print::json(state) } else { print::out(&text(state)) }
}

/// The state in a few words, such as `paused (free, by user)`.
pub fn state_words(state: &RunState) -> String {
    let phase = state.phase.map(|phase| match phase {
        StartPhase::OpenDevice => "opening the device",
        StartPhase::Scan => "reading the dataset",
        StartPhase::Load => "loading the model",
    });
    let depth = state.depth.map(|depth| match depth {
        PauseDepth::Hold => "hold",
        PauseDepth::Free => "free",
    });
    let by = state.by.map(|by| match by {
        PausedBy::User => "by user",
        PausedBy::Policy => "by policy",
        PausedBy::Disk => "by disk",
    });
    let reason = state.reason.as_deref().filter(|reason| *reason != state.state);
    let details: Vec<_> = [phase, depth, by, reason].into_iter().flatten().collect();
    if details.is_empty() { state.state.clone() } else { format!("{} ({})", state.state, details.join(", ")) }
}

fn text(state: &RunState) -> String {
    let mut text = format!("{}: {}\n", state.name, state_words(state));
    // Writing to a String cannot fail, here and below.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:11} {value}");
    };
    let epochs = state.epochs.map_or_else(String::new, |epochs| format!("/{epochs}"));
    line("epoch", format!("{}{epochs}, batch {}, step {}", state.epoch, state.batch, state.step));
    if let Some(device) = &state.device {
        line("device", device.clone());
    }
    if let Some(checkpoint) = &state.checkpoint {
        line("checkpoint", checkpoint.display().to_string());
    }
    let times = &state.accounting;
    let pauses = match times.n_pauses {
        0 => String::new(),
        n => format!(", paused {:.1} s in {n} pauses for {}", times.paused_s, size_text(times.pause_bytes)),
    };
    line("time", format!("trained {:.1} s{pauses}", times.active_s));
    if let Some(parent) = &state.parent {
        line("branched", format!("from {} at {}", parent.run_name, parent.checkpoint));
    }
    line("id", state.id.clone().unwrap_or_else(|| "-".to_owned()));
    if let Some(trouble) = &state.trouble {
        let needed =
            trouble.bytes_needed.map_or_else(String::new, |bytes| format!("; {} are needed", size_text(bytes)));
        line("trouble", format!("{}{needed}", trouble.message));
    }
    if let Some(message) = &state.message {
        line("note", message.clone());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::timeline::fixture::Run;
    use crate::trainer::host::DiskTrouble;

    #[test]
    fn the_text_tells_state_position_and_checkpoint() {
        let run = Run::of_epochs(3);
        let state = state_of(run.paths()).unwrap();
        let text = text(&state);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "exp: stopped");
        assert_eq!(lines[1], "  epoch       3/10, batch 2, step 6");
        assert!(lines[3].starts_with("  checkpoint ") && lines[3].ends_with("e0003-b000006"), "{text}");
        assert_eq!(lines[4], "  time        trained 12.5 s");
    }

    #[test]
    fn a_disk_that_is_full_is_told_with_the_bytes_needed() {
        let run = Run::of_epochs(1);
        let trouble = Some(DiskTrouble { message: "disk full".into(), bytes_needed: Some(12_300_000) });
        let text = text(&RunState { trouble, ..state_of(run.paths()).unwrap() });
        assert!(text.ends_with("  trouble     disk full; 12.3 MB are needed\n"), "{text}");
    }

    #[test]
    fn depth_originator_and_reason_stand_in_brackets() {
        let run = Run::of_epochs(1);
        let state = state_of(run.paths()).unwrap();
        let paused = RunState {
            state: "paused".into(),
            reason: None,
            depth: Some(PauseDepth::Free),
            by: Some(PausedBy::User),
            ..state.clone()
        };
        assert_eq!(state_words(&paused), "paused (free, by user)");
        let starting = RunState { state: "starting".into(), reason: None, phase: Some(StartPhase::Scan), ..state };
        assert_eq!(state_words(&starting), "starting (reading the dataset)");
    }
}
