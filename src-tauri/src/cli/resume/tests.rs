use std::fs;

use super::*;
use crate::run::timeline::fixture::{Run, epochs_in, ids};
use crate::trainer::event::Position;
use crate::trainer::run_folder::RunStatus;

fn words(run: &Run, line: &str) -> ResumeWords {
    let project = format!("--project={}", run.project().display());
    let words: Vec<_> = line.split(' ').map(str::to_owned).chain([project]).collect();
    ResumeWords::read(&words).unwrap()
}

fn resume(run: &Run, line: &str) -> Result<Sitting, Refusal> {
    let words = words(run, line);
    sitting(&words, &find_run(&words.run, &words.project)?)
}

fn from(sitting: &Sitting) -> String {
    sitting.from.as_ref().unwrap().file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_run_goes_on_from_its_newest_checkpoint() {
    let run = Run::of_epochs(3);
    let before = run.snapshot();
    let sitting = resume(&run, "exp").unwrap();
    assert_eq!((from(&sitting).as_str(), sitting.is_beginning), ("e0003-b000006", false));
    assert_eq!(sitting.folder.paths(), run.paths());
    assert_eq!(sitting.config, run.config());
    drop(sitting);
    let mut after = run.snapshot();
    after.retain(|path, _| before.contains_key(path));
    assert_eq!(after, before, "nothing was changed");
}

#[test]
fn an_earlier_epoch_becomes_a_branch_unless_told_otherwise() {
    let run = Run::of_epochs(5);
    let sitting = resume(&run, "exp --from 3 lr0=0.5").unwrap();
    assert_eq!((sitting.folder.paths().name().as_str(), sitting.config.name.as_str()), ("exp-e3", "exp-e3"));
    assert_eq!((from(&sitting).as_str(), sitting.config.lr0), ("e0003-b000006", 0.5));
    assert!(sitting.from.as_ref().unwrap().starts_with(sitting.folder.paths().root()));
    assert_eq!(ids(run.paths()).len(), 5);
    assert_eq!(run.config().lr0, 0.01, "the parent keeps its settings");
    assert_eq!(resume(&run, "exp --branch other").unwrap().folder.paths().name(), "other");
    assert_eq!(resume(&run, "exp --from 5").unwrap().folder.paths(), run.paths(), "the newest goes on in place");
}

#[test]
fn in_place_the_later_part_is_kept_beside() {
    let run = Run::of_epochs(5);
    let sitting = resume(&run, "exp --from 3 --in-place epochs=8").unwrap();
    assert_eq!((from(&sitting).as_str(), sitting.record.timeline), ("e0003-b000006", 1));
    assert_eq!(sitting.config.epochs, 8);
    drop(sitting);
    assert_eq!(epochs_in(&run.paths().results_csv()), [1, 2, 3]);
    assert_eq!(ids(&run.beside("exp-before-e3")), ["e0004-b000008", "e0005-b000010"]);
    assert_ne!(run.config().epochs, 8, "a setting is written down once device and dataset are known to be good");
}

#[test]
fn an_edit_that_is_refused_changes_nothing() {
    let run = Run::of_epochs(5);
    for edit in ["model=yolov8s", "name=other", "epochs=3", "data=/nowhere/data.yaml"] {
        let before = run.snapshot();
        resume(&run, &format!("exp --from 3 --in-place {edit}")).unwrap_err();
        let mut after = run.snapshot();
        after.retain(|path, _| before.contains_key(path));
        assert_eq!(after, before, "{edit}");
        assert_eq!(run.names(), ["exp"], "{edit}");
    }
}

#[test]
fn a_branch_never_leads_out_of_the_project() {
    let run = Run::of_epochs(2);
    for name in ["../x", "a/b", "..", "/tmp/x"] {
        assert_eq!(
            resume(&run, &format!("exp --branch {name}")).unwrap_err().ending.reason,
            Reason::BadValue,
            "{name}"
        );
    }
    assert_eq!(run.names(), ["exp"]);
}

#[test]
fn a_finished_run_needs_more_epochs() {
    let run = Run::of_epochs(3);
    run.set_record(|record| (record.status, record.reason) = (RunStatus::Finished, Some("finished".into())));
    let folder = run.open();
    folder.write_args(&TrainConfig { epochs: 3, ..run.config() }).unwrap();
    drop(folder);
    let refusal = resume(&run, "exp").unwrap_err();
    assert_eq!(refusal.ending.reason, Reason::Contradiction);
    assert!(refusal.message.contains("epochs="), "{}", refusal.message);
    assert_eq!(resume(&run, "exp epochs=6").unwrap().config.epochs, 6);
}

#[test]
fn a_run_out_of_patience_needs_more_of_it() {
    let run = Run::of_epochs(3);
    run.set_record(|record| (record.status, record.reason) = (RunStatus::Finished, Some("patience".into())));
    let folder = run.open();
    folder.write_args(&TrainConfig { patience: 2, ..run.config() }).unwrap();
    drop(folder);
    for line in ["exp", "exp patience=1", "exp patience=2", "exp epochs=9"] {
        assert_eq!(resume(&run, line).unwrap_err().ending.reason, Reason::Contradiction, "{line}");
    }
    assert_eq!(resume(&run, "exp --from 2").unwrap().folder.paths().name(), "exp-e2");
    for line in ["exp patience=0", "exp patience=3", "exp epochs=12"] {
        resume(&run, line).unwrap_or_else(|refusal| panic!("{line}: {}", refusal.message));
        run.open().write_args(&TrainConfig { patience: 2, epochs: 10, ..run.config() }).unwrap();
    }
}

#[test]
fn a_damaged_newest_checkpoint_is_set_aside() {
    let run = Run::of_epochs(3);
    fs::write(run.checkpoint(3).path.join("optimizer.safetensors"), "x").unwrap();
    assert_eq!(from(&resume(&run, "exp").unwrap()), "e0002-b000004");
    assert!(run.paths().root().join("quarantine/e0003-b000006").is_dir());
    fs::write(run.checkpoint(1).path.join("optimizer.safetensors"), "x").unwrap();
    assert_eq!(resume(&run, "exp --from 1").unwrap_err().ending.reason, Reason::Io, "a named one is not replaced");
}

#[test]
fn a_run_without_checkpoints_begins_anew() {
    let run = Run::of_epochs(0);
    let sitting = resume(&run, "exp epochs=4").unwrap();
    assert_eq!((sitting.from, sitting.is_beginning, sitting.config.epochs), (None, true, 4));
    drop(sitting.folder);
    assert_eq!(resume(&run, "exp --from 1").unwrap_err().ending.reason, Reason::PathMissing);
}

#[test]
fn a_rewind_that_was_broken_off_is_completed_first() {
    use crate::trainer::run_folder::Rewind;
    let run = Run::of_epochs(5);
    let rewind = Rewind { to: "e0003-b000006".into(), sibling: "exp-before-e3".into() };
    run.set_record(|record| record.rewind = Some(rewind));
    assert_eq!(from(&resume(&run, "exp").unwrap()), "e0003-b000006");
    assert_eq!(run.names(), ["exp", "exp-before-e3"]);
}

#[test]
fn a_branch_needs_no_lock_of_its_parent() {
    let run = Run::of_epochs(4);
    run.save(Position { epoch: 5, batch: 1, n_batches: 9, step: 9, is_epoch_done: false });
    let _supervisor = run.open();
    assert_eq!(from(&resume(&run, "exp --from 2").unwrap()), "e0002-b000004");
    assert_eq!(from(&resume(&run, "exp --branch b").unwrap()), "e0004-b000009");
    assert_eq!(run.names(), ["b", "exp", "exp-e2"]);
}
