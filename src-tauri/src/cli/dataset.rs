//! `fermata dataset check`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use super::ending::{Ending, Refusal};
use super::print;
use crate::dataset::{self, CheckReport, DatasetError, Gate, ImageCheck, OpenOptions, Opened, Split};
use crate::exit::Reason;

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A data.yaml, a COCO .json, or a folder of images with labels.
    data: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Also list every image with its good boxes: class, centre and size, divided by the image's width and height.
    #[arg(long)]
    boxes: bool,
}

/// Reads the dataset with every pixel and prints the report; with `--json` also for a dataset that cannot be opened.
pub fn check(args: &CheckArgs) -> Result<Ending, Refusal> {
    // Every image is decoded, so that a file that is cut short is found now and not in the middle of a night.
    let options = OpenOptions { image_check: ImageCheck::Pixels, ..OpenOptions::default() };
    let opened = dataset::open(&without_key(&args.data), &options);
    let report = report_of(&opened, args.boxes);
    if args.json {
        print::json(&report)?;
    } else if opened.is_ok() {
        print::out(&text(&report))?;
    }
    opened?.into_trainable()?;
    Ok(Ending::of(Reason::Finished))
}

/// The path, also where it is written as for the other commands: `data=PATH`.
fn without_key(data: &Path) -> PathBuf {
    let path = data.to_str().and_then(|text| text.strip_prefix("data="));
    path.map_or_else(|| data.to_owned(), PathBuf::from)
}

fn report_of(opened: &Result<Opened, DatasetError>, has_boxes: bool) -> CheckReport {
    match opened {
        Ok(Opened { dataset, report }) if has_boxes => report.clone().with_boxes(dataset),
        Ok(Opened { report, .. }) => report.clone(),
        Err(error) => CheckReport::refused(error),
    }
}

/// The report for people: what may be done, the classes, the counts, then each fault as `file:line: message`,
/// then the images and their boxes if they were asked for.
fn text(report: &CheckReport) -> String {
    let gate = match report.gate {
        Gate::Green => "green: ready to train",
        Gate::Amber => "amber: can be trained on, with what is listed below",
        Gate::Red => "red: cannot be trained on",
    };
    let mut text = format!("{gate}\nclasses ({}): {}\n", report.class_names.len(), report.class_names.join(", "));
    for (split, counts) in &report.splits {
        let split = match split {
            Split::Train => "train",
            Split::Val => "val",
            Split::Test => "test",
        };
        let [images, boxes, backgrounds] = [counts.n_images, counts.n_boxes, counts.n_backgrounds];
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "{split:5} {images:6} images  {boxes:7} boxes  {backgrounds:6} backgrounds");
    }
    for fault in &report.faults {
        let line = fault.line.map_or(String::new(), |line| format!(":{line}"));
        let _ = writeln!(text, "{}{line}: {}", fault.file, fault.message);
    }
    for image in report.images.iter().flatten() {
        let _ = writeln!(text, "{} ({}x{})", image.file, image.width, image.height);
        for (class_idx, cx, cy, w, h) in &image.boxes {
            let _ = writeln!(text, "  {class_idx} {cx} {cy} {w} {h}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::dataset::{Fault, FaultCode, ImageReport, SplitCounts};

    #[test]
    fn the_text_names_gate_classes_counts_faults_and_images() {
        let report = CheckReport {
            gate: Gate::Amber,
            class_names: vec!["a".into(), "鱼".into()],
            splits: BTreeMap::from([(Split::Val, SplitCounts { n_images: 3, n_boxes: 12, n_backgrounds: 1 })]),
            faults: vec![Fault {
                file: "labels/x.txt".into(),
                line: Some(3),
                code: FaultCode::ClassOutOfRange,
                message: "class 7, but data.yaml names 2 classes".into(),
            }],
            images: Some(vec![ImageReport {
                file: "images/x.jpg".into(),
                width: 40,
                height: 30,
                boxes: vec![(1, 0.5, 0.25, 0.125, 0.1)],
            }]),
        };
        assert_eq!(
            text(&report),
            "amber: can be trained on, with what is listed below\nclasses (2): a, 鱼\n\
             val        3 images       12 boxes       1 backgrounds\n\
             labels/x.txt:3: class 7, but data.yaml names 2 classes\n\
             images/x.jpg (40x30)\n  1 0.5 0.25 0.125 0.1\n"
        );
    }
}
