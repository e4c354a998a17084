//! The EAGLE-1/2 head (arXiv 2401.15077, 2406.16858): `fc` joins embedding and feature, one decoder layer without input
//! norm follows, and the target's own head reads its output without a final norm.

use std::sync::Arc;

use kernels::reference::{KeyValues, Matrix, linear, rms_norm};

use super::{
    attention::{Attention, Rows},
    draft::{Draft, PREFIXES},
    facts::{HeadFacts, LayerFacts},
    feed_forward::FeedForward,
    llama::{Llama, Pass, add, embed},
    names::Names,
};
use crate::{checkpoint::Weights, error::EngineError};

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
    facts: HeadFacts,
}

impl Eagle2 {
    /// Loads a head for a target by its facts. Embedding and head are the target's, as in SGLang, whatever copies the
    /// head ships.
    ///
    /// # Errors
    /// When a tensor is missing or misshapen.
    pub fn load(weights: &Weights, facts: HeadFacts, target: &Llama) -> Result<Self, EngineError> {
        let LayerFacts { hidden, intermediate, attention: shape, epsilon, .. } = facts.layer;
        let names = Names::new(weights, &PREFIXES);
        let prefix = facts.prefix;
        let head = match &facts.tokens {
            None => target.head.clone(),
            Some(tokens) => {
                let rows = tokens.iter().flat_map(|token| target.head.row(*token as usize)).copied();
                Arc::new(Matrix::new(tokens.len(), hidden, rows.collect()))
            }
        };
        Ok(Self {
            embedding: target.embedding.clone(),
            head,
            join: names.matrix("fc.weight", hidden, 2 * hidden)?,
            join_bias: if facts.join_bias { Some(names.vector("fc.bias", hidden)?) } else { None },
            attention: Attention::load(&names, &format!("{prefix}.self_attn"), shape, epsilon)?,
            norm: names.vector(&format!("{prefix}.post_attention_layernorm.weight"), hidden)?,
            feed_forward: FeedForward::load(&names, &format!("{prefix}.mlp"), hidden, intermediate)?,
            facts,
        })
    }
}

impl Draft for Eagle2 {
    fn facts(&self) -> &HeadFacts {
        &self.facts
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
        let attended = self.attention.forward(&x, rows, &self.facts.layer.rope, cache);
        add(&mut x, &attended);
        let normed = rms_norm(&x, &self.norm, self.facts.layer.epsilon);
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
