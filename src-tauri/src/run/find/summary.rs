//! All runs of a project, a few figures each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::state::{Holder, holder_of, left_standing, word};
use super::{FindError, runs_in};
use crate::checkpoint::CheckpointStore;
use crate::trainer::run_folder::{
    Parent, ResultsRow, RunFolderError, RunPaths, RunRecord, RunStatus, read_args, read_rows,
};

/// The column that tells which epoch was best.
const FITNESS_COLUMN: &str = "metrics/mAP50-95(B)";

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    pub name: String,
    pub path: PathBuf,
    /// Absent before the first `run.json`.
    pub id: Option<String>,
    /// As in [`super::RunState`], or `unreadable`, with the cause as the reason.
    pub state: String,
    pub reason: Option<String>,
    /// Epochs that are complete.
    pub epoch: u32,
    /// Number of epochs asked for.
    pub epochs: Option<u32>,
    pub best: Option<BestEpoch>,
    /// Of everything in the folder.
    pub bytes: u64,
    /// Milliseconds since 1970, UTC.
    pub created_unix_ms: u64,
    pub parent: Option<Parent>,
    pub timeline: u32,
}

/// The epoch with the highest mAP50-95; of several the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BestEpoch {
    pub epoch: u32,
    #[serde(rename = "mAP50-95")]
    pub map50_95: f64,
}

/// The runs of a project, the newest first. One that cannot be read is listed with the cause.
///
/// # Errors
/// When the project's folder cannot be read. One that is not there has no runs.
pub fn list_runs(project: &Path) -> Result<Vec<RunSummary>, FindError> {
    let mut runs: Vec<_> = runs_in(project)?.iter().map(summary_of).collect();
    // Stable, so runs of the same moment stay in order of their names.
    runs.sort_by_key(|run| std::cmp::Reverse(run.created_unix_ms));
    Ok(runs)
}

fn summary_of(paths: &RunPaths) -> RunSummary {
    let holder = holder_of(paths);
    let record = if paths.run_json().exists() { Some(RunRecord::read(&paths.run_json())) } else { None };
    let (state, reason) = standing(&holder, record.as_ref());
    let record = record.and_then(Result::ok);
    // What cannot be read is shown as missing: the list is for an overview, and each command tells its own trouble.
    let rows = read_rows(&paths.results_csv()).unwrap_or_default();
    RunSummary {
        name: paths.name(),
        path: paths.root().to_owned(),
        id: record.as_ref().map(|record| record.id.clone()),
        state,
        reason,
        epoch: epochs_done(paths, &rows),
        epochs: read_args(paths).ok().map(|config| config.epochs),
        best: best_of(&rows),
        bytes: bytes_under(paths.root()).unwrap_or(0),
        created_unix_ms: record.as_ref().map_or(u64::MAX, |record| record.created_unix_ms),
        parent: record.as_ref().and_then(|record| record.parent.clone()),
        timeline: record.map_or(0, |record| record.timeline),
    }
}

fn standing(holder: &Holder, record: Option<&Result<RunRecord, RunFolderError>>) -> (String, Option<String>) {
    match (holder, record) {
        (Holder::Answers(report), _) => {
            (report.state.as_str().to_owned(), report.reason.map(|reason| reason.word().to_owned()))
        }
        (_, Some(Err(error))) => ("unreadable".to_owned(), Some(error.to_string())),
        (Holder::Silent | Holder::Nobody, None) => (word(RunStatus::Starting).to_owned(), None),
        (Holder::Silent, Some(Ok(record))) => (word(record.status).to_owned(), record.reason.clone()),
        (Holder::Nobody, Some(Ok(record))) => left_standing(record),
    }
}

/// By the newest checkpoint, since rows behind it will come again; by the rows where no checkpoints are kept.
fn epochs_done(paths: &RunPaths, rows: &[ResultsRow]) -> u32 {
    let newest = CheckpointStore::of(paths.root()).list().ok().and_then(|mut all| all.pop());
    newest.map_or_else(|| rows.last().map_or(0, |(epoch, _)| *epoch), |newest| newest.id().epoch)
}

fn best_of(rows: &[ResultsRow]) -> Option<BestEpoch> {
    let figures = rows.iter().filter_map(|(epoch, row)| {
        Some(BestEpoch { epoch: *epoch, map50_95: *row.get(FITNESS_COLUMN).filter(|value| value.is_finite())? })
    });
    figures.reduce(|best, next| if next.map50_95 > best.map50_95 { next } else { best })
}

/// Bytes of all files below a folder; links are not followed.
fn bytes_under(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_under(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::timeline::fixture::{Run, record};
    use crate::trainer::event::{EpochResults, EpochValidation, LearningRates, Losses, ValScores};
    use crate::trainer::run_folder::ResultsCsv;

    #[test]
    fn the_newest_run_comes_first_with_its_figures() {
        let run = Run::of_epochs(3);
        let newer = run.beside("newer");
        fs::create_dir(newer.root()).unwrap();
        let mut later = record("fedcba9876543210");
        later.created_unix_ms += 1;
        later.write(&newer.run_json()).unwrap();
        fs::create_dir(run.project().join(".half.7.tmp")).unwrap();
        let runs = list_runs(run.project()).unwrap();
        assert_eq!(runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), ["newer", "exp"]);
        assert_eq!((runs[1].state.as_str(), runs[1].epoch, runs[1].epochs), ("stopped", 3, Some(10)));
        assert_eq!((runs[1].best, runs[0].epochs), (None, None));
        assert!(runs[1].bytes > 1000);
    }

    #[test]
    fn the_best_epoch_is_the_first_of_the_highest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let mut csv = ResultsCsv::resume(&path, 0).unwrap();
        for (epoch, map50_95) in [(1, 0.25), (2, 0.5), (3, 0.5), (4, f64::NAN)] {
            let (train, lr) = (Losses::default(), LearningRates::default());
            let scores = ValScores { map50_95, ..ValScores::default() };
            let val = Some(EpochValidation { scores, losses: train });
            csv.append(&EpochResults { epoch, time_s: 1.0, train, val, lr }).unwrap();
        }
        let best = best_of(&read_rows(&path).unwrap());
        assert_eq!(best, Some(BestEpoch { epoch: 2, map50_95: 0.5 }));
        assert_eq!(serde_json::to_string(&best).unwrap(), r#"{"epoch":2,"mAP50-95":0.5}"#);
    }

    #[test]
    fn a_run_that_cannot_be_read_is_listed_with_the_cause() {
        let run = Run::of_epochs(1);
        fs::write(run.paths().run_json(), r#"{"version":99}"#).unwrap();
        let runs = list_runs(run.project()).unwrap();
        assert_eq!(runs[0].state, "unreadable");
        assert!(runs[0].reason.as_ref().unwrap().contains("newer fermata"));
    }

    #[test]
    fn a_project_that_is_not_there_has_no_runs() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(list_runs(&dir.path().join("runs")).unwrap(), []);
    }
}
