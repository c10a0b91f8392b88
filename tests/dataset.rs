//! Reading datasets from files: label lines, yaml, EXIF, odd images, odd names, and four real sets.
//!
//! The real sets and odd images are not part of this repository; where `../shared` is absent those tests say so and pass.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fermata::dataset::decode::{decode_rgb, header_size};
use fermata::dataset::{
    CheckReport, DatasetErrorKind, FaultCode, Gate, ImageCheck, OpenOptions, Opened, Sample, Split, SplitCounts, open,
};
use image::{ImageFormat, Rgb, RgbImage};
use tempfile::TempDir;

/// A folder with these files; names that end in an image's ending become pictures of 64 x 64 pixels.
fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    add_files(folder.path(), files);
    folder
}

fn add_files(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
        match ending.to_str() {
            Some("png") => picture(64, 64).save_with_format(&path, ImageFormat::Png).unwrap(),
            Some("jpg") => picture(64, 64).save_with_format(&path, ImageFormat::Jpeg).unwrap(),
            _ => fs::write(&path, text).unwrap(),
        }
    }
}

/// Red left of the middle and blue right of it.
fn picture(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, _| if x < width / 2 { Rgb([250, 0, 0]) } else { Rgb([0, 0, 250]) })
}

fn opened(source: &Path) -> Opened {
    open(source, &OpenOptions::default()).unwrap()
}

fn refusal(source: &Path) -> String {
    open(source, &OpenOptions::default()).unwrap_err().to_string()
}

fn codes(report: &CheckReport) -> Vec<FaultCode> {
    report.faults.iter().map(|fault| fault.code).collect()
}

fn messages(report: &CheckReport) -> String {
    report.faults.iter().map(|fault| format!("{}\n", fault.message)).collect()
}

