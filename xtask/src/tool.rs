//! Starting other programs: from the repository's folder, without standard input, output shown as it comes.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program to be run in `dir`. Nothing can be typed into it, since the checks also run where nobody sits.
pub fn command(program: impl AsRef<OsStr>, args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command
}

/// The cargo that runs this program.
pub fn cargo(args: &[&str], dir: &Path) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args, dir)
}

/// Whether a command can be started and ends well; its output is not shown.
pub fn succeeds(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// What a command prints, `None` when it cannot be started or fails.
pub fn output_of(mut command: Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
