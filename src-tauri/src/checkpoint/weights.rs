//! Weights as safetensors with the reference's tensor names, and what is needed to use them: scale, classes, image size.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::manifest::EMA_FILE;
use super::tensor_file::{f32_values, little_endian};
use crate::model::{BATCH_COUNTER, Detector, NamedTensor, Scale, dfl_tensor, export_tensors, replace_tensors};

/// Version of the description inside the file that this program writes, and the newest it reads.
const INFO_VERSION: u32 = 1;
/// The metadata entry that holds the description. It is the only one: the format does not keep entries in order.
const INFO_KEY: &str = "fermata";

/// The largest image size that is taken for meant, pixels; the same as of the setting.
const MAX_IMGSZ: u32 = 8192;

/// What a file of weights says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsInfo {
    version: u32,
    pub scale: Scale,
    pub class_names: Vec<String>,
    /// Side of the images the model was trained on, pixels.
    pub imgsz: u32,
    /// Epochs trained.
    pub epoch: u32,
    /// Batches the statistics of batch norm have seen.
    pub n_batches: u64,
}

/// A file of weights, read: its description and the tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    pub info: WeightsInfo,
    tensors: BTreeMap<String, NamedTensor>,
}

/// How much of a model's state came from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    pub n_transferred: usize,
    /// Tensors that the file does not have in this shape, and that therefore stayed as they were.
    pub left: Vec<String>,
}

/// A file of weights cannot be read or written.
#[derive(Debug, Error)]
pub enum WeightsError {
    #[error("`{}`: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("`{}` is not a readable safetensors file: {source}", .path.display())]
    Damaged { path: PathBuf, source: safetensors::SafeTensorError },
    #[error("`{}` was not written by fermata: its metadata has no `{INFO_KEY}` entry with scale and class names", .path.display())]
    Foreign { path: PathBuf },
    #[error("`{}` has format version {found}, but this program knows up to {INFO_VERSION}; use a newer fermata", .path.display())]
    FutureVersion { path: PathBuf, found: u32 },
    #[error("`{}` is a folder, neither a checkpoint nor a file of weights; those of a run are weights/best.safetensors and last.safetensors in it", .path.display())]
    Folder { path: PathBuf },
    #[error("`{}` is a PyTorch file, which this version does not read; use a .safetensors file that fermata wrote", .path.display())]
    PyTorch { path: PathBuf },
    #[error("`{}` says it was trained at imgsz={imgsz} for {n_classes} classes, which no model is", .path.display())]
    Impossible { path: PathBuf, imgsz: u32, n_classes: usize },
    #[error("`{}`: tensor `{name}` holds values that are not finite; the training that wrote it had gone wrong", .path.display())]
    NotFinite { path: PathBuf, name: String },
    #[error("`{}`: tensor `{name}` is of type {dtype}, expected F32", .path.display())]
    TensorType { path: PathBuf, name: String, dtype: String },
    #[error("`{}` lacks {n_missing} tensors of {scale}, the first is `{first}`", .path.display())]
    Incomplete { path: PathBuf, scale: Scale, n_missing: usize, first: String },
}

impl WeightsInfo {
    pub fn new(scale: Scale, class_names: Vec<String>, imgsz: u32) -> Self {
        Self { version: INFO_VERSION, scale, class_names, imgsz, epoch: 0, n_batches: 0 }
    }

    /// The same for weights that were trained for so long.
    pub fn after(self, epoch: u32, n_batches: u64) -> Self {
        Self { epoch, n_batches, ..self }
    }
}

impl Weights {
    /// The bytes of a file with the model's weights. Waits for the device. The same weights give the same bytes.
    ///
    /// # Errors
    /// When the description or a tensor cannot be put into the format.
    pub fn to_bytes(model: &Detector, info: &WeightsInfo) -> Result<Vec<u8>, safetensors::SafeTensorError> {
        Self::bytes_of(&export_tensors(model), info)
    }

