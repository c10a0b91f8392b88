use std::io::ErrorKind;
use std::panic::{self, AssertUnwindSafe};

use super::*;
use crate::checkpoint::manifest::WEIGHTS_FILE;
use crate::checkpoint::store::fixture::{HARMS, draft, id, run_dir, save_each, spoil, store_in};
use crate::checkpoint::store::folders::entry_names;
use crate::exit::Reason;

/// Fails at the `at`-th thing that saving makes or moves, counted from 0.
fn failing_at(at: usize, kind: ErrorKind) -> impl FnMut(&Path) -> io::Result<()> {
    let mut n_calls = 0;
    move |_| {
        n_calls += 1;
        if n_calls == at + 1 { Err(kind.into()) } else { Ok(()) }
    }
}

/// Ends the saving at the `at`-th thing without a chance to clear up, as a kill does.
fn save_killed_at(store: &CheckpointStore, draft: &Draft, at: usize) {
    let mut n_calls = 0;
    let mut kill = |_: &Path| {
        n_calls += 1;
        if n_calls == at + 1 { panic::resume_unwind(Box::new("killed")) } else { Ok(()) }
    };
    let killed = panic::catch_unwind(AssertUnwindSafe(|| store.save_stepwise(draft, &mut kill).map(|_| ())));
    assert!(killed.is_err(), "there is a thing number {at}");
}

/// How many things saving this makes or moves.
fn n_things(draft: &Draft) -> usize {
    let dir = run_dir();
    let mut n_calls = 0;
    let mut count = |_: &Path| {
        n_calls += 1;
        Ok(())
    };
    store_in(&dir).save_stepwise(draft, &mut count).unwrap();
    n_calls
}

fn with_other_state(mut draft: Draft) -> Draft {
    draft.about.state_hash = "other".to_owned();
    draft.files[0].1[0] ^= 1;
    draft
}

#[test]
fn a_saved_checkpoint_is_whole_and_nothing_lies_beside_it() {
    let dir = run_dir();
    let store = store_in(&dir);
    let saved = store.save(&draft(id(1, 4))).unwrap();
    assert_eq!(saved.path, store.path_of(id(1, 4)));
    let checkpoint = store.open_whole(id(1, 4)).unwrap();
    assert_eq!(checkpoint.manifest.about, draft(id(1, 4)).about);
    assert_eq!(entry_names(&store.checkpoints_folder()).unwrap(), ["e0001-b000004"]);
}

#[test]
fn killed_at_any_moment_there_is_a_loadable_checkpoint_and_at_most_one_leftover() {
    let newer = draft(id(2, 8));
    for at in 0..n_things(&newer) {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4)]);
        save_killed_at(&store, &newer, at);
        let n_left = entry_names(&store.checkpoints_folder()).unwrap().len() - 1;
        assert!(n_left <= 1, "thing {at}: {n_left} leftovers");
        assert_eq!(store.newest_good().unwrap().chosen.unwrap().id(), id(1, 4), "thing {at}");
        assert_eq!(store.sweep().unwrap(), n_left, "thing {at}");
        let chosen = store.newest_good().unwrap().chosen.unwrap().id();
        assert!(chosen >= id(1, 4) && entry_names(&store.checkpoints_folder()).unwrap().len() <= 2, "thing {at}");
        store.save(&newer).unwrap();
        assert_eq!(store.newest_good().unwrap().chosen.unwrap().id(), id(2, 8), "thing {at}: it goes on");
    }
}

#[test]
fn killed_while_replacing_the_only_one_there_is_still_one() {
    let replacing = with_other_state(draft(id(1, 4)));
    for at in 0..n_things(&replacing) {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4)]);
        save_killed_at(&store, &replacing, at);
        store.sweep().unwrap();
        assert!(store.newest_good().unwrap().chosen.is_some(), "thing {at}");
    }
}

#[test]
fn a_failed_save_deletes_nothing() {
    for at in 0..n_things(&draft(id(3, 12))) {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8)]);
        let before = store.list().unwrap();
        let result = store.save_stepwise(&draft(id(3, 12)), &mut failing_at(at, ErrorKind::PermissionDenied));
        assert_eq!(result.unwrap_err().reason(), Reason::Io, "thing {at}");
        assert_eq!(store.list().unwrap(), before, "thing {at}");
        assert!(before.iter().all(|checkpoint| store.verify(checkpoint).is_ok()));
        assert_eq!(entry_names(&store.checkpoints_folder()).unwrap().len(), 2, "thing {at}: no leftover");
    }
}

