//! The tensors of a checkpoint, mapped into memory and returned as f32.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
};

use kernels::{device::Element, memory::MappedFile, reference::Matrix};
use schemas::model::TensorHeader;

use super::{
    dtype::{E4M3, MXFP4, element},
    mask_embedding::{self, MaskEmbedding},
    packed::{self, Every},
    read::open,
    safetensors::{self, Shards},
};
use crate::{error::EngineError, spec::MASK_EMBEDDING};

/// A file of MTP layers that the index does not list.
const MTP_FILE: &str = "mtp.safetensors";

/// Maximum number of experts into which a tensor is split.
const MOST_EXPERTS: usize = 1 << 14;

/// Parts of names that have changed since some checkpoints were published: the norms of EAGLE-3.1's
/// captured layers.
const RENAMED: [(&str, &str); 3] =
    [("aux_norm_low.", "fc_norm.0."), ("aux_norm_mid.", "fc_norm.1."), ("aux_norm_high.", "fc_norm.2.")];

/// All tensors of a checkpoint, by name.
#[derive(Debug)]
pub struct Weights {
    folder: PathBuf,
    files: Vec<(PathBuf, MappedFile)>,
    tensors: BTreeMap<String, Tensor>,
}

/// The location of a tensor's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPlace {
    /// The file.
    pub path: PathBuf,
    /// The safetensors name: `F32`, `F16` or `BF16`.
    pub dtype: String,
    /// Byte range in the file.
    pub bytes: Range<usize>,
}

#[derive(Debug)]
struct Tensor {
    file: usize,
    dtype: String,
    shape: Vec<usize>,
    bytes: Range<usize>,
    /// Which rows of these bytes are the tensor's, if not all.
    rows: Option<Every>,
}

