//! The rules every box passes, whatever file it came from: kept, clipped with a note, or left out with a reason.

use std::collections::HashSet;
use std::path::Path;

use super::Label;
use super::report::{Fault, FaultCode};
use crate::geometry::BoxXywhNorm;

/// How far outside 0..=1 a normalised number may lie and still be rounding.
pub(super) const ROUNDING_NORM: f64 = 0.01;
/// Overhang that is floating-point noise: such a box is kept as it was read.
const NOISE_NORM: f64 = 1e-9;

/// Why a label was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub code: FaultCode,
    pub reason: String,
}

impl Refusal {
    pub fn new(code: FaultCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

/// A box that may be trained on.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CheckedBox {
    box_norm: BoxXywhNorm,
    /// More than rounding was cut off.
    was_clipped: bool,
}

/// Gathers the labels of one image, and the faults of the file they come from.
pub(super) struct LabelCollector<'a> {
    file: &'a Path,
    labels: Vec<Label>,
    faults: Vec<Fault>,
    /// Class and the bits of the box of every label so far.
    seen: HashSet<(usize, [u64; 4])>,
    duplicate_lines: Vec<Option<usize>>,
}

impl<'a> LabelCollector<'a> {
    pub fn new(file: &'a Path) -> Self {
        Self { file, labels: Vec::new(), faults: Vec::new(), seen: HashSet::new(), duplicate_lines: Vec::new() }
    }

    /// Takes the box if it is good; `subject` starts the message of a fault where a line number does not tell enough.
    pub fn add(&mut self, line: Option<usize>, subject: &str, class_idx: usize, box_norm: BoxXywhNorm) {
        let checked = match check_box(box_norm) {
            Ok(checked) => checked,
            Err(refusal) => return self.refuse(line, subject, refusal),
        };
        let b = checked.box_norm;
        if !self.seen.insert((class_idx, [b.cx, b.cy, b.w, b.h].map(f64::to_bits))) {
            self.duplicate_lines.push(line);
            return;
        }
        if checked.was_clipped {
            let message = format!("{subject}box reaches outside the image, clipped to it");
            self.note(line, FaultCode::Clipped, message);
        }
        self.labels.push(Label { class_idx, box_norm: checked.box_norm });
    }

    /// Leaves a label out.
    pub fn refuse(&mut self, line: Option<usize>, subject: &str, refusal: Refusal) {
        self.note(line, refusal.code, format!("{subject}{}", refusal.reason));
    }

    pub fn note(&mut self, line: Option<usize>, code: FaultCode, message: impl Into<String>) {
        self.faults.push(Fault::new(self.file, line, code, message));
    }

    /// The good labels, in the order of the file, and all faults.
    pub fn finish(mut self, subject: &str) -> (Vec<Label>, Vec<Fault>) {
        if let Some(first_line) = self.duplicate_lines.first().copied() {
            let n_removed = self.duplicate_lines.len();
            let message = format!("{subject}{n_removed} duplicate{} removed", if n_removed == 1 { "" } else { "s" });
            self.note(first_line, FaultCode::DuplicatesRemoved, message);
        }
        (self.labels, self.faults)
    }
}

/// A centre or size within [`ROUNDING_NORM`] of 0..=1 is clamped, edges outside the image are cut off.
///
/// # Errors
/// A number that is not finite, a centre or size further outside, or no area.
fn check_box(read: BoxXywhNorm) -> Result<CheckedBox, Refusal> {
    let numbers = [("cx", read.cx), ("cy", read.cy), ("w", read.w), ("h", read.h)];
    if let Some((name, value)) = numbers.into_iter().find(|(_, value)| !value.is_finite()) {
        return Err(Refusal::new(FaultCode::NotFinite, format!("{name} is {value}, not a finite number")));
    }
    if read.w <= 0.0 || read.h <= 0.0 {
        return Err(Refusal::new(FaultCode::ZeroSize, format!("box has no area (w {}, h {})", read.w, read.h)));
    }
    let allowed = -ROUNDING_NORM..=1.0 + ROUNDING_NORM;
    if let Some((name, value)) = numbers.into_iter().find(|(_, value)| !allowed.contains(value)) {
        let reason = format!("{name} is {value:.6} of the image's size, outside 0..1");
        return Err(Refusal::new(FaultCode::OutsideImage, reason));
    }
    let [cx, cy, w, h] = numbers.map(|(_, value)| value.clamp(0.0, 1.0));
    let (cx, w, overhang_x) = clip_axis(cx, w);
    let (cy, h, overhang_y) = clip_axis(cy, h);
    let was_clipped = overhang_x.max(overhang_y) > ROUNDING_NORM;
    Ok(CheckedBox { box_norm: BoxXywhNorm { cx, cy, w, h }, was_clipped })
}

/// Centre and size of the part inside 0..=1, and how far the box reached out of it.
fn clip_axis(center: f64, size: f64) -> (f64, f64, f64) {
    let (low, high) = (center - size / 2.0, center + size / 2.0);
    let overhang = (-low).max(high - 1.0);
    if overhang <= NOISE_NORM {
        return (center, size, 0.0);
    }
    let (low, high) = (low.max(0.0), high.min(1.0));
    ((low + high) / 2.0, high - low, overhang)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(cx: f64, cy: f64, w: f64, h: f64) -> Result<CheckedBox, FaultCode> {
        check_box(BoxXywhNorm { cx, cy, w, h }).map_err(|refusal| refusal.code)
    }

    #[test]
    fn a_box_inside_is_kept_bit_for_bit() {
        let inside = BoxXywhNorm { cx: 0.95, cy: 0.3, w: 0.1, h: 0.2 };
        assert_eq!(check_box(inside).unwrap(), CheckedBox { box_norm: inside, was_clipped: false }, "touches the edge");
    }

    #[test]
    fn a_box_reaching_outside_is_clipped_with_a_note() {
        let clipped = checked(0.95, 0.5, 0.3, 0.2).unwrap();
        assert!(clipped.was_clipped, "0.1 lies outside");
        let b = clipped.box_norm;
        assert!((b.cx - 0.9).abs() < 1e-12 && (b.w - 0.2).abs() < 1e-12, "edges 0.8 and 1.0");
    }

    #[test]
    fn rounding_is_clipped_without_a_note() {
        let rounded = checked(1.005, 0.5, 0.01, 0.2).unwrap();
        assert!(!rounded.was_clipped, "a hundredth is rounding");
        assert!(rounded.box_norm.cx + rounded.box_norm.w / 2.0 <= 1.0, "inside now");
    }

    #[test]
    fn a_centre_or_size_far_outside_is_left_out() {
        assert_eq!(checked(1.011, 0.5, 0.1, 0.1), Err(FaultCode::OutsideImage), "centre");
        assert_eq!(checked(0.5, 0.5, 1.7, 0.2), Err(FaultCode::OutsideImage), "size");
        assert_eq!(checked(0.5, -0.02, 0.1, 0.2), Err(FaultCode::OutsideImage), "negative centre");
    }

    #[test]
    fn no_area_and_no_number_are_left_out() {
        assert_eq!(checked(0.5, 0.5, 0.0, 0.2), Err(FaultCode::ZeroSize), "no width");
        assert_eq!(checked(0.5, 0.5, -0.005, 0.2), Err(FaultCode::ZeroSize), "turned inside out");
        assert_eq!(checked(f64::NAN, 0.5, 0.1, 0.2), Err(FaultCode::NotFinite), "nan");
    }
}
