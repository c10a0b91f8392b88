//! Pausing, stopping, dying and going on, over whole processes: nothing is lost, and the end is the same to the last bit.
//!
//! The names R1, R2 .. are those of the situations that people who train detectors report.

#![cfg(target_os = "linux")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use fermata::trainer::event::{PauseDepth, TrainEvent};
use support::{Bench, OPEN_GRADIENTS, STEP_EACH_BATCH, assert_ended, is_alive, send, wait_until};

/// Every batch takes a while, so that something can happen in it.
const SLOW_BATCHES: &str = "batch_trained=sleep:60";

/// What each batch was made of: epoch, batch, sample numbers, hash of pixels and boxes.
fn samples(bench: &Bench, run: &str) -> Vec<(u32, usize, Vec<usize>, String)> {
    let each = bench.timeline(run).into_iter().filter_map(|event| match event {
        TrainEvent::Samples { epoch, batch, sample_idxs, digest } => Some((epoch, batch, sample_idxs, digest)),
        _ => None,
    });
    each.collect()
}

/// Epoch, batch and step of every batch that counts.
fn steps(bench: &Bench, run: &str) -> Vec<(u32, usize, u64)> {
    let each = bench.timeline(run).into_iter().filter_map(|event| match event {
        TrainEvent::Batch { epoch, batch, step, .. } => Some((epoch, batch, step)),
        _ => None,
    });
    each.collect()
}

fn r1(settings: &[&str]) {
    let bench = Bench::new();
    let straight = bench.trained("straight", settings);
    let killed = bench.start_with_fault(&Bench::words("name=killed", settings), "row_written:3=abort").ended();
    assert_eq!(killed.code, Some(70), "{}", killed.stderr);
    assert_eq!(bench.rows("killed").len(), 3, "the row of epoch 3 is written");
    // That of epoch 2 may have been under way as well.
    let newest = bench.checkpoints("killed").iter().filter_map(|checkpoint| checkpoint["epoch"].as_u64()).max();
    assert!(newest < Some(3), "and its checkpoint is not");
    assert_eq!(bench.state("killed"), "failed");
    let resumed = bench.start(&["resume", "killed"]).ended();
    resumed.assert(0, "exit: 0 finished checkpoint=runs/killed/checkpoints/e0006-b000024");
    assert_eq!(bench.rows("killed"), bench.rows("straight"), "rows 1 to 6, each once");
    assert_eq!(bench.last_hash("killed"), straight);
}

#[test]
fn r1_killed_between_metrics_and_checkpoint() {
    r1(&STEP_EACH_BATCH);
}

#[test]
fn r1_killed_between_metrics_and_checkpoint_with_open_gradients() {
    r1(&OPEN_GRADIENTS);
}

/// Harms a file: cut to 60 %, empty, zeros of the same length, or one flipped bit inside.
const HARMS: [fn(Vec<u8>) -> Vec<u8>; 4] = [
    |bytes| bytes[..bytes.len() * 6 / 10].to_vec(),
    |_| Vec::new(),
    |bytes| vec![0; bytes.len()],
    |mut bytes| {
        let middle = bytes.len() * 3 / 4;
        bytes[middle] ^= 16;
        bytes
    },
];

fn r2(settings: &[&str]) {
    let bench = Bench::new();
    let straight = bench.trained("straight", settings);
    let running = bench.start_with_fault(&Bench::words("name=killed", settings), SLOW_BATCHES);
    bench.wait_for_batch("killed", (4, 2));
    bench.wait_for_checkpoint("killed", 3);
    running.kill_all();
    let files = ["weights.safetensors", "ema.safetensors", "optimizer.safetensors", "state.json"];
    for (i, (harm, file)) in HARMS.into_iter().zip(files).enumerate() {
        let name = format!("harmed{i}");
        let copied = Command::new("cp").arg("-r").args([bench.run_folder("killed"), bench.run_folder(&name)]).status();
        assert!(copied.unwrap().success());
        let newest = bench.checkpoints(&name).last().unwrap()["id"].as_str().unwrap().to_owned();
        let path = bench.run_folder(&name).join("checkpoints").join(&newest).join(file);
        fs::write(&path, harm(fs::read(&path).unwrap())).unwrap();
        let verify = bench.fermata(&["checkpoints", "verify", &name]);
        assert_eq!(verify.status.code(), Some(74), "{}", String::from_utf8_lossy(&verify.stderr));
        let resumed = bench.start(&["resume", &name]).ended();
        resumed.assert(0, &format!("exit: 0 finished checkpoint=runs/{name}/checkpoints/e0006-b000024"));
        assert!(resumed.stderr.contains(&newest) && resumed.stderr.contains("set aside"), "{}", resumed.stderr);
        assert!(resumed.stderr.contains("4 batches have to be trained again"), "{}", resumed.stderr);
        assert!(bench.run_folder(&name).join("quarantine").join(&newest).is_dir());
        assert_eq!(bench.last_hash(&name), straight, "{file}");
    }
}

#[test]
fn r2_a_bad_newest_checkpoint_is_set_aside_and_the_one_before_is_used() {
    r2(&STEP_EACH_BATCH);
}

#[test]
fn r2_a_bad_newest_checkpoint_with_open_gradients() {
    r2(&OPEN_GRADIENTS);
}

