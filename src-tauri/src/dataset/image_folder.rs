//! A folder of images with txt or xml labels beside them, and no file that says what they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::data_yaml::numbered_names;
use super::image_files::{images_in_folder, lines_of};
use super::pascal_voc::{AnnotatedImage, read_annotated, read_annotation};
use super::reading::{ImageCheck, Reading, split_of_folder};
use super::report::{Fault, FaultCode};
use super::yolo::read_txt_samples;
use super::yolo_txt::{LineRules, MAX_UNNAMED_CLASSES, label_path, with_images_folder_replaced};
use super::{DatasetError, Split};

/// Files in which labelling tools keep the class names, one a line: labelImg, Darknet, Roboflow.
const CLASS_LISTS: [&str; 3] = ["classes.txt", "obj.names", "_darknet.labels"];

/// Reads all images in and below a folder. Folders called train, val (valid) or test make the splits, if there are any.
///
/// # Errors
/// The folder or its list of class names cannot be read.
pub(super) fn read_image_folder(folder: &Path, check: ImageCheck) -> Result<Reading, DatasetError> {
    let mut faults = Vec::new();
    let images = images_in_folder(folder, &mut faults)?;
    let first_txt = images.iter().find_map(|image| label_path(image));
    let first_xml = images.iter().find_map(|image| xml_path(image));
    let (by_split, splits_are_unnamed) = by_split_folder(images, folder, &mut faults);
    let mut reading = match (first_txt, first_xml) {
        (None, Some(_)) => read_xml(by_split, check, faults, folder),
        (first_txt, first_xml) => {
            if let Some(xml) = first_xml {
                let message = "images have txt and xml labels: the txt labels are used";
                faults.push(Fault::new(&xml, None, FaultCode::OtherFormat, message));
            }
            read_txt(by_split, check, faults, folder, first_txt.as_deref())?
        }
    };
    reading.splits_are_unnamed = splits_are_unnamed;
    Ok(reading)
}

/// Whether a label lies where this format looks for it.
pub(super) fn has_label(image: &Path) -> bool {
    label_path(image).is_some() || xml_path(image).is_some()
}

/// The annotation beside the image, or in `annotations/` in place of `images/`.
fn xml_path(image: &Path) -> Option<PathBuf> {
    let elsewhere = ["annotations", "Annotations"].map(|name| with_images_folder_replaced(image, name));
    let candidates = std::iter::once(image.to_owned()).chain(elsewhere.into_iter().flatten());
    candidates.map(|path| path.with_extension("xml")).find(|path| path.is_file())
}

type ImagesBySplit = BTreeMap<Split, Vec<PathBuf>>;

/// The images of each split, and whether no folder is called like one (all are train then).
fn by_split_folder(images: Vec<PathBuf>, folder: &Path, faults: &mut Vec<Fault>) -> (ImagesBySplit, bool) {
    let split_of = |image: &Path| {
        let below = image.parent().and_then(|parent| parent.strip_prefix(folder).ok())?;
        below.iter().rev().find_map(|name| split_of_folder(&name.to_string_lossy()))
    };
    if images.iter().all(|image| split_of(image).is_none()) {
        return (BTreeMap::from([(Split::Train, images)]), true);
    }
    let mut by_split = ImagesBySplit::new();
    let mut n_outside = 0;
    for image in images {
        match split_of(&image) {
            Some(split) => by_split.entry(split).or_default().push(image),
            None => n_outside += 1,
        }
    }
    if n_outside > 0 {
        let message = format!("{n_outside} images lie outside the folders of the splits and are left out");
        faults.push(Fault::new(folder, None, FaultCode::MissingSplit, message));
    }
    (by_split, false)
}

fn read_xml(by_split: ImagesBySplit, check: ImageCheck, mut faults: Vec<Fault>, folder: &Path) -> Reading {
    let mut annotated_by_split = BTreeMap::new();
    for (split, images) in by_split {
        let mut annotated = Vec::new();
        for image in images {
            let read = xml_path(&image).map(|file| read_annotation(&file).map(|annotation| (file, annotation)));
            match read.transpose() {
                Ok(annotation) => annotated.push(AnnotatedImage { image, annotation }),
                Err(fault) => faults.push(fault),
            }
        }
        annotated_by_split.insert(split, annotated);
    }
    read_annotated(annotated_by_split, check, faults, folder)
}

fn read_txt(
    by_split: ImagesBySplit,
    check: ImageCheck,
    mut faults: Vec<Fault>,
    folder: &Path,
    first_label: Option<&Path>,
) -> Result<Reading, DatasetError> {
    let listed_names = listed_class_names(folder, first_label)?;
    let n_classes = listed_names.as_ref().map_or(MAX_UNNAMED_CLASSES, Vec::len);
    let rules = LineRules { n_classes, n_keypoint_columns: None };
    let splits: BTreeMap<_, _> = by_split
        .into_iter()
        .map(|(split, images)| (split, read_txt_samples(&images, rules, check, &mut faults)))
        .collect();
    let class_names = listed_names.unwrap_or_else(|| {
        let labels = splits.values().flatten().flat_map(|sample| &sample.labels);
        let n_classes = labels.map(|label| label.class_idx + 1).max().unwrap_or(0);
        let message =
            format!("no classes.txt names the classes: they are called class_0 to class_{}", n_classes.max(1) - 1);
        faults.push(Fault::new(folder, None, FaultCode::NamesMissing, message));
        numbered_names(n_classes)
    });
    Ok(Reading { class_names, splits, faults, root: folder.to_owned(), splits_are_unnamed: false })
}

/// The names in a class list in the folder, beside the labels, or one folder up.
fn listed_class_names(folder: &Path, first_label: Option<&Path>) -> Result<Option<Vec<String>>, DatasetError> {
    let folders = [Some(folder), first_label.and_then(Path::parent), folder.parent()];
    let candidates = folders.into_iter().flatten().flat_map(|folder| CLASS_LISTS.map(|name| folder.join(name)));
    let Some(list) = candidates.into_iter().find(|path| path.is_file()) else { return Ok(None) };
    let names: Vec<String> = lines_of(&list)?.into_iter().map(|(_, name)| name).collect();
    Ok(Some(names).filter(|names| !names.is_empty()))
}
