//! A recurrent draft built from its [`RecurrentSpec`]: an EAGLE head, an EAGLE-3 head or an MTP
//! layer.

use std::sync::Arc;

use kernels::reference::{Matrix, linear, rms_norm};

use super::{
    attention::{Cache, RowPlacement},
    layer::{CpuLayer, embed},
    linear::CpuLinear,
    target::{PassOutput, Target},
};
use crate::{
    backend::expert_reads::ExpertTally,
    checkpoint::{Tensors, Weights},
    error::EngineError,
    spec::{Features, Feedback, Join, RecurrentSpec, VocabularySource},
};

/// A loaded draft: proposes tokens from the target's features and from its own state.
///
/// Row i consumes token i + 1 and the feature of position i, is rotated at position i, and predicts
/// token i + 2.
#[derive(Debug)]
pub struct Recurrent {
    embedding: Arc<Matrix>,
    head: Arc<Matrix>,
    /// Norm of the concatenation of all captured features.
    joined_norm: Option<Vec<f32>>,
    /// Norms of the individual captured features.
    capture_norms: Vec<Vec<f32>>,
    /// Projects captured features to the draft's width.
    reduce: Option<CpuLinear>,
    /// Norms of the embedding and of the feature.
    join_norms: Option<(Vec<f32>, Vec<f32>)>,
    /// Projects embedding and feature to the stream.
    projection: Option<CpuLinear>,
    layer: CpuLayer,
    output_norm: Option<Vec<f32>>,
    spec: RecurrentSpec,
}

impl Recurrent {
    /// Counts the experts that rows of its layer choose; `None` without experts.
    pub fn tally(&self) -> Option<&ExpertTally> {
        self.layer.tally()
    }

