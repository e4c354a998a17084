//! Tensors by their published names, under the prefixes that different exporters put in front.

use kernels::reference::Matrix;

use crate::{checkpoint::Weights, error::EngineError};

/// A checkpoint's tensors behind one of several prefixes.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    weights: &'a Weights,
    prefixes: &'a [&'a str],
}

impl<'a> Names<'a> {
    /// Tensors of `weights`; a name is looked up behind each prefix in turn.
    pub fn new(weights: &'a Weights, prefixes: &'a [&'a str]) -> Self {
        Self { weights, prefixes }
    }

    /// The tensors.
    pub fn weights(&self) -> &'a Weights {
        self.weights
    }

    /// The full name under which a tensor is there.
    pub fn find(&self, name: &str) -> Option<String> {
        self.prefixes.iter().map(|prefix| format!("{prefix}{name}")).find(|name| self.weights.shape(name).is_some())
    }

    /// The shape of a tensor, if it is there.
    pub fn shape(&self, name: &str) -> Option<&'a [usize]> {
        self.weights.shape(&self.find(name)?)
    }

    /// A matrix.
    ///
    /// # Errors
    /// When it is missing (named by its first spelling) or has another shape.
    pub fn matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<Matrix, EngineError> {
        self.weights.matrix(&self.full(name), outputs, inputs)
    }

    /// A vector.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, EngineError> {
        self.weights.vector(&self.full(name), length)
    }

    /// A vector that a checkpoint may lack.
    ///
    /// # Errors
    /// When it is there with another shape.
    pub fn optional_vector(&self, name: &str, length: usize) -> Result<Option<Vec<f32>>, EngineError> {
        self.find(name).map(|name| self.weights.vector(&name, length)).transpose()
    }

    /// The bytes of a floating-point tensor, and its dtype.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<(&'a [u8], &'a str), EngineError> {
        self.weights.tensor_bytes(&self.full(name), shape)
    }

    fn full(&self, name: &str) -> String {
        self.find(name).unwrap_or_else(|| format!("{}{name}", self.prefixes.first().copied().unwrap_or_default()))
    }
}
