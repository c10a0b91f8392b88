//! Which formats a path holds, in the order in which they are tried.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::image_files::{images_in_folder, is_image, sorted_entries};
use super::image_folder::has_label;
use super::reading::split_of_folder;
use super::{DatasetError, Split};

/// A dataset in one format.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    YoloYaml(PathBuf),
    Coco(CocoSource),
    VocRoot(PathBuf),
    ImageFolder(PathBuf),
}

/// The COCO files of a dataset.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CocoSource {
    pub files: Vec<(Split, PathBuf)>,
    /// One file for everything; it is given as train.
    pub splits_are_unnamed: bool,
}

impl Source {
    /// What it is, for a person.
    pub fn describe(&self) -> String {
        match self {
            Self::YoloYaml(file) => format!("YOLO `{}`", file.display()),
            Self::Coco(coco) => {
                let files: Vec<String> = coco.files.iter().map(|(_, file)| format!("`{}`", file.display())).collect();
                format!("COCO {}", files.join(", "))
            }
            Self::VocRoot(root) => format!("Pascal VOC in `{}`", root.display()),
            Self::ImageFolder(folder) => format!("images with labels in `{}`", folder.display()),
        }
    }
}

/// Every format found at `path`, the one to use first; never empty.
///
/// # Errors
/// Nothing is there, or nothing that is a dataset.
pub(super) fn find_sources(path: &Path) -> Result<Vec<Source>, DatasetError> {
    if !path.exists() {
        return Err(DatasetError::Missing { path: path.to_owned() });
    }
    let found = if path.is_dir() { in_folder(path)? } else { of_file(path)?.into_iter().collect() };
    if found.is_empty() {
        return Err(DatasetError::UnknownFormat { path: path.to_owned() });
    }
    Ok(found)
}

fn of_file(file: &Path) -> Result<Option<Source>, DatasetError> {
    let ending = file.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    Ok(match ending.as_str() {
        "yaml" | "yml" => Some(Source::YoloYaml(file.to_owned())),
        "json" => Some(Source::Coco(coco_with_siblings(file)?)),
        _ => None,
    })
}

fn in_folder(folder: &Path) -> Result<Vec<Source>, DatasetError> {
    let entries = sorted_entries(folder)?;
    let yaml =
        ["data.yaml", "data.yml", "dataset.yaml"].map(|name| folder.join(name)).into_iter().find(|f| f.is_file());
    let coco = coco_in_split_folders(&entries)?.or(coco_by_name(folder)?);
    let below = entries.iter().filter(|path| path.is_dir()).map(PathBuf::as_path);
    let voc_roots = std::iter::once(folder).chain(below).filter(|path| is_voc_root(path));
    let mut found: Vec<Source> = yaml.map(Source::YoloYaml).into_iter().collect();
    found.extend(coco.map(Source::Coco));
    found.extend(voc_roots.map(|root| Source::VocRoot(root.to_owned())));
    // Images deeper down belong to the formats above, so they count only where nothing else is found.
    let has_labelled_images = entries.iter().any(|path| is_image(path) && path.is_file() && has_label(path));
    if has_labelled_images || (found.is_empty() && !images_in_folder(folder, &mut Vec::new())?.is_empty()) {
        found.push(Source::ImageFolder(folder.to_owned()));
    }
    Ok(found)
}

fn is_voc_root(folder: &Path) -> bool {
    folder.join("Annotations").is_dir() && folder.join("JPEGImages").is_dir()
}

/// `train/_annotations.coco.json` and its like; Roboflow's layout.
fn coco_in_split_folders(entries: &[PathBuf]) -> Result<Option<CocoSource>, DatasetError> {
    let mut files: Vec<(Split, PathBuf)> = Vec::new();
    for folder in entries.iter().filter(|path| path.is_dir()) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let Some(split) = split_of_folder(&name) else { continue };
        if files.iter().any(|(taken, _)| *taken == split) {
            continue;
        }
        files.extend(coco_files_in(folder)?.into_iter().next().map(|file| (split, file)));
    }
    files.sort();
    Ok(Some(CocoSource { files, splits_are_unnamed: false }).filter(|coco| !coco.files.is_empty()))
}

/// `annotations/instances_train2017.json` and its like, or files in the folder itself.
fn coco_by_name(folder: &Path) -> Result<Option<CocoSource>, DatasetError> {
    for place in [folder.join("annotations"), folder.to_owned()] {
        if !place.is_dir() {
            continue;
        }
        let files = coco_files_in(&place)?;
        let named = named_splits(&files);
        if !named.is_empty() {
            return Ok(Some(CocoSource { files: named, splits_are_unnamed: false }));
        }
        if let Some(file) = files.into_iter().next() {
            return Ok(Some(CocoSource { files: vec![(Split::Train, file)], splits_are_unnamed: true }));
        }
    }
    Ok(None)
}

