use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::{Notify, oneshot};

use super::*;
use crate::trainer::event::Position;
use crate::trainer::host::{DiskTrouble, Prepared};
use crate::trainer::run_folder::{RUN_RECORD_VERSION, RunPaths, RunStatus, read_events};
use crate::worker::line::{Hello, Role, decode, read_line_async, write_line_async};
use crate::worker::process::{Launch, WorkerProcess};
use crate::worker::protocol::{Order, Report};

/// How a worker that is no process behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    Good,
    /// Its device is absent.
    Fails,
    /// It trains to the end at once.
    Finishes,
    /// It is killed as soon as it is told anything after it runs.
    Dies,
    /// The first checkpoint that it is to leave with cannot be written.
    DiskIsFull,
    /// It never leaves.
    Hangs,
    /// It sends what is no report.
    Babbles,
}

struct FakeWorkers {
    manner: Manner,
    n_started: u32,
}

impl StartWorker for FakeWorkers {
    fn start(&mut self, launch: &Launch) -> std::io::Result<WorkerProcess> {
        self.n_started += 1;
        let (ours, theirs) = duplex(1 << 16);
        launch.door.try_send(Box::new(theirs)).unwrap();
        let (ended, exit) = oneshot::channel();
        let kill = Arc::new(Notify::new());
        let (killed, token, manner) = (Arc::clone(&kill), launch.token.clone(), self.manner);
        tokio::spawn(async move {
            let how = tokio::select! {
                () = killed.notified() => "was ended by signal 9",
                how = work(ours, token, manner) => how,
            };
            let _ = ended.send(how.to_owned());
        });
        Ok(WorkerProcess { pid: 40 + self.n_started, exit, kill })
    }
}

const AT: Position = Position { epoch: 1, batch: 2, n_batches: 2, step: 2, is_epoch_done: false };

async fn work(connection: DuplexStream, token: String, manner: Manner) -> &'static str {
    let mut stream = BufReader::new(connection);
    write_line_async(&mut stream, &Hello::of_worker(token)).await.unwrap();
    Hello::from_line(&read_line_async(&mut stream).await.unwrap().unwrap()).unwrap();
    let mut is_full = manner == Manner::DiskIsFull;
    let (mut may_train, mut is_held) = (false, false);
    while let Ok(Some(line)) = read_line_async(&mut stream).await {
        let order = decode::<Order>(&line).unwrap();
        match order {
            Order::Train => may_train = true,
            Order::Hold => is_held = true,
            Order::Go => is_held = false,
            Order::Prepare(_) | Order::Leave | Order::ReopenLog => {}
        }
        let report = match (order, manner) {
            (Order::Hold | Order::Go, _) if !may_train => continue,
            (Order::Train, _) if is_held => Report::Held { position: AT, trouble: None },
            (Order::Prepare(_), Manner::Fails) => {
                Report::Failed { reason: Reason::DeviceAbsent, message: "no such device".to_owned() }
            }
            (Order::Prepare(_), _) => Report::Prepared(Prepared {
                dataset_fingerprint: "ab".to_owned(),
                device: "CPU".to_owned(),
                n_batches_per_epoch: 4,
                position: Position::default(),
            }),
            (Order::Train, Manner::Finishes) => {
                Report::Finished { reason: Reason::Patience, best_epoch: Some(1), time_s: 2.0, checkpoint: None }
            }
            (Order::Train, Manner::Babbles) => {
                stream.write_all(b"{\"report\":\"song\"}\n").await.unwrap();
                continue;
            }
            (Order::Train | Order::Go, _) => Report::Running,
            (_, Manner::Dies) => return "was ended by signal 11 (SIGSEGV)",
            (Order::Hold, _) => Report::Held { position: AT, trouble: None },
            (Order::Leave, Manner::Hangs) => continue,
            (Order::Leave, _) if is_full => {
                is_full = false;
                let trouble = DiskTrouble { message: "disk full".to_owned(), bytes_needed: Some(7) };
                Report::Held { position: AT, trouble: Some(trouble) }
            }
            (Order::Leave, _) => Report::Left { position: AT, checkpoint: "e0001-b000002".into(), size_bytes: 9 },
            (Order::ReopenLog, _) => continue,
        };
        let is_last = matches!(report, Report::Left { .. } | Report::Finished { .. } | Report::Failed { .. });
        write_line_async(&mut stream, &report).await.unwrap();
        if is_last {
            return "ended with code 0";
        }
    }
    "ended with code 0"
}

