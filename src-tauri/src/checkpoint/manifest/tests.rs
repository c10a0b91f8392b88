use super::*;
use crate::checkpoint::store::fixture::{about, id};

fn manifest_of(names: &[&str]) -> Manifest {
    let files: Vec<_> = names.iter().map(|name| ((*name).to_owned(), b"content".to_vec())).collect();
    Manifest::of(&about(id(3, 12)), &files)
}

fn read_back(bytes: &[u8]) -> Result<Manifest, ManifestError> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(MANIFEST_FILE), bytes).unwrap();
    Manifest::read(dir.path(), id(3, 12))
}

#[test]
fn a_manifest_comes_back_as_written() {
    let mut manifest = manifest_of(&[WEIGHTS_FILE, "state.json"]);
    manifest.about.metrics.insert("mAP50-95".to_owned(), 0.1 + 0.2);
    manifest.about.parent = Some("другой/e0001-b000004".to_owned());
    manifest.about.created_unix_ms = u64::MAX;
    assert_eq!(read_back(&manifest.to_bytes().unwrap()).unwrap(), manifest);
}

#[test]
fn the_file_is_plain_json_with_version_sizes_and_hashes() {
    let json: serde_json::Value = serde_json::from_slice(&manifest_of(&[WEIGHTS_FILE]).to_bytes().unwrap()).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["id"], "e0003-b000012");
    assert_eq!(json["files"][0]["name"], WEIGHTS_FILE);
    assert_eq!(json["files"][0]["bytes"], 7);
    assert_eq!(json["files"][0]["blake3"], blake3::hash(b"content").to_hex().as_str());
}

#[test]
fn the_grade_follows_from_the_files() {
    let grade = |names: &[&str]| manifest_of(names).grade();
    assert_eq!(grade(&[WEIGHTS_FILE, EMA_FILE, OPTIMIZER_FILE, STATE_FILE]), Grade::Full);
    assert_eq!(grade(&[WEIGHTS_FILE, OPTIMIZER_FILE, STATE_FILE]), Grade::Weights, "without the average");
    assert_eq!(grade(&[EMA_FILE]), Grade::Weights);
    assert_eq!(grade(&[STATE_FILE]), Grade::Record);
    assert_eq!(serde_json::to_string(&[Grade::Full, Grade::Record]).unwrap(), r#"["full","record"]"#);
}

#[test]
fn a_figure_that_is_not_finite_is_left_out() {
    let mut about = about(id(3, 12));
    about.metrics = BTreeMap::from([("mAP50".to_owned(), f64::NAN), ("mAP50-95".to_owned(), 0.5)]);
    let manifest = Manifest::of(&about, &[]);
    assert_eq!(read_back(&manifest.to_bytes().unwrap()).unwrap().about.metrics.len(), 1);
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = manifest_of(&[WEIGHTS_FILE]).to_bytes().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(MANIFEST_FILE);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &flipped).unwrap();
        assert!(Manifest::read(dir.path(), id(3, 12)).is_err(), "bit {bit}");
    }
}

#[test]
fn a_manifest_cut_short_anywhere_is_none() {
    let bytes = manifest_of(&[WEIGHTS_FILE]).to_bytes().unwrap();
    // The last byte is the line break after the closing brace, which nothing depends on.
    for n_bytes in (0..bytes.len() - 1).step_by(7) {
        assert!(read_back(&bytes[..n_bytes]).is_err(), "{n_bytes} bytes");
    }
    assert!(read_back(&vec![0; bytes.len()]).is_err(), "zeros");
}

#[test]
fn a_manifest_of_a_newer_program_is_refused_by_its_version() {
    let newer = br#"{"version":2,"identity":{}}"#;
    assert!(matches!(read_back(newer), Err(ManifestError::FutureVersion { found: 2, .. })));
}

#[test]
fn hostile_file_names_are_refused() {
    let names =
        ["../run.json", "..", ".", "", "/etc/passwd", "a/b", "a\\b", "c:x", ".hidden", "manifest.json", "Pinned"];
    for name in names {
        let result = read_back(&manifest_of(&[name]).to_bytes().unwrap());
        assert!(matches!(result, Err(ManifestError::FileName { .. })), "`{name}`: {result:?}");
    }
    let twice = read_back(&manifest_of(&[EMA_FILE, EMA_FILE]).to_bytes().unwrap());
    assert!(matches!(twice, Err(ManifestError::FileName { .. })));
}

#[test]
fn the_manifest_of_another_checkpoint_is_refused() {
    let other = Manifest::of(&about(id(4, 16)), &[]).to_bytes().unwrap();
    assert!(matches!(read_back(&other), Err(ManifestError::OtherId { .. })));
}

#[test]
fn a_huge_manifest_is_not_read_whole() {
    assert!(matches!(read_back(&vec![b' '; 2 << 20]), Err(ManifestError::TooLarge)));
}
