//! The EAGLE-3 head (arXiv 2503.01840): `fc` reduces the features of several layers, one decoder layer sees normed
//! embedding and normed feature side by side, and its own norm and head propose tokens of a hot vocabulary.

use std::sync::Arc;

use kernels::reference::{KeyValues, Matrix, linear, rms_norm};

use super::{
    attention::{Attention, Rows},
    draft::{Draft, PREFIXES},
    eagle2::side_by_side,
    facts::{HeadFacts, HeadSource, LayerFacts},
    feed_forward::FeedForward,
    llama::{Llama, Pass, add, embed},
    names::Names,
};
use crate::{checkpoint::Weights, error::EngineError};

/// A loaded head.
#[derive(Debug)]
pub struct Eagle3 {
    embedding: Arc<Matrix>,
    head: Arc<Matrix>,
    /// EAGLE-3.1: a norm on each captured layer before `fc`.
    capture_norms: Option<Vec<Vec<f32>>>,
    join: Matrix,
    join_bias: Option<Vec<f32>>,
    input_norm: Vec<f32>,
    hidden_norm: Vec<f32>,
    attention: Attention,
    post_attention_norm: Vec<f32>,
    feed_forward: FeedForward,
    norm: Vec<f32>,
    facts: HeadFacts,
}

impl Eagle3 {
    /// Loads a head for a target by its facts.
    ///
    /// # Errors
    /// When a tensor is missing or misshapen.
    pub fn load(weights: &Weights, facts: HeadFacts, target: &Llama) -> Result<Self, EngineError> {
        let HeadFacts { prefix, head, vocabulary, .. } = facts;
        let LayerFacts { hidden, intermediate, attention: shape, epsilon, .. } = facts.layer;
        let names = Names::new(weights, &PREFIXES);
        let norm = |name: &str| names.vector(&format!("{prefix}.{name}.weight"), hidden);
        let capture_norms = if facts.capture_norms {
            let norm = |at| names.vector(&format!("fc_norm.{at}.weight"), target.hidden_size());
            Some((0..facts.capture.len()).map(norm).collect::<Result<_, _>>()?)
        } else {
            None
        };
        let mut embedding = target.embedding.clone();
        if facts.own_embedding {
            let own = names.matrix("embed_tokens.weight", target.vocab_size(), hidden)?;
            // Most heads that ship one ship a copy: one in memory is enough.
            if own != *embedding {
                embedding = Arc::new(own);
            }
        }
        Ok(Self {
            head: match head {
                HeadSource::Embedding => embedding.clone(),
                HeadSource::Target => target.head.clone(),
                HeadSource::Own => Arc::new(names.matrix("lm_head.weight", vocabulary, hidden)?),
            },
            embedding,
            capture_norms,
            join: names.matrix("fc.weight", hidden, facts.capture.len() * target.hidden_size())?,
            join_bias: if facts.join_bias { Some(names.vector("fc.bias", hidden)?) } else { None },
            input_norm: norm("input_layernorm")?,
            hidden_norm: norm("hidden_norm")?,
            attention: Attention::load(&names, &format!("{prefix}.self_attn"), shape, epsilon)?,
            post_attention_norm: norm("post_attention_layernorm")?,
            feed_forward: FeedForward::load(&names, &format!("{prefix}.mlp"), hidden, intermediate)?,
            norm: names.vector("norm.weight", hidden)?,
            facts,
        })
    }
}

impl Draft for Eagle3 {
    fn facts(&self) -> &HeadFacts {
        &self.facts
    }

    fn hidden_size(&self) -> usize {
        self.norm.len()
    }

    fn capture(&self) -> &[usize] {
        &self.facts.capture
    }

    fn features(&self, pass: &Pass) -> Vec<f32> {
        let join = |x: &[f32]| linear(x, &self.join, self.join_bias.as_deref());
        let Some(norms) = &self.capture_norms else { return join(&pass.captured) };
        let width = norms.first().map_or(0, Vec::len);
        let layers = pass.captured.chunks_exact(width).zip(norms.iter().cycle());
        let normed: Vec<f32> = layers.flat_map(|(x, norm)| rms_norm(x, norm, self.facts.layer.epsilon)).collect();
        join(&normed)
    }

    fn forward(&self, tokens: &[u32], features: &[f32], rows: Rows<'_>, cache: &mut KeyValues) -> Vec<f32> {
        let embedded = rms_norm(&embed(&self.embedding, tokens), &self.input_norm, self.facts.layer.epsilon);
        let normed = rms_norm(features, &self.hidden_norm, self.facts.layer.epsilon);
        let joined = side_by_side(&embedded, &normed, self.hidden_size());
        let mut x = if self.facts.norm_before_residual { normed } else { features.to_vec() };
        add(&mut x, &self.attention.forward(&joined, rows, &self.facts.layer.rope, cache));
        let normed = rms_norm(&x, &self.post_attention_norm, self.facts.layer.epsilon);
        add(&mut x, &self.feed_forward.forward(&normed));
        if self.facts.norm_output { rms_norm(&x, &self.norm, self.facts.layer.epsilon) } else { x }
    }

    fn logits(&self, recurrent: &[f32]) -> Vec<f32> {
        if self.facts.norm_output {
            linear(recurrent, &self.head, None)
        } else {
            linear(&rms_norm(recurrent, &self.norm, self.facts.layer.epsilon), &self.head, None)
        }
    }

    fn vocab_size(&self) -> usize {
        self.head.outputs()
    }

    fn cache(&self, rows: usize) -> KeyValues {
        self.attention.cache(rows)
    }
}
