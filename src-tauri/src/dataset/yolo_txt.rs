//! YOLO text labels: one object a line, `class cx cy w h` or `class x1 y1 x2 y2 ..` (a polygon), normalised.

use std::path::{Path, PathBuf};

use super::Label;
use super::label_rules::{LabelCollector, ROUNDING_NORM, Refusal};
use super::report::{Fault, FaultCode};
use crate::geometry::BoxXywhNorm;

/// Classes allowed where no file says how many there are: guards against a name list as long as a mistyped number.
pub(super) const MAX_UNNAMED_CLASSES: usize = 10_000;

/// What a line may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineRules {
    pub n_classes: usize,
    /// Columns after the box in a key-point dataset (`kpt_shape` in data.yaml), which are not a polygon.
    pub n_keypoint_columns: Option<usize>,
}

struct ParsedLine {
    class_idx: usize,
    box_norm: BoxXywhNorm,
    has_confidence: bool,
}

/// Where the labels of an image lie: in `labels/` in place of the last `images/` of its path, else beside it.
pub(super) fn label_path(image: &Path) -> Option<PathBuf> {
    let in_labels = with_images_folder_replaced(image, "labels").map(|path| path.with_extension("txt"));
    let beside = image.with_extension("txt");
    in_labels.into_iter().chain([beside]).find(|path| path.is_file())
}

/// The path with its last folder called `images` renamed; `None` where there is none.
pub(super) fn with_images_folder_replaced(image: &Path, new_name: &str) -> Option<PathBuf> {
    let parts: Vec<_> = image.components().collect();
    let n_folders = parts.len().checked_sub(1)?;
    let position = parts[..n_folders].iter().rposition(|part| part.as_os_str() == "images")?;
    let renamed =
        parts.iter().enumerate().map(|(i, part)| if i == position { new_name.as_ref() } else { part.as_os_str() });
    Some(renamed.collect())
}

/// The labels in the bytes of one label file; bad lines are left out one by one.
pub(super) fn parse_labels(bytes: &[u8], file: &Path, rules: LineRules) -> (Vec<Label>, Vec<Fault>) {
    let mut collector = LabelCollector::new(file);
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        collector.note(None, FaultCode::NotUtf8, "file is UTF-16, none of its lines is read; save it as UTF-8");
        return collector.finish("");
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut confidence_lines = Vec::new();
    for (line_idx, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let number = Some(line_idx + 1);
        match parse_line(line, rules) {
            Ok(None) => {}
            Ok(Some(parsed)) => {
                if parsed.has_confidence {
                    confidence_lines.push(line_idx + 1);
                }
                collector.add(number, "", parsed.class_idx, parsed.box_norm);
            }
            Err(refusal) => collector.refuse(number, "", refusal),
        }
    }
    if let Some(first_line) = confidence_lines.first() {
        let message = format!("confidence ignored: a sixth column, lines with it: {}", confidence_lines.len());
        collector.note(Some(*first_line), FaultCode::ConfidenceIgnored, message);
    }
    collector.finish("")
}

/// `Ok(None)` for a blank line.
fn parse_line(line: &[u8], rules: LineRules) -> Result<Option<ParsedLine>, Refusal> {
    if line.contains(&0) {
        return Err(Refusal::new(FaultCode::NulByte, "line holds a NUL byte (damaged file)"));
    }
    let Ok(line) = std::str::from_utf8(line) else {
        return Err(Refusal::new(FaultCode::NotUtf8, "line is not UTF-8 text"));
    };
    let columns: Vec<&str> = line.split_whitespace().collect();
    if columns.is_empty() {
        return Ok(None);
    }
    if let Some(refusal) = wrong_separator(line, columns.len()) {
        return Err(refusal);
    }
    if columns.len() < 5 {
        let reason = format!("line has {} columns, a box has 5: class cx cy w h", columns.len());
        return Err(Refusal::new(FaultCode::BadColumns, reason));
    }
    let numbers = columns.iter().map(|column| parse_number(column)).collect::<Result<Vec<f64>, Refusal>>()?;
    let class_idx = class_from_number(numbers[0], rules.n_classes)?;
    let is_keypoints = rules.n_keypoint_columns.is_some_and(|n_extra| numbers.len() == 5 + n_extra);
    let (box_norm, has_confidence) = match numbers.len() {
        5 => (box_from(&numbers[1..5]), false),
        _ if is_keypoints => (box_from(&numbers[1..5]), false),
        6 => (box_from(&numbers[1..5]), true),
        n if n % 2 == 1 => (polygon_envelope(&numbers[1..])?, false),
        n => {
            let reason = format!("line has {n} columns: neither a box (5) nor a polygon (class and pairs of x y)");
            return Err(Refusal::new(FaultCode::BadColumns, reason));
        }
    };
    Ok(Some(ParsedLine { class_idx, box_norm, has_confidence }))
}

fn wrong_separator(line: &str, n_columns: usize) -> Option<Refusal> {
    let (separator, name) = [(',', "comma"), (';', "semicolon")].into_iter().find(|(c, _)| line.contains(*c))?;
    let reason = if separator == ',' && n_columns >= 5 {
        "numbers are written with a decimal comma; label files use a point".to_owned()
    } else {
        format!("columns are separated by a {name} (`{separator}`); label files use spaces")
    };
    Some(Refusal::new(FaultCode::BadSeparator, reason))
}

