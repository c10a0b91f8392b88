//! A Pascal VOC dataset: Annotations/*.xml, JPEGImages and, where there is one, ImageSets/Main with the splits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::decode::ImageSize;
use super::image_files::{images_in_folder, lines_of, sorted_entries};
use super::label_rules::{LabelCollector, Refusal};
use super::pixel_frame::PixelFrame;
use super::reading::{ImageCheck, ImageLabels, Reading, read_samples};
use super::report::{Fault, FaultCode};
use super::voc_xml::{VocAnnotation, VocObject, parse_annotation};
use super::{DatasetError, Split};

/// An image and, unless it is a background, its annotation.
pub(super) struct AnnotatedImage {
    pub image: PathBuf,
    pub annotation: Option<(PathBuf, VocAnnotation)>,
}

/// Reads the dataset in a folder that holds Annotations and JPEGImages.
///
/// # Errors
/// A folder or a list of ImageSets/Main cannot be read.
pub(super) fn read_pascal_voc(root: &Path, check: ImageCheck) -> Result<Reading, DatasetError> {
    let mut faults = Vec::new();
    let images = ImagesByStem::in_folder(&root.join("JPEGImages"), &mut faults)?;
    let annotations = annotation_files(&root.join("Annotations"))?;
    let ids_of_splits = ids_of_splits(root, &annotations, &images)?;
    let mut by_split = BTreeMap::new();
    for (split, ids) in ids_of_splits.ids {
        let found = ids.into_par_iter().map(|id| annotated_image(id, root, &images, &annotations));
        let found: Vec<_> = found.collect();
        let mut annotated = Vec::new();
        for (image, new_faults) in found {
            annotated.extend(image);
            faults.extend(new_faults);
        }
        by_split.insert(split, annotated);
    }
    let mut reading = read_annotated(by_split, check, faults, root);
    reading.splits_are_unnamed = ids_of_splits.are_unnamed;
    Ok(reading)
}

/// Samples of annotated images; the classes are the names that occur in any split, in alphabetical order.
pub(super) fn read_annotated(
    by_split: BTreeMap<Split, Vec<AnnotatedImage>>,
    check: ImageCheck,
    mut faults: Vec<Fault>,
    root: &Path,
) -> Reading {
    let objects =
        by_split.values().flatten().filter_map(|image| image.annotation.as_ref()).flat_map(|(_, a)| &a.objects);
    let names: BTreeSet<&str> = objects.map(|object| object.name.as_str()).filter(|name| !name.is_empty()).collect();
    let class_names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let class_idx_of: HashMap<&str, usize> =
        class_names.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
    let mut splits = BTreeMap::new();
    for (split, annotated) in &by_split {
        let (samples, new_faults) =
            read_samples(annotated, check, |image| &image.image, |image, size| labels_of(image, size, &class_idx_of));
        faults.extend(new_faults);
        splits.insert(*split, samples);
    }
    Reading { class_names, splits, faults, root: root.to_owned(), splits_are_unnamed: false }
}

/// Reads one annotation file.
///
/// # Errors
/// It cannot be read or is not an annotation: the fault to report.
pub(super) fn read_annotation(file: &Path) -> Result<VocAnnotation, Fault> {
    let bytes = fs::read(file).map_err(|error| {
        let message = format!("cannot read the annotation, its image is left out: {error}");
        Fault::new(file, None, FaultCode::UnreadableFile, message)
    })?;
    let Ok(text) = std::str::from_utf8(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes)) else {
        let message = "not UTF-8 text, its image is left out; save the file as UTF-8";
        return Err(Fault::new(file, None, FaultCode::NotUtf8, message));
    };
    parse_annotation(text).map_err(|bad| {
        let message = format!("not a VOC annotation, its image is left out: {}", bad.reason);
        Fault::new(file, Some(bad.line), FaultCode::BadXml, message)
    })
}

fn labels_of(image: &AnnotatedImage, size: ImageSize, class_idx_of: &HashMap<&str, usize>) -> ImageLabels {
    let Some((file, annotation)) = &image.annotation else { return (Some(Vec::new()), Vec::new()) };
    let mut collector = LabelCollector::new(file);
    let (frame, note) = PixelFrame::new(annotation.width.zip(annotation.height), size);
    if let Some(note) = note.filter(|_| !annotation.objects.is_empty()) {
        collector.note(None, FaultCode::SizeMismatch, note);
    }
    for object in &annotation.objects {
        match (class_idx_of.get(object.name.as_str()), corners(object)) {
            (Some(class_idx), Some(corners)) => {
                collector.add(Some(object.line), "", *class_idx, frame.to_norm(corners));
            }
            (None, _) => {
                let refusal = Refusal::new(FaultCode::BadAnnotation, "object without a name");
                collector.refuse(Some(object.line), "", refusal);
            }
            (_, None) => {
                let refusal = Refusal::new(FaultCode::BadAnnotation, "bndbox lacks one of xmin, ymin, xmax, ymax");
                collector.refuse(Some(object.line), "", refusal);
            }
        }
    }
    let (labels, faults) = collector.finish("");
    (Some(labels), faults)
}

fn corners(object: &VocObject) -> Option<[f64; 4]> {
    Some([object.xmin?, object.ymin?, object.xmax?, object.ymax?])
}

