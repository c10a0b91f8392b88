//! `fermata val`.

use std::fmt::Write;

use super::ending::{Ending, Refusal};
use super::print;
use super::settings::SettingArgs;
use super::train::warn_if_rounded;
use crate::exit::Reason;
use crate::trainer::config::ValConfig;
use crate::trainer::event::ValReport;
use crate::trainer::validate;

pub fn run(args: &SettingArgs) -> Result<Ending, Refusal> {
    let mut config = args.apply(ValConfig::default())?;
    warn_if_rounded(config.check()?);
    let report = validate::val(&config)?;
    if config.json {
        print::json(&report)?;
    } else {
        print::out(&table(&report))?;
    }
    Ok(Ending::of(Reason::Finished))
}

/// All classes together, then each class with boxes, in the columns of the reference.
fn table(report: &ValReport) -> String {
    let all = report.scores;
    let wide = report.classes.iter().map(|class| class.name.chars().count()).max().unwrap_or(0).max("class".len());
    let mut text = format!("{:wide$}  images   boxes       P       R   mAP50  mAP50-95\n", "class");
    let mut row = |name: &str, counts: [usize; 2], scores: [f64; 4]| {
        let ([images, boxes], [precision, recall, ap50, ap50_95]) = (counts, scores);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{name:wide$}  {images:6}  {boxes:6}  {precision:6.3}  {recall:6.3}  {ap50:6.3}  {ap50_95:8.3}"
        );
    };
    row("all", [report.images, report.boxes], [all.precision, all.recall, all.map50, all.map50_95]);
    for class in &report.classes {
        row(&class.name, [class.images, class.boxes], [class.precision, class.recall, class.ap50, class.ap50_95]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::event::{ClassScores, ValScores};

    #[test]
    fn the_table_has_all_classes_first() {
        let report = ValReport {
            images: 87,
            boxes: 1234,
            scores: ValScores { precision: 0.9, recall: 0.8, map50: 0.7654, map50_95: 0.5 },
            losses: None,
            classes: vec![ClassScores {
                name: "Platelets".into(),
                images: 40,
                boxes: 70,
                precision: 1.0,
                recall: 0.5,
                ap50: 0.6,
                ap50_95: 0.4,
            }],
        };
        let table = table(&report);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[0], "class      images   boxes       P       R   mAP50  mAP50-95");
        assert_eq!(lines[1], "all            87    1234   0.900   0.800   0.765     0.500");
        assert_eq!(lines[2], "Platelets      40      70   1.000   0.500   0.600     0.400");
    }
}
