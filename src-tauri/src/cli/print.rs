//! Lines on stdout and stderr.
//!
//! A reader that has gone away (`| head`) is no reason to stop, but results that cannot be written are: a script would take
//! half a report for a whole one. What goes to stderr is never waited for.

use std::borrow::Cow;
use std::io::{ErrorKind, Write};

use serde::Serialize;

use super::ending::Refusal;
use crate::durable::is_disk_full;
use crate::exit::Reason;

/// A line of results.
///
/// # Errors
/// When it cannot be written, unless nobody reads any more.
pub fn out(text: &str) -> Result<(), Refusal> {
    let mut stdout = std::io::stdout();
    match writeln!(stdout, "{}", visible(text.trim_end())).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let reason = if is_disk_full(&error) { Reason::DiskFull } else { Reason::Io };
            Err(Refusal::new(reason, format!("cannot write the results to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Results as one JSON object on one line.
///
/// # Errors
/// As [`out`], and when a value has no JSON form, such as a path that is not Unicode.
pub fn json(value: &impl Serialize) -> Result<(), Refusal> {
    let text = serde_json::to_string(value).map_err(|error| Refusal::new(Reason::Internal, error.to_string()))?;
    out(&text)
}

/// A line about what happens.
pub fn err(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", visible(text));
}

/// Why a command was refused: one line, whatever the reason's own text looks like.
pub fn error(message: &str) {
    err(&format!("error: {}", on_one_line(message)));
}

/// Something that was done differently than asked.
pub fn warning(message: &str) {
    err(&format!("warning: {}", on_one_line(message)));
}

/// Control characters in the names of classes and files, which could colour or clear a terminal, as escapes.
fn visible(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|c| if is_control(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

fn on_one_line(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_other_scripts_left_alone() {
        assert_eq!(visible("a\u{1b}[31mb\n鱼"), "a\\u{1b}[31mb\n鱼");
        assert!(matches!(visible("鱼 \t é"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        assert_eq!(on_one_line("cannot read\n\n  because:\n    no\n"), "cannot read because: no");
    }
}
