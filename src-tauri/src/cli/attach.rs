//! `fermata attach`.

use std::ops::ControlFlow;

use clap::Args;

use super::ending::{Ending, Refusal};
use super::print;
use super::progress::Progress;
use super::run_words::RunWords;
use super::status::state_words;
use crate::exit::Reason;
use crate::run::client::{Client, ClientError};
use crate::run::find::{RunState, state_of};
use crate::run::protocol::Answer;
use crate::trainer::event::TrainEvent;
use crate::trainer::run_folder::{RunFolderError, RunPaths, current_timeline, read_events};

#[derive(Debug, Args)]
pub struct AttachArgs {
    #[command(flatten)]
    run: RunWords,
}

/// Shows what has been, follows what comes, and ends as the run does. A Ctrl-C ends only this process.
pub fn run(args: &AttachArgs) -> Result<Ending, Refusal> {
    let paths = args.run.find()?;
    match Client::connect(&paths) {
        Ok(client) => follow(&paths, client)?,
        Err(ClientError::NobodyThere) => show_past(&paths, &mut Progress::new()).map(|_| ())?,
        Err(error) => return Err(error.into()),
    }
    let state = state_of(&paths)?;
    print::out(&format!("{}: {}", state.name, state_words(&state)))?;
    Ok(outcome_of(state))
}

/// Shows each event until the supervisor is gone. The past is shown after the first answer: what it does not hold is
/// then sure to come.
fn follow(paths: &RunPaths, mut client: Client) -> Result<(), Refusal> {
    let mut progress = Progress::new();
    let mut past = None;
    client.watch(true, &mut |answer| {
        let past = past.get_or_insert_with(|| show_past(paths, &mut progress));
        match (past, answer) {
            (Err(_), _) => return ControlFlow::Break(()),
            (Ok(n_shown), Answer::Event { event }) if is_new(event, *n_shown) => progress.show(event),
            (Ok(_), Answer::Event { .. }) => {}
            (Ok(_), Answer::State(report)) if report.state.is_end() => return ControlFlow::Break(()),
            (Ok(_), Answer::State(_) | Answer::Refused { .. }) => {}
        }
        ControlFlow::Continue(())
    })?;
    past.map_or(Ok(()), |shown| Ok(shown.map(|_| ())?))
}

/// Whether an event was not already shown as part of the past.
fn is_new(event: &TrainEvent, n_epochs_shown: u32) -> bool {
    match event {
        TrainEvent::EpochFinished(results) => results.epoch > n_epochs_shown,
        _ => true,
    }
}

/// Shows the beginning and every epoch that is finished, and gives the number of the last one.
fn show_past(paths: &RunPaths, progress: &mut Progress) -> Result<u32, RunFolderError> {
    let path = paths.events_jsonl();
    let events = if path.exists() { current_timeline(read_events(&path)?.events) } else { Vec::new() };
    let mut last_epoch = 0;
    for event in &events {
        match event {
            TrainEvent::RunStarted { .. } | TrainEvent::Restored { .. } => progress.show(event),
            TrainEvent::EpochFinished(results) => {
                last_epoch = results.epoch;
                progress.show(event);
            }
            _ => {}
        }
    }
    Ok(last_epoch)
}

/// A run that was broken off, or is held by somebody who does not answer, has no reason of its own to end with.
fn outcome_of(state: RunState) -> Ending {
    let reason = state.reason.as_deref().and_then(Reason::from_word).unwrap_or(Reason::Internal);
    Ending { reason, checkpoint: state.checkpoint }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::timeline::fixture::Run;

    #[test]
    fn the_outcome_is_that_of_the_run() {
        let run = Run::of_epochs(2);
        let outcome = |reason: Option<&str>| {
            let state = RunState { reason: reason.map(str::to_owned), ..state_of(run.paths()).unwrap() };
            outcome_of(state).reason
        };
        assert_eq!(outcome(Some("patience")), Reason::Patience);
        assert_eq!(outcome(Some("terminated")), Reason::Terminated);
        assert_eq!(outcome(Some("interrupted")), Reason::Internal);
    }

    #[test]
    fn the_past_ends_with_the_last_finished_epoch() {
        let run = Run::of_epochs(3);
        let shown = show_past(run.paths(), &mut Progress::new()).unwrap();
        assert_eq!(shown, 3);
        let events = read_events(&run.paths().events_jsonl()).unwrap().events;
        let n_new = |n_shown| {
            let finished = events.iter().filter(|event| matches!(event, TrainEvent::EpochFinished(_)));
            finished.filter(|event| is_new(event, n_shown)).count()
        };
        assert_eq!((n_new(shown), n_new(1)), (0, 2));
    }
}
