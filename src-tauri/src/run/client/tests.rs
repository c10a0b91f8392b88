use std::thread;

use interprocess::local_socket::ListenerOptions;

use super::*;
use crate::trainer::run_folder::Accounting;

const FREE: Option<PauseDepth> = Some(PauseDepth::Free);
const HOLD: Option<PauseDepth> = Some(PauseDepth::Hold);

/// Answers the request with the first of these states, and sends the others to one who watches; then it ends.
fn supervisor_saying(paths: &RunPaths, states: &[(StateWord, Option<PauseDepth>)]) -> thread::JoinHandle<()> {
    let address = paths.root().join("socket").to_str().unwrap().to_owned();
    let name = address.as_str().to_fs_name::<GenericFilePath>().unwrap();
    let listener = ListenerOptions::new().name(name).create_sync().unwrap();
    let record = EndpointRecord { version: 1, address, supervisor_pid: 1, started_unix_ms: 1, program: "0".to_owned() };
    std::fs::write(paths.endpoint_json(), serde_json::to_vec(&record).unwrap()).unwrap();
    let lock = FileLock::take(&paths.supervisor_lock()).unwrap();
    let states = states.to_vec();
    thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap());
        let answers: Vec<_> =
            states.iter().map(|(state, depth)| Answer::State(Box::new(report(*state, *depth)))).collect();
        read_line(&mut stream).unwrap();
        write_line(stream.get_mut(), &Hello::of(Role::Supervisor)).unwrap();
        let mut next_line = |answers: &[Answer]| {
            read_line(&mut stream).unwrap();
            answers.iter().for_each(|answer| write_line(stream.get_mut(), answer).unwrap());
        };
        next_line(&answers[..1]);
        if answers.len() > 1 {
            next_line(&answers[1..]);
        }
        drop(lock);
    })
}

fn report(state: StateWord, depth: Option<PauseDepth>) -> StateReport {
    StateReport {
        state,
        depth,
        by: depth.map(|_| PausedBy::User),
        phase: None,
        reason: None,
        message: None,
        epoch: 0,
        batch: 0,
        step: 0,
        epochs: 1,
        n_batches_per_epoch: None,
        device: None,
        supervisor_pid: 1,
        worker_pid: None,
        checkpoint: None,
        accounting: Accounting::default(),
        trouble: None,
    }
}

fn with_supervisor<T>(
    states: &[(StateWord, Option<PauseDepth>)],
    ask: impl FnOnce(&mut Client) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let dir = tempfile::tempdir().unwrap();
    let paths = RunPaths::of(dir.path());
    let supervisor = supervisor_saying(&paths, states);
    let mut client = Client::connect(&paths).unwrap();
    let answer = ask(&mut client);
    supervisor.join().unwrap();
    answer
}

#[test]
fn a_run_without_supervisor_has_nobody_there() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Client::connect(&RunPaths::of(dir.path())), Err(ClientError::NobodyThere)));
}

#[test]
fn a_pause_waits_until_the_run_is_paused_as_deep_as_asked() {
    use StateWord::{Paused, Pausing};
    let reached =
        with_supervisor(&[(Pausing, FREE), (Pausing, FREE), (Paused, FREE)], |client| client.pause(PauseDepth::Free));
    let reached = reached.unwrap();
    assert_eq!((reached.state, reached.message), (Paused, None));
    let deeper = with_supervisor(&[(Paused, FREE)], |client| client.pause(PauseDepth::Hold)).unwrap();
    assert_eq!(deeper.message, None, "giving the device back is more than was asked");
    let kept = with_supervisor(&[(Pausing, FREE), (Paused, HOLD)], |client| client.pause(PauseDepth::Free)).unwrap();
    assert!(kept.message.is_some(), "the device was not given back");
}

#[test]
fn a_pause_that_somebody_undoes_ends_with_a_message() {
    use StateWord::{Pausing, Resuming, Running};
    for undone in [Resuming, Running] {
        let reached =
            with_supervisor(&[(Pausing, FREE), (undone, None)], |client| client.pause(PauseDepth::Free)).unwrap();
        assert_eq!(reached.state, undone);
        assert!(reached.message.unwrap().contains("another command"));
    }
}

#[test]
fn a_stop_and_a_resume_wait_for_what_they_ask() {
    use StateWord::{Resuming, Running, Starting, Stopped, Stopping};
    let stopped = with_supervisor(&[(Stopping, None), (Stopping, None), (Stopped, None)], Client::stop).unwrap();
    assert_eq!((stopped.state, stopped.message), (Stopped, None));
    let running = with_supervisor(&[(Resuming, None), (Starting, None), (Running, None)], Client::resume).unwrap();
    assert_eq!((running.state, running.message), (Running, None));
}

#[test]
fn a_supervisor_that_dies_meanwhile_is_told_as_such() {
    use StateWord::{Stopped, Stopping};
    let died = with_supervisor(&[(Stopping, None), (Stopping, None)], Client::stop);
    assert!(matches!(died, Err(ClientError::Died)));
    let ended = with_supervisor(&[(Stopping, None), (Stopped, None)], |client| {
        client.status()?;
        client.watch(true, &mut |_| ControlFlow::Continue(()))
    });
    assert!(ended.is_ok(), "after its last state it is gone as it should");
}
