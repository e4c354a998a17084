//! The EAGLE-3 head (arXiv 2503.01840): `fc` reduces the features of several layers, one decoder layer sees normed
//! embedding and normed feature side by side, and its own norm and head propose tokens of a hot vocabulary.

use std::sync::Arc;

use kernels::reference::{KeyValues, Matrix, Rope, linear, rms_norm};

use super::{
    attention::{Attention, Rows},
    draft::Draft,
    eagle2::side_by_side,
    feed_forward::FeedForward,
    llama::{Llama, Pass, add, embed},
    names::Names,
};
use crate::{
    checkpoint::Weights,
    error::EngineError,
    spec::{DraftSpec, Feedback, Join, TensorSpec, VocabularySource},
};

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
    residual_is_normed: bool,
    epsilon: f32,
    rope: Rope,
    spec: DraftSpec,
}

impl Eagle3 {
    /// Loads a head for a target by its facts.
    ///
    /// # Errors
    /// When a tensor is missing or misshapen.
    pub fn load(weights: &Weights, spec: DraftSpec, target: &Llama) -> Result<Self, EngineError> {
        let names = Names::new(weights);
        let tensors = spec.tensors(target.vocab_size());
        let norm = |tensor: &Option<TensorSpec>| match tensor {
            Some(tensor) => names.tensor_vector(tensor),
            None => Err(EngineError::Configuration("an EAGLE-3 head without its norms".into())),
        };
        let mut embedding = target.embedding.clone();
        if let Some(own) = &tensors.embedding {
            let own = names.tensor_matrix(own)?;
            // Most heads that ship one ship a copy: one in memory is enough.
            if own != *embedding {
                embedding = Arc::new(own);
            }
        }
        let Some(reduce) = &tensors.reduce else {
            return Err(EngineError::Configuration("an EAGLE-3 head without fc".into()));
        };
        let (join, join_bias) = names.linear(reduce)?;
        let capture_norms = tensors.capture_norms.iter().map(|tensor| names.tensor_vector(tensor));
        let capture_norms = capture_norms.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            head: match (&tensors.head, spec.head) {
                (Some(own), _) => Arc::new(names.tensor_matrix(own)?),
                (None, VocabularySource::Embedding) => embedding.clone(),
                (None, _) => target.head.clone(),
            },
            embedding,
            capture_norms: (!capture_norms.is_empty()).then_some(capture_norms),
            join,
            join_bias,
            input_norm: norm(&tensors.join.embedding_norm)?,
            hidden_norm: norm(&tensors.join.feature_norm)?,
            attention: Attention::load(&names, &tensors.layer.attention, &spec.layer)?,
            post_attention_norm: names.tensor_vector(&tensors.layer.post_attention_norm)?,
            feed_forward: FeedForward::load(&names, &tensors.layer.ffn)?,
            norm: norm(&tensors.output_norm)?,
            residual_is_normed: spec.join == Join::NormedIntoAttention { residual_is_normed: true },
            epsilon: spec.layer.epsilon,
            rope: spec.layer.attention.rope().frequencies(),
            spec,
        })
    }
}

impl Draft for Eagle3 {
    fn spec(&self) -> &DraftSpec {
        &self.spec
    }

    fn hidden_size(&self) -> usize {
        self.norm.len()
    }

    fn capture(&self) -> &[usize] {
        self.spec.captured()
    }

    fn features(&self, pass: &Pass) -> Vec<f32> {
        let join = |x: &[f32]| linear(x, &self.join, self.join_bias.as_deref());
        let Some(norms) = &self.capture_norms else { return join(&pass.captured) };
        let width = norms.first().map_or(0, Vec::len);
        let layers = pass.captured.chunks_exact(width).zip(norms.iter().cycle());
        let normed: Vec<f32> = layers.flat_map(|(x, norm)| rms_norm(x, norm, self.epsilon)).collect();
        join(&normed)
    }

    fn forward(&self, tokens: &[u32], features: &[f32], rows: Rows<'_>, cache: &mut KeyValues) -> Vec<f32> {
        let embedded = rms_norm(&embed(&self.embedding, tokens), &self.input_norm, self.epsilon);
        let normed = rms_norm(features, &self.hidden_norm, self.epsilon);
        let joined = side_by_side(&embedded, &normed, self.hidden_size());
        let mut x = if self.residual_is_normed { normed } else { features.to_vec() };
        add(&mut x, &self.attention.forward(&joined, rows, &self.rope, cache));
        let normed = rms_norm(&x, &self.post_attention_norm, self.epsilon);
        add(&mut x, &self.feed_forward.forward(&normed));
        if self.spec.feedback == Feedback::Normed { rms_norm(&x, &self.norm, self.epsilon) } else { x }
    }

    fn logits(&self, recurrent: &[f32]) -> Vec<f32> {
        if self.spec.feedback == Feedback::Normed {
            linear(recurrent, &self.head, None)
        } else {
            linear(&rms_norm(recurrent, &self.norm, self.epsilon), &self.head, None)
        }
    }

    fn vocab_size(&self) -> usize {
        self.head.outputs()
    }

    fn cache(&self, rows: usize) -> KeyValues {
        self.attention.cache(rows)
    }
}
