//! Tensors by their published names, with or without the prefix that exporters put in front.

use kernels::reference::Matrix;

use crate::{
    checkpoint::Weights,
    error::EngineError,
    spec::{LinearTensors, TensorSpec},
};

/// A checkpoint's tensors. One that is not there under its published name is looked up with a leading `model.` added or
/// removed, which exporters do.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    weights: &'a Weights,
}

impl<'a> Names<'a> {
    /// Tensors of `weights`.
    pub fn new(weights: &'a Weights) -> Self {
        Self { weights }
    }

    /// The tensors.
    pub fn weights(&self) -> &'a Weights {
        self.weights
    }

    /// The name under which a tensor is there.
    pub fn find(&self, name: &str) -> Option<String> {
        let other = match name.strip_prefix("model.") {
            Some(short) => short.to_owned(),
            None => format!("model.{name}"),
        };
        [name.to_owned(), other].into_iter().find(|name| self.weights.shape(name).is_some())
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<&'a [usize]> {
        self.weights.shape(&self.find(name)?)
    }

    /// A matrix of a specification.
    ///
    /// # Errors
    /// When it is missing (named as published) or has another shape.
    pub fn tensor_matrix(&self, tensor: &TensorSpec) -> Result<Matrix, EngineError> {
        let [outputs, inputs] = tensor.shape[..] else {
            return Err(EngineError::Configuration(format!("{} is no matrix", tensor.name)));
        };
        self.weights.matrix(&self.full(&tensor.name), outputs, inputs)
    }

    /// A vector of a specification: factors of a norm, or a bias.
    ///
    /// # Errors
    /// As [`tensor_matrix`](Self::tensor_matrix).
    pub fn tensor_vector(&self, tensor: &TensorSpec) -> Result<Vec<f32>, EngineError> {
        self.weights.vector(&self.full(&tensor.name), tensor.values() as usize)
    }

    /// Weight and bias of a linear layer.
    ///
    /// # Errors
    /// As [`tensor_matrix`](Self::tensor_matrix).
    pub fn linear(&self, tensors: &LinearTensors) -> Result<(Matrix, Option<Vec<f32>>), EngineError> {
        let bias = tensors.bias.as_ref().map(|bias| self.tensor_vector(bias)).transpose()?;
        Ok((self.tensor_matrix(&tensors.weight)?, bias))
    }

    /// The bytes of a floating-point tensor of a specification, and its dtype.
    ///
    /// # Errors
    /// As [`tensor_matrix`](Self::tensor_matrix).
    pub fn bytes(&self, tensor: &TensorSpec) -> Result<(&'a [u8], &'a str), EngineError> {
        self.weights.tensor_bytes(&self.full(&tensor.name), &tensor.shape)
    }

    fn full(&self, name: &str) -> String {
        self.find(name).unwrap_or_else(|| name.to_owned())
    }
}
