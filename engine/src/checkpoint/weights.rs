//! The tensors of a checkpoint, mapped into memory and handed out as f32.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
};

use half::{bf16, f16};
use kernels::{memory::MappedFile, reference::Matrix};
use schemas::model::TensorHeader;

use super::{folder::open, safetensors};
use crate::error::EngineError;

/// All tensors of a checkpoint, by name.
#[derive(Debug)]
pub struct Weights {
    folder: PathBuf,
    files: Vec<(PathBuf, MappedFile)>,
    tensors: BTreeMap<String, Tensor>,
}

#[derive(Debug)]
struct Tensor {
    file: usize,
    dtype: String,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

impl Weights {
    /// Maps the files of a folder and checks their headers.
    ///
    /// # Errors
    /// When a file is missing, truncated, or no safetensors file.
    pub fn open(folder: &Path) -> Result<Self, EngineError> {
        let mut weights = Self { folder: folder.to_owned(), files: Vec::new(), tensors: BTreeMap::new() };
        for path in safetensors::files(folder)? {
            weights.add(&path)?;
        }
        Ok(weights)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|tensor| tensor.shape.as_slice())
    }

    /// The names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Values in all floating-point tensors together: what loading them as f32 takes, divided by four bytes.
    pub fn values(&self) -> u64 {
        let count = |tensor: &Tensor| match tensor.dtype.as_str() {
            "F32" => tensor.bytes.len() / 4,
            "F16" | "BF16" => tensor.bytes.len() / 2,
            _ => 0,
        };
        self.tensors.values().map(|tensor| count(tensor) as u64).sum()
    }

    /// A matrix of a known shape, as f32.
    ///
    /// # Errors
    /// When it is missing, has another shape, or is not of a floating-point dtype.
    pub fn matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<Matrix, EngineError> {
        Ok(Matrix::new(outputs, inputs, self.floats(name, &[outputs, inputs])?))
    }

    /// A vector of a known length, as f32.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, EngineError> {
        self.floats(name, &[length])
    }

    /// A vector of integers of a known length.
    ///
    /// # Errors
    /// When it is missing, has another shape or another dtype.
    pub fn integers(&self, name: &str, length: usize) -> Result<Vec<i64>, EngineError> {
        let tensor = self.tensor(name, &[length])?;
        let bytes = self.bytes(tensor);
        match tensor.dtype.as_str() {
            "I64" => Ok(bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()),
            "I32" => Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes).into()).collect()),
            _ => Err(self.dtype_error(tensor, name, "I64 or I32")),
        }
    }

    fn add(&mut self, path: &Path) -> Result<(), EngineError> {
        open(path)?;
        let file = MappedFile::open(path).map_err(|source| EngineError::Read { path: path.to_owned(), source })?;
        for (name, TensorHeader { dtype, shape }, bytes) in
            safetensors::header(path, &file, file.len() as u64)?.tensors()
        {
            let other = self.tensors.get(&name).and_then(|tensor| self.files.get(tensor.file));
            if let Some((other, _)) = other {
                let reason = format!("tensor {name} is in {} too: remove the file that is not meant", other.display());
                return Err(EngineError::Malformed { path: path.to_owned(), reason });
            }
            self.tensors.insert(name, Tensor { file: self.files.len(), dtype, shape, bytes });
        }
        self.files.push((path.to_owned(), file));
        Ok(())
    }

    /// The bytes of a floating-point tensor of a known shape, and its dtype: `F32`, `F16` or `BF16`.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn tensor_bytes(&self, name: &str, expected: &[usize]) -> Result<(&[u8], &str), EngineError> {
        let tensor = self.tensor(name, expected)?;
        match tensor.dtype.as_str() {
            dtype @ ("F32" | "F16" | "BF16") => Ok((self.bytes(tensor), dtype)),
            _ => Err(self.dtype_error(tensor, name, "F32, F16 or BF16")),
        }
    }

    fn floats(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, EngineError> {
        let (bytes, dtype) = self.tensor_bytes(name, expected)?;
        Ok(match dtype {
            "F32" => bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            "F16" => bytes.as_chunks::<2>().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
            _ => bytes.as_chunks::<2>().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
        })
    }

    fn tensor(&self, name: &str, expected: &[usize]) -> Result<&Tensor, EngineError> {
        let Some(tensor) = self.tensors.get(name) else {
            return Err(EngineError::MissingTensor {
                path: self.folder.clone(),
                tensor: name.to_owned(),
                expected: expected.to_vec(),
            });
        };
        if tensor.shape != expected {
            return Err(EngineError::TensorShape {
                path: self.files[tensor.file].0.clone(),
                tensor: name.to_owned(),
                expected: expected.to_vec(),
                found: tensor.shape.clone(),
            });
        }
        Ok(tensor)
    }

    fn bytes(&self, tensor: &Tensor) -> &[u8] {
        &self.files[tensor.file].1[tensor.bytes.clone()]
    }

    fn dtype_error(&self, tensor: &Tensor, name: &str, expected: &str) -> EngineError {
        EngineError::Unsupported {
            path: self.files[tensor.file].0.clone(),
            feature: format!("tensor {name} of dtype {}", tensor.dtype),
            hint: format!("expected {expected}; quantised checkpoints cannot be loaded yet"),
        }
    }
}
