//! The Llama family: pre-norm, grouped-query attention, rotary embedding, gated feed-forward. Llama 2 to 3.3, and the
//! models that differ only in biases (Qwen2) and per-head norms (Qwen3), which are read off the tensors.

use std::sync::Arc;

use kernels::reference::{KeyValues, Matrix, Rope, linear, rms_norm};

use super::{
    attention::{Attention, Rows},
    facts::read_target,
    feed_forward::FeedForward,
    names::Names,
};
use crate::{checkpoint::Folder, error::EngineError, spec::TargetSpec};

/// A loaded target.
#[derive(Debug)]
pub struct Llama {
    /// Rows are tokens.
    pub embedding: Arc<Matrix>,
    /// Rows are tokens; the embedding itself where the two are tied.
    pub head: Arc<Matrix>,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    spec: TargetSpec,
}

#[derive(Debug)]
struct Layer {
    input_norm: Vec<f32>,
    attention: Attention,
    post_attention_norm: Vec<f32>,
    feed_forward: FeedForward,
    epsilon: f32,
    rope: Rope,
}

/// What a pass over some rows yields.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// After the final norm, `[rows, hidden]`: what the head and EAGLE-1/2 see.
    pub hidden: Vec<f32>,
    /// The residual stream on entry to each captured layer, side by side: `[rows, captured × hidden]`.
    pub captured: Vec<f32>,
}

impl Llama {
    /// Loads a target from its folder.
    ///
    /// # Errors
    /// When the architecture or a setting is not supported, or a tensor is missing or misshapen.
    pub fn load(folder: &Folder) -> Result<Self, EngineError> {
        let weights = folder.weights()?;
        let spec = read_target(folder, &weights)?;
        let tensors = spec.tensors();
        let names = Names::new(&weights);
        let embedding = Arc::new(names.tensor_matrix(&tensors.embedding)?);
        let head = match &tensors.head {
            Some(head) => Arc::new(names.tensor_matrix(head)?),
            None => embedding.clone(),
        };
        let layers = spec.layers.iter().zip(&tensors.layers).map(|(layer, tensors)| {
            Ok(Layer {
                input_norm: tensors
                    .input_norm
                    .as_ref()
                    .map(|norm| names.tensor_vector(norm))
                    .transpose()?
                    .unwrap_or_default(),
                attention: Attention::load(&names, &tensors.attention, layer)?,
                post_attention_norm: names.tensor_vector(&tensors.post_attention_norm)?,
                feed_forward: FeedForward::load(&names, &tensors.ffn)?,
                epsilon: layer.epsilon,
                rope: layer.attention.rope().frequencies(),
            })
        });
        let layers = layers.collect::<Result<_, EngineError>>()?;
        Ok(Self { norm: names.tensor_vector(&tensors.norm)?, embedding, head, layers, spec })
    }

    /// What it is.
    pub fn spec(&self) -> &TargetSpec {
        &self.spec
    }

    /// Width of the residual stream.
    pub fn hidden_size(&self) -> usize {
        self.norm.len()
    }

    /// Tokens.
    pub fn vocab_size(&self) -> usize {
        self.embedding.outputs()
    }

    /// Empty caches, one a layer.
    pub fn caches(&self, rows: usize) -> Vec<KeyValues> {
        self.layers.iter().map(|layer| layer.attention.cache(rows)).collect()
    }

    /// Runs some rows through all layers. `capture` lists the layers on whose entry the residual stream is kept,
    /// ascending; an entry equal to the number of layers means the stream that leaves the last one.
    pub fn forward(&self, tokens: &[u32], rows: Rows<'_>, caches: &mut [KeyValues], capture: &[usize]) -> Pass {
        let mut x = embed(&self.embedding, tokens);
        let width = self.hidden_size();
        let mut captured = vec![0.0; tokens.len() * width * capture.len()];
        let mut keep = |layer: usize, x: &[f32]| {
            for place in capture.iter().enumerate().filter(|(_, at)| **at == layer).map(|(place, _)| place) {
                for (row, x) in x.chunks_exact(width).enumerate() {
                    let start = (row * capture.len() + place) * width;
                    captured[start..start + width].copy_from_slice(x);
                }
            }
        };
        for (at, (layer, cache)) in self.layers.iter().zip(caches).enumerate() {
            keep(at, &x);
            let normed = rms_norm(&x, &layer.input_norm, layer.epsilon);
            add(&mut x, &layer.attention.forward(&normed, rows, &layer.rope, cache));
            let normed = rms_norm(&x, &layer.post_attention_norm, layer.epsilon);
            add(&mut x, &layer.feed_forward.forward(&normed));
        }
        keep(self.layers.len(), &x);
        Pass { hidden: rms_norm(&x, &self.norm, self.spec.epsilon), captured }
    }

    /// Logits of rows of [`Pass::hidden`]: `[rows, vocab_size]`.
    pub fn logits(&self, hidden: &[f32]) -> Vec<f32> {
        linear(hidden, &self.head, None)
    }
}

/// Rows of an embedding.
pub(super) fn embed(embedding: &Matrix, tokens: &[u32]) -> Vec<f32> {
    tokens.iter().flat_map(|token| embedding.row(*token as usize)).copied().collect()
}

/// `x += y`.
pub(super) fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}
