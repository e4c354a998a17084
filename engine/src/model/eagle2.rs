//! The EAGLE-1/2 head (arXiv 2401.15077, 2406.16858): `fc` joins embedding and feature, one decoder layer without input
//! norm follows, and the target's own head reads its output without a final norm.

use std::sync::Arc;

use kernels::reference::{KeyValues, Matrix, Rope, linear, rms_norm};

use super::{
    attention::{Attention, Rows},
    draft::Draft,
    feed_forward::FeedForward,
    llama::{Llama, Pass, add, embed},
    names::Names,
};
use crate::{checkpoint::Weights, error::EngineError, spec::DraftSpec};

/// A loaded head.
#[derive(Debug)]
pub struct Eagle2 {
    embedding: Arc<Matrix>,
    head: Arc<Matrix>,
    join: Matrix,
    join_bias: Option<Vec<f32>>,
    attention: Attention,
    norm: Vec<f32>,
    feed_forward: FeedForward,
    epsilon: f32,
    rope: Rope,
    spec: DraftSpec,
}

impl Eagle2 {
    /// Loads a head for a target by its facts. Embedding and head are the target's, as in SGLang, whatever copies the
    /// head ships.
    ///
    /// # Errors
    /// When a tensor is missing or misshapen.
    pub fn load(weights: &Weights, spec: DraftSpec, target: &Llama) -> Result<Self, EngineError> {
        let names = Names::new(weights);
        let tensors = spec.tensors(target.vocab_size());
        let head = match &spec.tokens {
            None => target.head.clone(),
            Some(tokens) => {
                let rows = tokens.iter().flat_map(|token| target.head.row(*token as usize)).copied();
                Arc::new(Matrix::new(tokens.len(), spec.hidden(), rows.collect()))
            }
        };
        let Some(join) = tensors.join.projection else {
            return Err(EngineError::Configuration("an EAGLE head without a projection".into()));
        };
        let (join, join_bias) = names.linear(&join)?;
        Ok(Self {
            embedding: target.embedding.clone(),
            head,
            join,
            join_bias,
            attention: Attention::load(&names, &tensors.layer.attention, &spec.layer)?,
            norm: names.tensor_vector(&tensors.layer.post_attention_norm)?,
            feed_forward: FeedForward::load(&names, &tensors.layer.ffn)?,
            epsilon: spec.layer.epsilon,
            rope: spec.layer.attention.rope().frequencies(),
            spec,
        })
    }
}

impl Draft for Eagle2 {
    fn spec(&self) -> &DraftSpec {
        &self.spec
    }

    fn hidden_size(&self) -> usize {
        self.norm.len()
    }

    fn capture(&self) -> &[usize] {
        &[]
    }

    fn features(&self, pass: &Pass) -> Vec<f32> {
        pass.hidden.clone()
    }

    fn forward(&self, tokens: &[u32], features: &[f32], rows: Rows<'_>, cache: &mut KeyValues) -> Vec<f32> {
        let embedded = embed(&self.embedding, tokens);
        let joined = side_by_side(&embedded, features, self.hidden_size());
        let mut x = linear(&joined, &self.join, self.join_bias.as_deref());
        let attended = self.attention.forward(&x, rows, &self.rope, cache);
        add(&mut x, &attended);
        let normed = rms_norm(&x, &self.norm, self.epsilon);
        add(&mut x, &self.feed_forward.forward(&normed));
        x
    }

    fn logits(&self, recurrent: &[f32]) -> Vec<f32> {
        linear(recurrent, &self.head, None)
    }

    fn vocab_size(&self) -> usize {
        self.head.outputs()
    }

    fn cache(&self, rows: usize) -> KeyValues {
        self.attention.cache(rows)
    }
}

/// Rows of `a` and `b`, both `[rows, width]`, next to each other: `[rows, 2 · width]`.
pub(super) fn side_by_side(a: &[f32], b: &[f32], width: usize) -> Vec<f32> {
    let rows = a.chunks_exact(width).zip(b.chunks_exact(width));
    rows.flat_map(|(a, b)| a.iter().chain(b)).copied().collect()
}