    /// As [`Self::to_bytes`], of tensors that were [read out](export_tensors) before.
    ///
    /// # Errors
    /// As [`Self::to_bytes`].
    pub fn bytes_of(tensors: &[NamedTensor], info: &WeightsInfo) -> Result<Vec<u8>, safetensors::SafeTensorError> {
        let dfl = dfl_tensor();
        let counter = (info.n_batches as i64).to_le_bytes();
        let tensors: Vec<&NamedTensor> = tensors.iter().chain([&dfl]).collect();
        let buffers: Vec<Vec<u8>> = tensors.iter().map(|tensor| little_endian(&tensor.values)).collect();
        let mut views = Vec::with_capacity(buffers.len() * 5 / 4);
        for (NamedTensor { name, shape, .. }, bytes) in tensors.into_iter().zip(&buffers) {
            views.push((name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes)?));
            if let Some(prefix) = name.strip_suffix("running_var") {
                views.push((format!("{prefix}{BATCH_COUNTER}"), TensorView::new(Dtype::I64, Vec::new(), &counter)?));
            }
        }
        let info = serde_json::to_string(info).map_err(|error| safetensors::SafeTensorError::IoError(error.into()))?;
        safetensors::serialize(views, Some(HashMap::from([(INFO_KEY.to_owned(), info)])))
    }

    /// Reads a file that [`Self::to_bytes`] made, or the averaged weights of a checkpoint's folder. Sizes and offsets in it
    /// are checked, not trusted.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or comes from another or a newer program.
    pub fn read(path: &Path) -> Result<Self, WeightsError> {
        let path_buf = || path.to_owned();
        if path.extension().is_some_and(|extension| extension == "pt" || extension == "pth") {
            return Err(WeightsError::PyTorch { path: path_buf() });
        }
        if path.is_dir() {
            let averaged = path.join(EMA_FILE);
            return if averaged.is_file() {
                Self::read(&averaged)
            } else {
                Err(WeightsError::Folder { path: path_buf() })
            };
        }
        let bytes = std::fs::read(path).map_err(|source| WeightsError::Io { path: path_buf(), source })?;
        Self::from_bytes(&bytes, path)
    }

    /// As [`Self::read`], of bytes that were read before; `path` is for the message.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, WeightsError> {
        let path_buf = || path.to_owned();
        let damaged = |source| WeightsError::Damaged { path: path_buf(), source };
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let info = metadata.metadata().as_ref().and_then(|entries| entries.get(INFO_KEY));
        let info = read_info(info.ok_or_else(|| WeightsError::Foreign { path: path_buf() })?, path)?;
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.tensors() {
            if name.ends_with(BATCH_COUNTER) {
                continue;
            }
            if view.dtype() != Dtype::F32 {
                return Err(WeightsError::TensorType { path: path_buf(), name, dtype: format!("{:?}", view.dtype()) });
            }
            let shape = view.shape().to_vec();
            tensors.insert(name.clone(), NamedTensor { name, shape, values: f32_values(view.data()) });
        }
        Ok(Self { info, tensors })
    }

    /// Gives the model every tensor that the file has under the same name in the same shape.
    pub fn transfer(mut self, model: Detector) -> (Detector, Transfer) {
        let mut transfer = Transfer { n_transferred: 0, left: Vec::new() };
        let model = replace_tensors(model, &mut |spec| match self.tensors.remove(&spec.name) {
            Some(tensor) if tensor.shape == spec.shape => {
                transfer.n_transferred += 1;
                Some(tensor.values)
            }
            _ => {
                transfer.left.push(spec.name.clone());
                None
            }
        });
        (model, transfer)
    }

    /// As [`Self::transfer`], for a model that must be filled completely; `path` is for the message.
    ///
    /// # Errors
    /// When the file lacks a tensor of the model, or holds values with which it can find nothing.
    pub fn fill(self, model: Detector, path: &Path) -> Result<Detector, WeightsError> {
        let is_bad = |tensor: &&NamedTensor| !tensor.values.iter().all(|value| value.is_finite());
        if let Some(bad) = self.tensors.values().find(is_bad) {
            return Err(WeightsError::NotFinite { path: path.to_owned(), name: bad.name.clone() });
        }
        let scale = self.info.scale;
        let (model, transfer) = self.transfer(model);
        match transfer.left.first() {
            None => Ok(model),
            Some(first) => Err(WeightsError::Incomplete {
                path: path.to_owned(),
                scale,
                n_missing: transfer.left.len(),
                first: first.clone(),
            }),
        }
    }
}

impl Transfer {
    pub fn n_tensors(&self) -> usize {
        self.n_transferred + self.left.len()
    }
}

