//! A recurrent head: it reads its own state step by step (EAGLE heads and MTP layers).

mod attention;

use std::collections::BTreeMap;

use candle_core::{Result, Tensor, Var};
use engine::spec::{Features, Feedback, Join, RecurrentSpec, RecurrentTensors};

use self::attention::History;
use super::{
    HeadPass, HeadRows, HeadStep, SharedWeights,
    grouped::GroupedHeads,
    parts::{Builder, HeadGated, HeadLinear, Norm, Vocabulary},
    trainable,
};
use crate::error::TrainingError;

/// A recurrent head.
pub struct RecurrentHead {
    spec: RecurrentSpec,
    trained: BTreeMap<String, Var>,
    vocabulary: Vocabulary,
    joined_norm: Option<Norm>,
    capture_norms: Vec<Norm>,
    reduce: Option<HeadLinear>,
    join_norms: Option<(Norm, Norm)>,
    projection: Option<HeadLinear>,
    input_norm: Option<Norm>,
    heads: GroupedHeads,
    post_attention_norm: Norm,
    ffn: HeadGated,
    output_norm: Option<Norm>,
}

/// An unrolled pass: every row is an anchor, and reads its own state after the first step.
struct RecurrentPass<'a> {
    head: &'a RecurrentHead,
    rows: &'a HeadRows,
    /// The target's features, then the state of the previous step.
    features: Tensor,
    history: History,
}

impl RecurrentHead {
    /// A head from a builder with its values.
    pub fn new(
        spec: &RecurrentSpec,
        mut builder: Builder<'_>,
        shared: &SharedWeights,
    ) -> std::result::Result<Self, TrainingError> {
        let RecurrentTensors { embedding, head, joined_norm, capture_norms, reduce, join, layer, output_norm } =
            spec.tensors(shared.embedding.dim(0)?);
        let (grouped, grouped_tensors, dense) = trainable(&spec.layer, &layer)?;
        let epsilon = spec.layer.epsilon;
        let own = (embedding.as_ref(), head.as_ref());
        let vocabulary = Vocabulary::new(&mut builder, own, (spec.head, spec.tokens.as_deref()), shared)?;
        let (of_embedding, of_feature) = (
            builder.optional_norm(join.embedding_norm.as_ref(), epsilon)?,
            builder.optional_norm(join.feature_norm.as_ref(), epsilon)?,
        );
        Ok(Self {
            vocabulary,
            joined_norm: builder.optional_norm(joined_norm.as_ref(), epsilon)?,
            capture_norms: capture_norms
                .iter()
                .map(|spec| builder.norm(spec, epsilon))
                .collect::<std::result::Result<_, _>>()?,
            reduce: reduce.as_ref().map(|tensors| builder.linear(tensors)).transpose()?,
            join_norms: of_embedding.zip(of_feature),
            projection: join.projection.as_ref().map(|tensors| builder.linear(tensors)).transpose()?,
            input_norm: builder.optional_norm(layer.input_norm.as_ref(), epsilon)?,
            heads: GroupedHeads::new(&mut builder, grouped_tensors, grouped, epsilon)?,
            post_attention_norm: builder.norm(&layer.post_attention_norm, epsilon)?,
            ffn: builder.gated(dense)?,
            output_norm: builder.optional_norm(output_norm.as_ref(), epsilon)?,
            trained: builder.trained,
            spec: spec.clone(),
        })
    }

    /// The trained variables by their published names.
    pub fn trained(&self) -> &BTreeMap<String, Var> {
        &self.trained
    }

    /// Starts an unrolled pass over rows with the target's outputs, `[texts · rows, width]`.
    pub fn pass<'a>(&'a self, of_target: &Tensor, rows: &'a HeadRows) -> Result<Box<dyn HeadPass + 'a>> {
        Ok(Box::new(RecurrentPass {
            head: self,
            rows,
            features: self.features(of_target)?,
            history: History::default(),
        }))
    }

    /// Features `[texts · rows, hidden]` from the target's outputs: captured layers, concatenated,
    /// or its final state.
    fn features(&self, of_target: &Tensor) -> Result<Tensor> {
        let Features::Captured(captured) = &self.spec.features else { return Ok(of_target.clone()) };
        let mut x = of_target.clone();
        if let Some(norm) = &self.joined_norm {
            x = norm.forward(&x)?;
        }
        if !self.capture_norms.is_empty() {
            let layers = self.capture_norms.iter().enumerate();
            let normed: Result<Vec<_>> = layers
                .map(|(at, norm)| norm.forward(&x.narrow(1, at * captured.width, captured.width)?.contiguous()?))
                .collect();
            x = Tensor::cat(&normed?, 1)?;
        }
        self.reduce.as_ref().map_or(Ok(x.clone()), |reduce| reduce.forward(&x))
    }
}

impl HeadPass for RecurrentPass<'_> {
    /// Row i is rotated at position i + k in step k.
    fn step(&mut self, tokens: &Tensor) -> Result<HeadStep> {
        let RecurrentPass { head, rows, features, history } = self;
        let mut embedded = head.vocabulary.embed(tokens)?;
        // In later steps no row is at position 0 any more.
        if let Join::NormedLinear { zero_first_embedding: true, .. } = head.spec.join
            && history.steps() == 0
        {
            embedded = embedded.broadcast_mul(&all_but_first(rows, &embedded)?)?;
        }
        let (embedded, normed_features) = match &head.join_norms {
            Some((of_embedding, of_feature)) => (of_embedding.forward(&embedded)?, of_feature.forward(features)?),
            None => (embedded, features.clone()),
        };
        let joined = match head.spec.join {
            // In the order of the published projection's inputs.
            Join::NormedLinear { hidden_first: true, .. } => Tensor::cat(&[&normed_features, &embedded], 1)?,
            _ => Tensor::cat(&[&embedded, &normed_features], 1)?,
        };
        let (input, stream) = match (&head.projection, head.spec.join) {
            (Some(projection), _) => {
                let stream = projection.forward(&joined)?;
                let input = head.input_norm.as_ref().map_or(Ok(stream.clone()), |norm| norm.forward(&stream))?;
                (input, stream)
            }
            (None, Join::NormedIntoAttention { residual_is_normed: true }) => (joined, normed_features),
            (None, _) => (joined, features.clone()),
        };
        let stream = (&stream + history.attend(&head.heads, &input, rows)?)?;
        let output = (&stream + head.ffn.forward(&head.post_attention_norm.forward(&stream)?)?)?;
        let normed = head.output_norm.as_ref().map_or(Ok(output.clone()), |norm| norm.forward(&output))?;
        let state = if head.spec.feedback == Feedback::Normed { normed.clone() } else { output };
        *features = state.clone();
        Ok(HeadStep { logits: head.vocabulary.logits(&normed)?, state, confidence: None })
    }
}

/// 0 for rows at position 0, 1 for all others: `[texts · rows, 1]`, in the type of `like`.
fn all_but_first(rows: &HeadRows, like: &Tensor) -> Result<Tensor> {
    let of_text = |start: &usize| (*start..start + rows.each).map(|at| if at == 0 { 0.0 } else { 1.0 });
    let factors: Vec<f32> = rows.starts.iter().flat_map(of_text).collect();
    Tensor::from_vec(factors, (rows.count(), 1), like.device())?.to_dtype(like.dtype())
}
