//! Gradients by tensor name: taken from a backward pass, accumulated, clipped together.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::prelude::*;
use burn::tensor::Gradients;

use super::flat_tensors::{MisfitError, flat_values, plain_device, take_flat};
use crate::model::{Detector, NamedTensor, TensorSpec, list_tensors};

/// Gradients of a detector, each flattened to one axis, by tensor name. Tensors without a gradient are absent.
#[derive(Debug, Clone, Default)]
pub struct NamedGradients {
    by_name: BTreeMap<String, Tensor<1>>,
}

/// What stands before a tensor's name in the export.
const PREFIX: &str = "gradient.";

/// Keeps the clipping factor defined for gradients of zero.
const NORM_EPSILON: f64 = 1e-6;

impl NamedGradients {
    /// Takes the gradients of the model's tensors out of a backward pass.
    pub fn take(model: &Detector, gradients: &mut Gradients) -> Self {
        struct Take<'a> {
            gradients: &'a mut Gradients,
            specs: std::vec::IntoIter<TensorSpec>,
            by_name: BTreeMap<String, Tensor<1>>,
        }
        impl ModuleVisitor for Take<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                // Specs and parameters are walked in the same module order.
                let spec = self.specs.next().expect("one spec a tensor");
                if let Some(gradient) =
                    spec.kind.is_trainable().then(|| param.val().grad_remove(self.gradients)).flatten()
                {
                    self.by_name.insert(spec.name, gradient.flatten(0, D - 1));
                }
            }
        }
        let mut take = Take { gradients, specs: list_tensors(model).into_iter(), by_name: BTreeMap::new() };
        model.visit(&mut take);
        Self { by_name: take.by_name }
    }

    /// Adds another batch's gradients.
    pub fn add(&mut self, other: Self) {
        for (name, gradient) in other.by_name {
            let sum = match self.by_name.remove(&name) {
                Some(open) => open.add(gradient),
                None => gradient,
            };
            self.by_name.insert(name, sum);
        }
    }

    /// Euclidean norm over all gradients, summed in order of name. Waits for the device.
    ///
    /// Along an axis, since burn's whole sum depends on the number of threads for large tensors.
    pub fn global_norm(&self) -> f64 {
        let squares: Vec<Tensor<1>> =
            self.by_name.values().map(|gradient| gradient.clone().square().sum_dim(0)).collect();
        if squares.is_empty() {
            return 0.0;
        }
        let squares = Tensor::cat(squares, 0).into_data().convert::<f32>();
        squares.iter::<f32>().map(f64::from).sum::<f64>().sqrt()
    }

    /// Scales all gradients so that their common norm is at most `max_norm`; gives the norm before. Waits for the device.
    ///
    /// R. Pascanu et al., "On the difficulty of training recurrent neural networks" (2013), algorithm 1.
    pub fn clip_global_norm(&mut self, max_norm: f64) -> f64 {
        let norm = self.global_norm();
        let factor = max_norm / (norm + NORM_EPSILON);
        if factor < 1.0 {
            for gradient in self.by_name.values_mut() {
                *gradient = gradient.clone().mul_scalar(factor);
            }
        }
        norm
    }

    /// Every gradient as `gradient.NAME`, in order of name. Waits for the device.
    pub fn export(&self) -> Vec<NamedTensor> {
        self.by_name.iter().map(|(name, gradient)| flat_values(format!("{PREFIX}{name}"), gradient)).collect()
    }

    /// Takes up what [`Self::export`] gave; `tensors` may hold others, which stay in it.
    ///
    /// # Errors
    /// When a gradient belongs to no tensor of the model, or does not fit it.
    pub fn restore(tensors: &mut BTreeMap<String, NamedTensor>, model: &Detector) -> Result<Self, MisfitError> {
        Ok(Self { by_name: take_flat(PREFIX, tensors, model, &plain_device(model))? })
    }

    /// The flattened gradient of a tensor.
    pub fn get(&self, name: &str) -> Option<&Tensor<1>> {
        self.by_name.get(name)
    }

    /// Removes and gives the flattened gradient of a tensor.
    pub fn take_one(&mut self, name: &str) -> Option<Tensor<1>> {
        self.by_name.remove(name)
    }

    /// All gradients in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor<1>)> {
        self.by_name.iter().map(|(name, gradient)| (name.as_str(), gradient))
    }
}
