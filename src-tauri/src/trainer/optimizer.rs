//! Weight updates: SGD with Nesterov momentum and AdamW, their state keyed by tensor name.
//!
//! burn's own optimizers match their state by generated ids and re-initialise what does not fit; a snapshot must be complete
//! and readable, and the rates of the three groups change every batch. Therefore these.

use std::collections::BTreeMap;

use burn::prelude::*;
use serde::{Deserialize, Serialize};

use crate::model::{Detector, MapTensor, NamedTensor, TensorKind, TensorSpec, map_named};

use super::flat_tensors::{MisfitError, flat_values, plain_device, take_flat};
use super::gradients::NamedGradients;
use super::schedule::Rates;

/// How a gradient becomes an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpdateRule {
    /// buffer = momentum * buffer + gradient; weight -= rate * (gradient + momentum * buffer), where the gradient has the
    /// L2 decay in it. I. Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013), in
    /// PyTorch's form.
    #[serde(rename = "SGD")]
    Sgd,
    /// Moments with bias correction, and decay applied to the weight itself. I. Loshchilov, F. Hutter, "Decoupled Weight
    /// Decay Regularization" (2019), algorithm 2. The momentum of the schedule is beta 1.
    AdamW,
}

/// An optimizer and the moments it keeps for every trainable tensor.
#[derive(Debug, Clone)]
pub struct Optimizer {
    rule: UpdateRule,
    /// Decay per step of convolution kernels, already scaled to the batch; other tensors do not decay.
    weight_decay: f64,
    n_steps: usize,
    moments: BTreeMap<String, Moments>,
}

/// Running moments of one tensor's gradient, flattened.
#[derive(Debug, Clone)]
struct Moments {
    /// SGD's momentum buffer, AdamW's first moment.
    first: Tensor<1>,
    /// AdamW's second moment.
    second: Option<Tensor<1>>,
}

/// What stands before a tensor's name in the export.
const FIRST: &str = "first.";
const SECOND: &str = "second.";

/// AdamW's decay of the second moment.
const BETA2: f64 = 0.999;
/// Keeps AdamW's division defined.
const ADAM_EPSILON: f64 = 1e-8;

impl Optimizer {
    pub fn new(rule: UpdateRule, weight_decay: f64) -> Self {
        Self { rule, weight_decay, n_steps: 0, moments: BTreeMap::new() }
    }

    /// One update of the model's weights. Tensors without a gradient stay as they are.
    pub fn step(&mut self, model: Detector, gradients: NamedGradients, rates: &Rates) -> Detector {
        self.n_steps += 1;
        map_named(model, &mut Update { optimizer: self, gradients, rates })
    }

    pub fn n_steps(&self) -> usize {
        self.n_steps
    }

    /// The moments of every tensor that has some, as `first.NAME` and `second.NAME`, in order of name. Waits for the device.
    ///
    /// # Shapes
    /// Flattened: `[n_values]` each.
    pub fn export(&self) -> Vec<NamedTensor> {
        let named = |prefix: &str, name: &str, tensor: &Tensor<1>| flat_values(format!("{prefix}{name}"), tensor);
        let first = self.moments.iter().map(|(name, moments)| named(FIRST, name, &moments.first));
        let second =
            self.moments.iter().filter_map(|(name, moments)| Some(named(SECOND, name, moments.second.as_ref()?)));
        first.chain(second).collect()
    }

    /// Takes up what [`Self::export`] gave, after `n_steps` steps; `tensors` may hold others, which stay in it.
    ///
    /// # Errors
    /// When a tensor's moments have no place in the model, do not fit it, or lack their other half.
    pub fn restore(
        &mut self,
        n_steps: usize,
        tensors: &mut BTreeMap<String, NamedTensor>,
        model: &Detector,
    ) -> Result<(), MisfitError> {
        let device = plain_device(model);
        let mut first = take_flat(FIRST, tensors, model, &device)?;
        let mut second = take_flat(SECOND, tensors, model, &device)?;
        let has_two = self.rule == UpdateRule::AdamW;
        for (name, first) in std::mem::take(&mut first) {
            let second = second.remove(&name);
            if second.is_some() != has_two {
                return Err(MisfitError::OtherRule { name, rule: self.rule });
            }
            self.moments.insert(name, Moments { first, second });
        }
        if let Some((name, _)) = second.into_iter().next() {
            return Err(MisfitError::OtherRule { name, rule: self.rule });
        }
        self.n_steps = n_steps;
        Ok(())
    }

    fn sgd(&mut self, name: &str, weights: Tensor<1>, gradient: Tensor<1>, rate: &TensorRate) -> Tensor<1> {
        let gradient = match rate.weight_decay {
            0.0 => gradient,
            decay => gradient.add(weights.clone().mul_scalar(decay)),
        };
        let buffer = match self.moments.remove(name) {
            Some(moments) => moments.first.mul_scalar(rate.momentum).add(gradient.clone()),
            None => gradient.clone(),
        };
        self.moments.insert(name.to_owned(), Moments { first: buffer.clone(), second: None });
        weights.sub(gradient.add(buffer.mul_scalar(rate.momentum)).mul_scalar(rate.lr))
    }

    fn adam_w(&mut self, name: &str, weights: Tensor<1>, gradient: Tensor<1>, rate: &TensorRate) -> Tensor<1> {
        let beta1 = rate.momentum;
        let fresh_first = gradient.clone().mul_scalar(1.0 - beta1);
        let fresh_second = gradient.square().mul_scalar(1.0 - BETA2);
        let (first, second) = match self.moments.remove(name) {
            Some(Moments { first, second: Some(second) }) => {
                (first.mul_scalar(beta1).add(fresh_first), second.mul_scalar(BETA2).add(fresh_second))
            }
            _ => (fresh_first, fresh_second),
        };
        self.moments.insert(name.to_owned(), Moments { first: first.clone(), second: Some(second.clone()) });
        let correction = |beta: f64| 1.0 - beta.powi(self.n_steps as i32);
        let spread = second.sqrt().div_scalar(correction(BETA2).sqrt()).add_scalar(ADAM_EPSILON);
        let decayed = weights.mul_scalar(1.0 - rate.lr * rate.weight_decay);
        decayed.sub(first.div(spread).mul_scalar(rate.lr / correction(beta1)))
    }
}

/// What applies to one tensor in one step.
struct TensorRate {
    lr: f64,
    momentum: f64,
    weight_decay: f64,
}

struct Update<'a> {
    optimizer: &'a mut Optimizer,
    gradients: NamedGradients,
    rates: &'a Rates,
}

impl MapTensor for Update<'_> {
    fn map_tensor<const D: usize>(&mut self, spec: &TensorSpec, tensor: Tensor<D>) -> Tensor<D> {
        let Some(gradient) = self.gradients.take_one(&spec.name) else {
            return tensor;
        };
        let (lr, weight_decay) = match spec.kind {
            TensorKind::Bias => (self.rates.lr_bias, 0.0),
            TensorKind::NormWeight | TensorKind::Buffer => (self.rates.lr_norm, 0.0),
            TensorKind::Weight => (self.rates.lr_weight, self.optimizer.weight_decay),
        };
        let rate = TensorRate { lr, momentum: self.rates.momentum, weight_decay };
        let shape = tensor.shape();
        let weights = tensor.flatten(0, D - 1);
        let updated = match self.optimizer.rule {
            UpdateRule::Sgd => self.optimizer.sgd(&spec.name, weights, gradient, &rate),
            UpdateRule::AdamW => self.optimizer.adam_w(&spec.name, weights, gradient, &rate),
        };
        updated.reshape(shape)
    }
}
