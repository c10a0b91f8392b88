//! A small dataset, and the program as its users meet it: as processes, files and signals.
// Each test program uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fermata::trainer::event::TrainEvent;
use fermata::trainer::run_folder::{current_timeline, read_events};
use serde_json::Value;
use tempfile::TempDir;

/// No wait is longer: what takes so long on any machine has hung.
const LIMIT: Duration = Duration::from_secs(120);

/// Eight images of 64 x 64 with a bright square each for training, four more for validation, under `data.yaml`.
pub fn squares() -> TempDir {
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

/// The two settings of every fault recipe: a step a batch, and gradients that stay open across batches and epochs.
pub const STEP_EACH_BATCH: [&str; 2] = ["nbs=2", "warmup_epochs=0"];
pub const OPEN_GRADIENTS: [&str; 1] = ["nbs=8"];

/// A folder with [`squares`] in it, where runs are made: four batches an epoch.
pub struct Bench {
    pub dir: TempDir,
    /// Threads that a training computes with; 0 for all cores.
    n_threads: usize,
}

/// A process in the foreground, with what it prints to stderr in a file.
pub struct Foreground {
    pub child: Child,
    pub stderr: PathBuf,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stderr: String,
}

impl Bench {
    /// For many small trainings at once: on few cores more threads make each slower, and no number depends on them.
    pub fn new() -> Self {
        Self { dir: squares(), n_threads: 1 }
    }

    pub fn with_all_cores() -> Self {
        Self { dir: squares(), n_threads: 0 }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn run_folder(&self, run: &str) -> PathBuf {
        self.path().join("runs").join(run)
    }

    /// Runs a command to its end.
    pub fn fermata(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    /// The words of a training of `epochs` epochs into the run `name`.
    pub fn words<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let base = [
            "train",
            "data=data.yaml",
            "model=yolov8t",
            "imgsz=64",
            "batch=2",
            "epochs=6",
            "device=cpu",
            "workers=1",
            name,
        ];
        base.iter().chain(more).copied().collect()
    }

    /// Trains to the end and gives the state hash of the last checkpoint.
    pub fn trained(&self, name: &str, more: &[&str]) -> String {
        let output = self.fermata(&Self::words(&format!("name={name}"), more));
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        self.last_hash(name)
    }

    pub fn start(&self, args: &[&str]) -> Foreground {
        self.start_with_fault(args, "")
    }

    /// Starts a command that goes on beside the test; `fault` is as `FERMATA_FAULT` takes it.
    pub fn start_with_fault(&self, args: &[&str], fault: &str) -> Foreground {
        let n_files = fs::read_dir(self.path()).unwrap().count();
        let stderr = self.path().join(format!("stderr-{n_files}.txt"));
        let child = self
            .command(args)
            .env("FERMATA_FAULT", fault)
            .stdout(Stdio::null())
            .stderr(File::create(&stderr).unwrap())
            .spawn()
            .expect("the program starts");
        Foreground { child, stderr }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fermata"));
        let n_threads = self.n_threads.to_string();
        command.args(args).current_dir(self.path()).env("RAYON_NUM_THREADS", n_threads).stdin(Stdio::null());
        command
    }

    /// What a command prints with `--json`.
    pub fn json(&self, args: &[&str]) -> Value {
        let output = self.fermata(args);
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"))
    }

    pub fn status(&self, run: &str) -> Value {
        self.json(&["status", run, "--json"])
    }

    pub fn state(&self, run: &str) -> String {
        self.status(run)["state"].as_str().unwrap_or_default().to_owned()
    }

    /// The checkpoints of the current timeline, oldest first.
    pub fn checkpoints(&self, run: &str) -> Vec<Value> {
        self.json(&["checkpoints", "list", run, "--json"])["checkpoints"].as_array().unwrap().clone()
    }

    /// The state hash of the newest checkpoint.
    pub fn last_hash(&self, run: &str) -> String {
        let checkpoints = self.checkpoints(run);
        checkpoints.last().expect("there is a checkpoint")["state_hash"].as_str().unwrap().to_owned()
    }

    /// All events that stand in the file.
    pub fn events(&self, run: &str) -> Vec<TrainEvent> {
        read_events(&self.run_folder(run).join("events.jsonl")).map_or_else(|_| Vec::new(), |history| history.events)
    }

    /// Those that count.
    pub fn timeline(&self, run: &str) -> Vec<TrainEvent> {
        current_timeline(self.events(run))
    }

    /// Waits until the run's events are so.
    pub fn wait_for(&self, run: &str, what: &str, is_so: impl Fn(&[TrainEvent]) -> bool) {
        wait_until(&format!("{what} of run {run}"), || is_so(&self.events(run)));
    }

    /// Waits until this batch is trained.
    pub fn wait_for_batch(&self, run: &str, at: (u32, usize)) {
        self.wait_for(run, &format!("batch {at:?}"), |events| {
            events.iter().any(|event| matches!(event, TrainEvent::Batch { epoch, batch, .. } if (*epoch, *batch) == at))
        });
    }

    /// Waits until the checkpoint at the end of this epoch is on the disk.
    pub fn wait_for_checkpoint(&self, run: &str, epoch: u32) {
        self.wait_for(run, &format!("checkpoint of epoch {epoch}"), |events| {
            events.iter().any(|event| {
                matches!(event, TrainEvent::CheckpointSaved { position, .. }
                    if position.is_epoch_done && position.epoch == epoch)
            })
        });
    }

    /// Waits until the run is in this state.
    pub fn wait_for_state(&self, run: &str, state: &str) {
        wait_until(&format!("state {state} of run {run}"), || {
            self.run_folder(run).join("run.json").exists() && self.state(run) == state
        });
    }

    /// The rows of `results.csv` but for their time, which is another in every run.
    pub fn rows(&self, run: &str) -> Vec<String> {
        let text = fs::read_to_string(self.run_folder(run).join("results.csv")).unwrap();
        let without_time = |row: &str| {
            let cells: Vec<&str> = row.split(',').collect();
            [&cells[..1], &cells[2..]].concat().join(",")
        };
        text.lines().skip(1).map(without_time).collect()
    }

    /// Folders left by a save that did not come to its end.
    pub fn n_temporary(&self, run: &str) -> usize {
        let Ok(entries) = fs::read_dir(self.run_folder(run).join("checkpoints")) else { return 0 };
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.')).count()
    }
}

impl Foreground {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: &str) {
        send(self.pid(), signal);
    }

    /// Waits for its end.
    pub fn ended(mut self) -> Ended {
        let mut code = None;
        wait_until("the end of a process", || {
            let status = self.child.try_wait().unwrap();
            code = status.and_then(|status| status.code());
            status.is_some()
        });
        Ended { code, stderr: fs::read_to_string(&self.stderr).unwrap() }
    }

    /// Kills it and all its descendants at the same moment, as a power cut would.
    pub fn kill_all(mut self) {
        let mut pids = vec![self.pid()];
        pids.extend(children_of(self.pid()));
        kill_at_once(&pids);
        self.child.wait().unwrap();
    }
}

impl Drop for Foreground {
    /// A test that fails leaves no process behind.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let mut pids = vec![self.pid()];
            pids.extend(children_of(self.pid()));
            kill_at_once(&pids);
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// The last line on stderr, with the checkpoint's path from `runs` on.
    pub fn exit_line(&self) -> String {
        let line = self.stderr.lines().last().unwrap_or_default();
        match (line.split_once("checkpoint=/"), line.rsplit_once("/runs/")) {
            (Some((before, _)), Some((_, after))) => format!("{before}checkpoint=runs/{after}"),
            _ => line.to_owned(),
        }
    }

    pub fn assert(&self, code: i32, exit_line: &str) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(self.exit_line(), exit_line, "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}

pub fn assert_ended(output: &Output, code: i32, exit_line: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ended { code: output.status.code(), stderr }.assert(code, exit_line);
}

/// Waits until it is so; panics after a long time.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "waited in vain for {what}");
        sleep(Duration::from_millis(20));
    }
}

pub fn send(pid: u32, signal: &str) {
    let status = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "process {pid} takes signal {signal}");
}

/// Whether a process is there and no zombie.
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z'))
}

fn kill_at_once(pids: &[u32]) {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    // One that has ended by itself is no fault.
    let _ = Command::new("kill").arg("-KILL").args(pids).stderr(Stdio::null()).status();
}

/// The processes that this one has started.
pub fn children_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    tasks.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Every file below a folder, with its bytes and the time it was last written.
pub fn contents(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
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
