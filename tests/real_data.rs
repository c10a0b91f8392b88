//! A real dataset, paused, killed and resumed. Prints what each of these took: `cargo test --test real_data -- --nocapture`, with
//! `FERMATA_IMGSZ=320` for the size that docs/performance.md tells of.

#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fermata::trainer::event::{PauseDepth, TrainEvent};
use support::{Bench, is_alive, send, wait_until};

fn bccd() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/bccd_voc");
    path.is_dir().then_some(path)
}

/// The words of a training of yolov8n on BCCD, five epochs.
fn words(data: &Path, name: &str) -> Vec<String> {
    let imgsz = std::env::var("FERMATA_IMGSZ").unwrap_or_else(|_| "128".to_owned());
    let fixed = ["model=yolov8n", "batch=16", "epochs=5", "device=cpu", "workers=2"].map(str::to_owned);
    let mut words = vec!["train".to_owned(), format!("data={}", data.display()), format!("imgsz={imgsz}")];
    words.extend(fixed);
    words.push(format!("name={name}"));
    words
}

#[test]
fn bccd_paused_twice_and_killed_twice_ends_on_the_same_bits() {
    let Some(data) = bccd() else { return println!("skipped: ../shared/data/bccd_voc is not there") };
    let bench = Bench::with_all_cores();
    let straight = words(&data, "straight");
    let straight: Vec<&str> = straight.iter().map(String::as_str).collect();
    let began = Instant::now();
    assert_eq!(bench.start(&straight).ended().code, Some(0));
    let straight_s = began.elapsed().as_secs_f64();

    let words = words(&data, "b");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let running = bench.start(&words);
    for at in [(1, 9), (2, 5)] {
        bench.wait_for_batch("b", at);
        let worker = bench.status("b")["worker_pid"].as_u64().unwrap() as u32;
        assert_eq!(bench.fermata(&["pause", "b", "--free"]).status.code(), Some(0));
        assert!(!is_alive(worker), "the worker is gone");
        assert_eq!(bench.fermata(&["resume", "b"]).status.code(), Some(0));
    }
    bench.wait_for_batch("b", (3, 4));
    let before = bench.status("b")["worker_pid"].as_u64().unwrap();
    assert_eq!(bench.fermata(&["pause", "b", "--hold"]).status.code(), Some(0));
    assert_eq!(bench.fermata(&["resume", "b"]).status.code(), Some(0));
    assert_eq!(bench.status("b")["worker_pid"].as_u64(), Some(before), "a hold keeps the worker");
    let memory_kb = peak_kb(running.pid());
    bench.wait_for_batch("b", (3, 6));
    send(before as u32, "KILL");
    assert_eq!(running.ended().code, Some(70), "the worker was killed");

    let running = bench.start(&["resume", "b"]);
    bench.wait_for_batch("b", (4, 7));
    running.kill_all();
    wait_until("the end of all", || bench.state("b") == "failed");
    let resumed = bench.start(&["resume", "b"]).ended();
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);

    assert_eq!(bench.last_hash("b"), bench.last_hash("straight"));
    assert_eq!(bench.rows("b"), bench.rows("straight"));
    tell(&bench, straight_s, memory_kb);
    assert!(memory_kb < 60_000, "the supervisor's own memory: {memory_kb} kB");
}

/// What it took, for people.
fn tell(bench: &Bench, straight_s: f64, memory_kb: u64) {
    println!("uninterrupted: {straight_s:.1} s; peak memory of the supervisor: {:.1} MB", memory_kb as f64 / 1e3);
    for event in bench.events("b") {
        match event {
            TrainEvent::CheckpointSaved { position, size_bytes, stall_s, write_s, .. } => println!(
                "checkpoint after batch {} of epoch {}: {:.1} MB, stall {:.0} ms, written in {:.0} ms",
                position.batch,
                position.epoch,
                size_bytes as f64 / 1e6,
                stall_s * 1e3,
                write_s * 1e3
            ),
            TrainEvent::Paused { depth, seconds, size_bytes, .. } => {
                println!("paused ({depth:?}) {seconds:.2} s after the command, {:.1} MB", size_bytes as f64 / 1e6);
            }
            TrainEvent::Resumed { depth, seconds, .. } => {
                println!("the next batch began {:.0} ms after the command to resume ({depth:?})", seconds * 1e3);
                let limit =
                    if depth == PauseDepth::Hold { Duration::from_millis(100) } else { Duration::from_secs(30) };
                assert!(seconds < limit.as_secs_f64(), "{seconds}");
            }
            _ => {}
        }
    }
    let batches: Vec<f64> = bench
        .events("straight")
        .iter()
        .filter_map(
            |event| if let TrainEvent::Batch { images_per_s, .. } = event { Some(16.0 / images_per_s) } else { None },
        )
        .collect();
    let mean_s = batches.iter().sum::<f64>() / batches.len().max(1) as f64;
    println!("a batch takes {mean_s:.2} s; {}", bench.status("b")["accounting"]);
}

fn peak_kb(pid: u32) -> u64 {
    let output = Command::new("grep").args(["VmHWM", &format!("/proc/{pid}/status")]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
}