/// The file a user named; if its name says train, the files beside it that are named alike for val and test join it.
fn coco_with_siblings(file: &Path) -> Result<CocoSource, DatasetError> {
    let alone = CocoSource { files: vec![(Split::Train, file.to_owned())], splits_are_unnamed: true };
    let (Some(folder), Some((stem, Split::Train))) = (file.parent(), split_in_stem(file)) else { return Ok(alone) };
    let is_alike = |other: &Path| split_in_stem(other).is_some_and(|(rest, _)| rest == stem);
    let others = coco_files_in(folder)?.into_iter().filter(|other| other != file && is_alike(other));
    let mut files = vec![(Split::Train, file.to_owned())];
    files.extend(named_splits(&others.collect::<Vec<_>>()).into_iter().filter(|(split, _)| *split != Split::Train));
    let splits_are_unnamed = files.len() == 1;
    Ok(CocoSource { files, splits_are_unnamed })
}

/// The first file of each split whose name says so.
fn named_splits(files: &[PathBuf]) -> Vec<(Split, PathBuf)> {
    let mut named: Vec<(Split, PathBuf)> = Vec::new();
    for file in files {
        if let Some((_, split)) =
            split_in_stem(file).filter(|(_, split)| !named.iter().any(|(taken, _)| taken == split))
        {
            named.push((split, file.clone()));
        }
    }
    named.sort();
    named
}

/// The split a file name speaks of, and the name without that word: `instances_train2017` is (`instances__2017`, train).
fn split_in_stem(file: &Path) -> Option<(String, Split)> {
    let stem = file.file_stem()?.to_string_lossy().to_ascii_lowercase();
    let is_letter = |c: char| c.is_alphabetic();
    let word = stem.split(|c: char| !is_letter(c)).find(|word| split_of_folder(word).is_some())?;
    Some((stem.replacen(word, "", 1), split_of_folder(word)?))
}

/// COCO files of detection in a folder: `instances_*` first, captions and key points of the same images not at all.
fn coco_files_in(folder: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let stem_of = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let is_other_task = |path: &Path| {
        ["captions", "person_keypoints", "panoptic", "stuff", "image_info"].iter().any(|p| stem_of(path).starts_with(p))
    };
    let is_json = |path: &Path| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
    let entries = sorted_entries(folder)?;
    let files = entries.into_iter().filter(|path| is_json(path) && !is_other_task(path) && looks_like_coco(path));
    let mut files: Vec<PathBuf> = files.collect();
    files.sort_by_key(|path| !stem_of(path).starts_with("instances"));
    Ok(files)
}

/// A guess from the beginning of the file, so that other JSON files in a folder are passed over.
fn looks_like_coco(file: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(file).and_then(|file| file.take(64 << 10).read_to_end(&mut head));
    let head = String::from_utf8_lossy(&head);
    let is_object = head.trim_start_matches('\u{feff}').trim_start().starts_with('{');
    let words = ["\"images\"", "\"annotations\"", "\"categories\""];
    read.is_ok() && is_object && words.iter().any(|word| head.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn several_formats_come_in_the_documented_order() {
        let folder = folder_with(&[
            ("data.yaml", ""),
            ("train/_annotations.coco.json", "{\"images\": []}"),
            ("VOC2007/Annotations/a.xml", ""),
            ("VOC2007/JPEGImages/a.jpg", ""),
            ("a.png", ""),
            ("a.txt", ""),
        ]);
        let found = find_sources(folder.path()).unwrap();
        let kinds: Vec<_> =
            found.iter().map(|source| source.describe().split(' ').next().unwrap().to_owned()).collect();
        assert_eq!(kinds, ["YOLO", "COCO", "Pascal", "images"], "yaml, split folders, VOC one level below, images");
    }

    #[test]
    fn the_layout_of_coco_itself_is_known() {
        let coco = "{\"images\": []}";
        let folder = folder_with(&[
            ("annotations/captions_train2017.json", coco),
            ("annotations/instances_train2017.json", coco),
            ("annotations/instances_val2017.json", coco),
        ]);
        let file = |name: &str| folder.path().join("annotations").join(name);
        let expected = CocoSource {
            files: vec![(Split::Train, file("instances_train2017.json")), (Split::Val, file("instances_val2017.json"))],
            splits_are_unnamed: false,
        };
        assert_eq!(find_sources(folder.path()).unwrap(), [Source::Coco(expected.clone())], "from the root");
        let named = find_sources(&file("instances_train2017.json")).unwrap();
        assert_eq!(named, [Source::Coco(expected)], "from the train file");
    }

    #[test]
    fn nothing_and_nothing_known_are_told_apart() {
        let folder = folder_with(&[("notes.md", "")]);
        assert!(matches!(find_sources(folder.path()), Err(DatasetError::UnknownFormat { .. })), "no dataset");
        let nowhere = folder.path().join("nowhere");
        assert!(matches!(find_sources(&nowhere), Err(DatasetError::Missing { .. })), "no folder");
    }
}
