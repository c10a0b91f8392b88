//! Why a dataset could not be opened at all; single bad lines are [`Fault`](super::Fault)s, not errors.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::report::{Fault, FaultCode};

/// Why a dataset cannot be used. Nothing on disk was changed.
#[derive(Debug, Error)]
pub enum DatasetError {
    #[error("no such file or folder: `{}`", path.display())]
    Missing { path: PathBuf },
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "`{}` is not a dataset: expected a data.yaml, a COCO .json, or a folder with a data.yaml, with split folders \
         that hold COCO JSON files, with Annotations and JPEGImages, or with images and their txt or xml labels",
        path.display()
    )]
    UnknownFormat { path: PathBuf },
    #[error("`{}`{}: {message}", path.display(), at_line(*line))]
    Invalid { path: PathBuf, line: Option<usize>, code: FaultCode, message: String },
    #[error("`{}` has no usable image in its train split; `fermata dataset check` lists what was left out", path.display())]
    NoTrainImages { path: PathBuf },
    #[error(
        "`{}` has no usable box in its train split, so there is nothing to learn; `fermata dataset check` lists what \
         was left out",
        path.display()
    )]
    NoTrainBoxes { path: PathBuf },
}

/// What a caller does differently about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatasetErrorKind {
    /// The path that was given does not exist.
    PathMissing,
    /// It exists, and cannot be read or has nothing to train on.
    Unusable,
}

impl DatasetError {
    pub(super) fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), source }
    }

    pub fn kind(&self) -> DatasetErrorKind {
        match self {
            Self::Missing { .. } => DatasetErrorKind::PathMissing,
            Self::Unreadable { .. }
            | Self::UnknownFormat { .. }
            | Self::Invalid { .. }
            | Self::NoTrainImages { .. }
            | Self::NoTrainBoxes { .. } => DatasetErrorKind::Unusable,
        }
    }

    /// The error as an entry of a report.
    pub(super) fn to_fault(&self) -> Fault {
        let (path, line, code) = match self {
            Self::Missing { path } => (path, None, FaultCode::MissingPath),
            Self::Unreadable { path, .. } => (path, None, FaultCode::UnreadableFile),
            Self::UnknownFormat { path } => (path, None, FaultCode::UnknownFormat),
            Self::Invalid { path, line, code, .. } => (path, *line, *code),
            Self::NoTrainImages { path } => (path, None, FaultCode::NoImages),
            Self::NoTrainBoxes { path } => (path, None, FaultCode::NoBoxes),
        };
        let message = match self {
            Self::Invalid { message, .. } => message.clone(),
            _ => self.to_string(),
        };
        Fault::new(path, line, code, message)
    }
}

fn at_line(line: Option<usize>) -> String {
    line.map(|line| format!(" line {line}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_path_is_of_the_missing_kind() {
        let missing = DatasetError::Missing { path: "x".into() };
        assert_eq!(missing.kind(), DatasetErrorKind::PathMissing, "nothing is there");
        let empty = DatasetError::NoTrainBoxes { path: "x".into() };
        assert_eq!(empty.kind(), DatasetErrorKind::Unusable, "it is there, with nothing in it");
    }

    #[test]
    fn an_invalid_file_is_named_with_its_line() {
        let error = DatasetError::Invalid {
            path: "data.yaml".into(),
            line: Some(3),
            code: FaultCode::BadYaml,
            message: "tab".to_owned(),
        };
        assert_eq!(error.to_string(), "`data.yaml` line 3: tab", "file, line, reason");
        assert_eq!(error.to_fault().line, Some(3), "the report keeps the line");
    }
}