/// A client, and the way to more of them.
struct Visitor {
    stream: BufReader<DuplexStream>,
    door: mpsc::Sender<Box<dyn Connection>>,
    signals: mpsc::Sender<Signal>,
}

impl Visitor {
    async fn come(door: &mpsc::Sender<Box<dyn Connection>>, signals: &mpsc::Sender<Signal>) -> Self {
        let (ours, theirs) = duplex(1 << 16);
        door.send(Box::new(theirs)).await.unwrap();
        let mut stream = BufReader::new(ours);
        write_line_async(&mut stream, &Hello::of(Role::Client)).await.unwrap();
        Hello::from_line(&read_line_async(&mut stream).await.unwrap().unwrap()).unwrap();
        Self { stream, door: door.clone(), signals: signals.clone() }
    }

    async fn another(&self) -> Self {
        Self::come(&self.door, &self.signals).await
    }

    async fn send(&mut self, request: Request) {
        write_line_async(&mut self.stream, &request).await.unwrap();
    }

    async fn answer(&mut self) -> Answer {
        decode(&read_line_async(&mut self.stream).await.unwrap().expect("an answer")).unwrap()
    }

    /// Waits for a state.
    async fn see(&mut self, word: StateWord) -> StateReport {
        loop {
            match self.answer().await {
                Answer::State(report) if report.state == word => return *report,
                Answer::State(report) => assert!(!report.state.is_end(), "{report:?} is not {word:?}"),
                Answer::Event { .. } => {}
                Answer::Refused { message } => panic!("refused: {message}"),
            }
        }
    }

    /// Waits until the run runs, watching from now on.
    async fn running(door: mpsc::Sender<Box<dyn Connection>>, signals: mpsc::Sender<Signal>) -> Self {
        let mut visitor = Self::come(&door, &signals).await;
        visitor.send(Request::Watch { events: true }).await;
        visitor.see(StateWord::Running).await;
        visitor
    }
}

type Way = (mpsc::Sender<Box<dyn Connection>>, mpsc::Sender<Signal>);

/// What a sitting leaves.
struct Left {
    outcome: Outcome,
    events: Vec<TrainEvent>,
    record: Option<RunRecord>,
    n_workers: u32,
    has_folder: bool,
}

/// Holds a sitting of a fresh run while a script of visits goes on.
fn sit(manner: Manner, script: impl AsyncFnOnce(Way)) -> Left {
    let dir = tempfile::tempdir().unwrap();
    let config = TrainConfig { project: dir.path().into(), grace: 0.05, ..TrainConfig::default() };
    let folder = RunFolder::create(&config).unwrap();
    let paths = folder.paths().clone();
    let record = record();
    let sitting = Sitting { folder, record, config, from: None, is_beginning: true };
    sit_on(sitting, &paths, manner, script)
}

fn record() -> RunRecord {
    RunRecord {
        version: RUN_RECORD_VERSION,
        id: "0123456789abcdef".to_owned(),
        status: RunStatus::Starting,
        reason: None,
        created_unix_ms: 1,
        versions: BTreeMap::new(),
        seed: 0,
        dataset_fingerprint: None,
        parent: None,
        timeline: 0,
        rewind: None,
        accounting: Default::default(),
    }
}

