use super::*;
use crate::run::timeline::fixture::{Run, epochs_in, ids, position};

const LATER: [&str; 3] = ["e0004-b000008", "e0005-b000010", "e0006-b000012"];
const KEPT: [&str; 3] = ["e0001-b000002", "e0002-b000004", "e0003-b000006"];

/// What a crash is for these tests.
fn crash() -> TimelineError {
    RunFolderError::io(Path::new("crash"), ErrorKind::Other.into()).into()
}

fn assert_rewound(run: &Run, because: &str) {
    assert_eq!(ids(run.paths()), KEPT, "{because}");
    assert_eq!(epochs_in(&run.paths().results_csv()), [1, 2, 3], "{because}");
    let record = run.record();
    assert_eq!((record.timeline, record.rewind, record.status), (1, None, RunStatus::Stopped), "{because}");
    let ema = b"ema.safetensors of e0003-b000006";
    assert_eq!(fs::read(run.paths().last_weights()).unwrap(), ema, "{because}");
    assert_eq!(fs::read(run.paths().best_weights()).unwrap(), ema, "{because}");
    assert_eq!(run.names(), ["exp", "exp-before-e3"], "{because}");
    let sibling = run.beside("exp-before-e3");
    assert_eq!(ids(&sibling), LATER, "{because}");
    assert_eq!(epochs_in(&sibling.results_csv()), [1, 2, 3, 4, 5, 6], "{because}");
    assert_eq!(fs::read(sibling.last_weights()).unwrap(), b"ema.safetensors of e0006-b000012", "{because}");
    for checkpoint in CheckpointStore::of(sibling.root()).list().unwrap() {
        CheckpointStore::of(sibling.root()).verify(&checkpoint).unwrap();
    }
}

#[test]
fn the_later_part_becomes_a_run_of_its_own() {
    let run = Run::of_epochs(6);
    run.store().pin(run.checkpoint(5).id()).unwrap();
    let mut record = run.record();
    let sibling = rewind_in_place(&run.open(), &mut record, &run.checkpoint(3)).unwrap().unwrap();
    assert_eq!(record, run.record());
    assert_rewound(&run, "without a crash");
    let kept = RunRecord::read(&RunPaths::of(&sibling).run_json()).unwrap();
    assert_eq!(kept.parent.unwrap().checkpoint, "e0003-b000006");
    assert_ne!(kept.id, record.id);
    assert_eq!((kept.timeline, kept.status, kept.accounting), (0, RunStatus::Stopped, record.accounting));
    let pins: Vec<_> = CheckpointStore::of(&sibling).list().unwrap().iter().map(|kept| kept.is_pinned).collect();
    assert_eq!(pins, [false, true, false]);
    assert!(RunPaths::of(&sibling).args_yaml().exists() && RunPaths::of(&sibling).events_jsonl().exists());
}

#[test]
fn a_crash_after_any_step_loses_nothing() {
    // Announced, kept, three taken out, cut, done.
    for n_steps in 0..7 {
        let run = Run::of_epochs(6);
        let mut n_left = n_steps;
        let mut hook = |_| {
            n_left -= 1;
            if n_left < 0 { Err(crash()) } else { Ok(()) }
        };
        rewind_stepwise(&run.open(), &mut run.record(), &run.checkpoint(3), &mut hook).unwrap_err();
        let mut record = run.record();
        assert_eq!(record.rewind.is_some(), n_steps < 6, "crash after {n_steps} steps");
        complete_rewind(&run.open(), &mut record).unwrap();
        assert_rewound(&run, &format!("crash after {n_steps} steps"));
        assert_eq!(complete_rewind(&run.open(), &mut record).unwrap(), None, "done once");
    }
}

#[test]
fn a_crash_while_the_later_part_is_linked_leaves_no_half_run() {
    let run = Run::of_epochs(6);
    let rewind = Rewind { to: "e0003-b000006".to_owned(), sibling: "exp-before-e3".to_owned() };
    run.set_record(|record| record.rewind = Some(rewind));
    let half = run.project().join(".exp-before-e3.7.tmp/checkpoints/e0004-b000008");
    fs::create_dir_all(half).unwrap();
    complete_rewind(&run.open(), &mut run.record()).unwrap();
    assert_rewound(&run, "the half one is gone");
}

