//! `fermata predict`: detections as lines or JSON, as drawn images, and as label files.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::{ImageFormat, RgbImage};
use serde::Serialize;

use super::ending::{Ending, Refusal};
use super::print;
use super::settings::SettingArgs;
use super::train::warn_if_rounded;
use crate::durable::write_file_durably;
use crate::exit::Reason;
use crate::predict::{LabelFont, NamedDetection, PredictError, Prediction, Predictor, draw_detections};
use crate::trainer::config::PredictConfig;
use crate::trainer::run_folder::{RunFolderError, new_folder, new_or_same_folder};

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    /// Where drawn images and label files are; absent if none were asked for.
    folder: Option<PathBuf>,
    images: Vec<ImageReport>,
}

#[derive(Debug, Serialize)]
struct ImageReport {
    file: PathBuf,
    /// Pixels of the image as it is shown, as are the boxes'.
    width: u32,
    height: u32,
    detections: Vec<NamedDetection>,
}

/// Where and what of the predictions is kept.
struct Outputs {
    folder: PathBuf,
    class_names: Vec<String>,
    /// `None`: no images are drawn.
    font: Option<LabelFont>,
    config: PredictConfig,
    /// Names of label files already written.
    label_files: RefCell<HashSet<OsString>>,
}

pub fn run(args: &SettingArgs) -> Result<Ending, Refusal> {
    let mut config = args.apply(PredictConfig::default())?;
    warn_if_rounded(config.check()?);
    refuse_source_as_output(&config)?;
    let predictor = Predictor::open(&config)?;
    let class_names = predictor.class_names().to_vec();
    let outputs = Outputs::create(&config, &class_names)?;
    let mut images = Vec::new();
    for predicted in predictor {
        let (pixels, prediction) = match predicted {
            Ok(predicted) => predicted,
            Err(error) if error.is_about_one_image() => {
                print::warning(&error.to_string());
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let report = ImageReport::of(&prediction, &class_names);
        if !config.json {
            print::out(&report.line())?;
        }
        if let Some(outputs) = &outputs {
            outputs.write(pixels, &prediction)?;
        }
        images.push(report);
    }
    if images.is_empty() {
        if let Some(outputs) = outputs.filter(|_| !config.exist_ok) {
            // Made above for this call. It goes only if nothing lies in it, and if not, no harm is done.
            let _ = fs::remove_dir(&outputs.folder);
        }
        let message = format!("`source={}` has no image that can be read", config.source.display());
        return Err(Refusal::new(Reason::DatasetEmpty, message));
    }
    let folder = outputs.map(|outputs| outputs.folder);
    if config.json {
        print::json(&Report { folder, images })?;
    } else if let Some(folder) = folder {
        print::out(&format!("results are in {}", folder.display()))?;
    }
    Ok(Ending::of(Reason::Finished))
}

impl ImageReport {
    fn of(prediction: &Prediction, class_names: &[String]) -> Self {
        Self {
            file: prediction.image_path.clone(),
            width: prediction.width_px,
            height: prediction.height_px,
            detections: prediction.named(class_names),
        }
    }

    /// The image and how many there are of each class, in order of first appearance.
    fn line(&self) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for detection in &self.detections {
            match counts.iter_mut().find(|(name, _)| *name == detection.name) {
                Some((_, n_boxes)) => *n_boxes += 1,
                None => counts.push((&detection.name, 1)),
            }
        }
        let found: Vec<_> = counts.iter().map(|(name, n_boxes)| format!("{n_boxes} {name}")).collect();
        let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
        format!("{} ({}x{}): {found}", self.file.display(), self.width, self.height)
    }
}

impl Outputs {
    /// Makes the folder for what is to be kept; `None` if nothing is.
    fn create(config: &PredictConfig, class_names: &[String]) -> Result<Option<Self>, RunFolderError> {
        if !config.save && !config.save_txt {
            return Ok(None);
        }
        let folder = if config.exist_ok {
            new_or_same_folder(&config.project, &config.name)?
        } else {
            new_folder(&config.project, &config.name)?
        };
        let font = config.save.then(|| LabelFont::for_texts(class_names.iter().map(String::as_str)));
        Ok(Some(Self {
            folder,
            class_names: class_names.to_vec(),
            font,
            config: config.clone(),
            label_files: RefCell::default(),
        }))
    }

    fn write(&self, mut pixels: RgbImage, prediction: &Prediction) -> Result<(), RunFolderError> {
        let name = prediction.image_path.file_name().unwrap_or_default();
        if self.config.save_txt {
            self.write_labels(name, prediction)?;
        }
        if let Some(font) = &self.font {
            draw_detections(&mut pixels, &prediction.detections, &self.class_names, font);
            let path = self.folder.join(writable_image_name(name));
            let bytes = encoded(&pixels, &path).map_err(|error| RunFolderError::io(&path, io_error(error)))?;
            write_file_durably(&path, &bytes).map_err(|error| RunFolderError::io(&path, error))?;
        }
        Ok(())
    }

    /// `a.txt` for `a.jpg`, but `a.png.txt` for an `a.png` in the same source: the second must not replace the first.
    fn label_file_name(&self, image_name: &OsStr) -> OsString {
        let mut taken = self.label_files.borrow_mut();
        let short = Path::new(image_name).with_extension("txt").into_os_string();
        if taken.insert(short.clone()) {
            return short;
        }
        let mut long = image_name.to_owned();
        long.push(".txt");
        taken.insert(long.clone());
        long
    }

    fn write_labels(&self, image_name: &OsStr, prediction: &Prediction) -> Result<(), RunFolderError> {
        let labels = self.folder.join("labels");
        let path = labels.join(self.label_file_name(image_name));
        let text = match self.config.save_conf {
            true => prediction.label_text_with_confidence(),
            false => prediction.label_text(),
        };
        let written = fs::create_dir_all(&labels).and_then(|()| fs::write(&path, text));
        written.map_err(|error| RunFolderError::io(&path, error))
    }
}

/// The image's own name if its format is written without question, else with `.png` after it.
fn writable_image_name(name: &OsStr) -> OsString {
    let extension = Path::new(name).extension().unwrap_or_default().to_ascii_lowercase();
    if ["jpg", "jpeg", "png", "bmp"].iter().any(|known| extension == *known) {
        return name.to_owned();
    }
    let mut with_png = name.to_owned();
    with_png.push(".png");
    with_png
}

/// The image in the format that its name says.
fn encoded(pixels: &RgbImage, path: &Path) -> Result<Vec<u8>, image::ImageError> {
    let mut bytes = Vec::new();
    pixels.write_to(&mut Cursor::new(&mut bytes), ImageFormat::from_path(path)?)?;
    Ok(bytes)
}

/// Drawn copies would take the place of the images they were drawn from, or lie among them.
fn refuse_source_as_output(config: &PredictConfig) -> Result<(), Refusal> {
    let folder = config.project.join(&config.name);
    let source = if config.source.is_dir() { Some(config.source.as_path()) } else { config.source.parent() };
    let same = |a: &Path, b: &Path| matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    match source {
        Some(source) if config.exist_ok && same(source, &folder) => {
            let message = format!(
                "the results would go among the images of `source={}`; choose another project= or name=",
                config.source.display()
            );
            Err(Refusal::new(Reason::Contradiction, message))
        }
        _ => Ok(()),
    }
}

fn io_error(error: image::ImageError) -> std::io::Error {
    match error {
        image::ImageError::IoError(error) => error,
        other => std::io::Error::other(other),
    }
}

impl From<PredictError> for Refusal {
    fn from(error: PredictError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::BoxXyxyPx;
    use crate::predict::Detection;

    fn prediction() -> Prediction {
        let box_px = BoxXyxyPx::new(0.0, 0.0, 5.0, 10.0);
        let detections = [1, 0, 1].map(|class_idx| Detection { class_idx, confidence: 0.5, box_px }).to_vec();
        Prediction { image_path: "photos/a.jpg".into(), width_px: 10, height_px: 20, detections }
    }

    #[test]
    fn a_line_counts_each_class() {
        let names = ["cat", "dog"].map(String::from);
        assert_eq!(ImageReport::of(&prediction(), &names).line(), "photos/a.jpg (10x20): 2 dog, 1 cat");
        let empty = Prediction { detections: Vec::new(), ..prediction() };
        assert_eq!(ImageReport::of(&empty, &names).line(), "photos/a.jpg (10x20): nothing");
    }

    #[test]
    fn outputs_are_named_after_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().to_owned();
        let config = PredictConfig { project, save_txt: true, save_conf: true, ..PredictConfig::default() };
        let outputs = Outputs::create(&config, &["a".into(), "b".into()]).unwrap().unwrap();
        outputs.write(RgbImage::new(10, 20), &prediction()).unwrap();
        let labels = fs::read_to_string(dir.path().join("predict/labels/a.txt")).unwrap();
        assert_eq!(labels.lines().next(), Some("1 0.25 0.25 0.5 0.5 0.5"), "with its confidence");
        assert!(dir.path().join("predict/a.jpg").is_file());
    }

    #[test]
    fn images_of_one_stem_get_label_files_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let config =
            PredictConfig { project: dir.path().to_owned(), save: false, save_txt: true, ..PredictConfig::default() };
        let outputs = Outputs::create(&config, &[]).unwrap().unwrap();
        let names = ["a.jpg", "a.png", "b.png"].map(|name| outputs.label_file_name(OsStr::new(name)));
        assert_eq!(names, ["a.txt", "a.png.txt", "b.txt"]);
    }

    #[test]
    fn nothing_kept_makes_no_folder() {
        let dir = tempfile::tempdir().unwrap();
        let config = PredictConfig { project: dir.path().join("runs"), save: false, ..PredictConfig::default() };
        assert!(Outputs::create(&config, &[]).unwrap().is_none());
        assert!(!config.project.exists());
    }

    #[test]
    fn formats_that_are_not_written_become_png() {
        assert_eq!(writable_image_name(OsStr::new("a.JPG")), "a.JPG");
        assert_eq!(writable_image_name(OsStr::new("a.webp")), "a.webp.png");
    }
}