impl Weights {
    /// Maps the files of a folder and checks their headers.
    ///
    /// # Errors
    /// When a file is missing, truncated, or not a safetensors file.
    pub fn open(folder: &Path) -> Result<Self, EngineError> {
        let mut weights = Self { folder: folder.to_owned(), files: Vec::new(), tensors: BTreeMap::new() };
        let shards = safetensors::files(folder)?;
        for path in &shards.files {
            weights.add(path, &shards)?;
        }
        // Some quantisers write MTP layers to a separate file and omit it from the index.
        let extra = folder.join(MTP_FILE);
        if extra.exists() && weights.files.iter().all(|(path, _)| *path != extra) {
            weights.add_missing(&extra)?;
        }
        weights.add_mask_embedding()?;
        Ok(weights)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The shape of a tensor; `None` if it does not exist.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|tensor| tensor.shape.as_slice())
    }

    /// Checks that a tensor exists and has this shape.
    ///
    /// # Errors
    /// When it does not.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<(), EngineError> {
        self.tensor(name, shape).map(|_| ())
    }

    /// The names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A matrix of a known shape, as f32; a matrix in FP8 or MXFP4 is multiplied by its scales.
    ///
    /// # Errors
    /// When it or its scales are missing, have another shape, or have a dtype that is not
    /// floating-point.
    pub fn matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<Matrix, EngineError> {
        if let Some(matrix) = self.mxfp4(name, outputs, inputs)? {
            return Ok(matrix.matrix());
        }
        match self.fp8(name, outputs, inputs)? {
            Some(matrix) => Ok(matrix.matrix()),
            None => Ok(Matrix::new(outputs, inputs, self.floats(name, &[outputs, inputs])?)),
        }
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
            _ => Err(self.dtype_error(name, "I64 or I32")),
        }
    }

    /// A vector of true and false of any length; `None` if it does not exist, or is of another
    /// kind.
    pub fn switches(&self, name: &str) -> Option<Vec<bool>> {
        let tensor = self.tensors.get(name).filter(|tensor| matches!(tensor.dtype.as_str(), "BOOL" | "U8"))?;
        (tensor.shape.len() == 1).then(|| self.bytes(tensor).iter().map(|byte| *byte != 0).collect())
    }

    /// Adds the tensors of a file, except those that the index places in another one: some
    /// exporters leave a tensor in two shards.
    fn add(&mut self, path: &Path, shards: &Shards) -> Result<(), EngineError> {
        open(path)?;
        let file = MappedFile::open(path).map_err(|source| EngineError::Read { path: path.to_owned(), source })?;
        let tensors = safetensors::header(path, &file, file.len() as u64)?.tensors();
        for (name, TensorHeader { dtype, shape }, bytes) in
            tensors.filter(|(name, ..)| !shards.is_elsewhere(name, path))
        {
            let tensor = Tensor { file: self.files.len(), dtype, shape, bytes, rows: None };
            for (name, tensor) in experts_apart(renamed(name), tensor) {
                let other = self.tensors.get(&name).and_then(|tensor| self.files.get(tensor.file));
                if let Some((other, _)) = other {
                    let other = other.display();
                    let reason = format!("tensor {name} is also in {other}: remove one of the two files");
                    return Err(EngineError::Malformed { path: path.to_owned(), reason });
                }
                self.tensors.insert(name, tensor);
            }
        }
        self.files.push((path.to_owned(), file));
        Ok(())
    }

    /// Adds the tensors of a file outside the index, except those that already exist.
    fn add_missing(&mut self, path: &Path) -> Result<(), EngineError> {
        let mut others = Self { folder: self.folder.clone(), files: Vec::new(), tensors: BTreeMap::new() };
        others.add(path, &Shards::default())?;
        for (name, tensor) in others.tensors {
            self.tensors.entry(name).or_insert(Tensor { file: self.files.len(), ..tensor });
        }
        self.files.extend(others.files);
        Ok(())
    }

    /// Adds the vector of `mask_embedding.pt`, if the folder has that file.
    fn add_mask_embedding(&mut self) -> Result<(), EngineError> {
        let Some((file, vector)) = mask_embedding::read(&self.folder)? else { return Ok(()) };
        let MaskEmbedding { dtype, length, bytes, .. } = vector;
        let tensor = Tensor { file: self.files.len(), dtype: dtype.into(), shape: vec![length], bytes, rows: None };
        self.files.push((self.folder.join(mask_embedding::FILE), file));
        self.tensors.insert(MASK_EMBEDDING.into(), tensor);
        Ok(())
    }

    /// The bytes of a floating-point tensor of a known shape, and their type. A matrix in FP8 or
    /// MXFP4 is dequantised to float32.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn tensor_bytes(&self, name: &str, expected: &[usize]) -> Result<(Cow<'_, [u8]>, Element), EngineError> {
        let tensor = self.tensor(name, expected)?;
        match (element(&tensor.dtype), tensor.dtype.as_str(), expected) {
            (Some(element), ..) => Ok((self.bytes(tensor), element)),
            (None, E4M3, [outputs, inputs]) => {
                let values = self.fp8(name, *outputs, *inputs)?.map(|matrix| matrix.values()).unwrap_or_default();
                Ok((Element::F32.encode(&values).into(), Element::F32))
            }
            (None, MXFP4, [outputs, inputs]) => {
                let values = self.mxfp4(name, *outputs, *inputs)?.map(|matrix| matrix.values()).unwrap_or_default();
                Ok((Element::F32.encode(&values).into(), Element::F32))
            }
            _ => Err(self
                .dtype_error(name, "F32, F16, BF16 or, for matrices, F8_E4M3 (the only supported quantised format)")),
        }
    }

    /// The location of the values of a floating-point tensor of a known shape.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn place(&self, name: &str, expected: &[usize]) -> Result<TensorPlace, EngineError> {
        let tensor = self.tensor(name, expected)?;
        if element(&tensor.dtype).is_none() {
            return Err(self.dtype_error(name, "F32, F16 or BF16"));
        }
        if tensor.rows.is_some() {
            let reason = format!("the values of tensor {name} are not in one piece");
            return Err(EngineError::Malformed { path: self.file_of(name).to_owned(), reason });
        }
        let path = self.files[tensor.file].0.clone();
        Ok(TensorPlace { path, dtype: tensor.dtype.clone(), bytes: tensor.bytes.clone() })
    }

    fn floats(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, EngineError> {
        let (bytes, element) = self.tensor_bytes(name, expected)?;
        Ok(element.decode(&bytes))
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

    fn bytes(&self, tensor: &Tensor) -> Cow<'_, [u8]> {
        let bytes = &self.files[tensor.file].1[tensor.bytes.clone()];
        match tensor.rows {
            None => Cow::Borrowed(bytes),
            Some(rows) => Cow::Owned(rows.gather(bytes, tensor.shape.first().copied().unwrap_or_default())),
        }
    }

    /// The stored bytes of a tensor, if it exists.
    pub(super) fn raw(&self, name: &str) -> Cow<'_, [u8]> {
        self.tensors.get(name).map_or_else(Cow::default, |tensor| self.bytes(tensor))
    }

    /// The safetensors dtype of a tensor; `None` if it does not exist.
    pub(super) fn dtype(&self, name: &str) -> Option<&str> {
        self.tensors.get(name).map(|tensor| tensor.dtype.as_str())
    }

    /// The file of a tensor, or the folder if it does not exist.
    pub(super) fn file_of(&self, name: &str) -> &Path {
        self.tensors.get(name).map_or(&self.folder, |tensor| &self.files[tensor.file].0)
    }

    pub(super) fn dtype_error(&self, name: &str, expected: &str) -> EngineError {
        EngineError::Unsupported {
            path: self.file_of(name).to_owned(),
            feature: format!("tensor {name} of dtype {}", self.dtype(name).unwrap_or("none")),
            hint: format!("expected {expected}"),
        }
    }
}

