//! A target.

use kernels::{
    device::{Buffer, Slice},
    launch::Kernels,
};

use super::{LayerWeights, Loader, WeightSource};
use crate::{
    error::EngineError,
    spec::{Share, TargetSpec},
};

/// A target.
#[derive(Debug)]
pub struct TargetWeights {
    pub spec: TargetSpec,
    pub embedding: Buffer,
    /// `None` where the embedding is the head too.
    pub head: Option<Buffer>,
    pub layers: Vec<LayerWeights>,
    pub norm: Buffer,
    /// Whose weights they are.
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
        Ok(Self {
            embedding: loader.tensor(&tensors.embedding)?,
            head: loader.optional(tensors.head.as_ref())?,
            layers: layers
                .map(|(layer, tensors)| LayerWeights::load(&loader, layer, tensors))
                .collect::<Result<_, _>>()?,
            norm: loader.tensor(&tensors.norm)?,
            spec,
            share,
        })
    }

    /// Rows are tokens: as many as [`TargetSpec::head_rows`].
    pub fn head(&self) -> Slice<'_> {
        match &self.head {
            Some(head) => head.slice(),
            None => self.head_of(&self.embedding, self.spec.hidden),
        }
    }

    /// The rows of a table of all tokens that are this rank's, where it is a vocabulary head.
    pub fn head_of<'a>(&self, table: &'a Buffer, width: usize) -> Slice<'a> {
        let TargetSpec { vocabulary, head_rows, .. } = self.spec;
        let row = table.bytes() / vocabulary.max(1);
        debug_assert_eq!(row % width, 0);
        let rows = self.share.head_range(vocabulary, head_rows);
        table.range(rows.start * row..rows.end * row)
    }
}
