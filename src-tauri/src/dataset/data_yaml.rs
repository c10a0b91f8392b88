//! The `data.yaml` of a YOLO dataset. It is data: nothing in it is run or downloaded.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::DatasetError;
use super::report::{Fault, FaultCode};
use super::yolo_txt::MAX_UNNAMED_CLASSES;

/// The keys of a data.yaml that say something about a detection dataset; all others are passed over.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DataYaml {
    pub path: Option<String>,
    pub train: Option<PathList>,
    #[serde(alias = "valid", alias = "validation")]
    pub val: Option<PathList>,
    pub test: Option<PathList>,
    pub nc: Option<usize>,
    pub names: Option<Names>,
    /// Key points and numbers per key point, in a pose dataset.
    pub kpt_shape: Option<[usize; 2]>,
    download: Option<IgnoredAny>,
}

/// One path or a list of them.
#[derive(Debug)]
pub(super) struct PathList(pub Vec<String>);

/// `[a, b]`, or `{0: a, 1: b}`.
#[derive(Debug)]
pub(super) enum Names {
    Listed(Vec<String>),
    Numbered(BTreeMap<i64, String>),
}

/// Reads the file; faults that leave it usable go to `faults`.
///
/// # Errors
/// It cannot be read, or is not YAML with these keys.
pub(super) fn read_data_yaml(file: &Path, faults: &mut Vec<Fault>) -> Result<DataYaml, DatasetError> {
    let bytes = fs::read(file).map_err(|error| DatasetError::unreadable(file, error))?;
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let options = serde_saphyr::options! { with_snippet: false };
    let yaml: Option<DataYaml> =
        serde_saphyr::from_slice_with_options(text, options).map_err(|error| bad_yaml(file, text, &error))?;
    let yaml = yaml.unwrap_or_default();
    if yaml.download.is_some() {
        let message = "the `download` key is ignored: nothing in a data.yaml is run or fetched";
        faults.push(Fault::new(file, None, FaultCode::DownloadIgnored, message));
    }
    Ok(yaml)
}

/// The class names in order of class index.
///
/// # Errors
/// Numbers with a gap, a count (`nc`) that disagrees, or no names and no count.
pub(super) fn class_names(yaml: &DataYaml, file: &Path, faults: &mut Vec<Fault>) -> Result<Vec<String>, DatasetError> {
    let invalid = |code, message: String| DatasetError::Invalid { path: file.to_owned(), line: None, code, message };
    let names = match (&yaml.names, yaml.nc) {
        (Some(Names::Listed(names)), _) => names.clone(),
        (Some(Names::Numbered(names)), _) => names_without_gap(names).map_err(|m| invalid(FaultCode::NamesGap, m))?,
        (None, Some(n_classes)) if (1..=MAX_UNNAMED_CLASSES).contains(&n_classes) => {
            let message = format!("no `names`: the {n_classes} classes are called class_0 and so on");
            faults.push(Fault::new(file, None, FaultCode::NamesMissing, message));
            numbered_names(n_classes)
        }
        (None, _) => {
            let message = "no `names`: add the class names in order, as in `names: [cat, dog]`";
            return Err(invalid(FaultCode::BadNames, message.to_owned()));
        }
    };
    if names.is_empty() {
        return Err(invalid(FaultCode::BadNames, "`names` is empty: a detector needs a class".to_owned()));
    }
    if let Some(n_classes) = yaml.nc.filter(|n_classes| *n_classes != names.len()) {
        let message = format!("`nc` is {n_classes}, but `names` has {}; make them agree or drop `nc`", names.len());
        return Err(invalid(FaultCode::NamesCount, message));
    }
    if let Some((class_idx, name)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        let message = format!("class {class_idx} is called `{name}` like an earlier one");
        faults.push(Fault::new(file, None, FaultCode::DuplicateClassName, message));
    }
    Ok(names)
}

/// Names for classes that nobody named.
pub(super) fn numbered_names(n_classes: usize) -> Vec<String> {
    (0..n_classes).map(|class_idx| format!("class_{class_idx}")).collect()
}

fn names_without_gap(names: &BTreeMap<i64, String>) -> Result<Vec<String>, String> {
    let missing = (0..).zip(names.keys()).find(|(expected, number)| expected != *number);
    if let Some((expected, _)) = missing {
        let numbers: Vec<String> = names.keys().map(i64::to_string).collect();
        return Err(format!(
            "`names` must number the classes 0, 1, 2 .. without a gap; {expected} is missing (there are {})",
            numbers.join(", ")
        ));
    }
    Ok(names.values().cloned().collect())
}

