//! The end of a log, to be shown with a failure.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Most bytes that are shown.
const TAIL_BYTES: u64 = 2048;

/// The last lines of a log that were written after its first `from_byte` bytes; `None` if there are none, or it cannot be
/// read, which is no reason to hide the failure itself.
pub fn log_tail(path: &Path, from_byte: u64) -> Option<String> {
    let text = read_tail(path, from_byte).ok()?;
    let text = text.trim();
    if text.is_empty() { None } else { Some(text.to_owned()) }
}

/// Bytes in a log, 0 if it is not there.
pub fn log_length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |log| log.len())
}

fn read_tail(path: &Path, from_byte: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    let begin = from_byte.min(length).max(length.saturating_sub(TAIL_BYTES));
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line of a part is a half one.
    let is_part = begin > from_byte;
    Ok(if is_part { text.split_once('\n').map_or("", |(_, rest)| rest).to_owned() } else { text.into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_of_this_worker_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("worker.log");
        assert_eq!(log_tail(&path, 0), None);
        std::fs::write(&path, "of another\nof this one\n").unwrap();
        assert_eq!(log_tail(&path, 11).as_deref(), Some("of this one"));
        assert_eq!(log_tail(&path, 100), None, "a log that was begun anew");
        let line = "0123456789".repeat(10);
        std::fs::write(&path, format!("{line}\n").repeat(100)).unwrap();
        let tail = log_tail(&path, 0).unwrap();
        assert!(tail.len() < 2048 && tail.lines().all(|shown| shown == line), "{tail}");
    }
}