fn names_of(samples: &[Sample]) -> Vec<String> {
    samples.iter().map(|sample| sample.image_path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

const YAML: &str = "train: images\nval: images\nnames: [a, b]\n";

/// The dataset of one image whose label file has these bytes.
fn with_label_bytes(bytes: &[u8]) -> (TempDir, Opened) {
    let folder = folder_with(&[("data.yaml", YAML), ("images/a.png", "")]);
    fs::create_dir(folder.path().join("labels")).unwrap();
    fs::write(folder.path().join("labels/a.txt"), bytes).unwrap();
    let opened = opened(&folder.path().join("data.yaml"));
    (folder, opened)
}

fn boxes_of(opened: &Opened) -> Vec<(usize, [f64; 4])> {
    let labels = opened.dataset.splits[&Split::Train].iter().flat_map(|sample| &sample.labels);
    labels
        .map(|label| (label.class_idx, [label.box_norm.cx, label.box_norm.cy, label.box_norm.w, label.box_norm.h]))
        .collect()
}

// R12, label lines.

#[track_caller]
fn assert_kept(text: &str, expected: &[(usize, [f64; 4])]) {
    let (_folder, opened) = with_label_bytes(text.as_bytes());
    let boxes = boxes_of(&opened);
    let are_close = |a: &[f64; 4], b: &[f64; 4]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
    let are_equal = boxes.len() == expected.len()
        && boxes.iter().zip(expected).all(|((class_a, a), (class_b, b))| class_a == class_b && are_close(a, b));
    assert!(are_equal, "{text:?} gives {boxes:?}, expected {expected:?}");
}

#[track_caller]
fn assert_faults(text: &str, expected: &[(Option<usize>, FaultCode)]) {
    let (_folder, opened) = with_label_bytes(text.as_bytes());
    let is_about_labels = |file: &str| file.ends_with("a.txt");
    let about_labels = opened.report.faults.iter().filter(|fault| is_about_labels(&fault.file));
    let found: Vec<_> = about_labels.map(|fault| (fault.line, fault.code)).collect();
    assert_eq!(found, expected, "faults of {text:?}: {}", messages(&opened.report));
}

const GOOD: (usize, [f64; 4]) = (0, [0.5, 0.5, 0.2, 0.2]);

#[test]
fn r12_spelling_of_good_lines_is_no_fault() {
    for text in
        ["\u{feff}0 0.5 0.5 0.2 0.2\r\n", "0 0.5 0.5 0.2 0.2", "  0\t0.5 0.5  0.2 0.2  \n\n", "0.0 5e-1 .5 0.2 0.20\n"]
    {
        assert_kept(text, &[GOOD]);
        assert_faults(text, &[]);
    }
    assert_kept("1.0 0.5 0.5 0.2 0.2", &[(1, GOOD.1)]);
    assert_kept("0 0.5 0.5 0.2 0.2\n   \n1 0.5 0.5 0.2 0.2\n", &[GOOD, (1, GOOD.1)]);
}

#[test]
fn r12_bad_lines_are_left_out_by_number_and_good_ones_kept() {
    for (line, code) in [
        ("1 0.5 0.5 1.7 0.2", FaultCode::OutsideImage),
        ("0 1.02 0.5 0.2 0.2", FaultCode::OutsideImage),
        ("0 nan 0.5 0.2 0.2", FaultCode::NotFinite),
        ("0 0.5 inf 0.2 0.2", FaultCode::NotFinite),
        ("0.5 0.5 0.5 0.2 0.2", FaultCode::ClassNotWhole),
        ("-1 0.5 0.5 0.2 0.2", FaultCode::ClassOutOfRange),
        ("2 0.5 0.5 0.2 0.2", FaultCode::ClassOutOfRange),
        ("0 0.5 0.5 0 0.2", FaultCode::ZeroSize),
        ("0 0.5 0.5 -0.2 0.2", FaultCode::ZeroSize),
        ("0,0.5,0.5,0.2,0.2", FaultCode::BadSeparator),
        ("0;0.5;0.5;0.2;0.2", FaultCode::BadSeparator),
        ("0 0,5 0,5 0,2 0,2", FaultCode::BadSeparator),
        ("0 0.5\0 0.5 0.2 0.2", FaultCode::NulByte),
        ("0 0.5 0.5 0.2", FaultCode::BadColumns),
        ("cat 0.5 0.5 0.2 0.2", FaultCode::NotANumber),
    ] {
        let text = format!("0 0.5 0.5 0.2 0.2\n{line}\n");
        assert_kept(&text, &[GOOD]);
        assert_faults(&text, &[(Some(2), code)]);
    }
}

#[test]
fn r12_the_separator_is_named() {
    let (_folder, opened) = with_label_bytes(b"0;0.5;0.5;0.2;0.2");
    assert!(messages(&opened.report).contains("semicolon"), "{}", messages(&opened.report));
}

#[test]
fn r12_what_is_changed_is_said() {
    assert_kept("0 0.5 0.5 0.2 0.2 0.91", &[GOOD]);
    assert_faults("0 0.5 0.5 0.2 0.2 0.91", &[(Some(1), FaultCode::ConfidenceIgnored)]);
    assert_kept("0 0.95 0.5 0.3 0.2", &[(0, [0.9, 0.5, 0.2, 0.2])]);
    assert_faults("0 0.95 0.5 0.3 0.2", &[(Some(1), FaultCode::Clipped)]);
    let thrice = "0 0.5 0.5 0.2 0.2\n".repeat(3);
    assert_kept(&thrice, &[GOOD]);
    assert_faults(&thrice, &[(Some(2), FaultCode::DuplicatesRemoved)]);
    let (_folder, opened) = with_label_bytes(thrice.as_bytes());
    assert_eq!(messages(&opened.report), "2 duplicates removed\n", "once for the file");
    assert_eq!(opened.report.gate, Gate::Amber, "a note never stops a training");
}

#[test]
fn r12_rounding_is_clipped_in_silence() {
    assert_kept("0 1.005 0.5 0.01 0.2", &[(0, [0.9975, 0.5, 0.005, 0.2])]);
    assert_faults("0 1.005 0.5 0.01 0.2\n0 0.5 0.5 1.01 1.005", &[]);
}

#[test]
fn r12_boxes_and_polygons_mix() {
    let text = "0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.3 0.1 0.3 0.4 0.1 0.4\n";
    assert_kept(text, &[GOOD, (1, [0.2, 0.25, 0.2, 0.3])]);
    assert_faults(text, &[]);
}

#[test]
fn r12_an_empty_label_file_is_a_background_and_so_is_none() {
    let folder = folder_with(&[
        ("data.yaml", YAML),
        ("images/a.png", ""),
        ("images/b.png", ""),
        ("images/c.png", ""),
        ("labels/a.txt", ""),
        ("labels/b.txt", "0 0.5 0.5 0.2 0.2"),
    ]);
    let opened = opened(folder.path());
    let expected = SplitCounts { n_images: 3, n_boxes: 1, n_backgrounds: 2 };
    assert_eq!(opened.report.splits[&Split::Train], expected, "a and c");
    assert_eq!(opened.report.gate, Gate::Green, "no fault");
}

#[test]
fn r12_no_good_box_in_train_is_red() {
    let (_folder, opened) = with_label_bytes(b"7 0.5 0.5 0.2 0.2");
    assert_eq!(opened.report.gate, Gate::Red, "nothing to learn");
    assert_eq!(codes(&opened.report), [FaultCode::ClassOutOfRange, FaultCode::NoBoxes], "why, and what it means");
    let error = opened.into_trainable().unwrap_err();
    assert_eq!(error.kind(), DatasetErrorKind::Unusable, "the path is there");
}

// R13, data.yaml.

fn with_yaml(yaml: &str) -> TempDir {
    let label = "0 0.5 0.5 0.2 0.2";
    folder_with(&[
        ("data.yaml", yaml),
        ("one/images/a.png", ""),
        ("one/labels/a.txt", label),
        ("two/images/b.png", ""),
        ("two/labels/b.txt", label),
    ])
}

#[test]
fn r13_names_are_a_list_or_numbered_from_zero() {
    for names in ["[a, b]", "{0: a, 1: b}", "{1: b, 0: a}", "\n  - a\n  - b"] {
        let folder = with_yaml(&format!("train: one\nval: two\nnames: {names}\n"));
        let opened = opened(folder.path());
        assert_eq!(opened.dataset.class_names, ["a", "b"], "{names}");
        assert_eq!(opened.report.gate, Gate::Green, "{}", messages(&opened.report));
    }
}

#[test]
fn r13_a_gap_in_names_and_a_wrong_count_are_refused_by_name() {
    let folder = with_yaml("train: one\nval: two\nnames: {1: a, 3: b}\n");
    assert!(refusal(folder.path()).contains("0 is missing"), "{}", refusal(folder.path()));
    let folder = with_yaml("train: one\nval: two\nnc: 3\nnames: [a, b]\n");
    assert!(refusal(folder.path()).contains("`nc` is 3"), "{}", refusal(folder.path()));
}

#[test]
fn r13_a_missing_val_is_said_and_train_is_not_taken_for_it() {
    for val in ["", "val:\n", "val: ''\n", "val: []\n"] {
        let folder = with_yaml(&format!("train: [one, two]\n{val}names: [a, b]\n"));
        let opened = opened(folder.path());
        assert_eq!(codes(&opened.report), [FaultCode::NoVal], "{val:?}");
        assert!(!opened.dataset.splits.contains_key(&Split::Val), "no val split is made up");
        assert!(messages(&opened.report).contains("val_split"), "a split is offered");
    }
}

#[test]
fn r13_a_val_split_that_is_asked_for_is_set_aside_and_said() {
    let folder = with_yaml("train: [one, two]\nnames: [a, b]\n");
    let options = OpenOptions { val_split: Some(0.5), ..OpenOptions::default() };
    let opened = open(folder.path(), &options).unwrap();
    assert_eq!(codes(&opened.report), [FaultCode::SetAside], "it is said");
    let n_images = |split| opened.report.splits[&split].n_images;
    assert_eq!((n_images(Split::Train), n_images(Split::Val)), (1, 1), "half of two");
}

#[test]
fn r13_train_may_be_two_folders() {
    let folder = with_yaml("train:\n  - one/images\n  - two/images\nval: two\nnames: [a, b]\n");
    let opened = opened(folder.path());
    assert_eq!(names_of(&opened.dataset.splits[&Split::Train]), ["a.png", "b.png"], "both");
}

#[test]
fn r13_train_may_be_a_list_with_faults_by_line() {
    let folder = with_yaml("train: lists/train.txt\nval: two\nnames: [a, b]\n");
    let absolute = folder.path().join("two/images/b.png");
    add_files(folder.path(), &[("lists/images/c.png", ""), ("lists/images/d.png", "")]);
    let list = format!(
        "\u{feff}./images/c.png\r\nimages/d.png\r\n{}\r\n\r\none/images/a.png\r\nmissing.png\r\n./images/d.png\r\n",
        absolute.display()
    );
    add_files(folder.path(), &[("lists/train.txt", &list)]);
    let opened = opened(folder.path());
    let names: BTreeSet<_> = names_of(&opened.dataset.splits[&Split::Train]).into_iter().collect();
    assert_eq!(
        names,
        ["a.png", "b.png", "c.png", "d.png"].map(str::to_owned).into(),
        "beside the list, root, absolute"
    );
    let faults: Vec<_> = opened.report.faults.iter().map(|fault| (fault.line, fault.code)).collect();
    assert_eq!(faults, [(Some(6), FaultCode::MissingImage), (Some(7), FaultCode::DuplicateImage)], "by line");
}

#[test]
fn r13_path_is_relative_to_the_yaml_absolute_or_absent() {
    let elsewhere = with_yaml("");
    for path in ["..".to_owned(), "./..".to_owned(), elsewhere.path().display().to_string()] {
        let folder = with_yaml("");
        add_files(folder.path(), &[("sub/x.yaml", &format!("path: {path}\ntrain: one\nval: two\nnames: [a, b]\n"))]);
        let opened = opened(&folder.path().join("sub/x.yaml"));
        assert_eq!(opened.report.gate, Gate::Green, "{path}: {}", messages(&opened.report));
    }
    let moved = with_yaml("path: /nowhere/at/all\ntrain: one\nval: two\nnames: [a, b]\n");
    assert_eq!(codes(&opened(moved.path()).report), [FaultCode::PathIgnored], "the yaml's folder, and it is said");
}

#[test]
fn r13_a_folder_of_another_machine_is_refused_with_the_way_out() {
    let folder = with_yaml("train: /Users/x/set/one/images\nval: two\nnames: [a, b]\n");
    assert!(refusal(folder.path()).contains("write `train: one/images`"), "{}", refusal(folder.path()));
}

#[test]
fn r13_a_val_folder_that_is_not_there_is_a_fault() {
    let folder = with_yaml("train: one\nval: nowhere\nnames: [a, b]\n");
    let opened = opened(folder.path());
    assert_eq!(codes(&opened.report), [FaultCode::NoVal, FaultCode::MissingSplit], "no val, because it is not there");
}

#[test]
fn r13_tabs_and_keys_that_come_twice_are_refused_with_their_line() {
    let folder = with_yaml("train: one\nval: two\nnames:\n\t0: a\n");
    let text = refusal(folder.path());
    assert!(text.contains("line") && text.contains("tab"), "{text}");
    let folder = with_yaml("train: one\nval: two\nnames: [a]\ntrain: two\n");
    let text = refusal(folder.path());
    assert!(text.contains("line 4") && text.contains("train"), "{text}");
    let folder = with_yaml("train:\tone\nval:\ttwo\nnames:\t[a, b]\n");
    assert_eq!(opened(folder.path()).report.gate, Gate::Green, "a tab after a colon is YAML");
}

#[test]
fn r13_download_is_never_run() {
    let witness = tempfile::tempdir().unwrap();
    let command = format!("download: touch {}/ran\n", witness.path().display());
    let folder = with_yaml(&format!("train: one\nval: two\nnames: [a, b]\n{command}"));
    assert_eq!(codes(&opened(folder.path()).report), [FaultCode::DownloadIgnored], "it is said");
    assert_eq!(fs::read_dir(witness.path()).unwrap().count(), 0, "nothing was run");
}

#[test]
fn r13_roboflows_parent_folder_is_understood() {
    let folder = with_yaml("train: ../one/images\nval: ../two/images\nnc: 2\nnames: [a, b]\n");
    let opened = opened(folder.path());
    assert_eq!(opened.report.gate, Gate::Green, "{}", messages(&opened.report));
}

// R14, EXIF.

/// A JPEG of 100 x 40 stored pixels with this orientation, red on the left.
fn oriented_jpeg(orientation: u8) -> Vec<u8> {
    let mut jpeg = std::io::Cursor::new(Vec::new());
    picture(100, 40).write_to(&mut jpeg, ImageFormat::Jpeg).unwrap();
    let jpeg = jpeg.into_inner();
    let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    let length = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
    [&jpeg[..2], b"\xff\xe1", &length, &exif, &jpeg[2..]].concat()
}

#[test]
fn r14_an_image_counts_as_it_is_shown_and_labels_lie_on_the_shown_image() {
    // Where the stored left half lies in the shown image: the centre of the red part.
    let red_centers = [
        (1, (0.25, 0.5)),
        (2, (0.75, 0.5)),
        (3, (0.75, 0.5)),
        (4, (0.25, 0.5)),
        (5, (0.5, 0.25)),
        (6, (0.5, 0.25)),
        (7, (0.5, 0.75)),
        (8, (0.5, 0.75)),
    ];
    for (orientation, (red_x, red_y)) in red_centers {
        let folder = folder_with(&[("data.yaml", YAML), ("labels/a.txt", "0 0.25 0.1 0.5 0.2")]);
        fs::create_dir(folder.path().join("images")).unwrap();
        let image = folder.path().join("images/a.jpg");
        fs::write(&image, oriented_jpeg(orientation)).unwrap();
        let opened = opened(folder.path());
        let sample = &opened.dataset.splits[&Split::Train][0];
        let size = if orientation < 5 { (100, 40) } else { (40, 100) };
        assert_eq!((sample.width_px, sample.height_px), size, "orientation {orientation}");
        assert_eq!(boxes_of(&opened), [(0, [0.25, 0.1, 0.5, 0.2])], "the label is relative to the shown image");
        let rgb = decode_rgb(&image).unwrap();
        assert_eq!(rgb.dimensions(), size, "orientation {orientation}: pixels and header agree");
        let pixel = rgb.get_pixel((red_x * f64::from(size.0)) as u32, (red_y * f64::from(size.1)) as u32);
        assert!(
            pixel[0] > 200 && pixel[2] < 50,
            "orientation {orientation}: red is at {red_x}, {red_y}, not {pixel:?}"
        );
    }
}

// R15, images.

fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared").join(name);
    if !path.exists() {
        eprintln!("SKIPPED: {} is absent", path.display());
        return None;
    }
    Some(path)
}

/// Bytes and modification time of every file below a folder.
fn contents(folder: &Path) -> Vec<(PathBuf, std::time::SystemTime, Vec<u8>)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let (modified, bytes) = (fs::metadata(&path).unwrap().modified().unwrap(), fs::read(&path).unwrap());
        (path, modified, bytes)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn r15_odd_images_are_decoded_or_refused_with_a_reason_and_never_changed() {
    let Some(folder) = shared("oddimages") else { return };
    // Formats that are told apart and not decoded, and files that Pillow repairs and we refuse.
    let may_be_refused = [
        "jpeg_arith.jpg",
        "lab.tif",
        "multipage.tiff",
        "hopper.avif",
        "bad_checksum.png",
        "broken_data.png",
        "bad_rle.bmp",
        "corrupt_dc.jpg",
    ];
    let before = contents(&folder);
    let manifest = fs::read_to_string(folder.join("manifest.tsv")).unwrap();
    for row in manifest.lines().skip(1) {
        let columns: Vec<&str> = row.split('\t').collect();
        let (name, pillow) = (columns[0], columns[5]);
        let path = folder.join(name);
        let (size, rgb) = (header_size(&path), decode_rgb(&path));
        let is_good = pillow.contains("load=ok") && !may_be_refused.contains(&name);
        assert!(rgb.is_ok() || !is_good, "{name} opens in Pillow: {pillow}; here: {:?}", rgb.err());
        let (Ok(rgb), Ok(size)) = (rgb, size) else { continue };
        assert_eq!(rgb.dimensions(), (size.width_px, size.height_px), "{name}: pixels and header agree");
    }
    assert!(before == contents(&folder), "bytes and times are as before");
}

#[test]
fn r15_turned_copies_show_one_picture() {
    let Some(folder) = shared("oddimages") else { return };
    let upright = decode_rgb(&folder.join("orient_nonsquare_1.jpg")).unwrap();
    for orientation in [3, 5, 6, 7] {
        let turned = decode_rgb(&folder.join(format!("orient_nonsquare_{orientation}.jpg"))).unwrap();
        assert_eq!(turned.dimensions(), (320, 240), "orientation {orientation}");
        let differences = upright.iter().zip(turned.iter()).map(|(a, b)| f64::from(a.abs_diff(*b)));
        let mean = differences.sum::<f64>() / (320.0 * 240.0 * 3.0);
        assert!(mean < 4.0, "orientation {orientation}: mean difference {mean} of 255, JPEG noise alone");
    }
}

#[test]
fn r15_a_folder_of_odd_images_is_checked_without_an_end() {
    let Some(folder) = shared("oddimages") else { return };
    let options = OpenOptions { image_check: ImageCheck::Pixels, ..OpenOptions::default() };
    let report = open(&folder, &options).unwrap().report;
    assert_eq!(report.gate, Gate::Red, "no labels");
    let faulty = |name: &str| report.faults.iter().find(|fault| fault.file.ends_with(name)).map(|fault| fault.code);
    assert_eq!(faulty("zero_byte.jpg"), Some(FaultCode::UnreadableImage), "an empty file");
    assert_eq!(faulty("bomb.png"), Some(FaultCode::UnreadableImage), "60000 x 60000 pixels");
    assert_eq!(faulty("broken_data.png"), Some(FaultCode::UnreadableImage), "found by decoding");
    assert_eq!(faulty("very_wide.png"), Some(FaultCode::ImageTooSmall), "3 pixels high");
}

// R16, names.

#[test]
fn r16_names_of_any_kind_are_found_with_their_labels() {
    let label = "0 0.5 0.5 0.2 0.2";
    let stems = ["鱼塘 一", "é à ü", "🐟", "a b", "c#1", "d%20e", "x_jpg.rf.1", "'q'", "-f", "[1]"];
    let mut files = vec![("data.yaml".to_owned(), "train: 图片/images\nval: 图片/images\nnames: [鱼]\n".to_owned())];
    for stem in stems {
        files.push((format!("图片/images/ñ {stem}/{stem}.jpg"), String::new()));
        files.push((format!("图片/labels/ñ {stem}/{stem}.txt"), label.to_owned()));
    }
    files.push(("图片/images/A.PNG".to_owned(), String::new()));
    files.push(("图片/labels/A.txt".to_owned(), label.to_owned()));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let folder = folder_with(&files);
    let opened = opened(folder.path());
    let expected = SplitCounts { n_images: stems.len() + 1, n_boxes: stems.len() + 1, n_backgrounds: 0 };
    assert_eq!(opened.report.splits[&Split::Train], expected, "every one with its box");
    assert_eq!(opened.report.gate, Gate::Green, "{}", messages(&opened.report));
}

#[test]
fn r16_two_images_share_one_label_file_and_it_is_said() {
    let folder = folder_with(&[
        ("data.yaml", YAML),
        ("images/a.jpg", ""),
        ("images/a.png", ""),
        ("labels/a.txt", "0 0.5 0.5 0.2 0.2"),
    ]);
    let opened = opened(folder.path());
    assert_eq!(opened.report.splits[&Split::Train].n_boxes, 2, "both have the box");
    assert_eq!(codes(&opened.report), [FaultCode::SharedLabel], "it is said once");
}

#[test]
fn r16_a_parent_called_images_and_labels_beside_images() {
    let folder = folder_with(&[
        ("images/set/data.yaml", "train: images/train\nval: flat/images\nnames: [a]\n"),
        ("images/set/images/train/a.png", ""),
        ("images/set/labels/train/a.txt", "0 0.5 0.5 0.2 0.2"),
        ("images/set/flat/images/b.png", ""),
        ("images/set/flat/images/b.txt", "0 0.5 0.5 0.4 0.4"),
    ]);
    let opened = opened(&folder.path().join("images/set"));
    assert_eq!(opened.report.splits[&Split::Train].n_boxes, 1, "the last `images` is the one");
    assert_eq!(opened.report.splits[&Split::Val].n_boxes, 1, "beside the image, in a folder called images");
}

#[cfg(unix)]
#[test]
fn r16_links_to_images_count_and_loops_end() {
    let folder = folder_with(&[("data.yaml", YAML), ("far/x.png", ""), ("labels/a.txt", "0 0.5 0.5 0.2 0.2")]);
    let images = folder.path().join("images");
    fs::create_dir(&images).unwrap();
    std::os::unix::fs::symlink(folder.path().join("far/x.png"), images.join("a.png")).unwrap();
    std::os::unix::fs::symlink(&images, images.join("loop")).unwrap();
    std::os::unix::fs::symlink(folder.path(), images.join("up")).unwrap();
    std::os::unix::fs::symlink(images.join("gone.png"), images.join("broken.png")).unwrap();
    let opened = opened(folder.path());
    assert_eq!(names_of(&opened.dataset.splits[&Split::Train]), ["a.png"], "the link, under its own name, once");
    assert_eq!(boxes_of(&opened).len(), 1, "with the labels of its own name");
    assert_eq!(codes(&opened.report), [FaultCode::UnreadableImage], "the broken link is named");
}

// R17, nothing is remembered from an earlier reading.

#[test]
fn r17_a_second_reading_sees_fewer_names_and_an_edit_that_kept_size_and_time() {
    let folder = folder_with(&[
        ("data.yaml", "train: images\nval: images\nnames: [a, b, c, d, e]\n"),
        ("images/a.png", ""),
        ("labels/a.txt", "0 0.5 0.5 0.2 0.2\n4 0.5 0.5 0.4 0.4\n"),
    ]);
    assert_eq!(boxes_of(&opened(folder.path())).len(), 2, "classes 0 and 4 of 5");
    fs::write(folder.path().join("data.yaml"), YAML).unwrap();
    assert_eq!(codes(&opened(folder.path()).report), [FaultCode::ClassOutOfRange], "class 4 of 2");

    let label = folder.path().join("labels/a.txt");
    let modified = fs::metadata(&label).unwrap().modified().unwrap();
    fs::write(&label, "1 0.5 0.5 0.2 0.2\n1 0.5 0.5 0.4 0.4\n").unwrap();
    fs::File::options().write(true).open(&label).unwrap().set_modified(modified).unwrap();
    assert_eq!(boxes_of(&opened(folder.path())).len(), 2, "both are class 1 now");
}

// Other formats.

#[test]
fn voc_without_image_sets_gets_a_stated_split_and_keeps_its_float_boxes() {
    let xml = |name: &str| {
        format!(
            "<annotation><filename>{name}.png</filename><path>D:\\x\\{name}.png</path><size><width>64</width>\
             <height>64</height></size><object><name>cat</name><bndbox><xmin>16.5</xmin><ymin>0</ymin><xmax>48.5</xmax>\
             <ymax>32</ymax></bndbox></object></annotation>"
        )
    };
    let files: Vec<(String, String)> = (0..10)
        .flat_map(|i| {
            let name = format!("p{i}");
            [(format!("set/JPEGImages/{name}.png"), String::new()), (format!("set/Annotations/{name}.xml"), xml(&name))]
        })
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let folder = folder_with(&files);
    let opened = opened(folder.path());
    assert_eq!(codes(&opened.report), [FaultCode::SetAside], "it is said");
    assert_eq!(opened.report.splits[&Split::Val].n_images, 1, "a tenth of ten");
    let cx = (16.5 + 48.5) / 2.0 / 64.0;
    assert_eq!(boxes_of(&opened)[0], (0, [cx, 0.25, 0.5, 0.5]), "continuous coordinates, no pixel added");
}

#[test]
fn coco_classes_are_the_used_categories_in_order_of_id_without_crowds() {
    let json = r#"{"images": [{"id": 7, "file_name": "a.png", "width": 64, "height": 64},
        {"id": 8, "file_name": "gone.png", "width": 64, "height": 64}],
        "categories": [{"id": 9, "name": "dog"}, {"id": 0, "name": "animal"}, {"id": 3, "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 9, "bbox": [0, 0, 32, 32], "iscrowd": 0},
            {"id": 2, "image_id": 7, "category_id": 3, "bbox": [16, 16, 16, 16]},
            {"id": 3, "image_id": 7, "category_id": 3, "bbox": [0, 0, 64, 64], "iscrowd": 1},
            {"id": 4, "image_id": 7, "category_id": 3, "bbox": [0, 0, 0, 64]},
            {"id": 5, "image_id": 7, "category_id": 3, "bbox": null},
            {"id": 6, "image_id": 99, "category_id": 3, "bbox": [0, 0, 9, 9]},
            {"id": 7, "image_id": 7, "category_id": 44, "bbox": [0, 0, 9, 9]}]}"#;
    let folder = folder_with(&[("train/_annotations.coco.json", json), ("train/a.png", "")]);
    let opened = opened(folder.path());
    assert_eq!(opened.dataset.class_names, ["cat", "dog"], "by id, the super-category is not used");
    let expected = [(1, [0.25, 0.25, 0.5, 0.5]), (0, [0.375, 0.375, 0.25, 0.25])];
    assert_eq!(boxes_of(&opened), expected, "the crowd is not trained on");
    let found: BTreeSet<_> = codes(&opened.report).into_iter().map(|code| format!("{code:?}")).collect();
    let expected = ["BadAnnotation", "MissingImage", "NoVal", "ZeroSize"].map(str::to_owned);
    assert_eq!(found, expected.into(), "{}", messages(&opened.report));
    assert_eq!(codes(&opened.report).iter().filter(|code| **code == FaultCode::BadAnnotation).count(), 3, "5, 6, 7");
}

