//! A decoder layer.

use kernels::reference::{Matrix, rms_norm};

use super::{
    attention::{Cache, CpuAttention, RowPlacement},
    ffn::CpuFfn,
};
use crate::{
    backend::expert_reads::ExpertTally,
    checkpoint::Tensors,
    error::EngineError,
    spec::{LayerSpec, LayerTensors},
};

/// A decoder layer of a target or a draft.
#[derive(Debug)]
pub struct CpuLayer {
    input_norm: Option<Vec<f32>>,
    attention: CpuAttention,
    post_attention_norm: Vec<f32>,
    ffn: CpuFfn,
    epsilon: f32,
}

impl CpuLayer {
    /// Loads the layer.
    ///
    /// # Errors
    /// When a tensor is missing or has the wrong shape.
    pub fn load(from: Tensors<'_>, tensors: &LayerTensors, spec: &LayerSpec) -> Result<Self, EngineError> {
        Ok(Self {
            input_norm: from.optional_vector(tensors.input_norm.as_ref())?,
            attention: CpuAttention::load(from, &tensors.attention, spec)?,
            post_attention_norm: from.vector(&tensors.post_attention_norm)?,
            ffn: CpuFfn::load(from, &tensors.ffn, &spec.ffn)?,
            epsilon: spec.epsilon,
        })
    }

    /// An empty cache for the layer: of `rows` rows, or for `states` states.
    pub fn cache(&self, rows: usize, states: usize) -> Cache {
        self.attention.cache(rows, states)
    }

    /// Counts the experts that its rows choose; `None` without experts.
    pub fn tally(&self) -> Option<&ExpertTally> {
        self.ffn.tally()
    }

    /// Writes keys and values of rows of `x`, `[rows, attention's input]`, to the cache, without
    /// norm and without attending.
    pub fn store(&self, x: &[f32], rows: RowPlacement<'_>, cache: &mut Cache) {
        self.attention.store(x, rows, cache);
    }

    /// Multiplies the values of attention by a factor from now on.
    pub fn scale_values(&mut self, factor: f32) {
        self.attention.scale_values(factor);
    }

    /// Runs the stream `x`, `[rows, hidden]`, through the layer.
    pub fn forward(&self, x: &mut [f32], rows: RowPlacement<'_>, cache: &mut Cache) {
        let normed = self.input_norm.as_ref().map(|norm| rms_norm(x, norm, self.epsilon));
        match normed {
            Some(normed) => self.forward_from(&normed, x, rows, cache),
            None => {
                let input = x.to_vec();
                self.forward_from(&input, x, rows, cache);
            }
        }
    }

    /// The same for attention that does not read the stream: `input` is
    /// `[rows, attention's input]`.
    pub fn forward_from(&self, input: &[f32], x: &mut [f32], rows: RowPlacement<'_>, cache: &mut Cache) {
        add(x, &self.attention.forward(input, rows, cache));
        let normed = rms_norm(x, &self.post_attention_norm, self.epsilon);
        add(x, &self.ffn.forward(&normed));
    }
}

/// The embeddings of tokens, `[tokens, hidden]`.
pub fn embed(embedding: &Matrix, tokens: &[u32]) -> Vec<f32> {
    tokens.iter().flat_map(|token| embedding.row(*token as usize)).copied().collect()
}

/// `x += y`.
fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}
