//! The EAGLE-1/2 head (arXiv 2401.15077, 2406.16858): `fc` joins embedding and feature, one decoder layer without input
//! norm follows, and the target's own head reads its output without a final norm.

use std::sync::Arc;

use kernels::reference::{KeyValues, Matrix, Rope, linear, rms_norm};

use super::{
    attention::{Attention, Rows},
    draft::{Draft, HeadKind, PREFIXES},
    feed_forward::FeedForward,
    llama::{Llama, Pass, add, attention_shape, check_activation, embed, malformed, required},
    names::Names,
    rope::rope,
};
use crate::{
    checkpoint::{Folder, Weights},
    error::EngineError,
};

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
    rope: Rope,
    epsilon: f32,
}

impl Eagle2 {
    /// Loads a head for a target. Embedding and head are the target's, as in SGLang, whatever copies the head ships.
    ///
    /// # Errors
    /// When it does not fit the target, or a tensor is missing or misshapen.
    pub fn load(folder: &Folder, weights: &Weights, target: &Llama) -> Result<Self, EngineError> {
        let config = &folder.config;
        check_activation(folder, config)?;
        let hidden = required(folder, config.hidden_size, "hidden_size")?;
        if hidden != target.hidden_size() {
            let target = target.hidden_size();
            return Err(malformed(
                folder,
                format!("hidden_size is {hidden}, the target's is {target}: they must agree"),
            ));
        }
        let intermediate = required(folder, config.intermediate_size, "intermediate_size")?;
        let shape = attention_shape(folder, hidden, hidden)?;
        let epsilon = config.rms_norm_eps.unwrap_or(1e-6) as f32;
        let names = Names::new(weights, &PREFIXES);
        // The key `bias` defaults to true; a checkpoint that has the tensor has a bias.
        let join_bias = names.optional_vector("fc.bias", hidden)?;
        if join_bias.is_none() && config.bias.unwrap_or(true) {
            return Err(EngineError::MissingTensor {
                path: folder.path().to_owned(),
                tensor: "fc.bias".into(),
                expected: vec![hidden],
            });
        }
        Ok(Self {
            embedding: target.embedding.clone(),
            head: target.head.clone(),
            join: names.matrix("fc.weight", hidden, 2 * hidden)?,
            join_bias,
            attention: Attention::load(&names, "layers.0.self_attn", shape, epsilon)?,
            norm: names.vector("layers.0.post_attention_layernorm.weight", hidden)?,
            feed_forward: FeedForward::load(&names, "layers.0.mlp", hidden, intermediate)?,
            rope: rope(config, shape.head_dim, folder.path())?,
            epsilon,
        })
    }
}

impl Draft for Eagle2 {
    fn kind(&self) -> HeadKind {
        HeadKind::Eagle
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

    fn token(&self, index: usize) -> u32 {
        index as u32
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
