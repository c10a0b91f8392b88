//! The program from outside: what it says and how it ends when it is asked for something it cannot do.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Runs the program in `dir`.
fn fermata(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fermata")).args(args).current_dir(dir).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts that the program refuses with one sentence and the exit line, and gives the sentence.
fn refusal(dir: &Path, args: &[&str], code: i32, reason: &str) -> String {
    let output = fermata(dir, args);
    let stderr = text(&output.stderr);
    assert!(!stderr.contains("panicked"), "{args:?} panicked:\n{stderr}");
    assert_eq!(output.status.code(), Some(code), "{args:?} said:\n{stderr}");
    let lines: Vec<_> = stderr.lines().collect();
    let [sentence, exit_line] = lines[..] else { panic!("{args:?}: one sentence and the exit line, not:\n{stderr}") };
    assert_eq!(exit_line, format!("exit: {code} {reason} checkpoint=-"), "{args:?}");
    sentence.strip_prefix("error: ").expect("a refusal is marked as an error").to_owned()
}

/// A folder with one image and `label` for it, both for training and validation, under `data.yaml`.
fn dataset(label: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("images")).unwrap();
    fs::create_dir_all(dir.path().join("labels")).unwrap();
    image::RgbImage::new(64, 64).save(dir.path().join("images/a.png")).unwrap();
    fs::write(dir.path().join("labels/a.txt"), label).unwrap();
    fs::write(dir.path().join("data.yaml"), "train: images\nval: images\nnames: [thing]\n").unwrap();
    dir
}

const GOOD_LABEL: &str = "0 0.5 0.5 0.2 0.2\n";

/// `train` on `data.yaml` with a tiny model on the CPU, and `more` settings.
fn train_args<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["train", "data=data.yaml", "model=yolov8t", "imgsz=64", "epochs=1", "device=cpu"], more].concat()
}

