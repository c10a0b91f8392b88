//! `fermata checkpoints prune`.

use clap::Args;
use serde::Serialize;

use crate::checkpoint::{CheckpointStore, PruneError, PrunePlan, PruneRequest, RetentionPolicy, StoreError};
use crate::cli::ending::Refusal;
use crate::cli::figures::size_text;
use crate::cli::print;
use crate::cli::run_words::RunWords;
use crate::exit::Reason;

/// Which checkpoints go: the named ones, and all that the `--keep` rules leave over. Pinned ones and the newest stay.
#[derive(Debug, Args)]
#[command(
    override_usage = "fermata checkpoints prune RUN [CKPT..] [--keep-last K] [--keep-best M] [--every N] [--dry-run] [--empty-trash]"
)]
pub struct PruneArgs {
    #[command(flatten)]
    run: RunWords,
    /// Keep so many of the newest.
    #[arg(long, value_name = "K")]
    keep_last: Option<usize>,
    /// Keep so many of the highest mAP50-95.
    #[arg(long, value_name = "M")]
    keep_best: Option<usize>,
    /// Keep those of every so many epochs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    every: Option<u32>,
    /// Only show what would go.
    #[arg(long)]
    dry_run: bool,
    /// Remove for good what lies in the trash afterwards.
    #[arg(long)]
    empty_trash: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What a prune did, or would do.
#[derive(Debug, Serialize)]
struct PruneReport {
    #[serde(flatten)]
    plan: PrunePlan,
    is_dry_run: bool,
    /// Bytes that emptying the trash has freed.
    bytes_emptied: u64,
}

pub fn run(args: &PruneArgs) -> Result<(), Refusal> {
    let (paths, texts) = args.run.find_with_rest()?;
    let store = CheckpointStore::of(paths.root());
    let request = args.request(&store, &texts)?;
    let plan = PrunePlan::of(&store, &request)?;
    let bytes_emptied = if args.dry_run { 0 } else { args.carry_out(&store, &plan)? };
    let report = PruneReport { plan, is_dry_run: args.dry_run, bytes_emptied };
    if args.json { print::json(&report) } else { print::out(&text(&report, args.empty_trash)) }
}

impl PruneArgs {
    fn request(&self, store: &CheckpointStore, texts: &[&str]) -> Result<PruneRequest, Refusal> {
        let ids = texts.iter().map(|text| Ok(store.find(text)?.id())).collect::<Result<Vec<_>, StoreError>>()?;
        let has_rule = self.keep_last.is_some() || self.keep_best.is_some() || self.every.is_some();
        if ids.is_empty() && !has_rule && !self.empty_trash {
            let message = "nothing says what to prune; name checkpoints, or give --keep-last, --keep-best or --every";
            return Err(Refusal::new(Reason::Usage, message));
        }
        let keep = has_rule.then(|| RetentionPolicy {
            keep_last: self.keep_last.unwrap_or(0),
            keep_best: self.keep_best.unwrap_or(0),
            every: self.every,
        });
        Ok(PruneRequest { ids, keep })
    }

    /// Gives the bytes that emptying the trash has freed.
    fn carry_out(&self, store: &CheckpointStore, plan: &PrunePlan) -> Result<u64, Refusal> {
        plan.apply(store)?;
        if self.empty_trash { Ok(store.empty_trash()?) } else { Ok(0) }
    }
}

fn text(report: &PruneReport, empties_trash: bool) -> String {
    let PruneReport { plan, is_dry_run, bytes_emptied } = report;
    let verb = if *is_dry_run { "would go" } else { "moved" };
    let mut lines: Vec<_> = plan
        .checkpoints
        .iter()
        .map(|pruned| format!("{} {verb} to the trash ({})", pruned.id, size_text(pruned.bytes)))
        .collect();
    if lines.is_empty() {
        lines.push("no checkpoint goes".to_owned());
    }
    let in_trash = plan.bytes_after_emptying + plan.bytes_in_trash;
    lines.push(match (is_dry_run, empties_trash) {
        (false, true) => format!("{} freed by emptying the trash", size_text(*bytes_emptied)),
        (true, true) => format!("{} would be freed by emptying the trash", size_text(in_trash)),
        (_, false) => {
            format!("{} freed now, {} when the trash is emptied", size_text(plan.bytes_now), size_text(in_trash))
        }
    });
    lines.join("\n")
}

impl From<PruneError> for Refusal {
    fn from(error: PruneError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}
