//! Why settings are refused, in a sentence each.

use std::path::PathBuf;

use thiserror::Error;

use super::setting::Accepts;
use crate::exit::Reason;

/// A setting was refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("`{argument}` is not a setting; write key=value or --key value")]
    NotASetting { argument: String },
    #[error("unknown key `{key}`{}", did_you_mean(.suggestion))]
    UnknownKey { key: String, suggestion: Option<&'static str> },
    #[error("`{key}={value}` is not supported by this version{}", only_value(key, only))]
    NotSupported { key: &'static str, value: String, only: &'static str },
    #[error("`{key}` needs a value: {accepts}")]
    NoValue { key: &'static str, accepts: Accepts },
    #[error("`{key}={value}` is not accepted; `{key}` takes {accepts}")]
    BadValue { key: &'static str, value: String, accepts: Accepts },
    #[error("`{key}=` must be given, such as {key}={example}")]
    Missing { key: &'static str, example: &'static str },
    #[error(
        "unknown model `{name}`{}; known are yolov8n, yolov8s, yolov8m, yolov8l, yolov8x, or a file of weights",
        .suggestion.map_or(String::new(), |known| format!(" (did you mean `{known}`?)"))
    )]
    UnknownModel { name: String, suggestion: Option<&'static str> },
    #[error("`model={name}` has no weights yet; name a file of weights, such as runs/exp/weights/best.safetensors")]
    Untrained { name: String },
    #[error("{first} and {second} exclude each other: {why}")]
    Contradiction { first: String, second: String, why: &'static str },
    #[error("`{key}={}`: no such file or folder{hint}", .path.display())]
    PathMissing { key: &'static str, path: PathBuf, hint: &'static str },
}

fn did_you_mean(suggestion: &Option<&str>) -> String {
    suggestion.map_or("; --help lists the keys".to_owned(), |known| format!(", did you mean `{known}`?"))
}

fn only_value(key: &str, only: &str) -> String {
    if only == "-" { String::new() } else { format!("; leave it out, or write `{key}={only}`") }
}

impl ConfigError {
    /// What the process ends with when this refuses a command.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotASetting { .. } => Reason::Usage,
            Self::UnknownKey { .. } => Reason::UnknownKey,
            Self::NotSupported { .. } => Reason::NotSupported,
            Self::NoValue { .. } | Self::BadValue { .. } | Self::Missing { .. } => Reason::BadValue,
            Self::UnknownModel { .. } | Self::Untrained { .. } => Reason::UnknownModel,
            Self::Contradiction { .. } => Reason::Contradiction,
            Self::PathMissing { .. } => Reason::PathMissing,
        }
    }
}
