//! The detections of one image, and the text and JSON they are saved as.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Detection;
use crate::geometry::{BoxXywhNorm, BoxXyxyPx};

/// What was found in one image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    pub image_path: PathBuf,
    /// Width in pixels as the image is shown, after its EXIF orientation was applied.
    pub width_px: u32,
    /// Height in pixels, likewise.
    pub height_px: u32,
    /// In descending confidence; boxes in pixels of the image as it is shown.
    pub detections: Vec<Detection>,
}

/// A detection as people read it; the keys are those of Ultralytics' JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedDetection {
    pub name: String,
    #[serde(rename = "class")]
    pub class_idx: usize,
    pub confidence: f32,
    #[serde(rename = "box")]
    pub box_px: BoxXyxyPx,
}

impl Prediction {
    /// One line `class cx cy w h` a detection, in parts of the image's sides: a YOLO label file.
    pub fn label_text(&self) -> String {
        let line = |d: &Detection| format!("{} {}\n", d.class_idx, self.norm_text(&d.box_px));
        self.detections.iter().map(line).collect()
    }

    /// As [`label_text`](Self::label_text), with the confidence as sixth column.
    pub fn label_text_with_confidence(&self) -> String {
        let line = |d: &Detection| {
            format!("{} {} {}\n", d.class_idx, self.norm_text(&d.box_px), six_digits(d.confidence.into()))
        };
        self.detections.iter().map(line).collect()
    }

    /// The detections with their class names; a class without a name is called `class 7`.
    pub fn named(&self, class_names: &[String]) -> Vec<NamedDetection> {
        let named = |d: &Detection| NamedDetection {
            name: class_name(class_names, d.class_idx),
            class_idx: d.class_idx,
            confidence: d.confidence,
            box_px: d.box_px,
        };
        self.detections.iter().map(named).collect()
    }

    fn norm_text(&self, box_px: &BoxXyxyPx) -> String {
        let BoxXywhNorm { cx, cy, w, h } = box_px.to_norm(self.width_px.into(), self.height_px.into());
        [cx, cy, w, h].map(six_digits).join(" ")
    }
}

/// The name of a class, or a stand-in that says its index.
pub(super) fn class_name(class_names: &[String], class_idx: usize) -> String {
    class_names.get(class_idx).cloned().unwrap_or_else(|| format!("class {class_idx}"))
}

/// A number with six significant digits and no trailing zeros, as C's `%g` writes it.
fn six_digits(value: f64) -> String {
    let scientific = format!("{value:.5e}");
    let parts = scientific.split_once('e').and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)));
    let Some((digits, exponent)) = parts else {
        return scientific; // not a number or infinite
    };
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        return short(&format!("{value:.*}", (5 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prediction() -> Prediction {
        let box_px = BoxXyxyPx::new(10.0, 20.0, 30.0, 40.0);
        let detections = vec![Detection { class_idx: 2, confidence: 0.875, box_px }];
        Prediction { image_path: "鱼.jpg".into(), width_px: 80, height_px: 160, detections }
    }

    #[test]
    fn label_lines_hold_centre_and_size_in_parts_of_the_image() {
        assert_eq!(prediction().label_text(), "2 0.25 0.1875 0.25 0.125\n");
        assert_eq!(prediction().label_text_with_confidence(), "2 0.25 0.1875 0.25 0.125 0.875\n");
    }

    #[test]
    fn json_has_the_keys_of_the_reference() {
        let named = prediction().named(&["a".into(), "b".into(), "鱼".into()]);
        let json = serde_json::to_string(&named).unwrap();
        let expected =
            r#"[{"name":"鱼","class":2,"confidence":0.875,"box":{"x1":10.0,"y1":20.0,"x2":30.0,"y2":40.0}}]"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn a_class_without_a_name_says_its_index() {
        assert_eq!(prediction().named(&[])[0].name, "class 2");
    }

    #[test]
    fn numbers_are_written_as_by_printf() {
        let numbers = [0.0, 1.0, 0.5, 1.0 / 3.0, 0.99999999, 0.0001, 0.00001234567, 123456.7, 1234567.0];
        let expected = ["0", "1", "0.5", "0.333333", "1", "0.0001", "1.23457e-05", "123457", "1.23457e+06"];
        assert_eq!(numbers.map(six_digits), expected);
    }

    #[test]
    fn a_prediction_survives_json() {
        let text = serde_json::to_string(&prediction()).unwrap();
        assert_eq!(serde_json::from_str::<Prediction>(&text).unwrap(), prediction());
    }
}
