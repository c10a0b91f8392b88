//! Which image files a split names: found in folders or listed in a text file. Opens no image.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::DatasetError;
use super::report::{Fault, FaultCode};

/// Endings that make a file an image of the dataset. Some cannot be decoded; those are reported rather than overlooked.
const IMAGE_EXTENSIONS: [&str; 18] = [
    "avif", "bmp", "dng", "gif", "heic", "heif", "jfif", "jp2", "jpeg", "jpg", "mpo", "pgm", "png", "pnm", "ppm",
    "tif", "tiff", "webp",
];

pub(super) fn is_image(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    !is_hidden && extension.is_some_and(|extension| IMAGE_EXTENSIONS.contains(&extension.as_str()))
}

/// What a folder holds, sorted by name.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let read = || fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    let mut paths = read().map_err(|error| DatasetError::unreadable(folder, error))?;
    paths.sort();
    Ok(paths)
}

/// All images in a folder and the folders below it, sorted by path.
///
/// Links to images and folders are followed, each folder once; a link back to where the search began, or above it, is
/// not, so that a loop of links can neither hang the search nor bring in the images of another split.
///
/// # Errors
/// `folder` itself cannot be read; one below it that cannot is a fault.
pub(super) fn images_in_folder(folder: &Path, faults: &mut Vec<Fault>) -> Result<Vec<PathBuf>, DatasetError> {
    let start = fs::canonicalize(folder).map_err(|error| DatasetError::unreadable(folder, error))?;
    let mut visited = HashSet::new();
    let mut images = Vec::new();
    let mut linked_folders = vec![folder.to_owned()];
    while let Some(next) = linked_folders.pop() {
        let mut own_folders = vec![next];
        while let Some(current) = own_folders.pop() {
            let Ok(real) = fs::canonicalize(&current) else { continue };
            let leads_back = real != start && start.starts_with(&real);
            if leads_back || !visited.insert(real) {
                continue;
            }
            let entries = match sorted_entries(&current) {
                Ok(entries) => entries,
                Err(error) if current == folder => return Err(error),
                Err(error) => {
                    faults.push(error.to_fault());
                    continue;
                }
            };
            for path in entries {
                match (path.is_dir(), path.is_symlink()) {
                    (true, true) => linked_folders.push(path),
                    (true, false) => own_folders.push(path),
                    (false, _) if is_image(&path) => images.push(path),
                    (false, _) => {}
                }
            }
        }
        linked_folders.sort_by(|a, b| b.cmp(a));
    }
    images.sort();
    Ok(images)
}

/// The images named in a text file, one a line; a relative name is looked up beside the list, then in `root`.
///
/// # Errors
/// The list cannot be read. Names without a file are faults, and so are names that come again.
pub(super) fn images_in_list(list: &Path, root: &Path, faults: &mut Vec<Fault>) -> Result<Vec<PathBuf>, DatasetError> {
    let mut seen = HashSet::new();
    let mut images = Vec::new();
    for (line, name) in lines_of(list)? {
        let Some(image) = resolve_listed(&name, list, root) else {
            let message = format!("`{name}` does not exist, looked for beside the list and in the dataset's root");
            faults.push(Fault::new(list, Some(line), FaultCode::MissingImage, message));
            continue;
        };
        if !seen.insert(image.clone()) {
            let message = format!("`{name}` is listed again; it is used once");
            faults.push(Fault::new(list, Some(line), FaultCode::DuplicateImage, message));
            continue;
        }
        images.push(image);
    }
    images.sort();
    Ok(images)
}

/// The lines of a text file that are not blank, trimmed, with their 1-based numbers.
///
/// # Errors
/// The file cannot be read.
pub(super) fn lines_of(file: &Path) -> Result<Vec<(usize, String)>, DatasetError> {
    let bytes = fs::read(file).map_err(|error| DatasetError::unreadable(file, error))?;
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes));
    let numbered = text.lines().enumerate().map(|(line_idx, line)| (line_idx + 1, line.trim().to_owned()));
    Ok(numbered.filter(|(_, line)| !line.is_empty()).collect())
}

fn resolve_listed(name: &str, list: &Path, root: &Path) -> Option<PathBuf> {
    let beside_list = list.parent().unwrap_or(root);
    let with_slashes = name.replace('\\', "/");
    let names = [name, with_slashes.as_str()];
    let candidates = names.into_iter().flat_map(|name| [beside_list.join(name), root.join(name)]);
    candidates.map(|path| without_dots(&path)).find(|path| path.is_file())
}

/// The path without `.` components, so that `./a.jpg` and `a.jpg` are one image.
pub(super) fn without_dots(path: &Path) -> PathBuf {
    path.components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_endings_count_in_any_case_and_hidden_files_do_not() {
        assert!(is_image(Path::new("x/A.PNG")), "upper case");
        assert!(is_image(Path::new("x_jpg.rf.1.jpg")), "several dots");
        assert!(!is_image(Path::new("._a.jpg")), "the file a Mac leaves beside a copied one");
        assert!(!is_image(Path::new("a.txt")), "a label");
    }

    #[test]
    fn folders_are_searched_in_a_fixed_order() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        for name in ["c.png", "b/z.png", "a.png", "b/notes.txt"] {
            fs::write(folder.path().join(name), b"").unwrap();
        }
        let images = images_in_folder(folder.path(), &mut Vec::new()).unwrap();
        let names: Vec<_> = images.iter().map(|path| path.strip_prefix(folder.path()).unwrap().to_owned()).collect();
        assert_eq!(names, ["a.png", "b/z.png", "c.png"].map(PathBuf::from), "sorted by path");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_but_not_in_circles() {
        let folder = tempfile::tempdir().unwrap();
        let (train, val, elsewhere) =
            (folder.path().join("train"), folder.path().join("val"), folder.path().join("elsewhere"));
        for path in [&train, &val, &elsewhere] {
            fs::create_dir(path).unwrap();
        }
        fs::write(train.join("a.png"), b"").unwrap();
        fs::write(val.join("v.png"), b"").unwrap();
        fs::write(elsewhere.join("e.png"), b"").unwrap();
        for (target, link) in [(folder.path(), "loop"), (&elsewhere, "linked"), (&train.join("a.png"), "link.png")] {
            std::os::unix::fs::symlink(target, train.join(link)).unwrap();
        }
        let images = images_in_folder(&train, &mut Vec::new()).unwrap();
        let names: Vec<_> = images.iter().map(|path| path.strip_prefix(&train).unwrap().to_owned()).collect();
        assert_eq!(names, ["a.png", "link.png", "linked/e.png"].map(PathBuf::from), "no image of val");
    }
}
