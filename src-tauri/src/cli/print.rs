//! Lines on stdout and stderr. A reader that has gone away (`| head`) is no reason to stop, so failures are ignored.

use std::io::Write;

use serde::Serialize;

use super::ending::Refusal;
use crate::exit::Reason;

/// A line of results.
pub fn out(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}

/// Results as one JSON object on one line.
///
/// # Errors
/// When a value has no JSON form, such as a path that is not Unicode.
pub fn json(value: &impl Serialize) -> Result<(), Refusal> {
    let text = serde_json::to_string(value).map_err(|error| Refusal::new(Reason::Internal, error.to_string()))?;
    out(&text);
    Ok(())
}

/// A line about what happens.
pub fn err(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Why a command was refused: one line, whatever the reason's own text looks like.
pub fn error(message: &str) {
    err(&format!("error: {}", on_one_line(message)));
}

/// Something that was done differently than asked.
pub fn warning(message: &str) {
    err(&format!("warning: {}", on_one_line(message)));
}

fn on_one_line(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        assert_eq!(on_one_line("cannot read\n\n  because:\n    no\n"), "cannot read because: no");
    }
}