#[test]
fn several_formats_in_one_folder_are_named() {
    let folder = with_yaml("train: one\nval: two\nnames: [a, b]\n");
    add_files(folder.path(), &[("VOC/Annotations/x.xml", ""), ("VOC/JPEGImages/x.png", "")]);
    let opened = opened(folder.path());
    assert_eq!(codes(&opened.report), [FaultCode::OtherFormat], "the yaml is used");
    assert!(messages(&opened.report).contains("Pascal VOC"), "the other is named");
}

#[test]
fn a_plain_folder_of_images_and_labels_is_a_dataset() {
    let files: Vec<(String, String)> = (0..4)
        .flat_map(|i| [(format!("{i}.png"), String::new()), (format!("{i}.txt"), format!("{} 0.5 0.5 0.2 0.2", i % 2))])
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let folder = folder_with(&files);
    let unnamed = opened(folder.path());
    assert_eq!(unnamed.dataset.class_names, ["class_0", "class_1"], "as many as occur");
    let found: BTreeSet<_> = codes(&unnamed.report).into_iter().map(|code| format!("{code:?}")).collect();
    assert_eq!(found, ["NamesMissing", "SetAside"].map(str::to_owned).into(), "both are said");
    add_files(folder.path(), &[("classes.txt", "cat\ndog\n")]);
    assert_eq!(opened(folder.path()).dataset.class_names, ["cat", "dog"], "labelImg's list");
}

