//! Weights of a whole model that drafts.

use kernels::{device::Buffer, launch::Kernels};

use super::{LayerWeights, Loader, ProposalHead, TargetWeights, WeightSource, head::proposal_head};
use crate::{
    error::EngineError,
    spec::{DraftSpec, TargetSpec},
};

/// Weights of a whole model that drafts (STANDALONE).
#[derive(Debug)]
pub struct ModelWeights {
    pub spec: TargetSpec,
    pub embedding: Buffer,
    /// `None` if the embedding is also the head.
    pub head: Option<Buffer>,
    pub layers: Vec<LayerWeights>,
    pub norm: Buffer,
    /// Whether ranks split the layers, so that these are only a part of them.
    pub splits_layers: bool,
}

impl ModelWeights {
    /// Loads a model; ranks may split its layers.
    pub fn load(
        kernels: &Kernels,
        source: WeightSource<'_>,
        spec: TargetSpec,
        target: &TargetWeights,
        splits_layers: bool,
    ) -> Result<Self, EngineError> {
        let loader = Loader::new(kernels, source, target.share);
        let whole = loader.whole();
        let of_layers = if splits_layers || !target.share.is_part() { &loader } else { &whole };
        let tensors = spec.tensors();
        let layers = spec.layers.iter().zip(&tensors.layers);
        Ok(Self {
            embedding: loader.tensor(&tensors.embedding)?,
            head: loader.optional(tensors.head.as_ref())?,
            layers: layers
                .map(|(layer, tensors)| LayerWeights::load(of_layers, layer, tensors))
                .collect::<Result<_, _>>()?,
            norm: loader.tensor(&tensors.norm)?,
            splits_layers,
            spec,
        })
    }

    /// The matrix with which it proposes tokens.
    pub fn proposal_head<'a>(&'a self, target: &'a TargetWeights) -> ProposalHead<'a> {
        let sizes = DraftSpec::Model(self.spec.clone()).head();
        proposal_head(self.head.as_ref(), Some(&self.embedding), None, self.spec.hidden, sizes, target)
    }

    /// All of its buffers.
    pub fn buffers(&self) -> Vec<&Buffer> {
        let mut all = vec![&self.embedding];
        all.extend(&self.head);
        all.extend(self.layers.iter().flat_map(LayerWeights::buffers));
        all.push(&self.norm);
        all
    }
}