fn sit_on(sitting: Sitting, paths: &RunPaths, manner: Manner, script: impl AsyncFnOnce(Way)) -> Left {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut workers = FakeWorkers { manner, n_started: 0 };
    let outcome = runtime.block_on(async {
        let (door, connections) = mpsc::channel(QUEUE);
        let (signals, caught) = mpsc::channel(8);
        let way_in = WayIn { address: String::new(), door: door.clone(), connections };
        let mut show = |_: Shown<'_>| {};
        let mut supervisor = Supervisor::new(sitting, way_in, &mut workers, &mut show);
        let supervising = async {
            let ending = supervisor.run(caught).await;
            let outcome = supervisor.close(ending).await;
            supervisor.leave_folder();
            outcome
        };
        tokio::join!(supervising, script((door, signals))).0
    });
    let events = read_events(&paths.events_jsonl()).map_or_else(|_| Vec::new(), |history| history.events);
    let record = RunRecord::read(&paths.run_json()).ok();
    Left { outcome, events, record, n_workers: workers.n_started, has_folder: paths.root().exists() }
}

fn names(events: &[TrainEvent]) -> Vec<String> {
    let name = |event: &TrainEvent| serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned();
    events.iter().map(name).collect()
}

#[test]
fn a_freed_run_has_no_worker_and_goes_on_with_another() {
    let left = sit(Manner::Good, async |(door, signals)| {
        let mut visitor = Visitor::running(door, signals).await;
        visitor.send(Request::Pause { depth: PauseDepth::Free }).await;
        let report = visitor.see(StateWord::Paused).await;
        assert_eq!((report.worker_pid, report.depth), (None, Some(PauseDepth::Free)));
        assert_eq!(report.checkpoint.as_deref(), Some(Path::new("e0001-b000002")));
        assert_eq!((report.epoch, report.batch, report.accounting.pause_bytes), (1, 2, 9));
        visitor.send(Request::Resume).await;
        assert_eq!(visitor.see(StateWord::Running).await.worker_pid, Some(42));
        visitor.send(Request::Stop { now: false }).await;
        visitor.see(StateWord::Stopped).await;
    });
    assert_eq!(left.outcome.reason, Reason::Stopped);
    assert_eq!((names(&left.events).join(" "), left.n_workers), ("paused resumed stopped".to_owned(), 2));
    let record = left.record.unwrap();
    assert_eq!((record.status, record.reason.as_deref()), (RunStatus::Stopped, Some("stopped")));
    assert_eq!((record.accounting.n_pauses, record.dataset_fingerprint.as_deref()), (1, Some("ab")));
}

#[test]
fn a_held_run_keeps_its_worker() {
    let left = sit(Manner::Good, async |(door, signals)| {
        let mut visitor = Visitor::running(door, signals).await;
        visitor.send(Request::Pause { depth: PauseDepth::Hold }).await;
        assert_eq!(visitor.see(StateWord::Paused).await.worker_pid, Some(41));
        visitor.send(Request::Resume).await;
        visitor.see(StateWord::Running).await;
        visitor.signals.send(Signal::Terminate).await.unwrap();
        visitor.see(StateWord::Stopped).await;
    });
    assert_eq!((left.outcome.reason, left.n_workers), (Reason::Terminated, 1));
    assert_eq!(left.outcome.checkpoint.as_deref(), Some(Path::new("e0001-b000002")));
}

#[test]
fn a_refusal_before_the_beginning_leaves_no_folder() {
    let left = sit(Manner::Fails, async |_| {});
    assert_eq!(left.outcome.reason, Reason::DeviceAbsent);
    assert_eq!(left.outcome.message.as_deref(), Some("no such device"));
    assert!(!left.has_folder);
}

#[test]
fn a_run_that_is_trained_ends_with_the_workers_reason() {
    let left = sit(Manner::Finishes, async |_| {});
    assert_eq!(left.outcome.reason, Reason::Patience);
    assert_eq!(names(&left.events), ["finished"]);
}

