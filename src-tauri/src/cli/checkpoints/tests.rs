use clap::Parser;

use super::*;
use crate::run::timeline::fixture::{Run, ids};

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: CheckpointsCommand,
}

/// The command on the run `exp` of a project.
fn call(run: &Run, words: &[&str]) -> Result<Ending, Refusal> {
    let project = format!("--project={}", run.project().display());
    let line = [&["fermata"], words, &[project.as_str()]].concat();
    super::run(&Line::try_parse_from(line).unwrap().command)
}

#[test]
fn every_listed_checkpoint_has_the_documented_fields() {
    let run = Run::of_epochs(2);
    run.store().pin(run.checkpoint(2).id()).unwrap();
    let rows: Vec<_> = run.store().list().unwrap().iter().map(CheckpointRow::of).collect();
    let json = serde_json::to_value(Listed { checkpoints: &rows }).unwrap();
    let keys: Vec<_> = json["checkpoints"][0].as_object().unwrap().keys().map(String::as_str).collect();
    let documented = [
        "id",
        "timeline",
        "epoch",
        "batch",
        "step",
        "grade",
        "bytes",
        "state_hash",
        "weights_hash",
        "metrics",
        "tags",
        "pinned",
        "parent",
    ];
    assert_eq!(keys, documented);
    let (first, last) = (&json["checkpoints"][0], &json["checkpoints"][1]);
    assert_eq!((&first["id"], &last["id"]), (&"e0001-b000002".into(), &"e0002-b000004".into()), "oldest first");
    assert_eq!((&last["batch"], &last["grade"], &last["pinned"]), (&4.into(), &"full".into(), &true.into()));
    let table = table::table(&rows);
    assert!(table.lines().nth(2).unwrap().ends_with("pinned"), "{table}");
}

#[test]
fn a_damaged_checkpoint_is_named_with_exit_code_74() {
    let run = Run::of_epochs(3);
    call(&run, &["verify", "exp"]).unwrap();
    std::fs::write(run.checkpoint(2).path.join("ema.safetensors"), "x").unwrap();
    let refusal = call(&run, &["verify", "exp"]).unwrap_err();
    assert_eq!(refusal.ending.reason.code() as u8, 74);
    assert_eq!(refusal.message, "1 of 3 checkpoints cannot be used: e0002-b000004");
}

#[test]
fn pins_are_set_and_taken_away_by_any_name() {
    let run = Run::of_epochs(3);
    call(&run, &["pin", "exp", "1", "e0002-b000004", "best"]).unwrap();
    let pins = || run.store().list().unwrap().iter().map(|it| it.is_pinned).collect::<Vec<_>>();
    assert_eq!(pins(), [true, true, true]);
    call(&run, &["unpin", "exp", "2"]).unwrap();
    assert_eq!(pins(), [true, false, true]);
    assert_eq!(call(&run, &["pin", "exp"]).unwrap_err().ending.reason, Reason::Usage);
    assert_eq!(call(&run, &["pin", "exp", "9"]).unwrap_err().ending.reason, Reason::PathMissing);
}

#[test]
fn a_prune_can_be_tried_done_and_taken_back() {
    let run = Run::of_epochs(4);
    call(&run, &["prune", "exp", "--keep-last", "2", "--dry-run"]).unwrap();
    assert_eq!(ids(run.paths()).len(), 4, "only shown");
    call(&run, &["prune", "exp", "--keep-last", "2"]).unwrap();
    assert_eq!(ids(run.paths()), ["e0003-b000006", "e0004-b000008"]);
    call(&run, &["restore", "exp", "e0001-b000002"]).unwrap();
    assert_eq!(ids(run.paths()).len(), 3);
    call(&run, &["unpin", "exp", "1"]).unwrap();
    call(&run, &["prune", "exp", "1", "--empty-trash"]).unwrap();
    assert_eq!(run.store().trash().unwrap(), []);
    assert_eq!(ids(run.paths()).len(), 2);
}

#[test]
fn a_prune_needs_to_be_told_what_and_spares_the_newest() {
    let run = Run::of_epochs(2);
    assert_eq!(call(&run, &["prune", "exp"]).unwrap_err().ending.reason, Reason::Usage);
    assert!(call(&run, &["prune", "exp", "last"]).unwrap_err().message.contains("newest"));
    call(&run, &["prune", "exp", "--empty-trash"]).unwrap();
    let error = Line::try_parse_from(["fermata", "prune", "exp", "--every", "0"]).err().unwrap();
    assert!(error.to_string().contains("--every"), "{error}");
}
