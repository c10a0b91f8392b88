//! Running a detector on images: what was found, how it is written down and how it is drawn.
//!
//! [`Prediction`] is the result for one image, [`draw_detections`] shows it in the image. Knows nothing of training.

pub mod draw;
pub mod label_font;
mod prediction;
mod predictor;

pub use crate::metrics::Detection;
pub use draw::draw_detections;
pub use label_font::LabelFont;
pub use prediction::{NamedDetection, Prediction};
pub use predictor::{PredictError, Predictor};