fn r3(settings: &[&str], n_kills: u64) {
    let bench = Bench::new();
    let epochs = n_kills * 4;
    let epochs_word = format!("epochs={epochs}");
    let words = [settings, &["val=False", &epochs_word]].concat();
    let straight = bench.trained("straight", &words);
    let slow = "checkpoint_file=sleep:25,batch_trained=sleep:40";
    let mut running = bench.start_with_fault(&Bench::words("name=killed", &words), slow);
    let mut n_interrupted = 0;
    for n in 0..n_kills {
        let before = bench.events("killed").len();
        bench.wait_for("killed", "another checkpoint", |events| {
            events[before.min(events.len())..].iter().any(|e| matches!(e, TrainEvent::CheckpointSaved { .. }))
        });
        // Moments all over the time that a save takes, the same in every run of this test.
        std::thread::sleep(Duration::from_millis(n * 7919 % 300));
        running.kill_all();
        let n_temporary = bench.n_temporary("killed");
        assert!(n_temporary <= 1, "kill {n}: at most one temporary folder");
        n_interrupted += n_temporary;
        let verify = bench.fermata(&["checkpoints", "verify", "killed"]);
        assert_eq!(verify.status.code(), Some(0), "kill {n}: {}", String::from_utf8_lossy(&verify.stdout));
        assert!(!bench.checkpoints("killed").is_empty(), "kill {n}: there is always a loadable checkpoint");
        running = bench.start_with_fault(&["resume", "killed"], slow);
        bench.wait_for_state("killed", "running");
        assert!(bench.n_temporary("killed") <= 1, "kill {n}: what was left is swept");
    }
    let last = format!("e{epochs:04}-b{:06}", epochs * 4);
    running.ended().assert(0, &format!("exit: 0 finished checkpoint=runs/killed/checkpoints/{last}"));
    assert_eq!(bench.n_temporary("killed"), 0);
    assert!(n_interrupted > 0, "some of the kills met a save");
    assert_eq!(bench.last_hash("killed"), straight);
}

#[test]
fn r3_killed_while_saving_at_many_moments() {
    r3(&STEP_EACH_BATCH, 20);
}

#[test]
fn r3_killed_while_saving_with_open_gradients() {
    r3(&OPEN_GRADIENTS, 5);
}

/// A small file system that is gone with it.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where this user may not mount one.
    fn at(path: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir(&path).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&path).status();
        mount.is_ok_and(|status| status.success()).then_some(Self(path))
    }

    fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        assert!(Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn r4(settings: &[&str]) {
    let bench = Bench::new();
    let straight = bench.trained("straight", settings);
    let Some(disk) = SmallDisk::at(bench.path().join("small"), "40m") else {
        return println!("skipped: this user may not mount a small file system");
    };
    let running = bench.start(&Bench::words("name=full", &[settings, &["project=small"]].concat()));
    let status = || bench.json(&["status", "full", "--project", "small", "--json"]);
    wait_until("a pause for want of space", || {
        bench.path().join("small/full/run.json").exists() && status()["state"] == "paused"
    });
    let paused = status();
    assert_eq!((&paused["by"], &paused["depth"]), (&"disk".into(), &"hold".into()), "the state is kept in memory");
    assert!(paused["trouble"]["bytes_needed"].as_u64().unwrap() > 0, "{paused}");
    let verify = bench.fermata(&["checkpoints", "verify", "full", "--project", "small"]);
    assert_eq!(verify.status.code(), Some(0), "what was saved before is good");
    disk.grow("400m");
    assert_eq!(bench.fermata(&["resume", "full", "--project", "small"]).status.code(), Some(0));
    let ended = running.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("NaN"), "{}", ended.stderr);
    let list = bench.json(&["checkpoints", "list", "full", "--project", "small", "--json"]);
    assert_eq!(list["checkpoints"].as_array().unwrap().last().unwrap()["state_hash"], straight.as_str());
}

#[test]
fn r4_a_full_disk_pauses_and_goes_on_once_there_is_room() {
    r4(&STEP_EACH_BATCH);
}

#[test]
fn r4_a_full_disk_with_open_gradients() {
    r4(&OPEN_GRADIENTS);
}

fn r6(settings: &[&str]) {
    let bench = Bench::new();
    let settings = [settings, &["log_samples=True"]].concat();
    let straight = bench.trained("straight", &settings);
    // Paused in the middle of epoch 3.
    let running = bench.start_with_fault(&Bench::words("name=b", &settings), SLOW_BATCHES);
    bench.wait_for_batch("b", (3, 2));
    let output = bench.fermata(&["pause", "b", "--free"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(bench.status("b")["worker_pid"], serde_json::Value::Null);
    // Gone on with by the same supervisor, then killed altogether.
    assert_eq!(bench.fermata(&["resume", "b"]).status.code(), Some(0));
    bench.wait_for_batch("b", (4, 1));
    running.kill_all();
    // Another number of loader threads from here; paused near the end of an epoch, and stopped.
    let running = bench.start_with_fault(&["resume", "b", "workers=4"], SLOW_BATCHES);
    bench.wait_for_batch("b", (4, 3));
    assert_eq!(bench.fermata(&["pause", "b"]).status.code(), Some(0));
    assert_ended(
        &bench.fermata(&["stop", "b"]),
        0,
        &format!("exit: 0 finished checkpoint={}", newest_path(&bench, "b")),
    );
    running.ended().assert(130, &format!("exit: 130 stopped checkpoint={}", newest_path(&bench, "b")));
    let resumed = bench.start(&["resume", "b", "workers=0"]).ended();
    resumed.assert(0, "exit: 0 finished checkpoint=runs/b/checkpoints/e0006-b000024");
    assert_eq!(bench.last_hash("b"), straight, "weights, average, optimizer state, everything");
    assert_eq!(samples(&bench, "b"), samples(&bench, "straight"), "the same images, changed in the same way");
    assert_eq!(samples(&bench, "b").len(), 24);
    assert_eq!(bench.rows("b"), bench.rows("straight"));
    let weights = |run: &str| fs::read(bench.run_folder(run).join("weights/best.safetensors")).unwrap();
    assert_eq!(weights("b"), weights("straight"));
}

fn newest_path(bench: &Bench, run: &str) -> String {
    format!("runs/{run}/checkpoints/{}", bench.checkpoints(run).last().unwrap()["id"].as_str().unwrap())
}

#[test]
fn r6_paused_twice_and_killed_ends_on_the_same_bits() {
    r6(&STEP_EACH_BATCH);
}

#[test]
fn r6_paused_twice_and_killed_with_open_gradients() {
    r6(&OPEN_GRADIENTS);
}

fn r7(settings: &[&str], n_steps: u64) {
    let bench = Bench::new();
    let settings = [settings, &["log_samples=True"]].concat();
    let straight = bench.trained("straight", &settings);
    let running = bench.start_with_fault(&Bench::words("name=killed", &settings), SLOW_BATCHES);
    bench.wait_for_batch("killed", (3, 2));
    running.kill_all();
    bench
        .start(&["resume", "killed"])
        .ended()
        .assert(0, "exit: 0 finished checkpoint=runs/killed/checkpoints/e0006-b000024");
    for epoch in 1..=6 {
        let of_epoch = samples(&bench, "killed").into_iter().filter(|(at, ..)| *at == epoch);
        let mut ids: Vec<usize> = of_epoch.flat_map(|(_, _, ids, _)| ids).collect();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7], "epoch {epoch}: each image once");
    }
    assert_eq!(steps(&bench, "killed"), steps(&bench, "straight"), "no step is taken twice");
    assert_eq!(steps(&bench, "killed").last().unwrap().2, n_steps);
    assert_eq!(bench.last_hash("killed"), straight);
}

