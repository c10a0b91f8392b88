//! `results.csv`: one row an epoch, with the columns and the number style of the reference.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::RunFolderError;
use crate::durable::write_file_durably;
use crate::trainer::event::EpochResults;

/// The first line of every `results.csv`.
pub const RESULTS_HEADER: &str = "epoch,time,train/box_loss,train/cls_loss,train/dfl_loss,\
metrics/precision(B),metrics/recall(B),metrics/mAP50(B),metrics/mAP50-95(B),\
val/box_loss,val/cls_loss,val/dfl_loss,lr/pg0,lr/pg1,lr/pg2";

/// The row of an epoch: its number, and its values by column.
pub type ResultsRow = (u32, BTreeMap<String, f64>);

/// A `results.csv` that is being written.
#[derive(Debug)]
pub struct ResultsCsv {
    path: PathBuf,
    file: File,
}

impl ResultsCsv {
    /// Opens the file of a run that begins, or goes on after `epochs_done` epochs, for more rows. Keeps the rows of these epochs,
    /// each once (the last one written counts); later ones and torn ones go. A file that is not there is made.
    ///
    /// # Errors
    /// When it cannot be read or written; it is then what it was.
    pub fn resume(path: &Path, epochs_done: u32) -> Result<Self, RunFolderError> {
        let fault = |error| RunFolderError::io(path, error);
        let rows: BTreeMap<u32, String> = whole_rows(path)?.into_iter().collect();
        let kept = rows.iter().filter(|(epoch, _)| (1..=epochs_done).contains(*epoch)).map(|(_, row)| row.as_str());
        let text: String = std::iter::once(RESULTS_HEADER).chain(kept).flat_map(|line| [line, "\n"]).collect();
        write_file_durably(path, text.as_bytes()).map_err(fault)?;
        let file = OpenOptions::new().append(true).open(path).map_err(fault)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Appends the row of an epoch and waits until it is on the disk. The cells of a validation that did not take place
    /// are empty; the reference writes zeros there, which look like a detector that finds nothing.
    ///
    /// # Errors
    /// When writing fails.
    pub fn append(&mut self, results: &EpochResults) -> Result<(), RunFolderError> {
        self.write_line(&row(results))
    }

    /// A line that is not written whole is taken back, so that it can be tried again.
    fn write_line(&mut self, line: &str) -> Result<(), RunFolderError> {
        let fault = |error| RunFolderError::io(&self.path, error);
        let before = self.file.metadata().map_err(fault)?.len();
        let written = self.file.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // If this fails too, the torn row has too few cells and is passed over by whoever reads.
            let _ = self.file.set_len(before);
        }
        written.map_err(fault)
    }
}

/// The rows of a file: each epoch with its values by column. Cells that are empty, or no numbers, are left out. A file
/// that is not there has none.
///
/// # Errors
/// When the file cannot be read.
pub fn read_rows(path: &Path) -> Result<Vec<ResultsRow>, RunFolderError> {
    let values = |row: &str| {
        let cells = RESULTS_HEADER.split(',').zip(row.split(','));
        cells.filter_map(|(column, cell)| Some((column.to_owned(), cell.trim().parse().ok()?))).collect()
    };
    Ok(whole_rows(path)?.into_iter().map(|(epoch, row)| (epoch, values(&row))).collect())
}

/// Each row that has an epoch, all its cells and its line break, in the order of the file.
fn whole_rows(path: &Path) -> Result<Vec<(u32, String)>, RunFolderError> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        bytes => bytes.map_err(|error| RunFolderError::io(path, error))?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let n_cells = RESULTS_HEADER.split(',').count();
    let rows = text.split_inclusive('\n').filter_map(|line| {
        let row = line.strip_suffix('\n')?.trim_end();
        let epoch = row.split(',').next()?.trim().parse().ok()?;
        (row.split(',').count() == n_cells).then(|| (epoch, row.to_owned()))
    });
    Ok(rows.collect())
}

fn row(results: &EpochResults) -> String {
    let EpochResults { epoch, time_s, train, val, lr } = results;
    let mut cells = vec![epoch.to_string(), six_digits(*time_s)];
    cells.extend([train.box_iou, train.cls, train.dfl].map(five_places));
    match val {
        Some(val) => {
            let (scores, losses) = (val.scores, val.losses);
            cells.extend([scores.precision, scores.recall, scores.map50, scores.map50_95].map(five_places));
            cells.extend([losses.box_iou, losses.cls, losses.dfl].map(five_places));
        }
        None => cells.extend(vec![String::new(); 7]),
    }
    cells.extend([lr.weight, lr.norm, lr.bias].map(six_digits));
    cells.join(",")
}

/// Losses and scores are rounded to five decimal places before they are cut to six digits.
fn five_places(value: f64) -> String {
    let scaled = value * 1e5;
    // Halves go to even and huge values stay as they are, as in Python's `round`.
    six_digits(if scaled.is_finite() { scaled.round_ties_even() / 1e5 } else { value })
}

