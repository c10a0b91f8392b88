//! `fermata checkpoints`: what a run has kept, whether it is whole, and what may go.

mod prune;
mod table;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::ending::{Ending, Refusal};
use super::figures::{columns, size_text};
use super::print;
use super::run_words::RunWords;
use crate::checkpoint::{CheckpointStore, StoreError, Verdict, Verified};
use crate::exit::Reason;
use prune::PruneArgs;
use table::CheckpointRow;

#[derive(Debug, Subcommand)]
pub enum CheckpointsCommand {
    /// List the checkpoints of a run, the oldest first.
    List(ListArgs),
    /// Read every byte of every checkpoint. Exit code 74: one of them is damaged.
    Verify(ListArgs),
    /// Move checkpoints to the trash.
    Prune(PruneArgs),
    /// Never remove these: CKPT is an id, an epoch, `last` or `best`.
    Pin(NamedArgs),
    /// Take the pins away.
    Unpin(NamedArgs),
    /// Bring checkpoints back from the trash.
    Restore(NamedArgs),
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    run: RunWords,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// A run, and checkpoints of it.
#[derive(Debug, Args)]
#[command(override_usage = "fermata checkpoints pin|unpin|restore RUN CKPT.. [--project DIR] [--json]")]
pub struct NamedArgs {
    #[command(flatten)]
    run: RunWords,
    /// Print one JSON object: {"checkpoints":[..]}, the ids.
    #[arg(long)]
    json: bool,
}

pub fn run(command: &CheckpointsCommand) -> Result<Ending, Refusal> {
    match command {
        CheckpointsCommand::List(args) => list(args)?,
        CheckpointsCommand::Verify(args) => return verify(args),
        CheckpointsCommand::Prune(args) => prune::run(args)?,
        CheckpointsCommand::Pin(args) => change(args, "pinned", |store, text| {
            let id = store.find(text)?.id();
            store.pin(id).map(|()| id.to_string())
        })?,
        CheckpointsCommand::Unpin(args) => change(args, "unpinned", |store, text| {
            let id = store.find(text)?.id();
            store.unpin(id).map(|()| id.to_string())
        })?,
        CheckpointsCommand::Restore(args) => {
            change(args, "restored and pinned", |store, text| store.restore(text).map(|id| id.to_string()))?;
        }
    }
    Ok(Ending::of(Reason::Finished))
}

#[derive(Serialize)]
struct Listed<'a, Row> {
    checkpoints: &'a [Row],
}

fn list(args: &ListArgs) -> Result<(), Refusal> {
    let store = CheckpointStore::of(args.run.find()?.root());
    let rows: Vec<_> = store.list()?.iter().map(CheckpointRow::of).collect();
    if args.json {
        return print::json(&Listed { checkpoints: &rows });
    }
    if rows.is_empty() {
        return print::out("no checkpoints");
    }
    let total = rows.iter().map(|row| row.bytes).sum();
    print::out(&format!("{}\n{} in all", table::table(&rows), size_text(total)))
}

/// A checkpoint after it was read.
#[derive(Serialize)]
struct VerifiedRow {
    id: String,
    is_whole: bool,
    /// What is wrong with it.
    fault: Option<String>,
}

fn verify(args: &ListArgs) -> Result<Ending, Refusal> {
    let rows: Vec<_> = CheckpointStore::of(args.run.find()?.root()).verify_all()?.iter().map(verified_row).collect();
    if args.json {
        print::json(&Listed { checkpoints: &rows })?;
    } else if rows.is_empty() {
        print::out("no checkpoints")?;
    } else {
        let cells = |row: &VerifiedRow| vec![row.id.clone(), row.fault.clone().unwrap_or_else(|| "whole".to_owned())];
        print::out(&columns(&rows.iter().map(cells).collect::<Vec<_>>()))?;
    }
    let bad: Vec<_> = rows.iter().filter(|row| !row.is_whole).map(|row| row.id.as_str()).collect();
    if bad.is_empty() {
        return Ok(Ending::of(Reason::Finished));
    }
    Err(Refusal::new(
        Reason::Io,
        format!("{} of {} checkpoints cannot be used: {}", bad.len(), rows.len(), bad.join(", ")),
    ))
}

fn verified_row(verified: &Verified) -> VerifiedRow {
    let fault = match &verified.verdict {
        Verdict::Whole => None,
        Verdict::Damaged(damage) => Some(format!("damaged: {damage}")),
        Verdict::Newer { found } => Some(format!("of format {found}, which needs a newer fermata")),
    };
    VerifiedRow { id: verified.id.to_string(), is_whole: fault.is_none(), fault }
}

/// Does the same to each named checkpoint, and tells of each when it is done.
fn change(
    args: &NamedArgs,
    done: &str,
    each: impl Fn(&CheckpointStore, &str) -> Result<String, StoreError>,
) -> Result<(), Refusal> {
    let (paths, texts) = args.run.find_with_rest()?;
    if texts.is_empty() {
        return Err(Refusal::new(Reason::Usage, "no checkpoint is named; `fermata checkpoints list RUN` lists them"));
    }
    let store = CheckpointStore::of(paths.root());
    let mut ids = Vec::new();
    for text in texts {
        let id = each(&store, text)?;
        if !args.json {
            print::out(&format!("{done} {id}"))?;
        }
        ids.push(id);
    }
    if args.json { print::json(&Listed { checkpoints: &ids }) } else { Ok(()) }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

#[cfg(test)]
mod tests;