#[test]
fn r7_every_image_once_an_epoch_after_a_kill() {
    r7(&STEP_EACH_BATCH, 24);
}

#[test]
fn r7_gradients_of_two_batches_are_not_applied_twice() {
    r7(&["nbs=4", "warmup_epochs=0"], 12);
}

#[test]
fn r7_with_gradients_open_across_epochs() {
    let bench = Bench::new();
    // Three batches a step, four batches an epoch.
    let straight = bench.trained("straight", &["nbs=6", "warmup_epochs=0", "epochs=3"]);
    let running =
        bench.start_with_fault(&Bench::words("name=b", &["nbs=6", "warmup_epochs=0", "epochs=3"]), SLOW_BATCHES);
    bench.wait_for_batch("b", (2, 1));
    running.signal("TERM");
    let ended = running.ended();
    assert_eq!(ended.code, Some(75), "{}", ended.stderr);
    bench.start(&["resume", "b"]).ended().assert(0, "exit: 0 finished checkpoint=runs/b/checkpoints/e0003-b000012");
    assert_eq!(bench.last_hash("b"), straight);
    assert_eq!(steps(&bench, "b"), steps(&bench, "straight"));
}

/// A run on a small disk that is paused, since somebody else has filled it; the file that fills it.
fn on_a_filled_disk(bench: &Bench, settings: &[&str]) -> Option<(SmallDisk, support::Foreground, PathBuf)> {
    let disk = SmallDisk::at(bench.path().join("small"), "200m")?;
    let words = [settings, &["project=small"]].concat();
    let running = bench.start_with_fault(&Bench::words("name=full", &words), SLOW_BATCHES);
    wait_until("the first checkpoint", || bench.path().join("small/full/checkpoints/e0001-b000004").is_dir());
    let filler = bench.path().join("small/filler");
    let mut file = fs::File::create(&filler).unwrap();
    // Until the disk takes no more.
    while std::io::Write::write(&mut file, &[1; 65536]).is_ok_and(|n| n > 0) {}
    wait_until("a pause for want of space", || full_status(bench)["by"] == "disk");
    Some((disk, running, filler))
}

fn full_status(bench: &Bench) -> serde_json::Value {
    bench.json(&["status", "full", "--project", "small", "--json"])
}