/// Image paths by their path below the folder, without ending: an image set names `2007_000027`, a nested one `a/b`.
struct ImagesByStem {
    folder: PathBuf,
    by_stem: BTreeMap<PathBuf, PathBuf>,
}

impl ImagesByStem {
    fn in_folder(folder: &Path, faults: &mut Vec<Fault>) -> Result<Self, DatasetError> {
        let mut by_stem = BTreeMap::new();
        for image in images_in_folder(folder, faults)? {
            let stem = image.strip_prefix(folder).unwrap_or(&image).with_extension("");
            by_stem.entry(stem).or_insert(image);
        }
        Ok(Self { folder: folder.to_owned(), by_stem })
    }

    fn find(&self, id: &str, filename: Option<&str>) -> Option<PathBuf> {
        let named = || filename.map(|name| self.folder.join(name)).filter(|path| path.is_file());
        self.by_stem.get(Path::new(id)).cloned().or_else(named)
    }
}

fn annotation_files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, DatasetError> {
    let files = sorted_entries(folder)?.into_iter().filter(|path| has_xml_ending(path));
    Ok(files.filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path))).collect())
}

fn has_xml_ending(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !is_hidden && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml"))
}

struct SplitIds {
    ids: BTreeMap<Split, Vec<String>>,
    are_unnamed: bool,
}

/// The ids of each split: from ImageSets/Main, or all of them as train where it does not say.
fn ids_of_splits(
    root: &Path,
    annotations: &BTreeMap<String, PathBuf>,
    images: &ImagesByStem,
) -> Result<SplitIds, DatasetError> {
    let lists = root.join("ImageSets").join("Main");
    let listed = |name: &str| -> Result<Option<Vec<String>>, DatasetError> {
        let list = lists.join(name);
        if !list.is_file() {
            return Ok(None);
        }
        Ok(Some(lines_of(&list)?.into_iter().map(|(_, line)| id_in_line(&line, annotations)).collect()))
    };
    let (train, val, test) = (listed("train.txt")?, listed("val.txt")?, listed("test.txt")?);
    let all = || {
        let of_images = images.by_stem.keys().map(|stem| stem.to_string_lossy().into_owned());
        let held_back: BTreeSet<&String> = test.iter().chain(&val).flatten().collect();
        let ids: BTreeSet<String> = annotations.keys().cloned().chain(of_images).collect();
        ids.into_iter().filter(|id| !held_back.contains(id)).collect::<Vec<_>>()
    };
    let train = match (train, listed("trainval.txt")?) {
        (Some(train), _) => train,
        (None, Some(both)) => both.into_iter().filter(|id| !val.iter().flatten().any(|other| other == id)).collect(),
        (None, None) => all(),
    };
    let are_unnamed = val.is_none();
    let named = [(Split::Train, Some(train)), (Split::Val, val), (Split::Test, test)];
    let ids = named.into_iter().filter_map(|(split, ids)| Some((split, once(ids?)))).collect();
    Ok(SplitIds { ids, are_unnamed })
}

fn once(ids: Vec<String>) -> Vec<String> {
    ids.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Class lists of VOC add a column -1, 0 or 1; an id may itself hold spaces.
fn id_in_line(line: &str, annotations: &BTreeMap<String, PathBuf>) -> String {
    let without_flag = line.rsplit_once(char::is_whitespace).filter(|(_, flag)| matches!(*flag, "-1" | "0" | "1"));
    match without_flag {
        Some((id, _)) if !annotations.contains_key(line) => id.trim_end().to_owned(),
        _ => line.to_owned(),
    }
}

fn annotated_image(
    id: String,
    root: &Path,
    images: &ImagesByStem,
    annotations: &BTreeMap<String, PathBuf>,
) -> (Option<AnnotatedImage>, Vec<Fault>) {
    let (annotation, mut faults) = match annotations.get(&id) {
        Some(file) => match read_annotation(file) {
            Ok(annotation) => (Some((file.clone(), annotation)), Vec::new()),
            Err(fault) => return (None, vec![fault]),
        },
        None => (None, Vec::new()),
    };
    let filename = annotation.as_ref().and_then(|(_, annotation)| annotation.filename.as_deref());
    let image = images.find(&id, filename);
    match (&image, &annotation) {
        (None, _) => {
            let file = annotation.as_ref().map_or(root, |(file, _)| file);
            let message = format!("no image `{id}` in JPEGImages");
            faults.push(Fault::new(file, None, FaultCode::MissingImage, message));
        }
        (Some(image), None) => {
            let message = "no annotation file: taken as a background image";
            faults.push(Fault::new(image, None, FaultCode::MissingAnnotation, message));
        }
        (Some(_), Some(_)) => {}
    }
    (image.map(|image| AnnotatedImage { image, annotation }), faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_dropped_but_not_a_part_of_the_id() {
        let annotations = BTreeMap::from([("pond 1".to_owned(), PathBuf::new())]);
        assert_eq!(id_in_line("pond 1", &annotations), "pond 1", "an annotation is called so");
        assert_eq!(id_in_line("000012 -1", &annotations), "000012", "as in aeroplane_train.txt");
        assert_eq!(id_in_line("pond 007", &annotations), "pond 007", "no flag");
    }
}
