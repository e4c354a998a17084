//! A draft.

use kernels::{
    device::Buffer,
    launch::{Kernels, Rows},
};

use super::{LayerWeights, Loader, Projection, TargetWeights, WeightSource, layer::not_on_a_gpu};
use crate::{
    error::EngineError,
    spec::{DraftSpec, Join, JoinTensors, VocabularySource},
};

/// A draft.
#[derive(Debug)]
pub struct DraftWeights {
    pub spec: DraftSpec,
    /// `None`: the target's.
    pub embedding: Option<Buffer>,
    /// `None`: as [`DraftSpec::head`] says.
    pub head: Option<Buffer>,
    /// Over all captured features side by side.
    pub joined_norm: Option<Buffer>,
    /// On each captured feature.
    pub capture_norms: Vec<Buffer>,
    /// Reduces captured features to the draft's width.
    pub reduce: Option<Projection>,
    pub join: JoinWeights,
    pub layer: LayerWeights,
    /// After its layer.
    pub output_norm: Option<Buffer>,
    /// int32: target tokens of the head's rows.
    pub tokens: Option<Buffer>,
    /// Whether a rank has its part of the layer only.
    pub splits_layer: bool,
}

/// What joins embedding and feature, by the kind of the [`Join`].
#[derive(Debug)]
pub enum JoinWeights {
    /// Both side by side are projected to the stream.
    Linear(Projection),
    /// Both are normed and attention reads them side by side.
    NormedIntoAttention { norms: JoinNorms, residual_is_normed: bool },
    /// Both are normed, and projected to the stream. Embeddings come first, whatever the checkpoint has.
    NormedLinear { norms: JoinNorms, projection: Projection, zero_first_embedding: bool },
}

/// Norms of what is joined.
#[derive(Debug)]
pub struct JoinNorms {
    pub embedding: Buffer,
    pub feature: Buffer,
}

impl DraftWeights {
    /// Loads a draft.
    pub fn load(
        kernels: &Kernels,
        source: WeightSource<'_>,
        spec: DraftSpec,
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

/// The rows of the target's head that belong to some tokens.
fn gathered(kernels: &Kernels, target: &TargetWeights, tokens: &Buffer, count: usize) -> Result<Buffer, EngineError> {
    let width = target.spec.hidden;
    let out = kernels.device().allocate(count * width * kernels.element().bytes())?;
    let (to, from) = (Rows { at: out.slice(), stride: width }, Rows { at: target.head(), stride: width });
    kernels.gather_rows(to, None, from, Some(tokens.slice()), count, width)?;
    Ok(out)
}
