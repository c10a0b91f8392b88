//! The parent's side of a worker: the process that is started, ended and waited for.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, mpsc, oneshot};

/// A connection in both directions, whatever lies beneath.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// What a worker is started with.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Where its supervisor listens.
    pub address: String,
    /// By which the supervisor knows it again.
    pub token: String,
    /// Takes what it prints, at its end.
    pub log: PathBuf,
    /// Takes new connections, as the address does; for workers that are no process.
    pub door: mpsc::Sender<Box<dyn Connection>>,
}

/// A worker that was started. Dropping it ends nothing: a worker whose supervisor is gone saves and leaves by itself.
#[derive(Debug)]
pub struct WorkerProcess {
    pub pid: u32,
    /// How it ended, in words, once it has.
    pub exit: oneshot::Receiver<String>,
    /// Ends it at once when notified.
    pub kill: Arc<Notify>,
}

/// Whoever can start a worker.
pub trait StartWorker {
    /// Starts one, which will connect and say hello with the token.
    ///
    /// # Errors
    /// When it cannot be started.
    fn start(&mut self, launch: &Launch) -> io::Result<WorkerProcess>;
}

/// Starts this program again as `worker`, in a session of its own, so that a terminal's signals do not reach it.
#[derive(Debug, Clone)]
pub struct OwnProgram {
    program: PathBuf,
    args: Vec<String>,
}

impl OwnProgram {
    /// # Errors
    /// When the program's own file cannot be found.
    pub fn find() -> io::Result<Self> {
        Ok(Self { program: std::env::current_exe()?, args: vec!["worker".to_owned()] })
    }

    /// Another program that stands in for the worker.
    #[cfg(test)]
    fn standing_in(program: &str, args: &[&str]) -> Self {
        Self { program: program.into(), args: args.iter().map(|arg| (*arg).to_owned()).collect() }
    }
}

impl StartWorker for OwnProgram {
    fn start(&mut self, launch: &Launch) -> io::Result<WorkerProcess> {
        if let Some(folder) = launch.log.parent() {
            fs::create_dir_all(folder)?;
        }
        let log = OpenOptions::new().create(true).append(true).open(&launch.log)?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).args(["--connect", &launch.address, "--token", &launch.token]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        in_own_session(command.as_std_mut());
        let child = command.spawn()?;
        let (exit_sender, exit) = oneshot::channel();
        let kill = Arc::new(Notify::new());
        let pid = child.id().unwrap_or_default();
        tokio::spawn(wait_for(child, Arc::clone(&kill), exit_sender));
        Ok(WorkerProcess { pid, exit, kill })
    }
}

async fn wait_for(mut child: Child, kill: Arc<Notify>, exit: oneshot::Sender<String>) {
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            // One that is gone already needs no end.
            () = kill.notified() => { let _ = child.start_kill(); }
        }
    };
    // Nobody waits for it any more when the supervisor has given it up.
    let _ = exit.send(status.map_or_else(|error| format!("cannot be waited for: {error}"), in_words));
}

/// Puts a process that is about to be started into a session of its own, without a terminal.
#[cfg(unix)]
pub fn in_own_session(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe calls are allowed; setsid is
    // one, and neither it nor the conversion of its error allocates or takes a lock.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(io::Error::from));
    }
}

/// Keeps a process that is about to be started apart from this one's console and its Ctrl-C.
#[cfg(windows)]
pub fn in_own_session(command: &mut std::process::Command) {
    use std::os::windows::process::CommandExt;
    const CREATE_NEW_PROCESS_GROUP: u32 = 0x0000_0200;
    const CREATE_NO_WINDOW: u32 = 0x0800_0000;
    command.creation_flags(CREATE_NEW_PROCESS_GROUP | CREATE_NO_WINDOW);
}

fn in_words(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("was ended by signal {signal}{}", signal_name(signal));
    }
    match status.code() {
        Some(code) => format!("ended with code {code}"),
        None => "ended".to_owned(),
    }
}

/// Those by which processes really die; their numbers are the same on Linux and macOS.
#[cfg(unix)]
fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL), perhaps since memory ran out",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn launch(log: PathBuf) -> Launch {
        let (door, _) = mpsc::channel(1);
        Launch { address: "/nowhere".to_owned(), token: "abc".to_owned(), log, door }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_worker_leads_its_own_session_and_prints_into_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("logs/worker.log");
        let script = "echo session $(ps -o sid= -p $$) of $$ \"$@\"; echo fault >&2; exit 3";
        runtime().block_on(async {
            let mut start = OwnProgram::standing_in("/bin/sh", &["-c", script, "sh"]);
            let worker = start.start(&launch(log.clone())).unwrap();
            let pid = worker.pid;
            assert_eq!(worker.exit.await.unwrap(), "ended with code 3");
            let words: Vec<_> = fs::read_to_string(&log).unwrap().split_whitespace().map(str::to_owned).collect();
            let pid = pid.to_string();
            assert_eq!(words, ["session", &pid, "of", &pid, "--connect", "/nowhere", "--token", "abc", "fault"]);
        });
    }

    #[test]
    fn a_worker_that_is_ended_says_by_what() {
        let dir = tempfile::tempdir().unwrap();
        runtime().block_on(async {
            let mut start = OwnProgram::standing_in("/bin/sh", &["-c", "exec sleep 600"]);
            let worker = start.start(&launch(dir.path().join("worker.log"))).unwrap();
            worker.kill.notify_one();
            assert!(worker.exit.await.unwrap().starts_with("was ended by signal 9 (SIGKILL)"));
        });
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        runtime().block_on(async {
            let mut start = OwnProgram::standing_in("/nowhere/fermata", &[]);
            assert!(start.start(&launch(dir.path().join("worker.log"))).is_err());
        });
    }
}
