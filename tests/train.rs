//! Whole trainings from outside, on a few drawn images with the tiny scale.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use fermata::checkpoint::Weights;
use fermata::trainer::event::TrainEvent;
use fermata::trainer::run_folder::{RESULTS_HEADER, read_events};
use support::{assert_ended, contents, squares};

fn train(dir: &Path, more: &[&str]) -> Output {
    let base = ["train", "data=data.yaml", "model=yolov8t", "imgsz=64", "batch=2", "nbs=4", "epochs=2", "device=cpu"];
    Command::new(env!("CARGO_BIN_EXE_fermata"))
        .args(base)
        .args(more)
        .current_dir(dir)
        .output()
        .expect("the program starts")
}

fn weights(dir: &Path, run: &str) -> Vec<u8> {
    fs::read(dir.join("runs").join(run).join("weights/last.safetensors")).unwrap()
}

#[test]
fn a_run_leaves_rows_events_weights_and_the_dataset_as_it_was() {
    let dir = squares();
    let before = (contents(&dir.path().join("images")), contents(&dir.path().join("labels")));
    assert_ended(&train(dir.path(), &[]), 0, "exit: 0 finished checkpoint=runs/exp/checkpoints/e0002-b000008");
    assert_eq!(
        (contents(&dir.path().join("images")), contents(&dir.path().join("labels"))),
        before,
        "data is only read"
    );

    let run = dir.path().join("runs/exp");
    let csv = fs::read_to_string(run.join("results.csv")).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!((rows[0], rows.len()), (RESULTS_HEADER, 3), "the header and a row an epoch");
    assert!(rows[1].starts_with("1,") && rows[2].starts_with("2,"));

    let events = read_events(&run.join("events.jsonl")).unwrap().events;
    assert!(matches!(
        events.first(),
        Some(TrainEvent::RunStarted { n_train_images: 8, n_val_images: 4, n_batches: 4, .. })
    ));
    assert!(matches!(events.last(), Some(TrainEvent::Finished { .. })));
    let batches: Vec<(u32, usize)> = events
        .iter()
        .filter_map(
            |event| if let TrainEvent::Batch { epoch, batch, .. } = event { Some((*epoch, *batch)) } else { None },
        )
        .collect();
    assert_eq!(batches, [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (2, 4)]);

    let info = Weights::read(&run.join("weights/best.safetensors")).unwrap().info;
    assert_eq!((info.class_names, info.imgsz), (vec!["square".to_owned()], 64));
    let args = fs::read_to_string(run.join("args.yaml")).unwrap();
    assert!(args.contains("batch: 2\n") && args.contains("mosaic: 1"), "{args}");
    let record = fs::read_to_string(run.join("run.json")).unwrap();
    assert!(record.contains("\"status\": \"finished\""), "{record}");
}

#[test]
fn two_processes_with_any_number_of_loader_threads_end_on_the_same_bytes() {
    let dir = squares();
    for (name, workers) in [("a", "workers=0"), ("b", "workers=1"), ("c", "workers=4")] {
        train(dir.path(), &[&format!("name={name}"), workers, "batch=3"]);
    }
    assert_eq!(weights(dir.path(), "a"), weights(dir.path(), "b"));
    assert_eq!(weights(dir.path(), "a"), weights(dir.path(), "c"));
    train(dir.path(), &["name=d", "seed=1", "batch=3"]);
    assert_ne!(weights(dir.path(), "a"), weights(dir.path(), "d"), "another seed is another run");
}

#[test]
fn trained_weights_can_be_measured_used_and_trained_on() {
    let dir = squares();
    train(dir.path(), &[]);
    let best = "model=runs/exp/weights/best.safetensors";
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_fermata")).args(args).current_dir(dir.path()).output().unwrap()
    };

    let output = run(&["val", best, "data=data.yaml", "imgsz=64", "device=cpu", "json=True"]);
    assert_ended(&output, 0, "exit: 0 finished checkpoint=-");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["images"], &report["boxes"]), (&4.into(), &4.into()));

    let output = run(&[
        "predict",
        best,
        "source=images/val",
        "imgsz=64",
        "device=cpu",
        "conf=0.001",
        "save_txt=True",
        "json=True",
    ]);
    assert_ended(&output, 0, "exit: 0 finished checkpoint=-");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["images"].as_array().unwrap().len(), 4);
    assert!(dir.path().join("runs/predict/8.png").is_file());

    let output = run(&["predict", best, "source=labels/val", "name=nothing", "device=cpu"]);
    assert_ended(&output, 65, "exit: 65 dataset_empty checkpoint=-");
    assert!(!dir.path().join("runs/nothing").exists(), "no empty folder stays");

    let among_the_sources =
        ["predict", best, "source=images/val", "project=images", "name=val", "exist_ok=True", "device=cpu"];
    assert_ended(&run(&among_the_sources), 78, "exit: 78 contradiction checkpoint=-");

    let checkpoint = "model=runs/exp/checkpoints/e0002-b000008";
    let output = run(&["val", checkpoint, "data=data.yaml", "imgsz=64", "device=cpu", "json=True"]);
    assert_ended(&output, 0, "exit: 0 finished checkpoint=-");

    let output = train(dir.path(), &[best, "epochs=1", "name=more"]);
    assert_ended(&output, 0, "exit: 0 finished checkpoint=runs/more/checkpoints/e0001-b000004");
    assert!(String::from_utf8_lossy(&output.stderr).contains("transferred 297 of 297 tensors"), "all fit");
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run_at_that_batch() {
    let dir = squares();
    train(dir.path(), &["epochs=1"]);
    let mut bytes = weights(dir.path(), "exp");
    // The file ends with the values of a convolution kernel.
    let end = bytes.len() - 4;
    bytes[end..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(dir.path().join("poisoned.safetensors"), bytes).unwrap();
    let output = train(dir.path(), &["model=poisoned.safetensors", "name=bad"]);
    assert_ended(&output, 70, "exit: 70 non_finite_loss checkpoint=-");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("the loss is not finite in epoch 1, batch 1"), "{stderr}");
    let events = read_events(&dir.path().join("runs/bad/events.jsonl")).unwrap().events;
    assert!(matches!(events.last(), Some(TrainEvent::Failed { reason, .. }) if reason == "non_finite_loss"));
}

#[test]
fn an_image_gone_bad_is_named_and_does_not_end_the_run() {
    let dir = squares();
    let path = dir.path().join("images/train/3.png");
    // The header stays whole, so that only decoding the pixels fails.
    fs::write(&path, &fs::read(&path).unwrap()[..120]).unwrap();
    let output = train(dir.path(), &[]);
    assert_ended(&output, 0, "exit: 0 finished checkpoint=runs/exp/checkpoints/e0002-b000008");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("3.png` cannot be read and counts as an empty image"), "{stderr}");
    let times_named = stderr.matches("3.png").count();
    assert_eq!(times_named, 1, "told once, not once an epoch: {stderr}");
}

#[test]
fn results_that_cannot_be_written_are_no_success() {
    let dir = squares();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let args = ["dataset", "check", "data.yaml", "--json"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_fermata")).args(args).current_dir(dir.path()).stdout(full).output().unwrap();
    assert_ended(&output, 74, "exit: 74 disk_full checkpoint=-");
}
