//! What `model=` names: an architecture to begin untrained, or a file of weights.

use std::path::{Path, PathBuf};

use super::{ConfigError, nearest};
use crate::model::Scale;

/// The model a user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelChoice {
    /// A member of the family with fresh weights; scale `T` (`yolov8t`) is tiny and meant for tests.
    Scale(Scale),
    /// A file of trained weights, which also tells the scale and the classes.
    File(PathBuf),
}

/// Names for suggestions; the tiny test scale is accepted but not advertised.
const ADVERTISED: [&str; 5] = ["yolov8n", "yolov8s", "yolov8m", "yolov8l", "yolov8x"];

impl ModelChoice {
    /// Tells a name from a path: known names first, then anything that has a folder in it, ends like a file of weights,
    /// or exists. Whether a file is there is not asked here.
    ///
    /// # Errors
    /// [`ConfigError::UnknownModel`] when `text` is neither.
    pub fn from_text(text: &str) -> Result<Self, ConfigError> {
        if let Ok(scale) = Scale::from_model_name(text) {
            return Ok(Self::Scale(scale));
        }
        let path = Path::new(text);
        let is_weights =
            path.extension().is_some_and(|ext| ["safetensors", "pt", "pth"].iter().any(|known| ext == *known));
        if is_weights || text.contains(['/', '\\']) || path.is_file() {
            return Ok(Self::File(path.to_owned()));
        }
        let suggestion = nearest(text, ADVERTISED.into_iter());
        Err(ConfigError::UnknownModel { name: text.to_owned(), suggestion })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_scales_and_paths_are_files() {
        assert_eq!(ModelChoice::from_text("yolov8n").unwrap(), ModelChoice::Scale(Scale::N));
        assert_eq!(ModelChoice::from_text("yolov8t.yaml").unwrap(), ModelChoice::Scale(Scale::T));
        assert_eq!(ModelChoice::from_text("yolov8n.pt").unwrap(), ModelChoice::File("yolov8n.pt".into()));
        assert_eq!(ModelChoice::from_text("runs/exp/x").unwrap(), ModelChoice::File("runs/exp/x".into()));
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_known_one() {
        let error = ModelChoice::from_text("yolo8n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown model `yolo8n` (did you mean `yolov8n`?); \
             known are yolov8n, yolov8s, yolov8m, yolov8l, yolov8x, or a file of weights"
        );
    }
}
