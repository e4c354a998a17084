//! Weights of a draft that reads its own state step by step.

use kernels::{
    device::Buffer,
    launch::{Kernels, Rows},
};

use super::{
    LayerWeights, Loader, Projection, ProposalHead, TargetWeights, WeightSource, head::proposal_head,
    layer::not_on_a_gpu,
};
use crate::{
    error::EngineError,
    spec::{Join, JoinTensors, RecurrentSpec, VocabularySource},
};

/// Weights of an EAGLE head or an MTP layer.
#[derive(Debug)]
pub struct RecurrentWeights {
    pub spec: RecurrentSpec,
    /// `None` if the draft uses the target's.
    pub embedding: Option<Buffer>,
    /// `None` if it is shared or derived as [`RecurrentSpec::head`] describes.
    pub head: Option<Buffer>,
    /// Norm over the concatenation of all captured features.
    pub joined_norm: Option<Buffer>,
    /// Norms of the individual captured features.
    pub capture_norms: Vec<Buffer>,
    /// Projects the captured features to the draft's width.
    pub reduce: Option<Projection>,
    pub join: JoinWeights,
    pub layer: LayerWeights,
    /// The norm after its layer.
    pub output_norm: Option<Buffer>,
    /// Target tokens of the head's rows, int32.
    pub tokens: Option<Buffer>,
    /// Whether ranks split the layer, so that these are only a part of it.
    pub splits_layer: bool,
}

/// Weights that join embedding and feature, by the kind of [`Join`].
#[derive(Debug)]
pub enum JoinWeights {
    /// Both are concatenated and projected to the stream.
    Linear(Projection),
    /// Both are normed, and attention reads their concatenation.
    NormedIntoAttention { norms: JoinNorms, residual_is_normed: bool },
    /// Both are normed, concatenated and projected to the stream. The embedding always comes first,
    /// regardless of the order in the checkpoint.
    NormedLinear { norms: JoinNorms, projection: Projection, zero_first_embedding: bool },
}

/// Norms of embedding and feature before they are joined.
#[derive(Debug)]
pub struct JoinNorms {
    pub embedding: Buffer,
    pub feature: Buffer,
}

impl RecurrentWeights {
    /// Loads a draft; ranks may split its layer.
    pub fn load(
        kernels: &Kernels,
        source: WeightSource<'_>,
        spec: RecurrentSpec,
        target: &TargetWeights,
        splits_layer: bool,
    ) -> Result<Self, EngineError> {
        let loader = Loader::new(kernels, source, target.share);
        let whole = loader.whole();
        let of_layer = if splits_layer || !target.share.is_part() { &loader } else { &whole };
        let tensors = spec.tensors(target.spec.vocabulary);
        let tokens = match &spec.tokens {
            Some(tokens) => {
                let tokens: Vec<i32> = tokens.iter().map(|token| *token as i32).collect();
                Some(kernels.device().upload(&tokens)?)
            }
            None => None,
        };
        Ok(Self {
            embedding: loader.optional(tensors.embedding.as_ref())?,
            head: match (&tokens, spec.head) {
                // Copied once, so that a draft step multiplies only the rows of its hot vocabulary.
                (Some(tokens), VocabularySource::Target) => Some(gathered(kernels, target, tokens, spec.vocabulary)?),
                _ => loader.optional(tensors.head.as_ref())?,
            },
            joined_norm: loader.optional(tensors.joined_norm.as_ref())?,
            capture_norms: tensors.capture_norms.iter().map(|norm| loader.tensor(norm)).collect::<Result<_, _>>()?,
            reduce: tensors.reduce.as_ref().map(|reduce| loader.projection(&[reduce])).transpose()?,
            join: JoinWeights::load(&loader, spec.join, &tensors.join)?,
            layer: LayerWeights::load(of_layer, &spec.layer, &tensors.layer)?,
            output_norm: loader.optional(tensors.output_norm.as_ref())?,
            tokens,
            splits_layer,
            spec,
        })
    }
}

impl RecurrentWeights {
    /// The matrix with which it proposes tokens.
    pub fn proposal_head<'a>(&'a self, target: &'a TargetWeights) -> ProposalHead<'a> {
        let RecurrentSpec { head, vocabulary, head_rows, .. } = self.spec;
        let sizes = (head, vocabulary, head_rows);
        let (own, embedding, tokens) = (self.head.as_ref(), self.embedding.as_ref(), self.tokens.as_ref());
        proposal_head(own, embedding, tokens, self.spec.hidden(), sizes, target)
    }
}

impl JoinWeights {
    fn load(loader: &Loader<'_>, join: Join, tensors: &JoinTensors) -> Result<Self, EngineError> {
        let norms = match (&tensors.embedding_norm, &tensors.feature_norm) {
            (Some(embedding), Some(feature)) => {
                Some(JoinNorms { embedding: loader.tensor(embedding)?, feature: loader.tensor(feature)? })
            }
            _ => None,
        };
        match (join, norms, &tensors.projection) {
            (Join::Linear { .. }, _, Some(projection)) => Ok(Self::Linear(loader.projection(&[projection])?)),
            (Join::NormedIntoAttention { residual_is_normed }, Some(norms), _) => {
                Ok(Self::NormedIntoAttention { norms, residual_is_normed })
            }
            (Join::NormedLinear { hidden_first, zero_first_embedding }, Some(norms), Some(projection)) => {
                Ok(Self::NormedLinear {
                    norms,
                    zero_first_embedding,
                    projection: match hidden_first {
                        true => loader.with_halves_swapped(projection)?,
                        false => loader.projection(&[projection])?,
                    },
                })
            }
            _ => Err(not_on_a_gpu("a draft without its norms or its projection")),
        }
    }
}

/// The rows of the target's head for these tokens.
fn gathered(kernels: &Kernels, target: &TargetWeights, tokens: &Buffer, count: usize) -> Result<Buffer, EngineError> {
    let width = target.spec.hidden;
    let out = kernels.device().allocate(count * width * kernels.element().bytes())?;
    let (to, from) = (Rows { at: out.slice(), stride: width }, Rows { at: target.head(), stride: width });
    kernels.gather_rows(to, None, from, Some(tokens.slice()), count, width)?;
    Ok(out)
}