#[test]
fn another_dataset_is_refused_before_training() {
    let dir = tempfile::tempdir().unwrap();
    let config = TrainConfig { project: dir.path().into(), ..TrainConfig::default() };
    let folder = RunFolder::create(&config).unwrap();
    let paths = folder.paths().clone();
    let record = RunRecord { dataset_fingerprint: Some("cd".to_owned()), ..record() };
    let sitting = Sitting { folder, record, config, from: Some("e0001".into()), is_beginning: false };
    let left = sit_on(sitting, &paths, Manner::Good, async |_| {});
    assert_eq!(left.outcome.reason, Reason::Contradiction);
    assert_eq!(left.record.unwrap().dataset_fingerprint.as_deref(), Some("cd"));
}

#[test]
fn a_worker_that_dies_fails_the_run_or_leaves_it_paused_as_wanted() {
    let left = sit(Manner::Dies, async |(door, signals)| {
        let mut visitor = Visitor::running(door, signals).await;
        visitor.send(Request::Pause { depth: PauseDepth::Hold }).await;
        visitor.see(StateWord::Failed).await;
    });
    assert_eq!(left.outcome.reason, Reason::Internal);
    assert!(left.outcome.message.unwrap().contains("signal 11 (SIGSEGV)"));
    let left = sit(Manner::Dies, async |(door, signals)| {
        let mut visitor = Visitor::running(door, signals).await;
        visitor.send(Request::Pause { depth: PauseDepth::Free }).await;
        visitor.see(StateWord::Paused).await;
        visitor.send(Request::Stop { now: false }).await;
        visitor.see(StateWord::Stopped).await;
    });
    assert_eq!(names(&left.events), ["warning", "paused", "stopped"]);
}

#[test]
fn a_stop_that_finds_the_disk_full_is_a_pause_and_the_next_one_stops() {
    let left = sit(Manner::DiskIsFull, async |(door, signals)| {
        let mut visitor = Visitor::running(door, signals).await;
        visitor.send(Request::Stop { now: false }).await;
        let report = visitor.see(StateWord::Paused).await;
        assert_eq!(report.by, Some(PausedBy::Disk));
        assert_eq!(report.trouble.unwrap().bytes_needed, Some(7));
        visitor.send(Request::Stop { now: false }).await;
        visitor.see(StateWord::Stopped).await;
    });
    assert_eq!(left.outcome.reason, Reason::Stopped);
}

#[test]
fn a_worker_that_hangs_is_ended_after_the_grace_time_or_by_a_second_interrupt() {
    for signals_sent in [vec![Signal::Terminate], vec![Signal::Interrupt, Signal::Interrupt]] {
        let reason = if signals_sent.len() == 1 { Reason::Terminated } else { Reason::Stopped };
        let left = sit(Manner::Hangs, async |(door, signals)| {
            let mut visitor = Visitor::running(door, signals).await;
            for signal in signals_sent {
                visitor.signals.send(signal).await.unwrap();
            }
            visitor.see(StateWord::Stopped).await;
        });
        assert_eq!(left.outcome.reason, reason);
        assert!(left.outcome.message.unwrap().contains("lost"));
    }
}

#[test]
fn a_worker_that_is_not_understood_is_ended() {
    let left = sit(Manner::Babbles, async |_| {});
    assert_eq!(left.outcome.reason, Reason::Internal);
    assert!(left.outcome.message.unwrap().contains("song"));
}

#[test]
fn commands_while_it_stops_are_refused_in_words() {
    sit(Manner::Hangs, async |(door, signals)| {
        let mut visitor = Visitor::running(door, signals).await;
        let mut other = visitor.another().await;
        visitor.send(Request::Stop { now: false }).await;
        visitor.see(StateWord::Stopping).await;
        other.send(Request::Resume).await;
        assert!(matches!(other.answer().await, Answer::Refused { .. }));
        visitor.see(StateWord::Stopped).await;
    });
}

