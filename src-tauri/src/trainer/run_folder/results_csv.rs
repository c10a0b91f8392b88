//! `results.csv`: one row an epoch, with the columns and the number style of the reference.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::RunFolderError;
use crate::trainer::event::EpochResults;

/// The first line of every `results.csv`.
pub const RESULTS_HEADER: &str = "epoch,time,train/box_loss,train/cls_loss,train/dfl_loss,\
metrics/precision(B),metrics/recall(B),metrics/mAP50(B),metrics/mAP50-95(B),\
val/box_loss,val/cls_loss,val/dfl_loss,lr/pg0,lr/pg1,lr/pg2";

/// A `results.csv` that is being written.
#[derive(Debug)]
pub struct ResultsCsv {
    path: PathBuf,
    file: File,
}

impl ResultsCsv {
    /// Makes the file, with the header alone; an older one of this name is replaced.
    ///
    /// # Errors
    /// When it cannot be made or written.
    pub fn create(path: &Path) -> Result<Self, RunFolderError> {
        let file = File::create(path).map_err(|error| RunFolderError::io(path, error))?;
        let mut results = Self { path: path.to_owned(), file };
        results.write_line(RESULTS_HEADER)?;
        Ok(results)
    }

    /// Appends the row of an epoch and waits until it is on the disk. The cells of a validation that did not take place
    /// are empty; the reference writes zeros there, which look like a detector that finds nothing.
    ///
    /// # Errors
    /// When writing fails.
    pub fn append(&mut self, results: &EpochResults) -> Result<(), RunFolderError> {
        self.write_line(&row(results))
    }

    fn write_line(&mut self, line: &str) -> Result<(), RunFolderError> {
        let written = self.file.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| RunFolderError::io(&self.path, error))
    }
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
        let mut csv = ResultsCsv::create(&path).unwrap();
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

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_told_as_such() {
        let error = ResultsCsv::create(Path::new("/dev/full")).unwrap_err();
        assert!(matches!(error, RunFolderError::DiskFull { .. }), "{error}");
    }
}
