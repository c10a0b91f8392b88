//! Exponential moving average of a detector's weights and running statistics.

use std::collections::HashMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::prelude::*;

use crate::model::{Detector, MapTensor, TensorSpec, list_tensors, map_named};

/// The average and how often it was updated. The average lives without autodiff and is what gets validated and saved.
#[derive(Debug, Clone)]
pub struct Ema {
    model: Detector,
    n_updates: usize,
}

/// Share of the old average that a long run approaches.
const DECAY: f64 = 0.9999;
/// Updates over which the share rises: early averages follow the young weights.
const RAMP_UPDATES: f64 = 2000.0;

impl Ema {
    /// Starts from the model's present weights.
    pub fn new(model: &Detector) -> Self {
        Self { model: model.valid(), n_updates: 0 }
    }

    /// Share of the old average at the `n_updates`-th update, 0..1: 0.9999 * (1 - exp(-n / 2000)), the reference's ramp.
    pub fn decay(n_updates: usize) -> f64 {
        DECAY * (1.0 - (-(n_updates as f64) / RAMP_UPDATES).exp())
    }

    /// Moves the average towards the model.
    pub fn update(&mut self, model: &Detector) {
        self.n_updates += 1;
        let decay = Self::decay(self.n_updates);
        let newest = flat_tensors(model);
        self.model = map_named(self.model.clone(), &mut Blend { decay, newest });
    }

    /// An average as it was after `n_updates` updates; `model` is without autodiff.
    pub fn restore(model: Detector, n_updates: usize) -> Self {
        Self { model, n_updates }
    }

    pub fn n_updates(&self) -> usize {
        self.n_updates
    }

    pub fn model(&self) -> &Detector {
        &self.model
    }
}

/// Every tensor of the model, flattened and without autodiff, by name.
fn flat_tensors(model: &Detector) -> HashMap<String, Tensor<1>> {
    struct Collect {
        specs: std::vec::IntoIter<TensorSpec>,
        tensors: HashMap<String, Tensor<1>>,
    }
    impl ModuleVisitor for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let tensor = param.val();
            let plain = if tensor.is_autodiff() { tensor.inner() } else { tensor };
            // Specs and parameters are walked in the same module order.
            let spec = self.specs.next().expect("one spec a tensor");
            self.tensors.insert(spec.name, plain.flatten(0, D - 1));
        }
    }
    let mut collect = Collect { specs: list_tensors(model).into_iter(), tensors: HashMap::new() };
    model.visit(&mut collect);
    collect.tensors
}

struct Blend {
    decay: f64,
    newest: HashMap<String, Tensor<1>>,
}

impl MapTensor for Blend {
    fn map_tensor<const D: usize>(&mut self, spec: &TensorSpec, tensor: Tensor<D>) -> Tensor<D> {
        let Some(newest) = self.newest.remove(&spec.name) else {
            return tensor;
        };
        let shape = tensor.shape();
        let average: Tensor<1> = tensor.flatten(0, D - 1);
        average.mul_scalar(self.decay).add(newest.mul_scalar(1.0 - self.decay)).reshape(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decay_ramps_from_zero_to_its_limit() {
        assert!((Ema::decay(1) - 0.000_499_825_033).abs() < 1e-9, "the first update takes nearly all of the model");
        assert!((Ema::decay(100_000) - 0.9999).abs() < 1e-9);
    }
}
