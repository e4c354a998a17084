//! Tensors by their published names, as values: what a model's description names is looked up, checked and read here.

use kernels::reference::Matrix;

use super::{TensorPlace, Weights};
use crate::{
    error::EngineError,
    spec::{LinearTensors, TensorSpec},
};

/// The tensors of a checkpoint. One that is not there under its published name is looked up with a leading `model.` added
/// or removed, which exporters do.
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
    /// Of a checkpoint.
    pub fn new(weights: &'a Weights) -> Self {
        Self(weights)
    }

    /// The shape of a tensor that is there.
    pub fn shape(&self, name: &str) -> Option<&'a [usize]> {
        self.0.shape(&self.find(name)?)
    }

    /// Whether a tensor is there.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Checks that a tensor is there and of a shape.
    ///
    /// # Errors
    /// When it is not.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<(), EngineError> {
        self.0.expect(&self.full(name), shape)
    }

    /// All names, without a leading `model.`.
    pub fn all(&self) -> impl Iterator<Item = &'a str> {
        self.0.names().map(|name| name.strip_prefix("model.").unwrap_or(name))
    }

    /// A matrix.
    ///
    /// # Errors
    /// When it is missing (named as published), has another shape, or is not of a floating-point dtype.
    pub fn matrix(&self, tensor: &TensorSpec) -> Result<Matrix, EngineError> {
        let [outputs, inputs] = tensor.shape[..] else {
            return Err(EngineError::Configuration(format!("{} is no matrix", tensor.name)));
        };
        self.0.matrix(&self.full(&tensor.name), outputs, inputs)
    }

    /// A vector: factors of a norm, a bias, corrections.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn vector(&self, tensor: &TensorSpec) -> Result<Vec<f32>, EngineError> {
        self.0.vector(&self.full(&tensor.name), tensor.values() as usize)
    }

    /// A vector that a description has or has not.
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

    /// The bytes of a floating-point tensor, and its dtype.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn bytes(&self, tensor: &TensorSpec) -> Result<(&'a [u8], &'a str), EngineError> {
        self.0.tensor_bytes(&self.full(&tensor.name), &tensor.shape)
    }

    /// Where the values of a floating-point tensor are.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn place(&self, tensor: &TensorSpec) -> Result<TensorPlace, EngineError> {
        self.0.place(&self.full(&tensor.name), &tensor.shape)
    }

    /// The name under which a tensor is there.
    fn find(&self, name: &str) -> Option<String> {
        let other = name.strip_prefix("model.").map_or_else(|| format!("model.{name}"), ToOwned::to_owned);
        [name.to_owned(), other].into_iter().find(|name| self.0.shape(name).is_some())
    }

    fn full(&self, name: &str) -> String {
        self.find(name).unwrap_or_else(|| name.to_owned())
    }
}
