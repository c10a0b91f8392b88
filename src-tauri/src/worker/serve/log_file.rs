//! The worker's log, opened anew when somebody has moved it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::trainer::run_folder::RunPaths;

/// Prints a line for the log. A full disk does not take it, which is no reason to die.
pub fn print(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Has everything that is printed go to a new `logs/worker.log`. If that fails, it goes on as before.
pub fn reopen(run_folder: &Path) {
    let path = RunPaths::of(run_folder).worker_log();
    let reopened = OpenOptions::new().create(true).append(true).open(&path).and_then(|file| print_to(&file));
    if let Err(error) = reopened {
        print(&format!("cannot open `{}` anew: {error}", path.display()));
    }
}

#[cfg(unix)]
fn print_to(file: &File) -> io::Result<()> {
    rustix::stdio::dup2_stdout(file)?;
    Ok(rustix::stdio::dup2_stderr(file)?)
}

/// Log files are not moved under a process there.
#[cfg(not(unix))]
fn print_to(_: &File) -> io::Result<()> {
    Ok(())
}