/// The newest published name of a tensor.
fn renamed(name: String) -> String {
    let short = name.strip_prefix("model.").unwrap_or(&name);
    // Multimodal wrappers put the language model beside other towers.
    if let Some(text) = short.strip_prefix("language_model.") {
        return format!("model.{}", text.strip_prefix("model.").unwrap_or(text));
    }
    let new = RENAMED.iter().find_map(|(old, new)| Some(format!("{new}{}", short.strip_prefix(old)?)));
    new.unwrap_or(name)
}

/// The tensor itself, or, if it holds all experts of a layer as transformers 5 stores them
/// (`gate_up_proj` `[experts, 2 · intermediate, hidden]` with the rows of gate first, `down_proj`
/// `[experts, hidden, intermediate]`), one tensor per expert and projection under its published
/// name. Nothing is copied, since experts are contiguous.
///
/// So it is with experts in MXFP4 ([`packed`]), of which rows are gathered when they are read.
fn experts_apart(name: String, tensor: Tensor) -> Vec<(String, Tensor)> {
    if let Some(parts) = packed::parts(&name, &tensor.dtype, &tensor.shape, MOST_EXPERTS / 2) {
        return shared_apart(&tensor, parts);
    }
    // Block scales are laid out like the matrices.
    let (plain, end) = match name.strip_suffix("_scale_inv") {
        Some(plain) => (plain, "weight_scale_inv"),
        None => (name.as_str(), "weight"),
    };
    let parts: &[&str] = if plain.ends_with("mlp.experts.gate_up_proj") {
        &["gate_proj", "up_proj"]
    } else if plain.ends_with("mlp.experts.down_proj") {
        &["down_proj"]
    } else {
        return vec![(name, tensor)];
    };
    let [experts, outputs, inputs] = tensor.shape[..] else { return vec![(name, tensor)] };
    let count = experts.saturating_mul(parts.len());
    if count == 0
        || count > MOST_EXPERTS
        || !outputs.is_multiple_of(parts.len())
        || !tensor.bytes.len().is_multiple_of(count)
    {
        return vec![(name, tensor)];
    }
    let Some((layer, _)) = name.rsplit_once('.') else { return vec![(name, tensor)] };
    let bytes = tensor.bytes.len() / count;
    let one = |at: usize| {
        let start = tensor.bytes.start + at * bytes;
        let name = format!("{layer}.{}.{}.{end}", at / parts.len(), parts[at % parts.len()]);
        let shape = vec![outputs / parts.len(), inputs];
        let dtype = tensor.dtype.clone();
        (name, Tensor { file: tensor.file, dtype, shape, bytes: start..start + bytes, rows: None })
    };
    (0..count).map(one).collect()
}

/// The parts of a tensor that all experts share.
fn shared_apart(tensor: &Tensor, parts: Vec<packed::ExpertSlice>) -> Vec<(String, Tensor)> {
    let experts = parts.last().map_or(1, |part| part.expert + 1);
    let bytes = tensor.bytes.len() / experts;
    let part = |packed::ExpertSlice { name, shape, dtype, expert, rows }| {
        let start = tensor.bytes.start + expert * bytes;
        let dtype = dtype.map_or_else(|| tensor.dtype.clone(), ToOwned::to_owned);
        (name, Tensor { file: tensor.file, dtype, shape, bytes: start..start + bytes, rows })
    };
    parts.into_iter().map(part).collect()
}
