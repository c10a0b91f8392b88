//! COCO JSON: one file a split, with images, categories, and boxes as `[x, y, width, height]` in pixels.
//!
//! Classes are the categories that are used in any split, in order of their id, so an unused super-category or a gap
//! in the ids moves nothing. Boxes marked `iscrowd` stand for many objects and are not trained on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;

use super::decode::ImageSize;
use super::image_files::{images_in_folder, without_dots};
use super::label_rules::{LabelCollector, Refusal};
use super::pixel_frame::PixelFrame;
use super::reading::{ImageCheck, ImageLabels, Reading, read_samples};
use super::report::{Fault, FaultCode};
use super::source::CocoSource;
use super::{DatasetError, Split};

#[derive(Debug, Deserialize)]
struct CocoFile {
    images: Vec<CocoImage>,
    #[serde(default)]
    annotations: Vec<CocoAnnotation>,
    #[serde(default)]
    categories: Vec<CocoCategory>,
}

#[derive(Debug, Deserialize)]
struct CocoImage {
    id: Id,
    file_name: String,
    width: Option<f64>,
    height: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct CocoAnnotation {
    id: Option<Id>,
    image_id: Option<Id>,
    category_id: Option<Id>,
    /// Checked when it is used, so that one bad box does not cost the file.
    #[serde(default)]
    bbox: Value,
    #[serde(default)]
    iscrowd: Value,
}

#[derive(Debug, Deserialize)]
struct CocoCategory {
    id: Id,
    name: String,
}

/// Numbers in the format's definition; some tools write text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(untagged)]
enum Id {
    Number(i64),
    Text(String),
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// One image file and what is annotated on it.
struct AnnotatedImage<'a> {
    path: PathBuf,
    stated_size: Option<(f64, f64)>,
    annotations: Vec<&'a CocoAnnotation>,
}

/// Reads the COCO files of a dataset.
///
/// # Errors
/// A file cannot be read or is not COCO, or two files use one category id for different names.
pub(super) fn read_coco(source: &CocoSource, check: ImageCheck) -> Result<Reading, DatasetError> {
    let files: Vec<(Split, &Path, CocoFile)> = source
        .files
        .iter()
        .map(|(split, path)| Ok((*split, path.as_path(), read_coco_file(path)?)))
        .collect::<Result<_, DatasetError>>()?;
    let used = used_categories(&files)?;
    let class_idx_of: HashMap<&Id, usize> = used.keys().enumerate().map(|(class_idx, id)| (*id, class_idx)).collect();
    let class_names = used.values().map(|name| (*name).to_owned()).collect();
    let mut faults = Vec::new();
    let mut splits = BTreeMap::new();
    for (split, path, file) in &files {
        let images = annotated_images(path, file, &mut faults);
        let (samples, new_faults) = read_samples(
            &images,
            check,
            |image| &image.path,
            |image, size| labels_of(image, size, path, &class_idx_of),
        );
        faults.extend(new_faults);
        splits.insert(*split, samples);
    }
    let root = source.files.first().map(|(_, path)| path.clone()).unwrap_or_default();
    Ok(Reading { class_names, splits, faults, root, splits_are_unnamed: source.splits_are_unnamed })
}

fn read_coco_file(path: &Path) -> Result<CocoFile, DatasetError> {
    let bytes = fs::read(path).map_err(|error| DatasetError::unreadable(path, error))?;
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    serde_json::from_slice(text).map_err(|error| DatasetError::Invalid {
        path: path.to_owned(),
        line: Some(error.line()).filter(|line| *line > 0),
        code: FaultCode::BadJson,
        message: format!("not a COCO file: {error}"),
    })
}

/// Names of the categories that an annotation of any file refers to, by id.
fn used_categories<'a>(files: &'a [(Split, &Path, CocoFile)]) -> Result<BTreeMap<&'a Id, &'a str>, DatasetError> {
    let mut names: BTreeMap<&Id, &str> = BTreeMap::new();
    for (_, path, file) in files {
        for category in &file.categories {
            let earlier = names.insert(&category.id, &category.name).filter(|earlier| *earlier != category.name);
            if let Some(earlier) = earlier {
                return Err(DatasetError::Invalid {
                    path: (*path).to_owned(),
                    line: None,
                    code: FaultCode::CategoryConflict,
                    message: format!("category {} is `{}` here and `{earlier}` before", category.id, category.name),
                });
            }
        }
    }
    let annotations = files.iter().flat_map(|(_, _, file)| &file.annotations);
    let used: BTreeSet<&Id> = annotations.filter_map(|annotation| annotation.category_id.as_ref()).collect();
    names.retain(|id, _| used.contains(id));
    Ok(names)
}

