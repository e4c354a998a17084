//! A target.

use kernels::{device::Buffer, launch::Kernels};

use super::{LayerWeights, Loader, WeightSource};
use crate::{error::EngineError, spec::TargetSpec};

/// A target.
#[derive(Debug)]
pub struct TargetWeights {
    pub spec: TargetSpec,
    pub embedding: Buffer,
    /// `None` where the embedding is the head too.
    pub head: Option<Buffer>,
    pub layers: Vec<LayerWeights>,
    pub norm: Buffer,
}

impl TargetWeights {
    /// Loads a target.
    pub fn load(kernels: &Kernels, source: WeightSource<'_>, spec: TargetSpec) -> Result<Self, EngineError> {
        let loader = Loader::new(kernels, source);
        let tensors = spec.tensors();
        let layers = spec.layers.iter().zip(&tensors.layers);
        Ok(Self {
            embedding: loader.tensor(&tensors.embedding)?,
            head: loader.optional(tensors.head.as_ref())?,
            layers: layers
                .map(|(layer, tensors)| LayerWeights::load(&loader, layer, tensors))
                .collect::<Result<_, _>>()?,
            norm: loader.tensor(&tensors.norm)?,
            spec,
        })
    }

    /// Rows are tokens.
    pub fn head(&self) -> &Buffer {
        self.head.as_ref().unwrap_or(&self.embedding)
    }
}