#[test]
fn kinds_of_errors_tell_missing_from_unusable() {
    let folder = folder_with(&[("notes.md", ""), ("broken.json", "{"), ("list.txt", "")]);
    let kind = |name: &str| open(&folder.path().join(name), &OpenOptions::default()).unwrap_err().kind();
    assert_eq!(kind("nowhere.yaml"), DatasetErrorKind::PathMissing, "no such file");
    assert_eq!(kind(""), DatasetErrorKind::Unusable, "a folder without a dataset");
    assert_eq!(kind("broken.json"), DatasetErrorKind::Unusable, "not JSON");
    assert_eq!(kind("list.txt"), DatasetErrorKind::Unusable, "not a dataset");
}

#[test]
fn moving_a_dataset_keeps_its_fingerprint_and_editing_a_label_changes_it() {
    let (here, there) =
        (with_yaml("train: one\nval: two\nnames: [a, b]\n"), with_yaml("train: one\nval: two\nnames: [a, b]\n"));
    let fingerprint = |folder: &TempDir| opened(folder.path()).dataset.fingerprint().unwrap();
    let before = fingerprint(&here);
    assert_eq!(before, fingerprint(&there), "the same content elsewhere");
    fs::write(there.path().join("one/labels/a.txt"), "0 0.5 0.5 0.2 0.3").unwrap();
    assert_ne!(before, fingerprint(&there), "same size, other box");
}

