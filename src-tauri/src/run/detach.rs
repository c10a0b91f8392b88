//! A supervisor that goes on without its terminal: started in a session of its own, watched until it runs, then let go.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::machine::StateWord;
use crate::worker::process::in_own_session;

/// What marks the child's command line.
pub const DETACHED_CHILD: &str = "--detached-child";

/// How long what the child has last printed may take to be copied.
const COPY_LIMIT: Duration = Duration::from_secs(2);

/// A supervisor could not be started without a terminal.
#[derive(Debug, Error)]
pub enum DetachError {
    #[error("cannot start this program again: {0}")]
    CannotStart(#[source] io::Error),
    #[error("cannot open `{}`: {source}", .path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("cannot let go of the terminal: {0}")]
    CannotLetGo(#[source] io::Error),
}

/// The line by which the child says that it goes on alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// The run's folder.
    pub run: PathBuf,
    pub state: StateWord,
}

/// What became of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detached {
    /// It goes on without us.
    Away(Away),
    /// It has ended, with this code; `None` if a signal ended it.
    Ended { code: Option<i32> },
}

/// Starts this program with the arguments and [`DETACHED_CHILD`], copies what it prints on stderr to ours, and returns once
/// it goes on alone or has ended.
///
/// # Errors
/// When it cannot be started or waited for.
pub fn start_detached(args: &[OsString]) -> Result<Detached, DetachError> {
    let program = std::env::current_exe().map_err(DetachError::CannotStart)?;
    let mut command = Command::new(program);
    command.args(args).arg(DETACHED_CHILD);
    watch_start(command, Box::new(io::stderr()))
}

fn watch_start(mut command: Command, copy_to: Box<dyn Write + Send>) -> Result<Detached, DetachError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    in_own_session(&mut command);
    let mut child = command.spawn().map_err(DetachError::CannotStart)?;
    let copied = copy_stderr(&mut child, copy_to);
    let away = child.stdout.take().and_then(|stdout| first_away(BufReader::new(stdout)));
    let detached = match away {
        Some(away) => Detached::Away(away),
        None => Detached::Ended { code: child.wait().map_err(DetachError::CannotStart)?.code() },
    };
    // The thread ends with the pipe; should somebody else hold that, it ends with this process.
    let _ = copied.recv_timeout(COPY_LIMIT);
    Ok(detached)
}

/// Copies in a thread; what comes back tells its end.
fn copy_stderr(child: &mut Child, mut to: Box<dyn Write + Send>) -> mpsc::Receiver<()> {
    let (done, copied) = mpsc::channel();
    if let Some(mut stderr) = child.stderr.take() {
        thread::spawn(move || {
            // What cannot be shown is no reason to stop what is shown.
            let _ = io::copy(&mut stderr, &mut to);
            let _ = done.send(());
        });
    }
    copied
}

/// The first line that says so; others are not for us.
fn first_away(stdout: impl BufRead) -> Option<Away> {
    stdout.split(b'\n').map_while(Result::ok).find_map(|line| serde_json::from_slice(&line).ok())
}

/// In the child: says that it goes on alone, and from now on prints into the log, so that nothing of it holds a terminal or
/// a pipe.
///
/// # Errors
/// When the log cannot be opened or put in place of stdout and stderr; the line has then been said or not, and printing goes
/// where it went.
pub fn let_go(log: &Path, line: &Away) -> Result<(), DetachError> {
    let cannot_open = |source| DetachError::Log { path: log.to_owned(), source };
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder).map_err(cannot_open)?;
    }
    let file = OpenOptions::new().create(true).append(true).open(log).map_err(cannot_open)?;
    let mut json = serde_json::to_vec(line).map_err(|error| DetachError::CannotLetGo(error.into()))?;
    json.push(b'\n');
    let mut stdout = io::stdout();
    let said = stdout.write_all(&json).and_then(|()| stdout.flush());
    // Also when nobody listens any more: what is printed from now on belongs into the log.
    print_into(&file).and(said).map_err(DetachError::CannotLetGo)
}

/// In the child, once it has let go: opens the log anew, since somebody has moved it.
///
/// # Errors
/// When it cannot be opened; printing then goes where it went.
pub fn reopen_log(log: &Path) -> Result<(), DetachError> {
    let file = OpenOptions::new().create(true).append(true).open(log);
    let file = file.map_err(|source| DetachError::Log { path: log.to_owned(), source })?;
    print_into(&file).map_err(DetachError::CannotLetGo)
}

#[cfg(unix)]
fn print_into(file: &fs::File) -> io::Result<()> {
    rustix::stdio::dup2_stdout(file)?;
    rustix::stdio::dup2_stderr(file)?;
    Ok(())
}

/// There the handles stay, and what is printed into a pipe that nobody reads is lost.
#[cfg(windows)]
fn print_into(_: &fs::File) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shown(Arc<Mutex<Vec<u8>>>);

    impl Write for Shown {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn watch(script: &str) -> (Detached, String) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let shown = Shown::default();
        let detached = watch_start(command, Box::new(shown.clone())).unwrap();
        let text = String::from_utf8(shown.0.lock().unwrap().clone()).unwrap();
        (detached, text)
    }

    #[test]
    fn a_child_that_ends_early_gives_its_code_and_its_words() {
        assert_eq!(
            watch("echo no such file >&2; exit 66"),
            (Detached::Ended { code: Some(66) }, "no such file\n".into())
        );
    }

    #[test]
    fn a_child_that_lets_go_is_not_waited_for() {
        let script = r#"echo starting >&2; echo a word; echo '{"run":"runs/exp","state":"running"}'; exec >/dev/null 2>&1
            exec sleep 5"#;
        let began = std::time::Instant::now();
        let away = Away { run: "runs/exp".into(), state: StateWord::Running };
        assert_eq!(watch(script), (Detached::Away(away), "starting\n".to_owned()));
        assert!(began.elapsed() < Duration::from_secs(4), "it still runs");
    }
}
