//! The built-in demo dataset: coloured shapes on textured ground in YOLO's layout, so that a first run needs no download.

use std::fs;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};

use image::{ImageError, ImageFormat};
use rayon::prelude::*;
use thiserror::Error;

use super::Label;
use super::demo_picture::{SHAPE_NAMES, draw_picture};

/// Pictures in the train split.
pub const N_TRAIN: usize = 96;
/// Pictures in the val split.
pub const N_VAL: usize = 32;

/// Why the demo dataset could not be written. Files that were there before are whole: each is replaced by a rename.
#[derive(Debug, Error)]
pub enum DemoError {
    #[error("cannot write the demo dataset: `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` is not the demo's; move it away, or choose another project=", path.display())]
    NotOurs { path: PathBuf },
    #[error("cannot encode a demo picture: {0}")]
    Encode(#[from] ImageError),
}

/// By this the demo's own data.yaml is known.
const FIRST_LINE: &str = "# Coloured shapes, drawn by Fermata.";

/// One file of the dataset.
struct DemoFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Writes the dataset into `folder` and gives the path of its data.yaml.
///
/// The same files come out every time: those that are there already and equal are left alone, missing or changed ones
/// are written, and the data.yaml comes last. Other files in the folder are not touched.
///
/// # Errors
/// A file or folder cannot be written, or somebody else's data.yaml is there.
pub fn write_demo(folder: &Path) -> Result<PathBuf, DemoError> {
    let yaml_path = folder.join("data.yaml");
    if fs::read_to_string(&yaml_path).is_ok_and(|text| !text.starts_with(FIRST_LINE)) {
        return Err(DemoError::NotOurs { path: yaml_path });
    }
    let splits = [("train", 0..N_TRAIN), ("val", N_TRAIN..N_TRAIN + N_VAL)];
    for (split, _) in &splits {
        for kind in ["images", "labels"] {
            let path = folder.join(kind).join(split);
            fs::create_dir_all(&path).map_err(|source| DemoError::Write { path, source })?;
        }
    }
    let seeds: Vec<(&str, usize)> =
        splits.into_iter().flat_map(|(split, seeds)| seeds.map(move |seed| (split, seed))).collect();
    seeds
        .par_iter()
        .try_for_each(|(split, seed)| sample_files(folder, split, *seed)?.iter().try_for_each(write_if_different))?;
    let yaml = DemoFile { path: yaml_path, bytes: data_yaml().into_bytes() };
    write_if_different(&yaml)?;
    Ok(yaml.path)
}

fn sample_files(folder: &Path, split: &str, seed: usize) -> Result<[DemoFile; 2], DemoError> {
    let picture = draw_picture(seed as u64);
    let mut png = Cursor::new(Vec::new());
    picture.image.write_to(&mut png, ImageFormat::Png)?;
    let lines: String = picture.labels.iter().map(label_line).collect();
    let path = |kind: &str, ending: &str| folder.join(kind).join(split).join(format!("shapes_{seed:03}.{ending}"));
    Ok([
        DemoFile { path: path("images", "png"), bytes: png.into_inner() },
        DemoFile { path: path("labels", "txt"), bytes: lines.into_bytes() },
    ])
}

fn label_line(label: &Label) -> String {
    let b = label.box_norm;
    format!("{} {} {} {} {}\n", label.class_idx, b.cx, b.cy, b.w, b.h)
}

fn data_yaml() -> String {
    let names: String = SHAPE_NAMES.iter().enumerate().map(|(i, name)| format!("  {i}: {name}\n")).collect();
    format!("{FIRST_LINE}\ntrain: images/train\nval: images/val\nnames:\n{names}")
}

/// Not synced: whether every file is whole is seen by comparing at the next call.
fn write_if_different(file: &DemoFile) -> Result<(), DemoError> {
    if fs::read(&file.path).is_ok_and(|bytes| bytes == file.bytes) {
        return Ok(());
    }
    let aside = file.path.with_extension(format!("part{}", std::process::id()));
    fs::write(&aside, &file.bytes)
        .and_then(|()| fs::rename(&aside, &file.path))
        .map_err(|source| DemoError::Write { path: file.path.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Gate, OpenOptions, open};

    #[test]
    fn the_demo_is_a_dataset_without_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let yaml = write_demo(folder.path()).unwrap();
        let opened = open(&yaml, &OpenOptions::default()).unwrap();
        assert_eq!(opened.report.gate, Gate::Green, "{:?}", opened.report.faults);
        let n_images: Vec<_> = opened.report.splits.values().map(|counts| counts.n_images).collect();
        assert_eq!(n_images, [N_TRAIN, N_VAL], "train and val");
        assert_eq!(opened.dataset.class_names, SHAPE_NAMES, "three shapes");
    }

    #[test]
    fn a_dataset_of_the_user_s_is_not_drawn_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("data.yaml"), "train: mine\nnames: [a]\n").unwrap();
        assert!(matches!(write_demo(folder.path()), Err(DemoError::NotOurs { .. })));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was written");
    }

    #[test]
    fn a_second_call_repairs_what_changed_and_touches_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        write_demo(folder.path()).unwrap();
        let (kept, broken) =
            (folder.path().join("images/train/shapes_001.png"), folder.path().join("labels/val/shapes_100.txt"));
        let written = fs::metadata(&kept).unwrap().modified().unwrap();
        let original = fs::read(&broken).unwrap();
        fs::write(&broken, b"0 0.5").unwrap();
        write_demo(folder.path()).unwrap();
        assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), written, "equal files are reused");
        assert_eq!(fs::read(&broken).unwrap(), original, "a changed file is written anew");
        let leftovers = fs::read_dir(folder.path().join("labels/val")).unwrap().count();
        assert_eq!(leftovers, N_VAL, "no temporary file stays");
    }
}
