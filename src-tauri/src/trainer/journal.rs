//! A training's own lines in the run's files. What a full disk does not take waits in memory, in order, until it does.

use std::collections::VecDeque;

use super::event::{EpochResults, TrainEvent};
use super::run_folder::{EventLog, ResultsCsv, RunFolderError, RunPaths};

/// `events.jsonl` and `results.csv`, open for more.
pub struct Journal {
    paths: RunPaths,
    /// Absent after a line that was torn, until it is opened anew, which ends that line.
    events: Option<EventLog>,
    results: ResultsCsv,
    unwritten: VecDeque<Line>,
}

enum Line {
    Event(Box<TrainEvent>),
    Row(EpochResults),
}

impl Journal {
    /// Opens both files; rows after `epochs_done` are taken back.
    ///
    /// # Errors
    /// When one cannot be opened.
    pub fn open(paths: &RunPaths, epochs_done: u32) -> Result<Self, RunFolderError> {
        let events = Some(EventLog::open(&paths.events_jsonl())?);
        let results = ResultsCsv::resume(&paths.results_csv(), epochs_done)?;
        Ok(Self { paths: paths.clone(), events, results, unwritten: VecDeque::new() })
    }

    /// Writes an event, or keeps it while the disk is full.
    ///
    /// # Errors
    /// When writing fails for another reason.
    pub fn event(&mut self, event: &TrainEvent) -> Result<(), RunFolderError> {
        self.take(Line::Event(Box::new(event.clone())))
    }

    /// Writes the row of an epoch, as [`Self::event`].
    ///
    /// # Errors
    /// As [`Self::event`].
    pub fn row(&mut self, results: EpochResults) -> Result<(), RunFolderError> {
        self.take(Line::Row(results))
    }

    /// Writes what waits, and waits until it is on the disk.
    ///
    /// # Errors
    /// When the disk does not take it; what is not written still waits.
    pub fn flush(&mut self) -> Result<(), RunFolderError> {
        self.write_all()?;
        self.events.as_ref().map_or(Ok(()), EventLog::sync)
    }

    /// Whether lines wait for a full disk.
    pub fn is_behind(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// About how many bytes wait.
    pub fn bytes_behind(&self) -> u64 {
        let bytes = |line: &Line| match line {
            Line::Event(event) => serde_json::to_vec(event).map_or(0, |json| json.len()),
            Line::Row(results) => serde_json::to_vec(results).map_or(0, |json| json.len()),
        };
        self.unwritten.iter().map(bytes).sum::<usize>() as u64
    }

    fn take(&mut self, line: Line) -> Result<(), RunFolderError> {
        self.unwritten.push_back(line);
        match self.write_all() {
            Err(RunFolderError::DiskFull { .. }) => Ok(()),
            written => written,
        }
    }

    fn write_all(&mut self) -> Result<(), RunFolderError> {
        while let Some(line) = self.unwritten.front() {
            match line {
                Line::Row(results) => self.results.append(results)?,
                Line::Event(event) => {
                    let mut log = match self.events.take() {
                        Some(log) => log,
                        None => EventLog::open(&self.paths.events_jsonl())?,
                    };
                    log.append(event)?;
                    self.events = Some(log);
                }
            }
            self.unwritten.pop_front();
        }
        Ok(())
    }
}
