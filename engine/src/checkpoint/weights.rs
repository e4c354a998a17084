//! The tensors of a checkpoint, mapped into memory and handed out as f32.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
};

use ::safetensors::{Dtype, SafeTensors};
use half::{bf16, f16};
use kernels::{memory::MappedFile, reference::Matrix};

use super::safetensors;
use crate::error::EngineError;

/// All tensors of a checkpoint, by name.
#[derive(Debug)]
pub struct Weights {
    folder: PathBuf,
    files: Vec<MappedFile>,
    tensors: BTreeMap<String, Tensor>,
}

#[derive(Debug)]
struct Tensor {
    file: usize,
    dtype: Dtype,
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

    /// Values in all tensors together: what loading them as f32 takes, divided by four bytes.
    pub fn values(&self) -> u64 {
        self.tensors.values().map(|tensor| tensor.shape.iter().map(|size| *size as u64).product::<u64>()).sum()
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

    /// A vector of 64-bit integers of a known length.
    ///
    /// # Errors
    /// When it is missing, has another shape or another dtype.
    pub fn integers(&self, name: &str, length: usize) -> Result<Vec<i64>, EngineError> {
        let tensor = self.tensor(name, &[length])?;
        if tensor.dtype != Dtype::I64 {
            return Err(self.dtype_error(name, tensor.dtype, "I64"));
        }
        let (values, _) = self.bytes(tensor).as_chunks::<8>();
        Ok(values.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
    }

    fn add(&mut self, path: &Path) -> Result<(), EngineError> {
        let file = MappedFile::open(path).map_err(|source| EngineError::Read { path: path.to_owned(), source })?;
        let malformed = |reason: String| EngineError::Malformed { path: path.to_owned(), reason };
        let Some(first) = file.first_chunk::<8>() else {
            return Err(malformed(format!("{} bytes are too few for a safetensors file", file.len())));
        };
        safetensors::checked_header_length(path, *first, file.len() as u64)?;
        let (header, metadata) = SafeTensors::read_metadata(&file).map_err(|error| malformed(error.to_string()))?;
        let start = 8 + header;
        let data = file.len() - start;
        for (name, info) in metadata.tensors() {
            let (from, to) = info.data_offsets;
            // The library checks that offsets are contiguous and fit the shapes; the file may still be cut short.
            if from > to || to > data {
                return Err(malformed(format!(
                    "tensor {name} lies at bytes {from}..{to}, the file holds {data} bytes of data: it is truncated"
                )));
            }
            let tensor = Tensor {
                file: self.files.len(),
                dtype: info.dtype,
                shape: info.shape.clone(),
                bytes: start + from..start + to,
            };
            self.tensors.insert(name, tensor);
        }
        self.files.push(file);
        Ok(())
    }

    fn floats(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, EngineError> {
        let tensor = self.tensor(name, expected)?;
        let bytes = self.bytes(tensor);
        match tensor.dtype {
            Dtype::F32 => Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()),
            Dtype::F16 => {
                Ok(bytes.as_chunks::<2>().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect())
            }
            Dtype::BF16 => {
                Ok(bytes.as_chunks::<2>().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect())
            }
            other => Err(self.dtype_error(name, other, "F32, F16 or BF16")),
        }
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
                path: self.folder.clone(),
                tensor: name.to_owned(),
                expected: expected.to_vec(),
                found: tensor.shape.clone(),
            });
        }
        Ok(tensor)
    }

    fn bytes(&self, tensor: &Tensor) -> &[u8] {
        &self.files[tensor.file][tensor.bytes.clone()]
    }

    fn dtype_error(&self, name: &str, found: Dtype, expected: &str) -> EngineError {
        EngineError::Unsupported {
            path: self.folder.clone(),
            feature: format!("tensor {name} of dtype {found}"),
            hint: format!("expected {expected}; quantised checkpoints cannot be loaded yet"),
        }
    }
}