    /// Loads a draft that has this spec. `weights` come from the draft's own folder, or from the
    /// target's.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(weights: &Weights, spec: RecurrentSpec, target: &Target) -> Result<Self, EngineError> {
        let (from, tensors) = (Tensors::new(weights), spec.tensors(target.vocab_size()));
        let mut embedding = target.embedding.clone();
        if let Some(own) = &tensors.embedding {
            let own = from.matrix(own)?;
            // Most heads that contain an embedding contain a copy of the target's: keep one in
            // memory.
            if own != *embedding {
                embedding = Arc::new(own);
            }
        }
        let head = match (&tensors.head, spec.head, &spec.tokens) {
            (Some(own), _, _) => Arc::new(from.matrix(own)?),
            (None, VocabularySource::Embedding, _) => embedding.clone(),
            (None, _, None) => target.head.clone(),
            (None, _, Some(tokens)) => {
                let rows = tokens.iter().flat_map(|token| target.head.row(*token as usize)).copied();
                Arc::new(Matrix::new(tokens.len(), target.hidden_size(), rows.collect()))
            }
        };
        let linear = |tensors: Option<&_>| tensors.map(|tensors| CpuLinear::load(from, tensors)).transpose();
        let join = &tensors.join;
        Ok(Self {
            embedding,
            head,
            joined_norm: from.optional_vector(tensors.joined_norm.as_ref())?,
            capture_norms: tensors.capture_norms.iter().map(|norm| from.vector(norm)).collect::<Result<_, _>>()?,
            reduce: linear(tensors.reduce.as_ref())?,
            join_norms: match (&join.embedding_norm, &join.feature_norm) {
                (Some(embedding), Some(feature)) => Some((from.vector(embedding)?, from.vector(feature)?)),
                _ => None,
            },
            projection: linear(join.projection.as_ref())?,
            layer: CpuLayer::load(from, &tensors.layer, &spec.layer)?,
            output_norm: from.optional_vector(tensors.output_norm.as_ref())?,
            spec,
        })
    }

    /// The spec that it was built from.
    pub fn spec(&self) -> &RecurrentSpec {
        &self.spec
    }

    /// Width of a feature and of the recurrent state.
    pub fn hidden_size(&self) -> usize {
        self.spec.hidden()
    }

    /// Number of tokens that the draft can propose.
    pub fn vocab_size(&self) -> usize {
        self.head.outputs()
    }

    /// The target's token for an index of the draft's vocabulary.
    pub fn token(&self, index: usize) -> u32 {
        self.spec.tokens.as_ref().map_or(index as u32, |tokens| tokens[index])
    }

    /// An empty cache for its one layer.
    pub fn cache(&self, rows: usize) -> Cache {
        self.layer.cache(rows, 0)
    }

    /// Features `[rows, hidden]` from a pass of the target.
    pub fn features(&self, pass: &PassOutput) -> Vec<f32> {
        let Features::Captured(captured) = &self.spec.features else { return pass.hidden.clone() };
        let mut x = pass.captured.clone();
        if let Some(norm) = &self.joined_norm {
            x = rms_norm(&x, norm, self.epsilon());
        }
        if !self.capture_norms.is_empty() {
            let layers = x.chunks_exact(captured.width).zip(self.capture_norms.iter().cycle());
            x = layers.flat_map(|(x, norm)| rms_norm(x, norm, self.epsilon())).collect();
        }
        self.reduce.as_ref().map_or_else(|| x.clone(), |reduce| reduce.forward(&x))
    }

    /// Runs rows through the draft. `features` and the returned recurrent state are
    /// `[rows, hidden]`.
    pub fn forward(&self, tokens: &[u32], features: &[f32], rows: RowPlacement<'_>, cache: &mut Cache) -> Vec<f32> {
        let mut embedded = embed(&self.embedding, tokens);
        if let Join::NormedLinear { zero_first_embedding: true, .. } = self.spec.join {
            let first = rows.positions.iter().zip(embedded.chunks_exact_mut(self.hidden_size()));
            first.filter(|(position, _)| **position == 0).for_each(|(_, row)| row.fill(0.0));
        }
        let normed = self.join_norms.as_ref().map(|(embedding, feature)| {
            (rms_norm(&embedded, embedding, self.epsilon()), rms_norm(features, feature, self.epsilon()))
        });
        let (embedded, normed_features) = normed.unwrap_or_else(|| (embedded, features.to_vec()));
        let joined = match self.spec.join {
            Join::NormedLinear { hidden_first: true, .. } => self.side_by_side(&normed_features, &embedded),
            _ => self.side_by_side(&embedded, &normed_features),
        };
        let x = match (&self.projection, self.spec.join) {
            (Some(projection), _) => {
                let mut x = projection.forward(&joined);
                self.layer.forward(&mut x, rows, cache);
                x
            }
            (None, join) => {
                let normed = join == Join::NormedIntoAttention { residual_is_normed: true };
                let mut x = if normed { normed_features } else { features.to_vec() };
                self.layer.forward_from(&joined, &mut x, rows, cache);
                x
            }
        };
        if self.spec.feedback == Feedback::Normed { self.normed(&x) } else { x }
    }

    /// Logits over the draft's vocabulary, for rows of recurrent state.
    pub fn logits(&self, recurrent: &[f32]) -> Vec<f32> {
        if self.spec.feedback == Feedback::NormedForTokens {
            linear(&self.normed(recurrent), &self.head, None)
        } else {
            linear(recurrent, &self.head, None)
        }
    }

    fn normed(&self, x: &[f32]) -> Vec<f32> {
        self.output_norm.as_ref().map_or_else(|| x.to_vec(), |norm| rms_norm(x, norm, self.epsilon()))
    }

    fn epsilon(&self) -> f32 {
        self.spec.layer.epsilon
    }

    /// Concatenates the rows of both: `[rows, 2 · hidden]`.
    fn side_by_side(&self, a: &[f32], b: &[f32]) -> Vec<f32> {
        let width = self.hidden_size();
        let rows = a.chunks_exact(width).zip(b.chunks_exact(width));
        rows.flat_map(|(a, b)| a.iter().chain(b)).copied().collect()
    }
}
