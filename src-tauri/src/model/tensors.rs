//! A detector's tensors by name: list, read out, replace.
//!
//! Names, shapes and order are those of the reference's state dict, including the two kinds of entries that are no
//! parameters here: the batch counters of batch norm, and the frozen weights of the box distribution.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::prelude::*;

use super::decode::REG_MAX;
use super::graph::Detector;

/// Name of the frozen 0, 1, .. 15 with which the reference takes a distribution's expectation.
const DFL_NAME: &str = "model.22.dfl.conv.weight";

/// Last part of the names of the reference's batch counters.
pub const BATCH_COUNTER: &str = "num_batches_tracked";

/// What a named tensor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorKind {
    /// A convolution kernel: decayed by the optimizer.
    Weight,
    /// A batch-norm scale: not decayed.
    NormWeight,
    /// Any bias: not decayed, with a warm-up of its own.
    Bias,
    /// A running statistic: no gradient.
    Buffer,
}

/// A tensor's name and shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    pub name: String,
    pub shape: Vec<usize>,
    pub kind: TensorKind,
}

/// A tensor's values on the host, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

impl TensorKind {
    pub fn is_trainable(self) -> bool {
        self != Self::Buffer
    }

    fn of(name: &str) -> Self {
        if name.ends_with(".running_mean") || name.ends_with(".running_var") {
            Self::Buffer
        } else if name.ends_with(".bias") {
            Self::Bias
        } else if name.ends_with(".bn.weight") {
            Self::NormWeight
        } else {
            Self::Weight
        }
    }
}

/// Every parameter and running statistic, in module order.
pub fn list_tensors(model: &Detector) -> Vec<TensorSpec> {
    struct List {
        path: Vec<String>,
        specs: Vec<TensorSpec>,
    }
    impl ModuleVisitor for List {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.path.push(name.to_owned());
        }

        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let name = self.path.join(".");
            let kind = TensorKind::of(&name);
            self.specs.push(TensorSpec { name, shape: param.lazy_shape().to_vec(), kind });
        }
    }
    let mut list = List { path: Vec::new(), specs: Vec::new() };
    model.visit(&mut list);
    list.specs
}

/// Every parameter and running statistic with its values, in module order. Waits for the device.
pub fn export_tensors(model: &Detector) -> Vec<NamedTensor> {
    struct Read {
        values: Vec<Vec<f32>>,
    }
    impl ModuleVisitor for Read {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let data = param.val().into_data().convert::<f32>();
            // The line above made it f32, so the cast cannot fail.
            self.values.push(data.try_into_vec().expect("f32 data"));
        }
    }
    let mut read = Read { values: Vec::new() };
    model.visit(&mut read);
    let specs = list_tensors(model);
    specs
        .into_iter()
        .zip(read.values)
        .map(|(spec, values)| NamedTensor { name: spec.name, shape: spec.shape, values })
        .collect()
}

/// Rebuilds the detector with each tensor replaced by what `replace` gives for it; `None` keeps the old one.
///
/// # Panics
/// When `replace` gives another number of values than the shape holds; callers check what comes from files first.
pub fn replace_tensors(model: Detector, replace: &mut dyn FnMut(&TensorSpec) -> Option<Vec<f32>>) -> Detector {
    let device = model.devices().into_iter().next().unwrap_or_default();
    map_named(model, &mut ReplaceFrom { replace, device })
}

struct ReplaceFrom<'a> {
    replace: &'a mut dyn FnMut(&TensorSpec) -> Option<Vec<f32>>,
    device: Device,
}

impl MapTensor for ReplaceFrom<'_> {
    fn map_tensor<const D: usize>(&mut self, spec: &TensorSpec, tensor: Tensor<D>) -> Tensor<D> {
        match (self.replace)(spec) {
            Some(values) => {
                Tensor::from_data(TensorData::new(values, spec.shape.clone()), &self.device.clone().without_autodiff())
            }
            None => tensor,
        }
    }
}

/// A change applied to every tensor of a detector, told its name. Tensors come and go without autodiff.
pub trait MapTensor {
    fn map_tensor<const D: usize>(&mut self, spec: &TensorSpec, tensor: Tensor<D>) -> Tensor<D>;
}

/// Rebuilds the detector from what `change` makes of each tensor. A trainable tensor stays a leaf that wants gradients.
pub fn map_named<C: MapTensor>(model: Detector, change: &mut C) -> Detector {
    struct Mapper<'a, C> {
        change: &'a mut C,
        specs: std::vec::IntoIter<TensorSpec>,
    }
    impl<C: MapTensor> ModuleMapper for Mapper<'_, C> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            // Specs and parameters are walked in the same module order.
            let spec = self.specs.next().expect("one spec a tensor");
            let (id, tensor, mapper) = param.consume();
            let is_autodiff = tensor.is_autodiff();
            let plain = if is_autodiff { tensor.inner() } else { tensor };
            let changed = self.change.map_tensor(&spec, plain);
            let changed = match is_autodiff {
                true => Tensor::from_inner(changed).set_require_grad(spec.kind.is_trainable()),
                false => changed,
            };
            Param::from_mapped_value(id, changed, mapper)
        }
    }
    let specs = list_tensors(&model).into_iter();
    model.map(&mut Mapper { change, specs })
}

/// An entry of the reference's state dict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateEntry {
    pub name: String,
    /// Empty for the batch counters, which are single integers.
    pub shape: Vec<usize>,
    /// A parameter there (the frozen box-distribution weights are one); otherwise a buffer.
    pub is_parameter: bool,
}

/// Every entry of the reference's state dict for this detector, in its order.
///
/// Beyond our own tensors it has a batch counter behind each running variance, and the frozen weights with which it takes
/// the box distributions' expectation.
pub fn list_state(model: &Detector) -> Vec<StateEntry> {
    let mut entries = Vec::new();
    for spec in list_tensors(model) {
        let counter = spec.name.strip_suffix("running_var").map(|prefix| format!("{prefix}{BATCH_COUNTER}"));
        entries.push(StateEntry { name: spec.name, shape: spec.shape, is_parameter: spec.kind.is_trainable() });
        entries.extend(counter.map(|name| StateEntry { name, shape: Vec::new(), is_parameter: false }));
    }
    let dfl = dfl_tensor();
    entries.push(StateEntry { name: dfl.name, shape: dfl.shape, is_parameter: true });
    entries
}

/// The state dict's frozen box-distribution weights: 0, 1, .. 15.
pub fn dfl_tensor() -> NamedTensor {
    let values = (0..REG_MAX).map(|bin| bin as f32).collect();
    NamedTensor { name: DFL_NAME.to_owned(), shape: vec![1, REG_MAX, 1, 1], values }
}
