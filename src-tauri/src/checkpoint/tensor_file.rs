//! Named f32 tensors as safetensors bytes, without a description: what the optimizer keeps.

use std::collections::BTreeMap;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::model::NamedTensor;

/// The bytes of a safetensors file with these tensors. The same tensors give the same bytes.
///
/// # Errors
/// When two have the same name, or a shape does not fit its values.
pub fn tensors_to_bytes(tensors: &[NamedTensor]) -> Result<Vec<u8>, SafeTensorError> {
    let buffers: Vec<Vec<u8>> = tensors.iter().map(|tensor| little_endian(&tensor.values)).collect();
    let views = tensors
        .iter()
        .zip(&buffers)
        .map(|(tensor, bytes)| Ok((tensor.name.as_str(), TensorView::new(Dtype::F32, tensor.shape.clone(), bytes)?)));
    safetensors::serialize(views.collect::<Result<Vec<_>, SafeTensorError>>()?, None)
}

/// The tensors of a file, by name. Sizes and offsets in it are checked, not trusted.
///
/// # Errors
/// When the bytes are no safetensors file, or a tensor is not f32.
pub fn tensors_from_bytes(bytes: &[u8]) -> Result<BTreeMap<String, NamedTensor>, SafeTensorError> {
    let file = SafeTensors::deserialize(bytes)?;
    let named = file.tensors().into_iter().map(|(name, view)| {
        if view.dtype() != Dtype::F32 {
            return Err(SafeTensorError::TensorInvalidInfo);
        }
        Ok((name.clone(), NamedTensor { name, shape: view.shape().to_vec(), values: f32_values(view.data()) }))
    });
    named.collect()
}

/// The bytes of values, as they lie in the file and as they are hashed.
pub fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Values out of their bytes; a rest of less than four bytes is left out.
pub fn f32_values(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_come_back_bit_for_bit() {
        let odd = [1.0, -0.0, f32::MIN_POSITIVE / 2.0, f32::NAN];
        let tensor = NamedTensor { name: "first.model.0.conv.weight".into(), shape: vec![2, 2], values: odd.to_vec() };
        let bytes = tensors_to_bytes(std::slice::from_ref(&tensor)).unwrap();
        let back = tensors_from_bytes(&bytes).unwrap().remove(&tensor.name).unwrap();
        assert_eq!(back.shape, tensor.shape);
        assert_eq!(little_endian(&back.values), little_endian(&odd), "also -0, denormals and NaN");
        assert!(tensors_from_bytes(&bytes[..bytes.len() - 1]).is_err(), "cut short");
    }
}