/// The images of a file that are found, each once, with their annotations.
fn annotated_images<'a>(path: &Path, file: &'a CocoFile, faults: &mut Vec<Fault>) -> Vec<AnnotatedImage<'a>> {
    let finder = ImageFinder::beside(path);
    let mut images: Vec<AnnotatedImage> = Vec::new();
    let mut position_of_path: HashMap<PathBuf, usize> = HashMap::new();
    let mut position_of_id: HashMap<&Id, Option<usize>> = HashMap::new();
    for image in &file.images {
        let Some(found) = finder.find(&image.file_name) else {
            let message = format!("image `{}` is not there, or several are called so", image.file_name);
            faults.push(Fault::new(path, None, FaultCode::MissingImage, message));
            position_of_id.insert(&image.id, None);
            continue;
        };
        if let Some(position) = position_of_path.get(&found) {
            let message = format!("image `{}` is listed again; it is used once", image.file_name);
            faults.push(Fault::new(path, None, FaultCode::DuplicateImage, message));
            position_of_id.insert(&image.id, Some(*position));
            continue;
        }
        let stated_size = image.width.zip(image.height);
        position_of_path.insert(found.clone(), images.len());
        position_of_id.insert(&image.id, Some(images.len()));
        images.push(AnnotatedImage { path: found, stated_size, annotations: Vec::new() });
    }
    for annotation in &file.annotations {
        match annotation.image_id.as_ref().and_then(|id| position_of_id.get(id)) {
            Some(Some(position)) => images[*position].annotations.push(annotation),
            // Its image is missing, which was said.
            Some(None) => {}
            None => {
                let image_id = annotation.image_id.as_ref().map(Id::to_string).unwrap_or_default();
                let message = format!("{}no image has the id `{image_id}`", subject_of(annotation));
                faults.push(Fault::new(path, None, FaultCode::BadAnnotation, message));
            }
        }
    }
    images
}

fn labels_of(image: &AnnotatedImage, size: ImageSize, file: &Path, class_idx_of: &HashMap<&Id, usize>) -> ImageLabels {
    let mut collector = LabelCollector::new(file);
    let (frame, note) = PixelFrame::new(image.stated_size, size);
    let about_image = format!("image `{}`: ", image.path.file_name().unwrap_or_default().display());
    if let Some(note) = note.filter(|_| !image.annotations.is_empty()) {
        collector.note(None, FaultCode::SizeMismatch, format!("{about_image}{note}"));
    }
    for annotation in image.annotations.iter().filter(|annotation| !is_crowd(annotation)) {
        let subject = subject_of(annotation);
        let class_idx = annotation.category_id.as_ref().and_then(|id| class_idx_of.get(id));
        match (class_idx, bbox_numbers(&annotation.bbox)) {
            (Some(class_idx), Some([x, y, w, h])) => {
                collector.add(None, &subject, *class_idx, frame.to_norm([x, y, x + w, y + h]));
            }
            (None, _) => {
                collector.refuse(None, &subject, Refusal::new(FaultCode::BadAnnotation, "its category is not listed"));
            }
            (_, None) => {
                let refusal = Refusal::new(FaultCode::BadAnnotation, "`bbox` is not four numbers");
                collector.refuse(None, &subject, refusal);
            }
        }
    }
    let (labels, faults) = collector.finish(&about_image);
    (Some(labels), faults)
}

fn subject_of(annotation: &CocoAnnotation) -> String {
    match &annotation.id {
        Some(id) => format!("annotation {id}: "),
        None => "annotation without id: ".to_owned(),
    }
}

fn is_crowd(annotation: &CocoAnnotation) -> bool {
    annotation.iscrowd.as_bool().unwrap_or_else(|| annotation.iscrowd.as_f64().is_some_and(|flag| flag != 0.0))
}

fn bbox_numbers(bbox: &Value) -> Option<[f64; 4]> {
    let numbers = bbox.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>()?;
    numbers.try_into().ok()
}

/// Finds the file an image entry names.
struct ImageFinder {
    folders: Vec<PathBuf>,
    root: PathBuf,
    /// Every image below `root` by its name, `None` for a name that occurs more than once; made when first needed.
    by_name: OnceLock<HashMap<String, Option<PathBuf>>>,
}

impl ImageFinder {
    /// Looks beside the JSON file and in `images/`, one folder up, and in folders called like the split in its name.
    fn beside(json: &Path) -> Self {
        let folder = json.parent().unwrap_or(Path::new("")).to_owned();
        let parent = folder.parent().unwrap_or(&folder).to_owned();
        let stem = json.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let split_name = stem.rsplit(['_', '.']).next().unwrap_or(&stem).to_owned();
        let bases = [&folder, &parent];
        let folders = bases.into_iter().flat_map(|base| {
            let images = base.join("images");
            [base.join(&split_name), images.join(&split_name), base.clone(), images]
        });
        let holds_only_json = folder.file_name().is_some_and(|name| name == "annotations" || name == "labels");
        let root = if holds_only_json { &parent } else { &folder };
        Self { folders: folders.collect(), root: root.clone(), by_name: OnceLock::new() }
    }

    fn find(&self, file_name: &str) -> Option<PathBuf> {
        let file_name = file_name.replace('\\', "/");
        let direct = self.folders.iter().map(|folder| without_dots(&folder.join(&file_name)));
        direct.into_iter().find(|path| path.is_file()).or_else(|| {
            let by_name = self.by_name.get_or_init(|| images_by_name(&self.root));
            by_name.get(file_name.rsplit('/').next()?)?.clone()
        })
    }
}

fn images_by_name(root: &Path) -> HashMap<String, Option<PathBuf>> {
    let mut by_name = HashMap::new();
    // A folder that cannot be searched has no image for us; the images that are missed are reported one by one.
    for path in images_in_folder(root, &mut Vec::new()).unwrap_or_default() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        by_name.entry(name).and_modify(|found| *found = None).or_insert(Some(path));
    }
    by_name
}
