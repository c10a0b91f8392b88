//! `fermata runs`.

use clap::Args;
use serde::Serialize;

use super::ending::{Ending, Refusal};
use super::figures::{columns, size_text};
use super::print;
use super::run_words::{ProjectWord, superfluous};
use crate::exit::Reason;
use crate::run::find::{RunSummary, list_runs};

#[derive(Debug, Args)]
pub struct RunsArgs {
    #[arg(value_name = "project=DIR")]
    words: Vec<String>,
    #[command(flatten)]
    project: ProjectWord,
    /// Print one JSON object: {"runs":[..]}, the newest first.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Runs<'a> {
    runs: &'a [RunSummary],
}

pub fn run(args: &RunsArgs) -> Result<Ending, Refusal> {
    let (project, rest) = args.project.split_off(&args.words);
    if let Some(word) = rest.first() {
        return Err(superfluous(word));
    }
    let runs = list_runs(project)?;
    if args.json {
        print::json(&Runs { runs: &runs })?;
    } else if runs.is_empty() {
        print::out(&format!("no runs in {}", project.display()))?;
    } else {
        print::out(&table(&runs))?;
    }
    Ok(Ending::of(Reason::Finished))
}

fn table(runs: &[RunSummary]) -> String {
    let head = ["name", "state", "epoch", "best mAP50-95", "size", "id", "from"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(head).chain(runs.iter().map(row)).collect();
    columns(&rows)
}

fn row(run: &RunSummary) -> Vec<String> {
    let epochs = run.epochs.map_or_else(String::new, |epochs| format!("/{epochs}"));
    // The usual reason says the same as the state.
    let reason = run.reason.as_ref().filter(|reason| **reason != run.state);
    vec![
        run.name.clone(),
        reason.map_or_else(|| run.state.clone(), |reason| format!("{} ({reason})", run.state)),
        format!("{}{epochs}", run.epoch),
        run.best.map_or_else(|| "-".to_owned(), |best| format!("{:.3} in epoch {}", best.map50_95, best.epoch)),
        size_text(run.bytes),
        run.id.clone().unwrap_or_else(|| "-".to_owned()),
        run.parent.as_ref().map_or_else(String::new, |parent| format!("{} {}", parent.run_name, parent.checkpoint)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::find::BestEpoch;
    use crate::trainer::run_folder::Parent;

    #[test]
    fn the_table_has_a_line_for_each_run() {
        let run = RunSummary {
            name: "exp".into(),
            path: "runs/exp".into(),
            id: Some("0123456789abcdef".into()),
            state: "failed".into(),
            reason: Some("interrupted".into()),
            epoch: 3,
            epochs: Some(10),
            best: Some(BestEpoch { epoch: 2, map50_95: 0.5 }),
            bytes: 12_345_678,
            created_unix_ms: 1,
            parent: None,
            timeline: 0,
        };
        let parent = Parent { run_id: "1".into(), run_name: "exp".into(), checkpoint: "e0001-b000002".into() };
        let branch = RunSummary {
            name: "exp-e1".into(),
            state: "stopped".into(),
            reason: Some("stopped".into()),
            best: None,
            parent: Some(parent),
            ..run.clone()
        };
        assert_eq!(
            table(&[run, branch]),
            "name    state                 epoch  best mAP50-95     size     id                from\n\
             exp     failed (interrupted)  3/10   0.500 in epoch 2  12.3 MB  0123456789abcdef\n\
             exp-e1  stopped               3/10   -                 12.3 MB  0123456789abcdef  exp e0001-b000002"
        );
    }
}
