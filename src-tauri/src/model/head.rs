//! The decoupled, anchor-free head: box distributions and class scores at every point of three feature maps.

use burn::module::{Module, Param};
use burn::prelude::*;

use super::blocks::ConvBlock;
use super::config::ModelConfig;
use super::decode::REG_MAX;
use super::ops::square_conv;

/// Two branches a level: `cv2` for the four box-side distributions, `cv3` for the class scores.
#[derive(Module, Debug)]
pub struct Detect {
    cv2: Vec<(ConvBlock, ConvBlock, BiasedConv)>,
    cv3: Vec<(ConvBlock, ConvBlock, BiasedConv)>,
}

/// A 1x1 convolution with bias, the last of each branch.
#[derive(Module, Debug)]
pub struct BiasedConv {
    /// `[c_out, c_in, 1, 1]`
    weight: Param<Tensor<4>>,
    bias: Param<Tensor<1>>,
}

/// What the network predicts, before sigmoid and softmax. Points are ordered by level (stride 8, 16, 32), then row by row.
#[derive(Debug, Clone)]
pub struct HeadOutput {
    /// `[batch, 4 * REG_MAX, n_points]`: left, top, right, bottom, each a distribution over 0..REG_MAX grid units.
    pub box_logits: Tensor<3>,
    /// `[batch, n_classes, n_points]`
    pub class_logits: Tensor<3>,
    /// Height and width of each level's feature map.
    pub level_sizes: Vec<[usize; 2]>,
}

impl Detect {
    pub(super) fn new(config: &ModelConfig, channels: [usize; 3], device: &Device) -> Self {
        let n_classes = config.n_classes;
        let (box_channels, class_channels) = config.head_channels(channels);
        let branch = |c_in, c_mid, c_out| {
            (
                ConvBlock::new(c_in, c_mid, 3, 1, device),
                ConvBlock::new(c_mid, c_mid, 3, 1, device),
                BiasedConv::new(c_mid, c_out, device),
            )
        };
        Self {
            cv2: channels.iter().map(|&c_in| branch(c_in, box_channels, 4 * REG_MAX)).collect(),
            cv3: channels.iter().map(|&c_in| branch(c_in, class_channels, n_classes)).collect(),
        }
    }

    /// # Shapes
    /// One `[batch, channels[i], height_i, width_i]` for each level.
    pub fn forward(&self, levels: Vec<Tensor<4>>) -> HeadOutput {
        let level_sizes = levels.iter().map(|x| [x.dims()[2], x.dims()[3]]).collect();
        let run = |(first, second, last): &(ConvBlock, ConvBlock, BiasedConv), x: Tensor<4>| {
            last.forward(second.forward(first.forward(x))).flatten::<3>(2, 3) // [batch, c_out, height * width]
        };
        let boxes = self.cv2.iter().zip(&levels).map(|(branch, x)| run(branch, x.clone())).collect();
        let classes = self.cv3.iter().zip(levels).map(|(branch, x)| run(branch, x)).collect();
        HeadOutput { box_logits: Tensor::cat(boxes, 2), class_logits: Tensor::cat(classes, 2), level_sizes }
    }
}

impl BiasedConv {
    fn new(c_in: usize, c_out: usize, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::zeros([c_out, c_in, 1, 1], device)),
            bias: Param::from_tensor(Tensor::zeros([c_out], device)),
        }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        square_conv(x, self.weight.val(), Some(self.bias.val()), 1)
    }
}