/// C's `%.6g`: six significant digits without trailing zeros, with an exponent below 1e-4 and from 1e6 on.
fn six_digits(value: f64) -> String {
    const DIGITS: i32 = 6;
    if !value.is_finite() {
        return if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    // Rounding first: 999999.7 has seven digits once rounded.
    let scientific = format!("{value:.*e}", (DIGITS - 1) as usize);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let n_decimals = (DIGITS - 1 - exponent) as usize;
        return without_trailing_zeros(&format!("{value:.n_decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.abs())
}

fn without_trailing_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::event::{EpochValidation, LearningRates, Losses, ValScores};

    #[test]
    fn numbers_look_like_those_of_the_reference() {
        for (value, text) in [
            (0.0, "0"),
            (1.299, "1.299"),
            (17.425_6, "17.4256"),
            (942.039_1, "942.039"),
            (0.003_076_923_08, "0.00307692"),
            (3e-5, "3e-05"),
            (0.000_69, "0.00069"),
            (123_456.7, "123457"),
            (999_999.7, "1e+06"),
            (-0.5, "-0.5"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(six_digits(value), text);
        }
        assert_eq!(five_places(0.123_456_7), "0.12346", "five places, though six digits would fit");
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let losses = Losses { box_iou: 1.501_73, cls: 3.679_27, dfl: 1.403_85 };
        let scores = ValScores { precision: 0.921_63, recall: 0.182_35, map50: 0.244_46, map50_95: 0.151_08 };
        let val_losses = Losses { box_iou: 1.299, cls: 2.248_85, dfl: 1.356_74 };
        let lr = LearningRates { weight: 0.003_076_923, norm: 0.003_076_923, bias: 0.072_307_69 };
        let val = Some(EpochValidation { scores, losses: val_losses });
        let mut csv = ResultsCsv::resume(&path, 0).unwrap();
        csv.append(&EpochResults { epoch: 1, time_s: 23.790_12, train: losses, val, lr }).unwrap();
        csv.append(&EpochResults { epoch: 2, time_s: 47.3, train: losses, val: None, lr }).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], RESULTS_HEADER);
        assert_eq!(
            lines[1],
            "1,23.7901,1.50173,3.67927,1.40385,0.92163,0.18235,0.24446,0.15108,\
             1.299,2.24885,1.35674,0.00307692,0.00307692,0.0723077"
        );
        assert_eq!(lines[2], "2,47.3,1.50173,3.67927,1.40385,,,,,,,,0.00307692,0.00307692,0.0723077");
    }

    fn results(epoch: u32) -> EpochResults {
        let (train, lr) = (Losses { box_iou: 1.5, cls: 2.0, dfl: 1.0 }, LearningRates::default());
        EpochResults { epoch, time_s: f64::from(epoch), train, val: None, lr }
    }

    fn epochs_in(path: &Path) -> Vec<u32> {
        read_rows(path).unwrap().into_iter().map(|(epoch, _)| epoch).collect()
    }

    #[test]
    fn a_resumed_file_has_the_rows_of_the_epochs_done_once_each() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        let mut csv = ResultsCsv::resume(&path, 0).unwrap();
        [1, 2, 2, 3, 4].iter().for_each(|&epoch| csv.append(&results(epoch)).unwrap());
        ResultsCsv::resume(&path, 3).unwrap().append(&results(4)).unwrap();
        assert_eq!(epochs_in(&path), [1, 2, 3, 4]);
        assert!(std::fs::read_to_string(&path).unwrap().starts_with(RESULTS_HEADER));
        ResultsCsv::resume(&path, 0).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{RESULTS_HEADER}\n"));
    }

    #[test]
    fn a_torn_row_goes_and_a_missing_file_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        ResultsCsv::resume(&path, 2).unwrap().append(&results(1)).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        for torn in ["2,47.3,1.5", "2,2,1.5,2,1,,,,,,,,0,0,0"] {
            std::fs::write(&path, format!("{whole}{torn}")).unwrap();
            ResultsCsv::resume(&path, 2).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), whole, "`{torn}` has no line break");
        }
    }

    #[test]
    fn rows_are_read_by_column_without_empty_cells() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.csv");
        assert_eq!(read_rows(&path).unwrap(), []);
        ResultsCsv::resume(&path, 0).unwrap().append(&results(7)).unwrap();
        let rows = read_rows(&path).unwrap();
        assert_eq!(rows[0].0, 7);
        assert_eq!(rows[0].1["train/cls_loss"], 2.0);
        assert!(!rows[0].1.contains_key("metrics/mAP50-95(B)"), "not validated");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_told_as_such() {
        let path = Path::new("/dev/full");
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let error = ResultsCsv { path: path.to_owned(), file }.append(&results(1)).unwrap_err();
        assert!(matches!(error, RunFolderError::DiskFull { .. }), "{error}");
    }
}