#[test]
fn a_failed_replacement_leaves_the_former_one() {
    let replacing = with_other_state(draft(id(1, 4)));
    for at in 0..n_things(&replacing) {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4)]);
        let before = store.list().unwrap();
        store.save_stepwise(&replacing, &mut failing_at(at, ErrorKind::Other)).unwrap_err();
        assert_eq!(store.list().unwrap(), before, "thing {at}");
    }
}

#[test]
fn a_full_disk_says_how_much_the_whole_checkpoint_needs() {
    let dir = run_dir();
    let store = store_in(&dir);
    let needed = store.save(&draft(id(1, 4))).unwrap().bytes;
    let error = store.save_stepwise(&draft(id(2, 8)), &mut failing_at(3, ErrorKind::StorageFull)).unwrap_err();
    assert_eq!(error.reason(), Reason::DiskFull);
    let StoreError::DiskFull { bytes_needed, .. } = error else { panic!("{error}") };
    assert_eq!(bytes_needed, needed, "the two differ in no length");
    assert_eq!(entry_names(&store.checkpoints_folder()).unwrap().len(), 1);
}

#[test]
fn the_same_checkpoint_is_not_written_twice() {
    let dir = run_dir();
    let store = store_in(&dir);
    let first = store.save(&draft(id(1, 4))).unwrap();
    let nothing = &mut |path: &Path| panic!("nothing is to be made, not {}", path.display());
    assert_eq!(store.save_stepwise(&draft(id(1, 4)), nothing).unwrap(), first);
    assert!(!store.quarantine_folder().exists());
}

#[test]
fn a_damaged_one_of_the_same_id_is_replaced_and_kept_aside() {
    for (harm_name, harm) in HARMS {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4)]);
        for name in [WEIGHTS_FILE, MANIFEST_FILE] {
            spoil(&store.path_of(id(1, 4)).join(name), harm);
            save_each(&store, &[id(1, 4)]);
            store.open_whole(id(1, 4)).unwrap();
        }
        let kept = entry_names(&store.quarantine_folder()).unwrap().len();
        assert_eq!(kept, 2, "{harm_name}");
    }
}

#[test]
fn one_of_another_state_is_replaced_and_kept_aside() {
    let dir = run_dir();
    let store = store_in(&dir);
    save_each(&store, &[id(1, 4)]);
    store.save(&with_other_state(draft(id(1, 4)))).unwrap();
    assert_eq!(store.open_whole(id(1, 4)).unwrap().manifest.about.state_hash, "other");
    assert_eq!(entry_names(&store.quarantine_folder()).unwrap(), ["e0001-b000004"]);
}

#[test]
fn one_of_which_only_the_weights_are_left_is_made_full_again() {
    let dir = run_dir();
    let store = store_in(&dir);
    let full = draft(id(1, 4));
    store.save(&Draft { files: full.files[..2].to_vec(), ..full.clone() }).unwrap();
    store.save(&full).unwrap();
    assert_eq!(store.open(id(1, 4)).unwrap().manifest.files.len(), 4);
}

#[test]
fn the_checkpoint_of_a_newer_program_is_not_replaced() {
    let dir = run_dir();
    let store = store_in(&dir);
    let saved = store.save(&draft(id(1, 4))).unwrap();
    fs::write(saved.path.join(MANIFEST_FILE), r#"{"version":2}"#).unwrap();
    assert!(matches!(store.save(&draft(id(1, 4))), Err(StoreError::FutureVersion { .. })));
}

#[test]
fn a_name_that_leads_elsewhere_is_not_written() {
    for name in ["../weights.safetensors", "/tmp/x", MANIFEST_FILE, WEIGHTS_FILE] {
        let dir = run_dir();
        let mut draft = draft(id(1, 4));
        draft.files.push((name.to_owned(), vec![1]));
        assert!(matches!(store_in(&dir).save(&draft), Err(StoreError::FileName { .. })), "`{name}`");
        assert!(!store_in(&dir).checkpoints_folder().exists(), "nothing was made");
    }
}

#[test]
fn a_missing_run_folder_is_an_error() {
    let dir = run_dir();
    let store = CheckpointStore::of(&dir.path().join("elsewhere"));
    assert!(matches!(store.save(&draft(id(1, 4))), Err(StoreError::Io { .. })));
}
