//! Weights of a target.

use kernels::{
    device::{Buffer, Slice},
    launch::Kernels,
};

use super::{AttentionWeights, DeltaTables, LayerWeights, Loader, WeightSource};
use crate::{
    error::EngineError,
    spec::{Share, TargetSpec},
};

/// Weights of a target.
#[derive(Debug)]
pub struct TargetWeights {
    pub spec: TargetSpec,
    pub embedding: Buffer,
    /// `None` if the embedding is also the head.
    pub head: Option<Buffer>,
    pub layers: Vec<LayerWeights>,
    pub norm: Buffer,
    /// Of layers with a state.
    pub delta: Option<DeltaTables>,
    /// The rank that they belong to.
    pub share: Share,
}

impl TargetWeights {
    /// Loads a target.
    pub fn load(
        kernels: &Kernels,
        source: WeightSource<'_>,
        spec: TargetSpec,
        share: Share,
    ) -> Result<Self, EngineError> {
        let loader = Loader::new(kernels, source, share);
        let tensors = spec.tensors();
        let layers = spec.layers.iter().zip(&tensors.layers);
        let mut layers: Vec<LayerWeights> =
            layers.map(|(layer, tensors)| LayerWeights::load(&loader, layer, tensors)).collect::<Result<_, _>>()?;
        let deltas = layers.iter_mut().filter_map(|layer| match &mut layer.attention {
            AttentionWeights::Delta(delta) => Some(delta),
            AttentionWeights::Grouped(_) | AttentionWeights::Latent(_) => None,
        });
        deltas.enumerate().for_each(|(index, delta)| delta.index = index);
        Ok(Self {
            embedding: loader.tensor(&tensors.embedding)?,
            head: loader.optional(tensors.head.as_ref())?,
            layers,
            norm: loader.tensor(&tensors.norm)?,
            delta: DeltaTables::load(&loader, &spec, &tensors)?,
            spec,
            share,
        })
    }

    /// The vocabulary head: this rank's [`TargetSpec::head_rows`] rows, one per token.
    pub fn head(&self) -> Slice<'_> {
        match &self.head {
            Some(head) => head.slice(),
            None => self.head_of(&self.embedding, self.spec.hidden),
        }
    }

    /// This rank's rows of a table with one row for every token, when it is used as a vocabulary
    /// head.
    pub fn head_of<'a>(&self, table: &'a Buffer, width: usize) -> Slice<'a> {
        let TargetSpec { vocabulary, head_rows, .. } = self.spec;
        let row = table.bytes() / vocabulary.max(1);
        debug_assert_eq!(row % width, 0);
        let rows = self.share.head_range(vocabulary, head_rows);
        table.range(rows.start * row..rows.end * row)
    }
}
