//! Which detector to build: the family's graph, scaled in depth and width.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::decode::REG_MAX;

/// Depth and width of a family member.
///
/// The factors of n, s, m, l, x are those published with YOLOv8. `T` is ours, for tests only: the same graph with an
/// eighth of the base width, so that a checkpoint is small and a step quick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    T,
    N,
    S,
    M,
    L,
    X,
}

/// A YOLOv8 detector of a given scale for a given number of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelConfig {
    pub scale: Scale,
    /// Number of classes, at least 1.
    pub n_classes: usize,
}

/// One row of the graph: where a layer's input comes from, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerSpec {
    /// Indices of earlier layers whose outputs are the input.
    pub from: Vec<usize>,
    pub kind: LayerKind,
}

/// A layer with its channel numbers worked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerKind {
    /// 3x3 convolution of stride 2, batch norm, SiLU.
    Downsample { c_in: usize, c_out: usize },
    /// Cross-stage block with `n_repeats` bottlenecks.
    C2f { c_in: usize, c_out: usize, n_repeats: usize, has_shortcut: bool },
    /// Fast spatial pyramid pooling.
    Sppf { c_in: usize, c_out: usize },
    /// Nearest-neighbour upsampling by two.
    Upsample,
    /// Concatenation along the channels.
    Concat,
    /// The head, over three feature maps.
    Detect { channels: [usize; 3] },
}

/// The name is not that of a detector this program can build.
#[derive(Debug, Error)]
#[error(
    "unknown model `{name}`; known are yolov8n, yolov8s, yolov8m, yolov8l, yolov8x (and yolov8t, a tiny scale for tests), or a .safetensors file"
)]
pub struct UnknownModel {
    pub name: String,
}

impl Scale {
    /// The scale named by `yolov8n`, `yolov8n.yaml` and the like.
    pub fn from_model_name(name: &str) -> Result<Self, UnknownModel> {
        let unknown = || UnknownModel { name: name.to_owned() };
        let stem = name.strip_suffix(".yaml").unwrap_or(name).to_ascii_lowercase();
        match stem.strip_prefix("yolov8").ok_or_else(unknown)? {
            "t" => Ok(Self::T),
            "n" => Ok(Self::N),
            "s" => Ok(Self::S),
            "m" => Ok(Self::M),
            "l" => Ok(Self::L),
            "x" => Ok(Self::X),
            _ => Err(unknown()),
        }
    }

    fn depth(self) -> f64 {
        match self {
            Self::T | Self::N | Self::S => 1.0 / 3.0,
            Self::M => 2.0 / 3.0,
            Self::L | Self::X => 1.0,
        }
    }

    fn width(self) -> f64 {
        match self {
            Self::T => 0.125,
            Self::N => 0.25,
            Self::S => 0.5,
            Self::M => 0.75,
            Self::L => 1.0,
            Self::X => 1.25,
        }
    }

    /// Base channels above this are cut to it before the width factor applies.
    fn max_channels(self) -> usize {
        match self {
            Self::T | Self::N | Self::S => 1024,
            Self::M => 768,
            Self::L | Self::X => 512,
        }
    }

    /// A base channel number scaled by the width and rounded up to a multiple of eight.
    fn channels(self, base: usize) -> usize {
        let scaled = base.min(self.max_channels()) as f64 * self.width();
        (scaled / 8.0).ceil() as usize * 8
    }

    /// A base repeat number scaled by the depth, at least one.
    fn repeats(self, base: usize) -> usize {
        ((base as f64 * self.depth()).round() as usize).max(1)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::T => "yolov8t",
            Self::N => "yolov8n",
            Self::S => "yolov8s",
            Self::M => "yolov8m",
            Self::L => "yolov8l",
            Self::X => "yolov8x",
        })
    }
}

impl ModelConfig {
    pub fn new(scale: Scale, n_classes: usize) -> Self {
        Self { scale, n_classes }
    }

    /// Hidden channels of the head's box and class branches, given the channels of its three inputs.
    pub(super) fn head_channels(&self, channels: [usize; 3]) -> (usize, usize) {
        let box_channels = 16.max(channels[0] / 4).max(4 * REG_MAX);
        (box_channels, channels[0].max(self.n_classes.min(100)))
    }

    /// The graph: layers 0..=9 are the backbone, 10..=21 the neck (a path aggregation network), 22 the head.
    pub fn layers(&self) -> Vec<LayerSpec> {
        let c = |base| self.scale.channels(base);
        let n = |base| self.scale.repeats(base);
        let row = |from: &[usize], kind| LayerSpec { from: from.to_vec(), kind };
        let down = |c_in, c_out| LayerKind::Downsample { c_in, c_out };
        let backbone_c2f =
            |base, repeats| LayerKind::C2f { c_in: c(base), c_out: c(base), n_repeats: n(repeats), has_shortcut: true };
        let neck_c2f = |c_in, base| LayerKind::C2f { c_in, c_out: c(base), n_repeats: n(3), has_shortcut: false };

        vec![
            row(&[], down(3, c(64))),
            row(&[0], down(c(64), c(128))),
            row(&[1], backbone_c2f(128, 3)),
            row(&[2], down(c(128), c(256))),
            row(&[3], backbone_c2f(256, 6)),
            row(&[4], down(c(256), c(512))),
            row(&[5], backbone_c2f(512, 6)),
            row(&[6], down(c(512), c(1024))),
            row(&[7], backbone_c2f(1024, 3)),
            row(&[8], LayerKind::Sppf { c_in: c(1024), c_out: c(1024) }),
            row(&[9], LayerKind::Upsample),
            row(&[10, 6], LayerKind::Concat),
            row(&[11], neck_c2f(c(1024) + c(512), 512)),
            row(&[12], LayerKind::Upsample),
            row(&[13, 4], LayerKind::Concat),
            row(&[14], neck_c2f(c(512) + c(256), 256)),
            row(&[15], down(c(256), c(256))),
            row(&[16, 12], LayerKind::Concat),
            row(&[17], neck_c2f(c(256) + c(512), 512)),
            row(&[18], down(c(512), c(512))),
            row(&[19, 9], LayerKind::Concat),
            row(&[20], neck_c2f(c(512) + c(1024), 1024)),
            row(&[15, 18, 21], LayerKind::Detect { channels: [c(256), c(512), c(1024)] }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_yaml_are_the_same_scale() {
        assert_eq!(Scale::from_model_name("yolov8n").unwrap(), Scale::N);
        assert_eq!(Scale::from_model_name("YOLOv8x.yaml").unwrap(), Scale::X);
        assert!(Scale::from_model_name("yolov9c").is_err(), "another family is not guessed at");
    }

    #[test]
    fn channels_are_multiples_of_eight() {
        assert_eq!(Scale::M.channels(1024), 576, "768 * 0.75");
        assert_eq!(Scale::T.channels(64), 8);
        assert_eq!(Scale::N.repeats(6), 2);
    }
}