fn parse_number(column: &str) -> Result<f64, Refusal> {
    let Ok(number) = column.parse::<f64>() else {
        return Err(Refusal::new(FaultCode::NotANumber, format!("`{column}` is not a number")));
    };
    if !number.is_finite() {
        return Err(Refusal::new(FaultCode::NotFinite, format!("`{column}` is not a finite number")));
    }
    Ok(number)
}

fn class_from_number(number: f64, n_classes: usize) -> Result<usize, Refusal> {
    if number.fract() != 0.0 {
        return Err(Refusal::new(FaultCode::ClassNotWhole, format!("class {number} is not a whole number")));
    }
    if number < 0.0 || number >= n_classes as f64 {
        let reason = match n_classes {
            1 => format!("class {number}, but there is 1 class: 0"),
            _ => format!("class {number}, but there are {n_classes} classes: 0 to {}", n_classes.saturating_sub(1)),
        };
        return Err(Refusal::new(FaultCode::ClassOutOfRange, reason));
    }
    Ok(number as usize)
}

fn box_from(numbers: &[f64]) -> BoxXywhNorm {
    BoxXywhNorm { cx: numbers[0], cy: numbers[1], w: numbers[2], h: numbers[3] }
}

/// The smallest box around the corners `x1 y1 x2 y2 ..`.
fn polygon_envelope(coordinates: &[f64]) -> Result<BoxXywhNorm, Refusal> {
    if let Some(value) = coordinates.iter().find(|value| !(-ROUNDING_NORM..=1.0 + ROUNDING_NORM).contains(*value)) {
        let reason = format!("a polygon corner at {value} lies outside the image");
        return Err(Refusal::new(FaultCode::OutsideImage, reason));
    }
    let range = |start: usize| {
        let axis = coordinates.iter().skip(start).step_by(2);
        axis.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
    };
    let ((x1, x2), (y1, y2)) = (range(0), range(1));
    Ok(BoxXywhNorm { cx: (x1 + x2) / 2.0, cy: (y1 + y2) / 2.0, w: x2 - x1, h: y2 - y1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Vec<Label>, Vec<FaultCode>) {
        let rules = LineRules { n_classes: 2, n_keypoint_columns: None };
        let (labels, faults) = parse_labels(text.as_bytes(), Path::new("a.txt"), rules);
        (labels, faults.into_iter().map(|fault| fault.code).collect())
    }

    #[test]
    fn a_polygon_becomes_its_envelope_and_a_box_stays_a_box() {
        let (labels, faults) = parsed("0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.3 0.1 0.3 0.4 0.1 0.4");
        assert_eq!(labels[0].box_norm, BoxXywhNorm { cx: 0.5, cy: 0.5, w: 0.2, h: 0.2 }, "five columns");
        let b = labels[1].box_norm;
        let far = [b.cx - 0.2, b.cy - 0.25, b.w - 0.2, b.h - 0.3].into_iter().any(|d| d.abs() > 1e-12);
        assert!(!far, "x 0.1..0.3, y 0.1..0.4");
        assert!(faults.is_empty(), "both are good");
    }

    #[test]
    fn keypoint_columns_are_not_a_polygon() {
        let rules = LineRules { n_classes: 1, n_keypoint_columns: Some(4) };
        let (labels, _) = parse_labels(b"0 0.5 0.5 0.2 0.2 0.1 0.1 0.9 0.9", Path::new("a.txt"), rules);
        assert_eq!(labels[0].box_norm.w, 0.2, "the first four numbers are the box");
    }

    #[test]
    fn classes_must_be_whole_and_known() {
        assert_eq!(parsed("1.0 0.5 0.5 0.2 0.2").0[0].class_idx, 1, "1.0 is class 1");
        assert_eq!(parsed("0.5 0.5 0.5 0.2 0.2").1, [FaultCode::ClassNotWhole], "a half class");
        assert_eq!(parsed("-1 0.5 0.5 0.2 0.2").1, [FaultCode::ClassOutOfRange], "below 0");
        assert_eq!(parsed("2 0.5 0.5 0.2 0.2").1, [FaultCode::ClassOutOfRange], "0 and 1 exist");
    }

    #[test]
    fn damaged_lines_are_left_out_alone() {
        let (labels, faults) = parsed("0 0.5 0.5 0.2 0.2\r\n0 0.5\0 0.5 0.2 0.2\n0 x 0.5 0.2 0.2\n0 .5 .5\n");
        assert_eq!(labels.len(), 1, "the first line is good");
        assert_eq!(faults, [FaultCode::NulByte, FaultCode::NotANumber, FaultCode::BadColumns], "one reason each");
    }

    #[test]
    fn only_the_last_images_folder_is_renamed() {
        let path = with_images_folder_replaced(Path::new("/images/a/images/b/images.jpg"), "labels");
        assert_eq!(path, Some(PathBuf::from("/images/a/labels/b/images.jpg")), "not the first, not the file");
    }
}
