//! What happens to an image and its boxes between the file and the network: letterbox and the random augmentations.
//!
//! Every function moves image and boxes together. Random numbers come from [`Draws`], which are functions of
//! (run seed, epoch, sample), never from a running generator. Knows nothing of files, threads, tensors or the clock.

mod affine;
mod config;
mod draws;
mod flip;
mod hsv;
mod labeled;
mod letterbox;
mod matrix;
mod mixup;
mod mosaic;
mod rect;
mod resize;
mod train;
mod warp;

pub use affine::Affine;
pub use config::{AugmentConfig, AugmentError};
pub use draws::{Draws, Purpose, epoch_order};
pub use flip::{flip_lr, flip_ud};
pub use hsv::{HsvChange, apply_hsv};
pub use labeled::{LabeledBox, LabeledImage, LoadedImage};
pub use letterbox::{FILL, Letterbox, SizePx, fit_gain, loaded_size};
pub use matrix::Matrix3;
pub use mixup::mixup;
pub use mosaic::{MosaicCenter, mosaic};
pub use rect::{RectBatch, RectConfig, rect_batches};
pub use resize::resize_bilinear;
pub use train::TrainAugment;
pub use warp::warp;
