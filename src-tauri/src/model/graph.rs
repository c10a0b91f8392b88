//! The whole network as a list of layers, each fed by earlier ones.

use burn::module::{Content, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor};
use burn::nn::interpolate::{Interpolate2d, Interpolate2dConfig};
use burn::prelude::*;

use super::blocks::{C2f, ConvBlock, Sppf};
use super::config::{LayerKind, LayerSpec, ModelConfig};
use super::head::{Detect, HeadOutput};

/// A detector. Its tensors carry the reference's names: `model.0.conv.weight`, `model.22.cv3.2.2.bias`.
#[derive(Module, Debug)]
pub struct Detector {
    model: Vec<Layer>,
    #[module(skip)]
    from: Vec<Vec<usize>>,
}

/// One entry of the graph. The variant does not show in tensor names, therefore `Module` is written out below.
#[derive(Clone, Debug)]
pub enum Layer {
    Conv(ConvBlock),
    C2f(C2f),
    Sppf(Sppf),
    Upsample(Interpolate2d),
    Concat,
    Detect(Detect),
}

impl Detector {
    /// A detector whose convolutions are all zero; see [`ModelConfig::init`] for one that can learn.
    pub(super) fn zeroed(config: &ModelConfig, device: &Device) -> Self {
        let specs = config.layers();
        Self {
            model: specs.iter().map(|spec| Layer::new(spec, config, device)).collect(),
            from: specs.into_iter().map(|spec| spec.from).collect(),
        }
    }

    /// Runs the network on a batch.
    ///
    /// # Shapes
    /// `[batch, 3, height, width]`, RGB in 0..=1; height and width are multiples of 32.
    pub fn forward(&self, images: Tensor<4>) -> HeadOutput {
        self.forward_observed(images, &mut |_, _| {})
    }

    /// As [`Self::forward`], showing every layer's output (by its index) as it is made. The head's is the return value.
    pub fn forward_observed(&self, images: Tensor<4>, observe: &mut dyn FnMut(usize, &Tensor<4>)) -> HeadOutput {
        let last_use = self.last_uses();
        let mut outputs: Vec<Option<Tensor<4>>> = Vec::with_capacity(self.model.len());
        let mut images = Some(images);
        let mut detections = None;
        for (layer_idx, layer) in self.model.iter().enumerate() {
            let inputs: Vec<Tensor<4>> = match self.from[layer_idx].as_slice() {
                [] => images.take().into_iter().collect(),
                from => from
                    .iter()
                    .filter_map(|&source| take_or_clone(&mut outputs[source], last_use[source] == layer_idx))
                    .collect(),
            };
            let output = match layer {
                Layer::Detect(detect) => {
                    detections = Some(detect.forward(inputs));
                    None
                }
                Layer::Concat => Some(Tensor::cat(inputs, 1)),
                _ => inputs.into_iter().next().map(|x| layer.forward_single(x)),
            };
            if let Some(output) = &output {
                observe(layer_idx, output);
            }
            outputs.push(output);
        }
        // `ModelConfig::layers` ends every graph with a head.
        detections.expect("the graph ends with its head")
    }

    /// For each layer the index of the last layer that reads it: afterwards its output can be freed.
    fn last_uses(&self) -> Vec<usize> {
        let mut last_use = vec![0; self.model.len()];
        for (reader, sources) in self.from.iter().enumerate() {
            for &source in sources {
                last_use[source] = reader;
            }
        }
        last_use
    }
}

fn take_or_clone(slot: &mut Option<Tensor<4>>, is_last_use: bool) -> Option<Tensor<4>> {
    if is_last_use { slot.take() } else { slot.clone() }
}

impl Layer {
    fn new(spec: &LayerSpec, config: &ModelConfig, device: &Device) -> Self {
        match spec.kind {
            LayerKind::Downsample { c_in, c_out } => Self::Conv(ConvBlock::new(c_in, c_out, 3, 2, device)),
            LayerKind::C2f { c_in, c_out, n_repeats, has_shortcut } => {
                Self::C2f(C2f::new(c_in, c_out, n_repeats, has_shortcut, device))
            }
            LayerKind::Sppf { c_in, c_out } => Self::Sppf(Sppf::new(c_in, c_out, device)),
            LayerKind::Upsample => {
                Self::Upsample(Interpolate2dConfig::new().with_scale_factor(Some([2.0, 2.0])).init())
            }
            LayerKind::Concat => Self::Concat,
            LayerKind::Detect { channels } => Self::Detect(Detect::new(config, channels, device)),
        }
    }

    fn forward_single(&self, x: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Conv(block) => block.forward(x),
            Self::C2f(block) => block.forward(x),
            Self::Sppf(block) => block.forward(x),
            Self::Upsample(resize) => resize.forward(x),
            Self::Concat | Self::Detect(_) => x,
        }
    }
}

/// Calls the same method on whichever module a layer holds; layers without tensors give `$otherwise`.
macro_rules! delegate {
    ($layer:expr, $block:ident => $call:expr, $otherwise:expr) => {
        match $layer {
            Layer::Conv($block) => $call,
            Layer::C2f($block) => $call,
            Layer::Sppf($block) => $call,
            Layer::Detect($block) => $call,
            Layer::Upsample(_) | Layer::Concat => $otherwise,
        }
    };
}

/// Rebuilds the layer from what the same method makes of the module that it holds.
macro_rules! rebuild {
    ($layer:expr, $block:ident => $call:expr) => {
        match $layer {
            Layer::Conv($block) => Layer::Conv($call),
            Layer::C2f($block) => Layer::C2f($call),
            Layer::Sppf($block) => Layer::Sppf($call),
            Layer::Detect($block) => Layer::Detect($call),
            Layer::Upsample(resize) => Layer::Upsample(resize.clone()),
            Layer::Concat => Layer::Concat,
        }
    };
}

impl Module for Layer {
    fn collect_devices(&self, devices: Vec<Device>) -> Vec<Device> {
        delegate!(self, block => block.collect_devices(devices), devices)
    }

    fn fork(self, device: &Device) -> Self {
        rebuild!(self, block => block.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        rebuild!(self, block => block.to_device(device))
    }

    fn train(self) -> Self {
        rebuild!(self, block => block.train())
    }

    fn valid(&self) -> Self {
        rebuild!(self, block => block.valid())
    }

    fn materialize(self) -> Self {
        rebuild!(self, block => block.materialize())
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        delegate!(self, block => block.visit(visitor), ())
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        rebuild!(self, block => block.map(mapper))
    }
}

impl ModuleDisplayDefault for Layer {
    fn content(&self, content: Content) -> Option<Content> {
        Some(content)
    }
}

impl ModuleDisplay for Layer {}