fn bad_yaml(file: &Path, text: &[u8], error: &serde_saphyr::Error) -> DatasetError {
    let line = error.location().and_then(|location| usize::try_from(location.line()).ok()).filter(|line| *line > 0);
    let has_tab = |line_idx: usize| {
        let line = text.split(|byte| *byte == b'\n').nth(line_idx).unwrap_or_default();
        line.iter().take_while(|byte| byte.is_ascii_whitespace()).any(|byte| *byte == b'\t')
    };
    let tab_line = line.filter(|line| has_tab(line - 1) || has_tab(*line));
    let text = error.to_string();
    let first_line = text.lines().next().unwrap_or_default();
    // The parser ends some messages with advice to programmers.
    let reason = [", set DuplicateKeyPolicy", "; use Option"]
        .into_iter()
        .fold(first_line, |reason, advice| reason.split(advice).next().unwrap_or(reason));
    let message = match tab_line {
        Some(_) => "not valid YAML: lines are indented with tabs; YAML wants spaces".to_owned(),
        None => format!("not a valid data.yaml: {reason}"),
    };
    DatasetError::Invalid { path: file.to_owned(), line, code: FaultCode::BadYaml, message }
}

impl<'de> Deserialize<'de> for PathList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PathListVisitor;
        impl<'de> Visitor<'de> for PathListVisitor {
            type Value = PathList;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a path or a list of paths")
            }
            fn visit_str<E>(self, path: &str) -> Result<PathList, E> {
                Ok(PathList(Some(path.trim()).filter(|path| !path.is_empty()).map(str::to_owned).into_iter().collect()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut paths: A) -> Result<PathList, A::Error> {
                let mut list = Vec::new();
                while let Some(path) = paths.next_element::<String>()? {
                    list.push(path);
                }
                Ok(PathList(list))
            }
        }
        deserializer.deserialize_any(PathListVisitor)
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamesVisitor;
        // Elements are asked for as strings, so that the names `1`, `no` and `true` stay what was written.
        impl<'de> Visitor<'de> for NamesVisitor {
            type Value = Names;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of class names, or a map from class number to name")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Names, A::Error> {
                let mut list = Vec::new();
                while let Some(name) = names.next_element::<String>()? {
                    list.push(name);
                }
                Ok(Names::Listed(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut names: A) -> Result<Names, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((number, name)) = names.next_entry::<String, String>()? {
                    let Ok(number) = number.parse::<i64>() else {
                        return Err(serde::de::Error::custom(format!("`names` has the key `{number}`, not a number")));
                    };
                    map.insert(number, name);
                }
                Ok(Names::Numbered(map))
            }
        }
        deserializer.deserialize_any(NamesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(text: &str) -> Result<Vec<String>, DatasetError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data.yaml");
        fs::write(&file, text).unwrap();
        let mut faults = Vec::new();
        let yaml = read_data_yaml(&file, &mut faults)?;
        class_names(&yaml, &file, &mut faults)
    }

    #[test]
    fn names_are_a_list_or_a_map_from_zero() {
        assert_eq!(names_in("names: [a, b]").unwrap(), ["a", "b"], "list");
        assert_eq!(names_in("names: {1: b, 0: a}").unwrap(), ["a", "b"], "map, in order of number");
        assert_eq!(names_in("names:\n  '0': a\n  '1': b\n").unwrap(), ["a", "b"], "numbers as text");
        assert_eq!(names_in("names: [no, 1, true]").unwrap(), ["no", "1", "true"], "as written");
        assert_eq!(names_in("nc: 2").unwrap(), ["class_0", "class_1"], "only a count");
    }

    #[test]
    fn a_gap_is_refused_by_its_number() {
        let error = names_in("names: {1: a, 3: b}").unwrap_err().to_string();
        assert!(error.contains("0 is missing (there are 1, 3)"), "{error}");
    }

    #[test]
    fn a_count_that_disagrees_is_refused() {
        let error = names_in("nc: 3\nnames: [a, b]").unwrap_err().to_string();
        assert!(error.contains("`nc` is 3, but `names` has 2"), "{error}");
    }

    #[test]
    fn tabs_and_keys_that_come_twice_are_refused_with_their_line() {
        let error = names_in("names:\n\t0: a\n").unwrap_err().to_string();
        assert!(error.contains("line ") && error.contains("tabs"), "{error}");
        let error = names_in("names: [a]\nnc: 1\nnames: [b]\n").unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("names"), "{error}");
    }
}