#[test]
fn a_second_rewind_to_the_same_epoch_gets_another_name() {
    let run = Run::of_epochs(6);
    rewind_in_place(&run.open(), &mut run.record(), &run.checkpoint(3)).unwrap();
    run.train_epoch(4);
    let sibling = rewind_in_place(&run.open(), &mut run.record(), &run.checkpoint(3)).unwrap().unwrap();
    assert_eq!(RunPaths::of(&sibling).name(), "exp-before-e3-2");
    assert_eq!(ids(&RunPaths::of(&sibling)), ["e0004-b000008"]);
    assert_eq!(ids(&run.beside("exp-before-e3")), LATER, "the first one is as it was");
    assert_eq!(run.record().timeline, 2);
}

#[test]
fn a_name_taken_by_somebody_else_is_left_alone() {
    let run = Run::of_epochs(6);
    let rewind = Rewind { to: "e0003-b000006".to_owned(), sibling: "exp-before-e3".to_owned() };
    run.set_record(|record| record.rewind = Some(rewind));
    fs::create_dir(run.project().join("exp-before-e3")).unwrap();
    fs::write(run.project().join("exp-before-e3/notes.txt"), "mine").unwrap();
    let sibling = complete_rewind(&run.open(), &mut run.record()).unwrap().unwrap();
    assert_eq!(RunPaths::of(&sibling).name(), "exp-before-e3-2");
    assert_eq!(ids(&RunPaths::of(&sibling)), LATER);
}

#[test]
fn without_anything_later_the_timeline_stays() {
    let run = Run::of_epochs(3);
    // A row whose checkpoint was never saved.
    ResultsCsv::resume(&run.paths().results_csv(), 3).unwrap();
    let mut record = run.record();
    assert_eq!(rewind_in_place(&run.open(), &mut record, &run.checkpoint(3)).unwrap(), None);
    assert_eq!((run.names(), record.timeline), (vec!["exp".to_owned()], 0));
    assert_eq!(epochs_in(&run.paths().results_csv()), [1, 2, 3]);
}

#[test]
fn a_trashed_later_checkpoint_goes_along() {
    let run = Run::of_epochs(6);
    run.store().discard(run.checkpoint(1).id()).unwrap();
    run.store().discard(run.checkpoint(5).id()).unwrap();
    let sibling = rewind_in_place(&run.open(), &mut run.record(), &run.checkpoint(3)).unwrap().unwrap();
    let trashed = |store: &CheckpointStore| -> Vec<String> {
        store.trash().unwrap().into_iter().map(|trashed| trashed.name).collect()
    };
    assert_eq!(trashed(&run.store()), ["e0001-b000002"]);
    let kept = CheckpointStore::of(&sibling);
    assert_eq!(trashed(&kept), ["e0005-b000010"]);
    kept.restore("e0005-b000010").unwrap();
    assert_eq!(kept.list().unwrap().len(), 3);
}

#[test]
fn a_later_checkpoint_inside_the_next_epoch_goes_too() {
    let run = Run::of_epochs(3);
    let inside =
        crate::trainer::event::Position { epoch: 4, batch: 1, n_batches: 7, is_epoch_done: false, ..position(3) };
    run.save(inside);
    let sibling = rewind_in_place(&run.open(), &mut run.record(), &run.checkpoint(3)).unwrap().unwrap();
    assert_eq!(ids(run.paths()), KEPT);
    assert_eq!(ids(&RunPaths::of(sibling)), ["e0003-b000007"]);
}

#[test]
fn a_run_json_never_leads_out_of_its_project() {
    let run = Run::of_epochs(2);
    for (to, sibling) in [("e0001-b000002", "../x"), ("e0001-b000002", ".."), ("e0001-b000002", ""), ("..", "x")] {
        run.set_record(|record| record.rewind = Some(Rewind { to: to.to_owned(), sibling: sibling.to_owned() }));
        let result = complete_rewind(&run.open(), &mut run.record());
        assert!(matches!(result, Err(TimelineError::ImpossibleRewind { .. })), "{to} {sibling}");
        assert_eq!(ids(run.paths()).len(), 2);
    }
}

#[test]
fn damage_in_one_run_does_not_reach_the_other() {
    let run = Run::of_epochs(4);
    let sibling = rewind_in_place(&run.open(), &mut run.record(), &run.checkpoint(3)).unwrap().unwrap();
    let kept = CheckpointStore::of(&sibling);
    // The same epoch again, with the same name: another checkpoint beside the kept one.
    run.train_epoch(4);
    run.store().remove(run.checkpoint(4).id()).unwrap();
    kept.verify(&kept.list().unwrap()[0]).unwrap();
}
