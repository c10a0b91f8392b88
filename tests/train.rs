//! Whole trainings from outside, on a few drawn images with the tiny scale.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fermata::checkpoint::Weights;
use fermata::trainer::event::TrainEvent;
use fermata::trainer::run_folder::{RESULTS_HEADER, read_events};
use tempfile::TempDir;

/// Eight images of 64 x 64 with a bright square each, four of them also for validation, under `data.yaml`.
fn squares() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["images/train", "images/val", "labels/train", "labels/val"] {
        fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    for i in 0..12 {
        let split = if i < 8 { "train" } else { "val" };
        let (x, y) = (8 + i * 3, 32 - i * 2);
        let image = image::RgbImage::from_fn(64, 64, |px, py| {
            let is_inside = (x..x + 20).contains(&px) && (y..y + 20).contains(&py);
            image::Rgb(if is_inside { [240, 200, 40] } else { [(px * 3) as u8, (py * 2) as u8, 60] })
        });
        image.save(dir.path().join(format!("images/{split}/{i}.png"))).unwrap();
        let label = format!("0 {} {} 0.3125 0.3125\n", (x + 10) as f64 / 64.0, (y + 10) as f64 / 64.0);
        fs::write(dir.path().join(format!("labels/{split}/{i}.txt")), label).unwrap();
    }
    fs::write(dir.path().join("data.yaml"), "train: images/train\nval: images/val\nnames: [square]\n").unwrap();
    dir
}

fn train(dir: &Path, more: &[&str]) -> Output {
    let base = ["train", "data=data.yaml", "model=yolov8t", "imgsz=64", "batch=2", "nbs=4", "epochs=2", "device=cpu"];
    Command::new(env!("CARGO_BIN_EXE_fermata"))
        .args(base)
        .args(more)
        .current_dir(dir)
        .output()
        .expect("the program starts")
}

fn assert_ended(output: &Output, code: i32, exit_line: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.lines().last(), Some(exit_line), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

fn weights(dir: &Path, run: &str) -> Vec<u8> {
    fs::read(dir.join("runs").join(run).join("weights/last.safetensors")).unwrap()
}

/// Every file below a folder, with its bytes and the time it was last written.
fn contents(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => drop(
                found.insert(path.clone(), (fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap())),
            ),
        }
    }
    found
}

#[test]
fn a_run_leaves_rows_events_weights_and_the_dataset_as_it_was() {
    let dir = squares();
    let before = (contents(&dir.path().join("images")), contents(&dir.path().join("labels")));
    assert_ended(&train(dir.path(), &[]), 0, "exit: 0 finished checkpoint=runs/exp/weights/last.safetensors");
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

    let output = train(dir.path(), &[best, "epochs=1", "name=more"]);
    assert_ended(&output, 0, "exit: 0 finished checkpoint=runs/more/weights/last.safetensors");
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
    assert_ended(&output, 0, "exit: 0 finished checkpoint=runs/exp/weights/last.safetensors");
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

#[test]
fn a_full_disk_ends_the_run_with_its_code_and_keeps_no_half_file() {
    let dir = squares();
    let project = dir.path().join("small");
    fs::create_dir(&project).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(&project).status();
    if !mount.is_ok_and(|status| status.success()) {
        return println!("skipped: this user may not mount a small file system");
    }
    let output = train(dir.path(), &["project=small"]);
    let events = read_events(&project.join("exp/events.jsonl"));
    let left: Vec<_> =
        fs::read_dir(project.join("exp/weights")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    Command::new("umount").arg(&project).status().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("disk full while writing"), "{stderr}");
    // There is room for one file of weights and a half: the last ones, and not the best beside them.
    assert_ended(&output, 74, "exit: 74 disk_full checkpoint=small/exp/weights/last.safetensors");
    assert!(matches!(events.unwrap().events.first(), Some(TrainEvent::RunStarted { .. })));
    assert!(left.iter().all(|name| name.to_string_lossy().ends_with(".safetensors")), "{left:?}");
}