fn train_refusal(dir: &Path, more: &[&str], code: i32, reason: &str) -> String {
    let sentence = refusal(dir, &train_args(more), code, reason);
    assert!(!dir.join("runs").exists(), "a refused run leaves no folder");
    sentence
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one() {
    let dir = dataset(GOOD_LABEL);
    let sentence = train_refusal(dir.path(), &["epoch=3"], 2, "unknown_key");
    assert_eq!(sentence, "unknown key `epoch`, did you mean `epochs`?");
    let sentence = train_refusal(dir.path(), &["--batch-size", "3"], 2, "unknown_key");
    assert_eq!(sentence, "unknown key `batch-size`, did you mean `batch`?");
}

#[test]
fn a_value_out_of_range_or_unreadable_is_refused_with_what_is_accepted() {
    let dir = dataset(GOOD_LABEL);
    for (setting, accepted) in [
        ("epochs=0", "a whole number from 1 to"),
        ("epochs=three", "a whole number from 1 to"),
        ("batch=-1", "a whole number from 1 to"),
        ("imgsz=0", "a whole number from 1 to"),
        ("lr0=nan", "a number from 0 to"),
        ("fraction=1.5", "a number above 0 and up to 1"),
        ("val=perhaps", "True or False"),
        ("device=abacus", "auto, cpu, cuda:N"),
        ("optimizer=Lion", "SGD"),
        ("name=../elsewhere", "a folder name"),
    ] {
        let sentence = train_refusal(dir.path(), &[setting], 2, "bad_value");
        assert!(sentence.contains(&format!("`{setting}`")) && sentence.contains(accepted), "{setting}: {sentence}");
    }
}

#[test]
fn a_key_that_is_not_built_yet_is_refused_as_such() {
    let dir = dataset(GOOD_LABEL);
    let sentence = train_refusal(dir.path(), &["amp=True"], 2, "not_supported");
    assert!(sentence.starts_with("`amp=True` is not supported by this version"), "{sentence}");
}

#[test]
fn a_word_that_is_no_setting_and_missing_data_are_refused() {
    let dir = dataset(GOOD_LABEL);
    train_refusal(dir.path(), &["quickly"], 2, "usage");
    let sentence = refusal(dir.path(), &["train", "epochs=1"], 2, "bad_value");
    assert!(sentence.starts_with("`data=` must be given"), "{sentence}");
}

#[test]
fn an_unknown_model_is_refused_with_the_known_ones() {
    let dir = dataset(GOOD_LABEL);
    let sentence = train_refusal(dir.path(), &["model=yolov8q"], 78, "unknown_model");
    assert!(sentence.starts_with("unknown model `yolov8q` (did you mean `yolov8"), "{sentence}");
}

#[test]
fn settings_that_exclude_each_other_are_refused() {
    let dir = dataset(GOOD_LABEL);
    train_refusal(dir.path(), &["save=False", "save_period=2"], 78, "contradiction");
    train_refusal(dir.path(), &["model=a.safetensors", "pretrained=b.safetensors"], 78, "contradiction");
}

#[test]
fn a_missing_path_is_refused_by_its_key() {
    let dir = dataset(GOOD_LABEL);
    for setting in ["data=gone.yaml", "data=data.yaml/below", "model=gone.safetensors", "pretrained=gone.safetensors"] {
        let sentence = train_refusal(dir.path(), &[setting], 66, "path_missing");
        assert!(sentence.contains(&format!("`{setting}`")), "{sentence}");
    }
    refusal(dir.path(), &["dataset", "check", "gone"], 66, "path_missing");
    refusal(dir.path(), &["val", "model=gone.safetensors", "data=data.yaml"], 66, "path_missing");
    refusal(dir.path(), &["predict", "model=data.yaml", "source=gone"], 66, "path_missing");
}

#[test]
fn an_absent_device_is_refused_by_its_name() {
    let dir = dataset(GOOD_LABEL);
    let sentence = train_refusal(dir.path(), &["device=cuda:7"], 69, "device_absent");
    assert!(sentence.contains("cuda:7"), "{sentence}");
}

#[test]
fn a_dataset_that_cannot_be_read_is_refused_by_its_file() {
    let dir = dataset(GOOD_LABEL);
    fs::write(dir.path().join("data.yaml"), "train: [images\nnames: {0: a").unwrap();
    let sentence = train_refusal(dir.path(), &[], 65, "dataset_unreadable");
    assert!(sentence.contains("data.yaml"), "{sentence}");
    refusal(dir.path(), &["dataset", "check", "data.yaml"], 65, "dataset_unreadable");
}

#[test]
fn a_dataset_without_images_is_refused() {
    let dir = dataset(GOOD_LABEL);
    fs::remove_file(dir.path().join("images/a.png")).unwrap();
    train_refusal(dir.path(), &[], 65, "dataset_empty");
}

#[test]
fn a_dataset_without_boxes_is_refused() {
    for label in ["", "0 0.5 0.5 1.7 0.2\n"] {
        let dir = dataset(label);
        train_refusal(dir.path(), &[], 65, "no_boxes");
        refusal(dir.path(), &["dataset", "check", "data.yaml"], 65, "no_boxes");
    }
}

#[cfg(unix)]
#[test]
fn an_output_folder_that_cannot_be_made_is_refused() {
    let dir = dataset(GOOD_LABEL);
    fs::write(dir.path().join("file"), "x").unwrap();
    for project in ["project=file/runs", "project=/proc"] {
        let sentence = train_refusal(dir.path(), &[project], 73, "cannot_create");
        assert!(sentence.contains("cannot create") && sentence.contains("project="), "{sentence}");
    }
}

#[test]
fn the_first_fault_in_the_order_of_the_codes_is_told() {
    let dir = dataset("");
    // From the last check to the first: each time one more fault is there, and the earlier check wins.
    let faults = ["project=/proc", "device=cuda:7", "data=gone.yaml", "model=yolov8q", "epochs=0"];
    let expected =
        [(65, "no_boxes"), (69, "device_absent"), (66, "path_missing"), (78, "unknown_model"), (2, "bad_value")];
    for (n_faults, (code, reason)) in (1..).zip(expected) {
        train_refusal(dir.path(), &faults[..n_faults], code, reason);
    }
}

#[test]
fn a_red_dataset_has_its_json_all_the_same() {
    let dir = dataset("");
    for data in ["data.yaml", "gone.yaml"] {
        let output = fermata(dir.path(), &["dataset", "check", data, "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(report["gate"], "red");
        assert_eq!(output.status.code(), Some(if data == "gone.yaml" { 66 } else { 65 }));
    }
}

#[test]
fn a_good_dataset_passes_the_check_and_stays_as_it_was() {
    let dir = dataset(GOOD_LABEL);
    let modified = |name: &str| fs::metadata(dir.path().join(name)).unwrap().modified().unwrap();
    let before = modified("labels/a.txt");
    let output = fermata(dir.path(), &["dataset", "check", "data.yaml", "--json", "--boxes"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(report["splits"]["train"]["boxes"], 1);
    assert_eq!(report["images"][0]["boxes"][0], serde_json::json!([0, 0.5, 0.5, 0.2, 0.2]));
    assert_eq!(modified("labels/a.txt"), before, "user files are only read");
    assert_eq!(text(&output.stderr).lines().last(), Some("exit: 0 finished checkpoint=-"));
}

#[test]
fn an_unknown_command_is_refused_with_the_nearest_one() {
    let dir = tempfile::tempdir().unwrap();
    let sentence = refusal(dir.path(), &["trian", "data=x"], 2, "usage");
    assert_eq!(sentence, "unknown command `trian`, did you mean `train`?");
}

#[test]
fn no_command_prints_help_and_is_a_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    let output = fermata(dir.path(), &[]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("Usage: fermata"), "{stderr}");
    assert_eq!(stderr.lines().last(), Some("exit: 2 usage checkpoint=-"));
}

#[test]
fn help_and_version_are_answers() {
    let dir = tempfile::tempdir().unwrap();
    let version = fermata(dir.path(), &["--version"]);
    assert_eq!(text(&version.stdout).trim(), concat!("fermata ", env!("CARGO_PKG_VERSION")));
    for args in [["train", "--help"].as_slice(), &["train", "epochs=3", "--help"]] {
        let help = fermata(dir.path(), args);
        assert_eq!(help.status.code(), Some(0));
        assert!(text(&help.stdout).contains("  epochs=100 "), "every key stands in the help");
    }
}