// Real sets.

#[track_caller]
fn assert_real_set(name: &str, class_names: &[&str], counts: &[(Split, usize, usize)]) -> Option<Opened> {
    let opened = opened(&shared(name)?);
    assert_eq!(opened.dataset.class_names, class_names, "{name}");
    let found: Vec<_> =
        opened.report.splits.iter().map(|(split, counts)| (*split, counts.n_images, counts.n_boxes)).collect();
    assert_eq!(found, counts, "{name}: images and boxes of each split");
    Some(opened)
}

#[test]
fn aquarium_is_read_without_a_fault() {
    let class_names = ["fish", "jellyfish", "penguin", "puffin", "shark", "starfish", "stingray"];
    let counts = [(Split::Train, 150, 1140), (Split::Val, 43, 302), (Split::Test, 21, 171)];
    let Some(opened) = assert_real_set("data/aquarium_yolo", &class_names, &counts) else { return };
    assert_eq!(opened.report.gate, Gate::Green, "{}", messages(&opened.report));
}

#[test]
fn rbc_is_read_without_a_fault_and_without_its_super_class() {
    let counts = [(Split::Train, 210, 4947), (Split::Val, 20, 470), (Split::Test, 10, 221)];
    let Some(opened) = assert_real_set("data/rbc_coco", &["rbc", "wbc"], &counts) else { return };
    assert_eq!(opened.report.gate, Gate::Green, "{}", messages(&opened.report));
}

