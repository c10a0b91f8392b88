//! Flattened tensors of a training between device and file, by the name of the model's tensor they belong to.

use std::collections::BTreeMap;

use burn::prelude::*;
use thiserror::Error;

use super::optimizer::UpdateRule;
use crate::model::{Detector, NamedTensor, list_tensors};

/// Tensors of a training that do not belong to the model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MisfitError {
    #[error("`{name}` belongs to no trainable tensor of the model")]
    Unknown { name: String },
    #[error("`{name}` has {found} values, the model's tensor {expected}")]
    Size { name: String, found: usize, expected: usize },
    #[error("`{name}` has not the moments that {rule:?} keeps")]
    OtherRule { name: String, rule: UpdateRule },
    #[error("{found} tensors where {expected} were saved")]
    Count { found: usize, expected: usize },
}

/// A flattened tensor's values on the host. Waits for the device.
pub fn flat_values(name: String, tensor: &Tensor<1>) -> NamedTensor {
    // Converted to f32 on the same line, so the cast cannot fail.
    let values: Vec<f32> = tensor.to_data().convert::<f32>().try_into_vec().expect("f32 data");
    NamedTensor { name, shape: vec![values.len()], values }
}

/// The device of a model, without autodiff.
pub fn plain_device(model: &Detector) -> Device {
    model.devices().into_iter().next().unwrap_or_default().without_autodiff()
}

/// Moves the tensors whose name begins with `prefix` to the device, by the rest of their name.
///
/// # Errors
/// When one belongs to no trainable tensor of the model, or has another size.
pub fn take_flat(
    prefix: &str,
    tensors: &mut BTreeMap<String, NamedTensor>,
    model: &Detector,
    device: &Device,
) -> Result<BTreeMap<String, Tensor<1>>, MisfitError> {
    let specs = list_tensors(model).into_iter().filter(|spec| spec.kind.is_trainable());
    let sizes: BTreeMap<String, usize> = specs.map(|spec| (spec.name, spec.shape.iter().product())).collect();
    let names: Vec<String> = tensors.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
    let mut taken = BTreeMap::new();
    for full_name in names {
        let Some(tensor) = tensors.remove(&full_name) else { continue };
        let name = full_name[prefix.len()..].to_owned();
        let Some(&expected) = sizes.get(&name) else { return Err(MisfitError::Unknown { name: full_name }) };
        let found = tensor.values.len();
        if found != expected {
            return Err(MisfitError::Size { name: full_name, found, expected });
        }
        taken.insert(name, Tensor::from_data(TensorData::new(tensor.values, [found]), device));
    }
    Ok(taken)
}
