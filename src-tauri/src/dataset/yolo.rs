//! A YOLO dataset: a data.yaml that names folders or lists of images, and a text label file for each image.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use super::data_yaml::{DataYaml, PathList, class_names, read_data_yaml};
use super::image_files::{images_in_folder, images_in_list, is_image, without_dots};
use super::reading::{ImageCheck, ImageLabels, Reading, read_samples, without_repeats};
use super::report::{Fault, FaultCode};
use super::yolo_txt::{LineRules, label_path, parse_labels};
use super::{DatasetError, Sample, Split};

/// Reads the dataset that a data.yaml describes.
///
/// # Errors
/// The yaml cannot be read or contradicts itself, or its train images are not where it says.
pub(super) fn read_yolo(yaml_file: &Path, check: ImageCheck) -> Result<Reading, DatasetError> {
    let mut faults = Vec::new();
    let yaml = read_data_yaml(yaml_file, &mut faults)?;
    let class_names = class_names(&yaml, yaml_file, &mut faults)?;
    let root = dataset_root(&yaml, yaml_file, &mut faults);
    let rules = LineRules {
        n_classes: class_names.len(),
        n_keypoint_columns: yaml.kpt_shape.map(|[n_points, n_numbers]| n_points.saturating_mul(n_numbers)),
    };
    let mut splits = BTreeMap::new();
    for (split, key, entries) in
        [(Split::Train, "train", &yaml.train), (Split::Val, "val", &yaml.val), (Split::Test, "test", &yaml.test)]
    {
        let named = entries.as_ref().filter(|PathList(entries)| !entries.is_empty());
        let Some(PathList(entries)) = named else { continue };
        let Some(images) = split_images(entries, key, &root, yaml_file, &mut faults)? else { continue };
        splits.insert(split, read_txt_samples(&images, rules, check, &mut faults));
    }
    if !splits.contains_key(&Split::Train) {
        return Err(DatasetError::Invalid {
            path: yaml_file.to_owned(),
            line: None,
            code: FaultCode::MissingSplit,
            message: "no `train` key: name the folder with the training images, as in `train: images/train`".to_owned(),
        });
    }
    Ok(Reading { class_names, splits, faults, root: yaml_file.to_owned(), splits_are_unnamed: false })
}

/// Samples of images that have YOLO text labels; an image without a label file is a background.
pub(super) fn read_txt_samples(
    images: &[PathBuf],
    rules: LineRules,
    check: ImageCheck,
    faults: &mut Vec<Fault>,
) -> Vec<Sample> {
    let labelled: Vec<(&PathBuf, Option<PathBuf>)> = images.iter().map(|image| (image, label_path(image))).collect();
    note_shared_labels(&labelled, faults);
    let (samples, new_faults) = read_samples(
        &labelled,
        check,
        |(image, _)| image,
        |(_, label_file), _| {
            label_file.as_deref().map_or((Some(Vec::new()), Vec::new()), |file| read_labels(file, rules))
        },
    );
    faults.extend(new_faults);
    samples
}

fn read_labels(label_file: &Path, rules: LineRules) -> ImageLabels {
    match fs::read(label_file) {
        Ok(bytes) => {
            let (labels, faults) = parse_labels(&bytes, label_file, rules);
            (Some(labels), faults)
        }
        Err(error) => {
            let message = format!("cannot read the labels, the image is left out: {error}");
            (None, vec![Fault::new(label_file, None, FaultCode::UnreadableFile, message)])
        }
    }
}

fn note_shared_labels(labelled: &[(&PathBuf, Option<PathBuf>)], faults: &mut Vec<Fault>) {
    let mut first_image: HashMap<&Path, &Path> = HashMap::new();
    for (image, label_file) in labelled {
        let Some(label_file) = label_file else { continue };
        if let Some(first) = first_image.insert(label_file, image) {
            let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
            let message = format!("{} and {} share these labels; both have them", name(first), name(image));
            faults.push(Fault::new(label_file, None, FaultCode::SharedLabel, message));
        }
    }
}

/// `path` relative to the yaml's folder; that folder itself where `path` leads nowhere, as after a move.
fn dataset_root(yaml: &DataYaml, yaml_file: &Path, faults: &mut Vec<Fault>) -> PathBuf {
    let yaml_folder = yaml_file.parent().unwrap_or(Path::new(""));
    let Some(path) = yaml.path.as_deref().map(str::trim).filter(|path| !path.is_empty()) else {
        return yaml_folder.to_owned();
    };
    let root = without_dots(&yaml_folder.join(path));
    if root.is_dir() {
        return root;
    }
    let message = format!("`path: {path}` does not exist; the folder of the yaml is used in its place");
    faults.push(Fault::new(yaml_file, None, FaultCode::PathIgnored, message));
    yaml_folder.to_owned()
}

/// All images of the entries of one split; `None`, with a fault, where a split other than train is not there.
fn split_images(
    entries: &[String],
    key: &str,
    root: &Path,
    yaml_file: &Path,
    faults: &mut Vec<Fault>,
) -> Result<Option<Vec<PathBuf>>, DatasetError> {
    let mut images = Vec::new();
    for entry in entries {
        let Some(path) = resolve_entry(entry, root) else {
            let message = missing_entry_message(key, entry, root);
            let code = FaultCode::MissingSplit;
            if key == "train" {
                return Err(DatasetError::Invalid { path: yaml_file.to_owned(), line: None, code, message });
            }
            faults.push(Fault::new(yaml_file, None, code, message));
            return Ok(None);
        };
        if path.is_dir() {
            images.extend(images_in_folder(&path, faults)?);
        } else if is_image(&path) {
            images.push(path);
        } else {
            images.extend(images_in_list(&path, root, faults)?);
        }
    }
    Ok(Some(without_repeats(images, faults)))
}

/// Roboflow writes `../train/images` into a yaml that lies beside `train`: where that is not there, `train/images` is.
fn resolve_entry(entry: &str, root: &Path) -> Option<PathBuf> {
    let with_slashes = entry.replace('\\', "/");
    let below = with_slashes.strip_prefix("../").unwrap_or(&with_slashes);
    let candidates = [entry, &with_slashes, below].map(|entry| without_dots(&root.join(entry)));
    candidates.into_iter().find(|path| path.exists())
}

fn missing_entry_message(key: &str, entry: &str, root: &Path) -> String {
    // An absolute path of another machine often ends in folders that are here too.
    let parts: Vec<&str> = entry.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    let tails = (1..parts.len()).map(|start| parts[start..].join("/"));
    let hint = tails.into_iter().find(|tail| root.join(tail).exists());
    let way_out = match hint {
        Some(tail) => format!("`{tail}` does: write `{key}: {tail}`"),
        None => "correct the path, relative to the yaml's folder or its `path`".to_owned(),
    };
    format!("`{key}: {entry}` does not exist; {way_out}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_another_machine_is_answered_with_the_folder_that_is_here() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("train/images")).unwrap();
        let message = missing_entry_message("train", "/Users/x/data/train/images", folder.path());
        assert!(message.contains("write `train: train/images`"), "{message}");
    }

    #[test]
    fn a_parent_folder_that_is_not_there_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("set");
        fs::create_dir_all(root.join("train/images")).unwrap();
        let resolved = resolve_entry("../train/images", &root);
        assert_eq!(resolved, Some(root.join("train/images")), "as Roboflow means it");
        assert_eq!(resolve_entry("valid/images", &root), None, "nothing is invented");
    }
}
