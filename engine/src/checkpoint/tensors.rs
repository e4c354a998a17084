//! Looks up tensors by their published names, checks them against the model's spec, and reads their
//! values.

use std::borrow::Cow;

use kernels::{
    device::Element,
    reference::{CacheScales, Fp8Matrix, Fp8Scales, Matrix, Mxfp4Matrix},
};

use schemas::model::TensorList;

use super::{
    TensorPlace, Weights,
    dtype::{MXFP4, element},
};
use crate::{
    error::EngineError,
    spec::{CacheScaleNames, LinearTensors, Role, TensorSpec},
};

/// The tensors of a checkpoint. A name that does not exist is looked up with a leading `model.`
/// added or removed, as exporters differ in this.
#[derive(Clone, Copy, Debug)]
pub struct Tensors<'a>(&'a Weights);

/// A linear layer, as f32.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearWeights {
    /// `[outputs, inputs]`.
    pub weight: Matrix,
    /// `[outputs]`.
    pub bias: Option<Vec<f32>>,
}

impl<'a> Tensors<'a> {
    /// The tensors of this checkpoint.
    pub fn new(weights: &'a Weights) -> Self {
        Self(weights)
    }

    /// The shape of a tensor; `None` if it does not exist.
    pub fn shape(&self, name: &str) -> Option<&'a [usize]> {
        self.0.shape(&self.find(name)?)
    }

    /// Whether a tensor exists.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Checks that a tensor exists and has this shape.
    ///
    /// # Errors
    /// When it does not.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<(), EngineError> {
        self.0.expect(&self.full(name), shape)
    }

    /// All names, without a leading `model.`.
    pub fn all(&self) -> impl Iterator<Item = &'a str> {
        self.0.names().map(|name| name.strip_prefix("model.").unwrap_or(name))
    }

    /// A matrix in float32. A matrix stored in FP8 or MXFP4 is dequantised; a matrix that is
    /// quantised to FP8 at load time has its quantised values, though the CPU keeps it in float32.
    ///
    /// # Errors
    /// When it (or, if it is stored in FP8, its scales) is missing, has another shape, or a dtype
    /// that is not floating-point. The error uses the published name.
    pub fn matrix(&self, tensor: &TensorSpec) -> Result<Matrix, EngineError> {
        if tensor.format.fp8().is_some() {
            return self.fp8(tensor).map(|matrix| matrix.matrix());
        }
        let (name, [outputs, inputs]) = (self.full(&tensor.name), sizes(tensor)?);
        self.0.matrix(&name, outputs, inputs)
    }

    /// A matrix in FP8: as stored, or quantised now with one scale per row.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn fp8(&self, tensor: &TensorSpec) -> Result<Fp8Matrix<'a>, EngineError> {
        let (name, [outputs, inputs]) = (self.full(&tensor.name), sizes(tensor)?);
        match self.0.fp8(&name, outputs, inputs)? {
            Some(stored) => Ok(stored),
            None => Ok(Fp8Matrix::quantised(outputs, inputs, self.0.matrix(&name, outputs, inputs)?.data())),
        }
    }

    /// A matrix that is stored in MXFP4.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix), and when it is stored in another format.
    pub fn mxfp4(&self, tensor: &TensorSpec) -> Result<Mxfp4Matrix<'a>, EngineError> {
        let (name, [outputs, inputs]) = (self.full(&tensor.name), sizes(tensor)?);
        self.0.mxfp4(&name, outputs, inputs)?.ok_or_else(|| {
            EngineError::Configuration(format!("{name} is not stored in MXFP4, as other experts of its layer are"))
        })
    }

    /// The layout of the scales of a matrix stored in FP8; `None` for other matrices.
    ///
    /// # Errors
    /// When its scales are missing or have the wrong shape.
    pub fn fp8_scales(&self, name: &str) -> Result<Option<Fp8Scales>, EngineError> {
        self.0.fp8_scales(&self.full(name))
    }

    /// The scales of a layer's cache in FP8: those of keys and values, or one for both; 1 for each
    /// that the checkpoint does not have, as in SGLang.
    ///
    /// # Errors
    /// When a scale is not one positive, finite number.
    pub fn cache_scales(&self, names: &CacheScaleNames) -> Result<CacheScales, EngineError> {
        let first = |names: &[String]| names.iter().find_map(|name| self.find(name));
        let [keys, values, both] = [&names.keys, &names.values, &names.both].map(|names| first(names));
        let read = |name: Option<String>| name.map_or(Ok(1.0), |name| self.0.positive(&name));
        Ok(CacheScales { keys: read(keys.or(both.clone()))?, values: read(values.or(both))? })
    }

    /// Whether a tensor exists in a floating-point type of 16 or 32 bits.
    pub fn is_plain(&self, name: &str) -> bool {
        self.0.dtype(&self.full(name)).and_then(element).is_some()
    }

    /// Whether two tensors have the same dtype, shape and bytes, as far as a sample of the bytes
    /// shows: reading all of them would take seconds.
    pub fn is_copy(&self, one: &str, other: &str) -> bool {
        const PIECES: usize = 64;
        const PIECE: usize = 4096;
        let [one, other] = [one, other].map(|name| self.full(name));
        let described = |name: &str| (self.0.dtype(name), self.0.shape(name));
        let (values, others) = (self.0.raw(&one), self.0.raw(&other));
        let step = (values.len() / PIECES).max(PIECE);
        let sample = |at: usize| at..(at + PIECE).min(values.len());
        let is_same = |at: usize| values.get(sample(at)) == others.get(sample(at));
        described(&one) == described(&other) && (0..values.len()).step_by(step).all(is_same)
    }

    /// Whether any matrix is stored in FP8.
    pub fn has_fp8(&self) -> bool {
        self.0.has_fp8()
    }

    /// Whether a matrix is stored in MXFP4.
    pub fn is_mxfp4(&self, name: &str) -> bool {
        self.0.dtype(&self.full(name)) == Some(MXFP4)
    }

    /// Whether any matrix is stored in MXFP4.
    pub fn has_mxfp4(&self) -> bool {
        self.0.has_mxfp4()
    }

    /// A vector: norm weights (with the one added that a checkpoint may leave out), a bias, or
    /// correction biases.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn vector(&self, tensor: &TensorSpec) -> Result<Vec<f32>, EngineError> {
        let mut values = self.0.vector(&self.full(&tensor.name), tensor.values() as usize)?;
        if tensor.role == Role::NormLessOne {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        Ok(values)
    }

    /// The values of a tensor of any shape.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn values(&self, tensor: &TensorSpec) -> Result<Vec<f32>, EngineError> {
        let (bytes, element) = self.bytes(tensor)?;
        Ok(element.decode(&bytes))
    }

    /// A vector, if the spec contains it.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn optional_vector(&self, tensor: Option<&TensorSpec>) -> Result<Option<Vec<f32>>, EngineError> {
        tensor.map(|tensor| self.vector(tensor)).transpose()
    }

    /// Weight and bias of a linear layer.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn linear(&self, tensors: &LinearTensors) -> Result<LinearWeights, EngineError> {
        Ok(LinearWeights { weight: self.matrix(&tensors.weight)?, bias: self.optional_vector(tensors.bias.as_ref())? })
    }

    /// The bytes and dtype of a floating-point tensor.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn bytes(&self, tensor: &TensorSpec) -> Result<(Cow<'a, [u8]>, Element), EngineError> {
        self.0.tensor_bytes(&self.full(&tensor.name), &tensor.shape)
    }

    /// The location of the values of a floating-point tensor.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn place(&self, tensor: &TensorSpec) -> Result<TensorPlace, EngineError> {
        self.0.place(&self.full(&tensor.name), &tensor.shape)
    }

    /// The checkpoint.
    pub(super) fn weights(&self) -> &'a Weights {
        self.0
    }

    /// The name under which a tensor exists.
    fn find(&self, name: &str) -> Option<String> {
        let other = name.strip_prefix("model.").map_or_else(|| format!("model.{name}"), ToOwned::to_owned);
        [name.to_owned(), other].into_iter().find(|name| self.0.shape(name).is_some())
    }

    pub(super) fn full(&self, name: &str) -> String {
        // A missing tensor keeps its published name, which errors then show.
        self.find(name).unwrap_or_else(|| name.to_owned())
    }
}

impl TensorList for Tensors<'_> {
    fn shape_of(&self, name: &str) -> Option<&[usize]> {
        self.shape(name)
    }

    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.all())
    }
}

/// The numbers of outputs and inputs of a matrix.
fn sizes(tensor: &TensorSpec) -> Result<[usize; 2], EngineError> {
    <[usize; 2]>::try_from(&tensor.shape[..])
        .map_err(|_| EngineError::Configuration(format!("{} is not a matrix", tensor.name)))
}