#[test]
fn garbage_half_lines_and_crowds_do_no_harm() {
    let left = sit(Manner::Good, async |(door, signals)| {
        let mut visitor = Visitor::running(door, signals).await;
        for garbage in ["GET / HTTP/1.1\n", "{}\n", "{\"fermata_protocol\":9}\n", "\u{0}\n", "{\"half"] {
            let (mut ours, theirs) = duplex(1 << 12);
            visitor.door.send(Box::new(theirs)).await.unwrap();
            ours.write_all(garbage.as_bytes()).await.unwrap();
        }
        let mut crowd = Vec::new();
        for _ in 0..100 {
            crowd.push(visitor.another().await);
        }
        for client in &mut crowd {
            client.stream.write_all(b"nonsense\n{\"request\":\"dance\"}\n{\"request\":\"stat").await.unwrap();
            assert!(matches!(client.answer().await, Answer::Refused { .. }));
            assert!(matches!(client.answer().await, Answer::Refused { .. }));
        }
        drop(crowd);
        // Nobody reads here.
        let mut silent = visitor.another().await;
        silent.send(Request::Watch { events: true }).await;
        for _ in 0..600 {
            visitor.send(Request::Status).await;
            visitor.see(StateWord::Running).await;
        }
        // A worker with another token is not ours.
        let (mut ours, theirs) = duplex(1 << 12);
        visitor.door.send(Box::new(theirs)).await.unwrap();
        write_line_async(&mut ours, &Hello::of_worker("guess".to_owned())).await.unwrap();
        visitor.send(Request::Stop { now: false }).await;
        visitor.see(StateWord::Stopped).await;
    });
    assert_eq!(left.outcome.reason, Reason::Stopped);
}

#[test]
fn a_pause_before_the_worker_is_there_is_kept() {
    let left = sit(Manner::Good, async |(door, signals)| {
        signals.send(Signal::PauseAndFree).await.unwrap();
        let mut visitor = Visitor::come(&door, &signals).await;
        visitor.send(Request::Watch { events: false }).await;
        visitor.see(StateWord::Paused).await;
        visitor.send(Request::Resume).await;
        visitor.see(StateWord::Running).await;
        visitor.send(Request::Stop { now: false }).await;
        visitor.see(StateWord::Stopped).await;
    });
    assert_eq!(left.outcome.reason, Reason::Stopped);
}

#[test]
fn a_client_elsewhere_pauses_resumes_and_stops_over_the_socket() {
    use crate::run::client::{Client, ClientError};
    let dir = tempfile::tempdir().unwrap();
    let config = TrainConfig { project: dir.path().into(), ..TrainConfig::default() };
    let folder = RunFolder::create(&config).unwrap();
    let paths = folder.paths().clone();
    let sitting = Sitting { folder, record: record(), config, from: None, is_beginning: true };
    let commands = {
        let paths = paths.clone();
        std::thread::spawn(move || {
            let mut client = Client::connect(&paths).unwrap();
            assert_eq!(client.pause(PauseDepth::Hold).unwrap().depth, Some(PauseDepth::Hold));
            assert_eq!(client.pause(PauseDepth::Free).unwrap().worker_pid, None);
            assert_eq!(client.resume().unwrap().state, StateWord::Running);
            assert_eq!(client.stop().unwrap().reason, Some(Reason::Stopped));
            assert!(matches!(Client::connect(&paths), Err(ClientError::NobodyThere)), "its lock is free at once");
        })
    };
    let mut words = Vec::new();
    let mut show = |shown: Shown<'_>| {
        if let Shown::State(report) = shown {
            words.push(report.state);
        }
    };
    let mut workers = FakeWorkers { manner: Manner::Good, n_started: 0 };
    let outcome = supervise(sitting, Signals::install().unwrap(), &mut workers, &mut show);
    commands.join().unwrap();
    assert_eq!((outcome.reason, words.last()), (Reason::Stopped, Some(&StateWord::Stopped)));
    assert!(!paths.endpoint_json().exists(), "nothing is left to connect to");
}
