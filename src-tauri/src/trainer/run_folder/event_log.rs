//! `events.jsonl`: one [`TrainEvent`] a line, only ever appended to.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::RunFolderError;
use crate::trainer::event::TrainEvent;

/// The end of an `events.jsonl`, open for more.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    file: File,
}

impl EventLog {
    /// Opens or makes the file. If its last line was torn by a crash, that line is ended first, so that it spoils no
    /// other.
    ///
    /// # Errors
    /// When the file cannot be opened or written.
    pub fn open(path: &Path) -> Result<Self, RunFolderError> {
        let file = open_at_a_new_line(path).map_err(|error| RunFolderError::io(path, error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Appends one line, handed to the operating system at once: it outlives this process, but not a power cut.
    ///
    /// # Errors
    /// When writing fails; part of the line may then be in the file, which readers skip.
    pub fn append(&mut self, event: &TrainEvent) -> Result<(), RunFolderError> {
        let mut line = serde_json::to_vec(event).map_err(|error| RunFolderError::io(&self.path, error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|error| RunFolderError::io(&self.path, error))
    }

    /// Waits until all lines are on the disk.
    ///
    /// # Errors
    /// When the operating system cannot write them.
    pub fn sync(&self) -> Result<(), RunFolderError> {
        self.file.sync_data().map_err(|error| RunFolderError::io(&self.path, error))
    }
}

fn open_at_a_new_line(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(file);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// What an `events.jsonl` holds.
#[derive(Debug, PartialEq)]
pub struct EventHistory {
    pub events: Vec<TrainEvent>,
    /// Lines that are no event: torn by a crash, or written by a newer program.
    pub n_skipped: usize,
}

/// Reads all events of a file, skipping lines that cannot be read.
///
/// # Errors
/// When the file cannot be opened or read.
pub fn read_events(path: &Path) -> Result<EventHistory, RunFolderError> {
    let bytes = std::fs::read(path).map_err(|error| RunFolderError::io(path, error))?;
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let (events, faults): (Vec<_>, Vec<_>) = lines.map(serde_json::from_slice).partition(Result::is_ok);
    Ok(EventHistory { events: events.into_iter().flatten().collect(), n_skipped: faults.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(epoch: u32) -> TrainEvent {
        TrainEvent::EpochStarted { epoch }
    }

    #[test]
    fn events_come_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        EventLog::open(&path).unwrap().append(&started(1)).unwrap();
        EventLog::open(&path).unwrap().append(&started(2)).unwrap();
        let history = read_events(&path).unwrap();
        assert_eq!(history, EventHistory { events: vec![started(1), started(2)], n_skipped: 0 });
    }

    #[test]
    fn a_torn_last_line_is_skipped_and_spoils_no_later_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        std::fs::write(&path, "{\"event\":\"epoch_started\",\"epoch\":1}\n{\"event\":\"epoch_st").unwrap();
        assert_eq!(read_events(&path).unwrap(), EventHistory { events: vec![started(1)], n_skipped: 1 });
        EventLog::open(&path).unwrap().append(&started(2)).unwrap();
        let history = read_events(&path).unwrap();
        assert_eq!(history, EventHistory { events: vec![started(1), started(2)], n_skipped: 1 });
    }
}
