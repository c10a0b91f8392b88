//! Compares the program, number by number, with what the reference implementation computed.
//!
//! The numbers lie in the folder `FERMATA_ORACLE_DIR` (`tests/reference/oracle` by default), whose README explains every file,
//! formula and tolerance. One line a case; any file of the same formats will do.

mod arch;
mod assigner;
mod formula;
mod forward;
mod letterbox;
mod loss;
mod metrics;
mod network;
mod report;
mod schedule;
mod summary;
mod trace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use report::Report;
use serde::de::DeserializeOwned;

fn main() -> ExitCode {
    formula::self_check();
    let dir = std::env::var_os("FERMATA_ORACLE_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/oracle"), PathBuf::from);
    let mut report = Report::default();
    arch::run(&dir, &mut report);
    schedule::run(&dir, &mut report);
    letterbox::run(&dir, &mut report);
    metrics::run(&dir, &mut report);
    assigner::run(&dir, &mut report);
    forward::run(&dir, &mut report);
    loss::run(&dir, &mut report);
    trace::run(&dir, &mut report);
    if report.finish() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads a file of expected numbers; what cannot be read is a failed case.
fn read<T: DeserializeOwned>(dir: &Path, name: &str, report: &mut Report) -> Option<T> {
    let text = std::fs::read_to_string(dir.join(name)).map_err(|error| error.to_string());
    match text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())) {
        Ok(expected) => Some(expected),
        Err(reason) => {
            report.broken(name, &reason);
            None
        }
    }
}