fn read_info(text: &str, path: &Path) -> Result<WeightsInfo, WeightsError> {
    let foreign = || WeightsError::Foreign { path: path.to_owned() };
    let json: serde_json::Value = serde_json::from_str(text).map_err(|_| foreign())?;
    // A newer format may differ in any field, so the version is looked at alone, before the rest.
    let found = json["version"].as_u64().and_then(|version| u32::try_from(version).ok()).ok_or_else(foreign)?;
    if found > INFO_VERSION {
        return Err(WeightsError::FutureVersion { path: path.to_owned(), found });
    }
    let info: WeightsInfo = serde_json::from_value(json).map_err(|_| foreign())?;
    let n_classes = info.class_names.len();
    if !(1..=MAX_IMGSZ).contains(&info.imgsz) || n_classes == 0 {
        return Err(WeightsError::Impossible { path: path.to_owned(), imgsz: info.imgsz, n_classes });
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use burn::prelude::Device;

    use super::*;
    use crate::model::ModelConfig;

    fn tiny(n_classes: usize, seed: u64) -> Detector {
        ModelConfig::new(Scale::T, n_classes).init(seed, &Device::flex())
    }

    fn info(n_classes: usize) -> WeightsInfo {
        WeightsInfo::new(Scale::T, (0..n_classes).map(|i| format!("类{i}")).collect(), 64)
    }

    fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.safetensors");
        std::fs::write(&path, bytes).unwrap();
        (dir, path)
    }

    #[test]
    fn weights_come_back_bit_for_bit() {
        let model = tiny(3, 1);
        let (_dir, path) = written(&Weights::to_bytes(&model, &info(3)).unwrap());
        let weights = Weights::read(&path).unwrap();
        assert_eq!(weights.info, info(3));
        let filled = weights.fill(tiny(3, 2), &path).unwrap();
        assert_eq!(export_tensors(&filled), export_tensors(&model));
    }

    #[test]
    fn the_file_has_the_reference_s_names() {
        let model = tiny(3, 1);
        let bytes = Weights::to_bytes(&model, &info(3)).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let mut ours: Vec<_> = file.names().into_iter().map(str::to_owned).collect();
        let mut theirs: Vec<_> = crate::model::list_state(&model).into_iter().map(|entry| entry.name).collect();
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn other_classes_transfer_all_but_the_class_branch() {
        let (_dir, path) = written(&Weights::to_bytes(&tiny(3, 1), &info(3)).unwrap());
        let (_, transfer) = Weights::read(&path).unwrap().transfer(tiny(5, 2));
        assert!(transfer.left.iter().all(|name| name.contains(".cv3.")), "{:?}", transfer.left);
        assert_eq!(transfer.left.len(), 6, "weight and bias of the last layer, at three levels");
        assert!(Weights::read(&path).unwrap().fill(tiny(5, 2), &path).is_err());
    }

    #[test]
    fn a_folder_is_no_file_of_weights() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Weights::read(dir.path()), Err(WeightsError::Folder { .. })));
    }

    #[test]
    fn damaged_foreign_and_future_files_are_refused() {
        let bytes = Weights::to_bytes(&tiny(1, 1), &info(1)).unwrap();
        let (_dir, path) = written(&bytes[..bytes.len() * 6 / 10]);
        assert!(matches!(Weights::read(&path), Err(WeightsError::Damaged { .. })), "cut short");
        std::fs::write(&path, b"").unwrap();
        assert!(matches!(Weights::read(&path), Err(WeightsError::Damaged { .. })), "empty");
        let foreign = safetensors::serialize(Vec::<(String, TensorView)>::new(), None).unwrap();
        std::fs::write(&path, foreign).unwrap();
        assert!(matches!(Weights::read(&path), Err(WeightsError::Foreign { .. })));
        let future = HashMap::from([(INFO_KEY.to_owned(), "{\"version\":2,\"shape\":[]}".to_owned())]);
        std::fs::write(&path, safetensors::serialize(Vec::<(String, TensorView)>::new(), Some(future)).unwrap())
            .unwrap();
        assert!(matches!(Weights::read(&path), Err(WeightsError::FutureVersion { found: 2, .. })));
    }

    #[test]
    fn descriptions_of_no_model_and_values_that_are_not_finite_are_refused() {
        for bad in
            [WeightsInfo::new(Scale::T, vec!["a".into()], 1_000_000_000), WeightsInfo::new(Scale::T, Vec::new(), 64)]
        {
            let (_dir, path) = written(&Weights::to_bytes(&tiny(1, 1), &bad).unwrap());
            assert!(matches!(Weights::read(&path), Err(WeightsError::Impossible { .. })), "{bad:?}");
        }
        let poisoned = replace_tensors(tiny(1, 1), &mut |spec| {
            spec.name.ends_with("running_var").then(|| vec![f32::NAN; spec.shape[0]])
        });
        let (_dir, path) = written(&Weights::to_bytes(&poisoned, &info(1)).unwrap());
        assert!(matches!(Weights::read(&path).unwrap().fill(tiny(1, 2), &path), Err(WeightsError::NotFinite { .. })));
    }
}