#[test]
fn r4_a_disk_that_somebody_else_has_filled_loses_no_line_and_no_batch() {
    let bench = Bench::new();
    bench.trained("straight", &OPEN_GRADIENTS);
    let Some((_disk, running, filler)) = on_a_filled_disk(&bench, &OPEN_GRADIENTS) else {
        return println!("skipped: this user may not mount a small file system");
    };
    fs::remove_file(filler).unwrap();
    let resumed = bench.fermata(&["resume", "full", "--project", "small"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", String::from_utf8_lossy(&resumed.stderr));
    let ended = running.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // Beside the other run, so that both can be read in the same way.
    let copied =
        Command::new("cp").arg("-r").arg(bench.path().join("small/full")).arg(bench.run_folder("full")).status();
    assert!(copied.unwrap().success());
    assert_eq!(steps(&bench, "full"), steps(&bench, "straight"));
    assert_eq!(bench.rows("full"), bench.rows("straight"));
    assert_eq!(bench.last_hash("full"), bench.last_hash("straight"));
}

#[test]
fn r4_a_full_disk_has_ways_out() {
    for way in ["TERM", "INT", "stop"] {
        let bench = Bench::new();
        let Some((_disk, running, filler)) = on_a_filled_disk(&bench, &["nbs=8", "grace=2"]) else {
            return println!("skipped: this user may not mount a small file system");
        };
        let checkpoint = "checkpoint=small/full/checkpoints/e0001-b000004";
        if way == "stop" {
            let refused = bench.fermata(&["stop", "full", "--project", "small"]);
            assert_eq!(refused.status.code(), Some(78), "{}", String::from_utf8_lossy(&refused.stderr));
            let now = bench.fermata(&["stop", "full", "--project", "small", "--now"]);
            assert_eq!(now.status.code(), Some(0), "{}", String::from_utf8_lossy(&now.stderr));
            assert_eq!(running.ended().code, Some(130));
        } else {
            running.signal(way);
            if way == "INT" {
                std::thread::sleep(Duration::from_millis(300));
                running.signal(way);
            }
            let ended = running.ended();
            assert_eq!(ended.code, Some(if way == "TERM" { 75 } else { 130 }), "{way}: {}", ended.stderr);
            assert!(ended.stderr.ends_with(&format!("{}\n", &checkpoint["checkpoint=".len()..])), "{}", ended.stderr);
        }
        fs::remove_file(filler).unwrap();
        let resumed = bench.start(&["resume", "full", "--project", "small"]).ended();
        assert_eq!(resumed.code, Some(0), "{way}: {}", resumed.stderr);
    }
}

#[test]
fn a_run_killed_after_its_last_checkpoint_is_finished_by_a_resume() {
    let bench = Bench::new();
    let straight = bench.trained("straight", &OPEN_GRADIENTS);
    let killed = bench.start_with_fault(&Bench::words("name=k", &OPEN_GRADIENTS), "checkpoint_saved:6=abort").ended();
    assert_eq!(killed.code, Some(70), "{}", killed.stderr);
    let last = || fs::read(bench.run_folder("k").join("weights/last.safetensors")).unwrap();
    let before = last();
    bench.start(&["resume", "k"]).ended().assert(0, "exit: 0 finished checkpoint=runs/k/checkpoints/e0006-b000024");
    assert_eq!(bench.last_hash("k"), straight);
    assert_ne!(last(), before, "the weights that the kill left out are written");
    let weights = |run: &str, name: &str| fs::read(bench.run_folder(run).join("weights").join(name)).unwrap();
    for name in ["last.safetensors", "best.safetensors"] {
        assert_eq!(weights("k", name), weights("straight", name));
    }
    assert_eq!(bench.state("k"), "finished");
}

#[test]
fn a_run_whose_checkpoints_are_gone_keeps_its_results() {
    let bench = Bench::new();
    bench.trained("a", &["nbs=8", "epochs=2"]);
    fs::remove_dir_all(bench.run_folder("a").join("checkpoints")).unwrap();
    let refused = bench.start(&["resume", "a", "epochs=4"]).ended();
    assert_eq!(refused.code, Some(78), "{}", refused.stderr);
    assert_eq!(bench.rows("a").len(), 2);
    assert!(bench.run_folder("a").join("weights/best.safetensors").is_file());
}

#[test]
fn files_that_somebody_took_away_are_made_again() {
    let bench = Bench::new();
    let straight = bench.trained("straight", &OPEN_GRADIENTS);
    let running = bench.start_with_fault(&Bench::words("name=a", &OPEN_GRADIENTS), SLOW_BATCHES);
    bench.wait_for_checkpoint("a", 2);
    running.kill_all();
    let folder = bench.run_folder("a");
    fs::remove_dir_all(folder.join("weights")).unwrap();
    fs::remove_dir_all(folder.join("logs")).unwrap();
    fs::remove_file(folder.join("args.yaml")).unwrap();
    fs::write(folder.join(".run.json.7.tmp"), "{").unwrap();
    let resumed = bench.start(&["resume", "a"]).ended();
    resumed.assert(0, "exit: 0 finished checkpoint=runs/a/checkpoints/e0006-b000024");
    assert!(resumed.stderr.contains("the settings are taken from"), "{}", resumed.stderr);
    assert_eq!(bench.last_hash("a"), straight);
    assert!(folder.join("weights/best.safetensors").is_file() && folder.join("args.yaml").is_file());
    assert!(!folder.join(".run.json.7.tmp").exists(), "what a killed process was writing is swept");
}

#[test]
fn a_run_is_resumed_from_another_folder() {
    let bench = Bench::new();
    let running = bench.start_with_fault(&Bench::words("name=a", &["nbs=8", "epochs=2"]), SLOW_BATCHES);
    bench.wait_for_batch("a", (1, 2));
    running.signal("TERM");
    assert_eq!(running.ended().code, Some(75));
    let output = Command::new(env!("CARGO_BIN_EXE_fermata"))
        .args(["resume", &bench.run_folder("a").display().to_string()])
        .current_dir("/")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_refused_resume_leaves_a_paused_run_paused() {
    let bench = Bench::new();
    let running = bench.start_with_fault(&Bench::words("name=a", &["nbs=8"]), SLOW_BATCHES);
    bench.wait_for_batch("a", (1, 2));
    assert_eq!(bench.fermata(&["pause", "a"]).status.code(), Some(0));
    for (edit, code) in [("batch=4", 78), ("model=yolov8n", 78), ("data=/nowhere", 66), ("epochs=0", 2)] {
        assert_eq!(bench.fermata(&["resume", "a", edit]).status.code(), Some(code), "{edit}");
        assert_eq!(bench.state("a"), "paused", "{edit}");
    }
    assert_eq!(bench.fermata(&["stop", "a"]).status.code(), Some(0));
    assert_eq!(running.ended().code, Some(130));
}

#[test]
fn a_setting_that_is_refused_does_not_stick() {
    let bench = Bench::new();
    let running = bench.start_with_fault(&Bench::words("name=a", &["nbs=8"]), SLOW_BATCHES);
    bench.wait_for_batch("a", (1, 2));
    running.signal("TERM");
    assert_eq!(running.ended().code, Some(75));
    for (edit, code) in [("seed=7", 78), ("batch=4", 78), ("device=cuda:7", 69), ("data=/nowhere", 66), ("lr0=-1", 2)] {
        assert_eq!(bench.start(&["resume", "a", edit]).ended().code, Some(code), "{edit}");
    }
    bench.start(&["resume", "a"]).ended().assert(0, "exit: 0 finished checkpoint=runs/a/checkpoints/e0006-b000024");
}

/// How often each epoch was validated and got its row, in the events that count, and how many checkpoints of it there are.
fn actions(bench: &Bench, run: &str) -> BTreeMap<u64, [usize; 3]> {
    let mut counts: BTreeMap<u64, [usize; 3]> = BTreeMap::new();
    for event in bench.timeline(run) {
        match event {
            TrainEvent::Validated { epoch, .. } => counts.entry(epoch.into()).or_default()[0] += 1,
            TrainEvent::EpochFinished(results) => counts.entry(results.epoch.into()).or_default()[1] += 1,
            _ => {}
        }
    }
    for checkpoint in bench.checkpoints(run) {
        counts.entry(checkpoint["epoch"].as_u64().unwrap()).or_default()[2] += 1;
    }
    counts
}

fn r8(settings: &[&str]) {
    let bench = Bench::new();
    let settings = [settings, &["keep_last=20"]].concat();
    let straight = bench.trained("straight", &settings);
    let running = bench.start_with_fault(&Bench::words("name=killed", &settings), SLOW_BATCHES);
    bench.wait_for_batch("killed", (4, 1));
    running.kill_all();
    let running = bench.start_with_fault(&["resume", "killed"], "validation_batch=sleep:600");
    bench.wait_for_batch("killed", (4, 4));
    std::thread::sleep(Duration::from_millis(100));
    running.kill_all();
    assert_eq!(bench.start_with_fault(&["resume", "killed"], "row_written:5=abort").ended().code, Some(70));
    let resumed = bench.start(&["resume", "killed"]).ended();
    resumed.assert(0, "exit: 0 finished checkpoint=runs/killed/checkpoints/e0006-b000024");
    assert_eq!(actions(&bench, "killed"), (1..=6).map(|epoch| (epoch, [1; 3])).collect(), "each due action once");
    assert_eq!(bench.last_hash("killed"), straight);
}

#[test]
fn r8_each_due_action_once_after_kills_around_validation() {
    r8(&STEP_EACH_BATCH);
}

#[test]
fn r8_each_due_action_once_with_open_gradients() {
    r8(&OPEN_GRADIENTS);
}

#[test]
fn r10_mosaic_closes_in_the_same_epoch_after_kills_on_either_side() {
    let bench = Bench::new();
    let settings = ["nbs=8", "close_mosaic=3", "log_samples=True"];
    let straight = bench.trained("straight", &settings);
    let mut running = bench.start_with_fault(&Bench::words("name=killed", &settings), SLOW_BATCHES);
    for epoch in 2..=4 {
        bench.wait_for_checkpoint("killed", epoch);
        running.kill_all();
        running = bench.start_with_fault(&["resume", "killed"], SLOW_BATCHES);
    }
    running.ended().assert(0, "exit: 0 finished checkpoint=runs/killed/checkpoints/e0006-b000024");
    assert_eq!(samples(&bench, "killed"), samples(&bench, "straight"));
    assert_eq!(bench.last_hash("killed"), straight);
}

#[test]
fn a_hold_becomes_a_free_pause_and_the_end_is_the_same() {
    let bench = Bench::new();
    let straight = bench.trained("straight", &OPEN_GRADIENTS);
    let running = bench.start_with_fault(&Bench::words("name=h", &OPEN_GRADIENTS), SLOW_BATCHES);
    bench.wait_for_batch("h", (2, 3));
    assert_eq!(bench.fermata(&["pause", "h", "--hold"]).status.code(), Some(0));
    let worker = bench.status("h")["worker_pid"].as_u64().unwrap() as u32;
    assert_eq!(bench.fermata(&["pause", "h", "--free"]).status.code(), Some(0));
    assert!(!is_alive(worker));
    assert_eq!(bench.fermata(&["resume", "h"]).status.code(), Some(0));
    running.ended().assert(0, "exit: 0 finished checkpoint=runs/h/checkpoints/e0006-b000024");
    assert_eq!(bench.last_hash("h"), straight);
    assert_eq!(bench.status("h")["accounting"]["n_pauses"], 1, "one pause that became deeper");
}

#[test]
fn r19_a_run_that_was_moved_goes_on_with_its_moved_data() {
    let bench = Bench::new();
    let straight = bench.trained("straight", &OPEN_GRADIENTS);
    let running = bench.start_with_fault(&Bench::words("name=m", &OPEN_GRADIENTS), SLOW_BATCHES);
    bench.wait_for_batch("m", (3, 2));
    running.signal("TERM");
    assert_eq!(running.ended().code, Some(75));
    let moved = bench.path().join("my 数据");
    fs::create_dir_all(moved.join("set")).unwrap();
    fs::rename(bench.run_folder("m"), moved.join("run m")).unwrap();
    for name in ["images", "labels", "data.yaml"] {
        fs::rename(bench.path().join(name), moved.join("set").join(name)).unwrap();
    }
    let missing = bench.start(&["resume", "my 数据/run m"]).ended();
    assert_eq!(missing.code, Some(66), "the data is not where it was: {}", missing.stderr);
    let resumed = bench.start(&["resume", "my 数据/run m", "data=my 数据/set/data.yaml"]).ended();
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    let list = bench.json(&["checkpoints", "list", "my 数据/run m", "--json"]);
    assert_eq!(list["checkpoints"].as_array().unwrap().last().unwrap()["state_hash"], straight.as_str());
}

/// Sends signals when the run has come to a point, and gives how many checkpoints there are once it is paused.
fn paused_by_signal(bench: &Bench, fault: &str, until: impl Fn(&Bench)) {
    let settings = ["nbs=8", "save=False"];
    let running = bench.start_with_fault(&Bench::words("name=s", &settings), fault);
    // The system needs a moment to load a program; until that is done it has no handler to call.
    wait_until("the program", || catches_usr1(running.pid()));
    until(bench);
    running.signal("USR1");
    running.signal("USR1");
    bench.wait_for_state("s", "paused");
    assert_eq!(bench.checkpoints("s").len(), 1, "{fault}: exactly one checkpoint");
    assert_eq!(bench.status("s")["worker_pid"], serde_json::Value::Null, "{fault}");
    running.signal("USR2");
    bench.wait_for_state("s", "running");
    running.signal("TERM");
    let ended = running.ended();
    assert_eq!(ended.code, Some(75), "{fault}: {}", ended.stderr);
    let last = ended.exit_line();
    assert!(last.starts_with("exit: 75 terminated checkpoint=runs/s/checkpoints/e00"), "{fault}: {last}");
}

#[test]
fn r21_a_signal_in_a_batch_pauses_frees_and_goes_on() {
    let bench = Bench::new();
    paused_by_signal(&bench, "batch_trained=sleep:60", |bench| bench.wait_for_batch("s", (1, 3)));
}

#[test]
fn r21_a_signal_during_validation_gives_it_up_and_it_is_done_again() {
    let bench = Bench::new();
    paused_by_signal(&bench, "validation_batch=sleep:700,batch_trained=sleep:40", |bench| {
        bench.wait_for_batch("s", (1, 4));
        std::thread::sleep(Duration::from_millis(150));
    });
    bench.start(&["resume", "s"]).ended().assert(0, "exit: 0 finished checkpoint=runs/s/checkpoints/e0000-b000004");
    assert_eq!(bench.rows("s").len(), 6);
}

#[test]
fn r21_a_signal_during_the_scan_of_the_dataset() {
    let bench = Bench::new();
    paused_by_signal(&bench, "phase:1=sleep:1000,batch_trained=sleep:60", |bench| {
        wait_until("the run's folder", || bench.run_folder("s").join("endpoint.json").exists());
    });
}

#[test]
fn r21_a_signal_in_the_first_100_ms() {
    for delay_ms in [0, 30, 60] {
        let bench = Bench::new();
        paused_by_signal(&bench, "batch_trained=sleep:60", |_| std::thread::sleep(Duration::from_millis(delay_ms)));
    }
}

#[test]
fn r21_a_signal_while_a_checkpoint_is_written() {
    let bench = Bench::new();
    let running = bench.start_with_fault(&Bench::words("name=s", &["nbs=8"]), "checkpoint_file=sleep:150");
    wait_until("a save that is under way", || bench.n_temporary("s") > 0);
    running.signal("USR1");
    bench.wait_for_state("s", "paused");
    let ids: Vec<String> =
        bench.checkpoints("s").iter().map(|checkpoint| checkpoint["id"].as_str().unwrap().to_owned()).collect();
    assert!(ids.len() <= 2 && ids.contains(&"e0001-b000004".to_owned()), "that of the epoch, and the pause's: {ids:?}");
    running.signal("TERM");
    assert_eq!(running.ended().code, Some(75));
}

#[test]
fn r21_a_signal_at_the_end_does_no_harm() {
    let bench = Bench::new();
    let running = bench.start(&Bench::words("name=s", &["nbs=8", "epochs=1"]));
    bench.wait_for("s", "the end", |events| events.iter().any(|e| matches!(e, TrainEvent::EpochFinished(_))));
    let _ = Command::new("kill").args(["-USR1", &running.pid().to_string()]).status();
    let ended = running.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn r21_terminated_while_paused_or_right_after_a_pause() {
    let bench = Bench::new();
    let running = bench.start_with_fault(&Bench::words("name=s", &["nbs=8"]), SLOW_BATCHES);
    bench.wait_for_batch("s", (1, 2));
    running.signal("USR1");
    running.signal("TERM");
    let ended = running.ended();
    assert_eq!(ended.code, Some(75), "{}", ended.stderr);
    assert_eq!(bench.checkpoints("s").len(), 1);
    assert_eq!(bench.state("s"), "stopped");
}

#[test]
fn r21_a_batch_that_hangs_is_ended_after_the_grace_time() {
    let bench = Bench::new();
    let words = Bench::words("name=s", &["nbs=8", "grace=2"]);
    let running = bench.start_with_fault(&words, "batch_trained:7=hang");
    bench.wait_for_batch("s", (2, 3));
    let worker = bench.status("s")["worker_pid"].as_u64().unwrap() as u32;
    let began = Instant::now();
    running.signal("TERM");
    running.ended().assert(75, "exit: 75 terminated checkpoint=runs/s/checkpoints/e0001-b000004");
    let took = began.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(6)).contains(&took), "{took:?}");
    wait_until("the worker's end", || !is_alive(worker));
}

#[test]
fn r21_ctrl_c_saves_and_a_second_one_ends_at_once() {
    let bench = Bench::new();
    let running = bench.start_with_fault(&Bench::words("name=s", &["nbs=8"]), SLOW_BATCHES);
    bench.wait_for_batch("s", (1, 2));
    let worker = bench.status("s")["worker_pid"].as_u64().unwrap() as u32;
    assert_ne!(session_of(worker), session_of(running.pid()), "a terminal's Ctrl-C reaches the supervisor alone");
    running.signal("INT");
    let ended = running.ended();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(ended.exit_line().starts_with("exit: 130 stopped checkpoint=runs/s/checkpoints/e0000-b00000"));
    let running = bench.start_with_fault(&["resume", "s"], "batch_trained:7=hang");
    bench.wait_for_batch("s", (2, 3));
    running.signal("INT");
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    running.signal("INT");
    assert_eq!(running.ended().code, Some(130));
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[test]
fn r21_a_hang_up_is_survived() {
    let bench = Bench::new();
    let running = bench.start_with_fault(&Bench::words("name=s", &["nbs=8", "epochs=2"]), SLOW_BATCHES);
    bench.wait_for_batch("s", (1, 2));
    fs::rename(bench.run_folder("s").join("logs/worker.log"), bench.run_folder("s").join("logs/old.log")).unwrap();
    running.signal("HUP");
    wait_until("a new log", || bench.run_folder("s").join("logs/worker.log").exists());
    running.ended().assert(0, "exit: 0 finished checkpoint=runs/s/checkpoints/e0002-b000008");
}

fn catches_usr1(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim);
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & (1 << 9) != 0)
}

fn session_of(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap().to_owned()
}

fn r22(settings: &[&str]) {
    let bench = Bench::new();
    let settings = [settings, &["keep_last=20", "save_period=2"]].concat();
    let straight = bench.trained("a", &settings);
    let all_rows = bench.rows("a");
    let running = bench.start_with_fault(&["resume", "a", "--from", "3", "--in-place", "lr0=0.02"], SLOW_BATCHES);
    bench.wait_for("a", "the first batch after the rewind", |events| {
        let restored = events.iter().rposition(|event| matches!(event, TrainEvent::Restored { .. }));
        restored.is_some_and(|at| events[at..].iter().any(|event| matches!(event, TrainEvent::Batch { .. })))
    });
    running.kill_all();
    let ids = |run: &str| -> Vec<String> {
        bench.checkpoints(run).iter().map(|checkpoint| checkpoint["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids("a"), ["e0001-b000004", "e0002-b000008", "e0003-b000012"], "the newest is that of epoch 3");
    assert_eq!(ids("a-before-e3"), ["e0004-b000016", "e0005-b000020", "e0006-b000024"], "the former 4 to 6 are kept");
    assert_eq!(bench.rows("a-before-e3"), all_rows);
    let of_epoch =
        |run: &str, epoch: u32| bench.run_folder(run).join(format!("weights/epoch{epoch}.safetensors")).exists();
    assert!(of_epoch("a", 2) && !of_epoch("a", 4) && of_epoch("a-before-e3", 4), "weights go with their epochs");
    assert_eq!(bench.last_hash("a-before-e3"), straight);
    let resumed = bench.start(&["resume", "a"]).ended();
    resumed.assert(0, "exit: 0 finished checkpoint=runs/a/checkpoints/e0006-b000024");
    assert!(resumed.stderr.contains("e0003-b000012"), "it goes on from 3: {}", resumed.stderr);
    assert_eq!(bench.rows("a")[..3], all_rows[..3]);
    assert_ne!(bench.last_hash("a"), straight, "another rate, other weights");
    // A branch without edits from epoch 3 of what was kept apart, and one from the checkpoints before it.
    let branch = bench.start(&["resume", "a-before-e3", "--from", "4", "--branch", "again"]).ended();
    branch.assert(0, "exit: 0 finished checkpoint=runs/again/checkpoints/e0006-b000024");
    assert_eq!(bench.last_hash("again"), straight, "a branch without edits ends on its parent's hash");
    assert_eq!(bench.rows("again"), all_rows);
    let listed = bench.json(&["runs", "--json"]);
    assert!(listed.to_string().contains("a-before-e3"), "{listed}");
}

#[test]
fn r22_rewound_in_place_killed_and_resumed() {
    r22(&STEP_EACH_BATCH);
}

#[test]
fn r22_rewound_in_place_with_open_gradients() {
    r22(&OPEN_GRADIENTS);
}

#[test]
fn a_hold_keeps_the_worker_and_the_next_batch_begins_at_once() {
    let bench = Bench::new();
    let straight = bench.trained("straight", &OPEN_GRADIENTS);
    let running = bench.start_with_fault(&Bench::words("name=h", &OPEN_GRADIENTS), SLOW_BATCHES);
    bench.wait_for_batch("h", (2, 2));
    let before = bench.status("h")["worker_pid"].clone();
    for _ in 0..3 {
        assert_eq!(bench.fermata(&["pause", "h", "--hold"]).status.code(), Some(0));
        let status = bench.status("h");
        assert_eq!((&status["state"], &status["depth"]), (&"paused".into(), &"hold".into()));
        assert_eq!(status["worker_pid"], before, "the same process");
        let n_batches = steps(&bench, "h").len();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(steps(&bench, "h").len(), n_batches, "nothing is trained in a pause");
        assert_eq!(bench.fermata(&["resume", "h"]).status.code(), Some(0));
    }
    running.ended().assert(0, "exit: 0 finished checkpoint=runs/h/checkpoints/e0006-b000024");
    let events = bench.events("h");
    let resumed = events.iter().filter_map(|event| match event {
        TrainEvent::Resumed { depth: PauseDepth::Hold, seconds, .. } => Some(*seconds),
        _ => None,
    });
    let seconds: Vec<f64> = resumed.collect();
    assert!(seconds.len() == 3 && seconds.iter().all(|seconds| *seconds < 0.1), "{seconds:?}");
    assert_eq!(bench.last_hash("h"), straight);
    let accounting = &bench.status("h")["accounting"];
    assert_eq!(accounting["n_pauses"], 3, "{accounting}");
    assert!(accounting["paused_s"].as_f64().unwrap() >= 0.9 && accounting["given_back_s"] == 0.0, "{accounting}");
}

#[test]
fn a_free_pause_ends_the_worker_and_counts_what_was_given_back() {
    let bench = Bench::new();
    let running = bench.start_with_fault(&Bench::words("name=f", &OPEN_GRADIENTS), SLOW_BATCHES);
    bench.wait_for_batch("f", (1, 2));
    let worker = bench.status("f")["worker_pid"].as_u64().unwrap() as u32;
    assert_eq!(bench.fermata(&["pause", "f"]).status.code(), Some(0));
    assert!(!is_alive(worker), "the worker is gone when the command returns");
    assert!(is_alive(running.pid()), "the supervisor stays");
    std::thread::sleep(Duration::from_millis(500));
    let status = bench.status("f");
    assert_eq!((&status["state"], &status["depth"]), (&"paused".into(), &"free".into()));
    assert!(status["accounting"]["given_back_s"].as_f64().unwrap() >= 0.5, "{status}");
    assert!(status["accounting"]["pause_bytes"].as_u64().unwrap() > 1_000_000, "{status}");
    let memory = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    let peak = memory.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().to_owned();
    let peak_kb: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
    assert!(peak_kb < 60_000, "the supervisor's own memory: {peak}");
    running.signal("TERM");
    assert_eq!(running.ended().code, Some(75));
}

#[test]
fn a_worker_that_is_killed_fails_the_run_which_can_be_resumed() {
    let bench = Bench::new();
    let straight = bench.trained("straight", &OPEN_GRADIENTS);
    let running = bench.start_with_fault(&Bench::words("name=w", &OPEN_GRADIENTS), SLOW_BATCHES);
    bench.wait_for_checkpoint("w", 2);
    send(bench.status("w")["worker_pid"].as_u64().unwrap() as u32, "KILL");
    let ended = running.ended();
    assert_eq!(ended.code, Some(70), "{}", ended.stderr);
    assert!(ended.stderr.contains("SIGKILL"), "{}", ended.stderr);
    assert_eq!(ended.exit_line(), "exit: 70 internal checkpoint=runs/w/checkpoints/e0002-b000008");
    assert_eq!(bench.state("w"), "failed");
    bench.start(&["resume", "w"]).ended().assert(0, "exit: 0 finished checkpoint=runs/w/checkpoints/e0006-b000024");
    assert_eq!(bench.last_hash("w"), straight);
}

#[test]
fn a_supervisor_that_is_killed_leaves_no_orphan_and_a_saved_state() {
    let bench = Bench::new();
    let straight = bench.trained("straight", &OPEN_GRADIENTS);
    let running = bench.start_with_fault(&Bench::words("name=o", &OPEN_GRADIENTS), SLOW_BATCHES);
    bench.wait_for_batch("o", (2, 3));
    let worker = bench.status("o")["worker_pid"].as_u64().unwrap() as u32;
    running.signal("KILL");
    wait_until("the worker's end", || !is_alive(worker));
    drop(running);
    let status = bench.status("o");
    assert_eq!((&status["state"], &status["reason"]), (&"failed".into(), &"interrupted".into()));
    let newest = bench.checkpoints("o").last().unwrap()["batch"].as_u64().unwrap();
    assert!(newest >= 7, "the worker has saved before it went: {newest}");
    bench.start(&["resume", "o"]).ended().assert(0, "exit: 0 finished checkpoint=runs/o/checkpoints/e0006-b000024");
    assert_eq!(bench.last_hash("o"), straight);
}

#[test]
fn a_run_in_the_background_is_followed_paused_and_stopped_from_elsewhere() {
    let bench = Bench::new();
    let mut words = Bench::words("name=d", &["nbs=8", "epochs=40"]);
    words.push("--detach");
    let output = bench.fermata(&words);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(bench.state("d"), "running", "it returns once it is running");
    let attached = bench.start(&["attach", "d"]);
    bench.wait_for_checkpoint("d", 1);
    let other = bench.fermata(&["resume", "d", "--from", "1", "--in-place"]);
    assert_eq!(other.status.code(), Some(77), "{}", String::from_utf8_lossy(&other.stderr));
    assert_eq!(bench.fermata(&["pause", "d"]).status.code(), Some(0));
    assert_eq!(bench.fermata(&["pause", "d", "--hold"]).status.code(), Some(0), "a deeper pause stays as it is");
    assert_eq!(bench.fermata(&["resume", "d"]).status.code(), Some(0));
    assert_eq!(bench.state("d"), "running");
    assert_eq!(bench.fermata(&["stop", "d"]).status.code(), Some(0));
    assert_eq!(bench.state("d"), "stopped");
    let ended = attached.ended();
    assert_eq!(ended.code, Some(130), "it ends as the run does: {}", ended.stderr);
    let refused = bench.fermata(&["pause", "d"]);
    assert_eq!(refused.status.code(), Some(78), "{}", String::from_utf8_lossy(&refused.stderr));
}

#[test]
fn a_finished_run_is_extended_and_a_full_one_says_how() {
    let bench = Bench::new();
    bench.trained("a", &["nbs=8", "epochs=2"]);
    let refused = bench.fermata(&["resume", "a"]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(78), "{stderr}");
    assert!(stderr.contains("epochs="), "{stderr}");
    let extended = bench.start(&["resume", "a", "epochs=4"]).ended();
    extended.assert(0, "exit: 0 finished checkpoint=runs/a/checkpoints/e0004-b000016");
    let epochs: Vec<String> = bench.rows("a").iter().map(|row| row.split(',').next().unwrap().to_owned()).collect();
    assert_eq!(epochs, ["1", "2", "3", "4"]);
}

#[test]
fn another_dataset_is_not_taken_for_the_run_s_own() {
    let bench = Bench::new();
    let running = bench.start_with_fault(&Bench::words("name=a", &["nbs=8"]), SLOW_BATCHES);
    bench.wait_for_batch("a", (1, 2));
    running.signal("TERM");
    assert_eq!(running.ended().code, Some(75));
    let before = bench.last_hash("a");
    fs::write(bench.path().join("labels/train/0.txt"), "0 0.5 0.5 0.2 0.2\n").unwrap();
    let refused = bench.start(&["resume", "a"]).ended();
    assert_eq!(refused.code, Some(78), "{}", refused.stderr);
    assert_eq!(bench.last_hash("a"), before, "nothing is lost");
}
