//! The settings of the random augmentations, under the names Ultralytics gave them.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How strongly training images are changed. All zeros: only the letterbox remains.
///
/// Names, meanings and defaults are those of Ultralytics 8.4's `yolov8` training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AugmentConfig {
    /// Largest turn of the hue either way, as a fraction of the hue circle; 0..=1, default 0.015, 0 leaves the hue.
    pub hsv_h: f64,
    /// Largest relative change of the saturation; 0..=1, default 0.7, 0 leaves it.
    pub hsv_s: f64,
    /// Largest relative change of the brightness; 0..=1, default 0.4, 0 leaves it.
    pub hsv_v: f64,
    /// Largest rotation either way in degrees; 0..=180, default 0.
    pub degrees: f64,
    /// Largest shift as a fraction of the image side; 0..=1, default 0.1.
    pub translate: f64,
    /// The size is multiplied by a number in `1 - scale..1 + scale`; 0..=1, default 0.5.
    pub scale: f64,
    /// Largest shear either way along each axis in degrees; 0..=80, default 0.
    pub shear: f64,
    /// Largest perspective coefficient, per pixel; 0..=0.001, default 0.
    pub perspective: f64,
    /// Probability of turning the image upside down; 0..=1, default 0.
    pub flipud: f64,
    /// Probability of mirroring the image left to right; 0..=1, default 0.5.
    pub fliplr: f64,
    /// Probability of composing four images; 0..=1, default 1. Off in the last `close_mosaic` epochs.
    pub mosaic: f64,
    /// Probability of blending two images; 0..=1, default 0. Off together with the mosaic.
    pub mixup: f64,
}

/// A setting that no augmentation could be drawn with.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AugmentError {
    #[error("{name} = {value} is outside 0..={highest}")]
    OutOfRange { name: &'static str, value: f64, highest: f64 },
}

impl Default for AugmentConfig {
    fn default() -> Self {
        Self {
            hsv_h: 0.015,
            hsv_s: 0.7,
            hsv_v: 0.4,
            translate: 0.1,
            scale: 0.5,
            fliplr: 0.5,
            mosaic: 1.0,
            ..Self::none()
        }
    }
}

impl AugmentConfig {
    /// No augmentation at all: images are only letterboxed.
    pub fn none() -> Self {
        Self {
            hsv_h: 0.0,
            hsv_s: 0.0,
            hsv_v: 0.0,
            degrees: 0.0,
            translate: 0.0,
            scale: 0.0,
            shear: 0.0,
            perspective: 0.0,
            flipud: 0.0,
            fliplr: 0.0,
            mosaic: 0.0,
            mixup: 0.0,
        }
    }

    /// Checks every setting against its range.
    ///
    /// # Errors
    /// [`AugmentError::OutOfRange`] names the first setting that is outside its range or not a number.
    pub fn validate(&self) -> Result<(), AugmentError> {
        let ranges = [
            ("hsv_h", self.hsv_h, 1.0),
            ("hsv_s", self.hsv_s, 1.0),
            ("hsv_v", self.hsv_v, 1.0),
            ("degrees", self.degrees, 180.0),
            ("translate", self.translate, 1.0),
            ("scale", self.scale, 1.0),
            ("shear", self.shear, 80.0),
            ("perspective", self.perspective, 0.001),
            ("flipud", self.flipud, 1.0),
            ("fliplr", self.fliplr, 1.0),
            ("mosaic", self.mosaic, 1.0),
            ("mixup", self.mixup, 1.0),
        ];
        match ranges.into_iter().find(|(_, value, highest)| !(0.0..=*highest).contains(value)) {
            Some((name, value, highest)) => Err(AugmentError::OutOfRange { name, value, highest }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(AugmentConfig::default().validate(), Ok(()), "what we ship must be accepted");
    }

    #[test]
    fn a_setting_that_is_not_a_number_is_named() {
        let config = AugmentConfig { scale: f64::NAN, ..AugmentConfig::none() };
        let message = config.validate().unwrap_err().to_string();
        assert_eq!(message, "scale = NaN is outside 0..=1", "the user must learn which setting it was");
    }

    #[test]
    fn missing_settings_take_their_defaults() {
        let config: AugmentConfig = serde_json::from_str(r#"{"fliplr": 0.25}"#).unwrap();
        assert_eq!(config, AugmentConfig { fliplr: 0.25, ..AugmentConfig::default() }, "only fliplr was given");
    }
}