#[test]
fn bccd_has_its_two_boxes_without_area_left_out() {
    let counts = [(Split::Train, 205, 2804), (Split::Val, 87, 1137), (Split::Test, 72, 945)];
    let Some(opened) = assert_real_set("data/bccd_voc", &["Platelets", "RBC", "WBC"], &counts) else { return };
    assert_eq!(2804 + 1137 + 945 + 2, 4888, "all that the files hold");
    assert_eq!(codes(&opened.report), [FaultCode::ZeroSize; 2], "{}", messages(&opened.report));
    let files: String = opened.report.faults.iter().map(|fault| fault.file.as_str()).collect();
    assert!(files.contains("BloodImage_00338.xml") && files.contains("BloodImage_00343.xml"), "{files}");
}

#[test]
fn fish_is_the_same_from_txt_and_from_xml() {
    let counts = [(Split::Train, 15, 76), (Split::Val, 5, 27)];
    let Some(from_txt) = assert_real_set("data/fish_cjk_derived", &["鱼"], &counts) else { return };
    assert_eq!(from_txt.report.gate, Gate::Green, "{}", messages(&from_txt.report));

    let source = shared("data/fish_cjk_derived").unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (place, ending) in [("voc", "xml"), ("images/训练", "jpg"), ("images/验证", "jpg")] {
        for entry in fs::read_dir(source.join(place)).unwrap() {
            let path = entry.unwrap().path();
            assert!(path.extension().unwrap() == ending, "{} is no {ending}", path.display());
            fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let from_xml = opened(folder.path());
    assert_eq!(codes(&from_xml.report), [FaultCode::SetAside], "{}", messages(&from_xml.report));
    let by_name = |opened: &Opened| {
        let samples = opened.dataset.splits.values().flatten();
        let mut boxes: Vec<_> =
            samples.map(|sample| (sample.image_path.file_name().unwrap().to_owned(), sample.labels.clone())).collect();
        boxes.sort_by(|a, b| a.0.cmp(&b.0));
        boxes
    };
    for ((name, txt), (_, xml)) in by_name(&from_txt).into_iter().zip(by_name(&from_xml)) {
        assert_eq!(txt.len(), xml.len(), "{name:?}");
        for (a, b) in txt.iter().zip(&xml) {
            let (a, b) = (a.box_norm, b.box_norm);
            let differences = [a.cx - b.cx, a.cy - b.cy, a.w - b.w, a.h - b.h];
            assert!(differences.iter().all(|d| d.abs() < 2e-6), "{name:?}: txt has six digits, {differences:?}");
        }
    }
}
