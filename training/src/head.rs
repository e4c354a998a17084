//! A draft head with gradients, built from its [`RecurrentSpec`] alone, which gives names and
//! shapes of tensors, the features of the target, how they are joined with embeddings, and what is
//! fed back. The computation is the same as in `engine::backend::cpu`; tests compare the two.

mod attention;
mod parts;

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor, Var};
use engine::spec::{
    AttentionSpec, AttentionTensors, Features, Feedback, FfnSpec, FfnTensors, Join, NormWeights, RecurrentSpec,
    RecurrentTensors, TensorSpec, VocabularySource,
};

use self::{
    attention::HeadAttention,
    parts::{Builder, HeadGated, HeadLinear, Norm},
};
pub use self::{attention::History, parts::Values};
use crate::{error::TrainingError, math};

/// The rows of a batch of texts, text by text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRows {
    /// Number of rows of each text.
    pub each: usize,
    /// The position of the first row of each text.
    pub starts: Vec<usize>,
}

/// The target's tensors that heads share, `[target vocabulary, target hidden]` each. Never trained.
#[derive(Clone, Debug)]
pub struct SharedWeights {
    /// Its embedding.
    pub embedding: Tensor,
    /// Its vocabulary head.
    pub head: Tensor,
}

/// The result of a step.
pub struct HeadStep {
    /// The recurrent state, which is the next step's feature: `[batch · rows, hidden]`.
    pub state: Tensor,
    /// Logits over the draft's vocabulary: `[batch · rows, vocabulary]`.
    pub logits: Tensor,
}

/// A trainable draft head.
pub struct Head {
    spec: RecurrentSpec,
    trained: BTreeMap<String, Var>,
    embedding: Tensor,
    vocabulary: Tensor,
    trains_vocabulary: bool,
    joined_norm: Option<Norm>,
    capture_norms: Vec<Norm>,
    reduce: Option<HeadLinear>,
    join_norms: Option<(Norm, Norm)>,
    projection: Option<HeadLinear>,
    input_norm: Option<Norm>,
    attention: HeadAttention,
    post_attention_norm: Norm,
    ffn: HeadGated,
    output_norm: Option<Norm>,
    dtype: DType,
    device: Device,
}

/// The tensors of a draft that are trained: all in its checkpoint except its embedding, which
/// published heads copy from the target and keep.
pub fn trained_tensors(spec: &RecurrentSpec, target_vocabulary: usize) -> Vec<TensorSpec> {
    let tensors = spec.tensors(target_vocabulary);
    let embedding = tensors.embedding.as_ref().map(|tensor| tensor.name.clone());
    tensors.all().into_iter().filter(|tensor| Some(&tensor.name) != embedding.as_ref()).cloned().collect()
}

/// Checks that a draft can be trained.
///
/// # Errors
/// The part that cannot be trained.
pub fn check(spec: &RecurrentSpec) -> std::result::Result<(), TrainingError> {
    match (&spec.layer.attention, &spec.layer.ffn) {
        (AttentionSpec::Latent(_), _) => Err(unsupported("latent attention (MLA)")),
        (AttentionSpec::Delta(_), _) => Err(unsupported("linear attention")),
        (AttentionSpec::Grouped(grouped), _) if grouped.output_gate => Err(unsupported("gated attention")),
        _ if spec.layer.norms == NormWeights::LessOne => Err(unsupported("norms whose weights are stored less one")),
        (_, FfnSpec::Experts(_)) => Err(unsupported("experts")),
        (AttentionSpec::Grouped(_), FfnSpec::Dense(_)) => Ok(()),
    }
}

impl Head {
    /// A head with these values, which computes in this type.
    ///
    /// # Errors
    /// When the spec contains what cannot be trained yet, or values are missing or have the wrong
    /// shape.
    pub fn new(
        spec: &RecurrentSpec,
        values: &Values<'_>,
        shared: &SharedWeights,
        (dtype, device): (DType, &Device),
    ) -> std::result::Result<Self, TrainingError> {
        let target_vocabulary = shared.embedding.dim(0)?;
        let RecurrentTensors { embedding, head, joined_norm, capture_norms, reduce, join, layer, output_norm } =
            spec.tensors(target_vocabulary);
        let (grouped, grouped_tensors, dense) = match (&spec.layer.attention, &layer.attention, &layer.ffn) {
            (AttentionSpec::Grouped(spec), AttentionTensors::Grouped(tensors), FfnTensors::Dense(dense)) => {
                (*spec, tensors, dense)
            }
            (.., FfnTensors::Experts(_)) => return Err(unsupported("experts")),
            _ => return Err(unsupported("latent attention (MLA)")),
        };
        let mut builder = Builder::new(values, dtype, device);
        let epsilon = spec.layer.epsilon;
        let norm = |builder: &mut Builder<'_>, spec: &TensorSpec| {
            Ok::<_, TrainingError>(Norm::new(builder.trained(spec)?, epsilon))
        };
        let embedding = match &embedding {
            Some(own) => builder.frozen(own)?,
            None => shared.embedding.to_dtype(dtype)?,
        };
        let vocabulary = match (&head, spec.head, &spec.tokens) {
            (Some(own), ..) => builder.trained(own)?,
            (None, VocabularySource::Embedding, _) => embedding.clone(),
            (None, _, None) => shared.head.to_dtype(dtype)?,
            (None, _, Some(tokens)) => shared.head.to_dtype(dtype)?.index_select(&indices(tokens, device)?, 0)?,
        };
        let optional =
            |builder: &mut Builder<'_>, spec: Option<&TensorSpec>| spec.map(|spec| norm(builder, spec)).transpose();
        let (of_embedding, of_feature) = (
            optional(&mut builder, join.embedding_norm.as_ref())?,
            optional(&mut builder, join.feature_norm.as_ref())?,
        );
        Ok(Self {
            embedding,
            vocabulary,
            trains_vocabulary: head.is_some(),
            joined_norm: optional(&mut builder, joined_norm.as_ref())?,
            capture_norms: capture_norms
                .iter()
                .map(|spec| norm(&mut builder, spec))
                .collect::<std::result::Result<_, _>>()?,
            reduce: reduce.as_ref().map(|tensors| builder.linear(tensors)).transpose()?,
            join_norms: of_embedding.zip(of_feature),
            projection: join.projection.as_ref().map(|tensors| builder.linear(tensors)).transpose()?,
            input_norm: optional(&mut builder, layer.input_norm.as_ref())?,
            attention: HeadAttention::new(&mut builder, grouped_tensors, grouped, epsilon, (dtype, device))?,
            post_attention_norm: norm(&mut builder, &layer.post_attention_norm)?,
            ffn: builder.gated(dense)?,
            output_norm: optional(&mut builder, output_norm.as_ref())?,
            trained: builder.trained,
            spec: spec.clone(),
            dtype,
            device: device.clone(),
        })
    }

    /// Its spec.
    pub fn spec(&self) -> &RecurrentSpec {
        &self.spec
    }

    /// The trained variables by their published names.
    pub fn trained(&self) -> &BTreeMap<String, Var> {
        &self.trained
    }

    /// Features `[batch · rows, hidden]` from the target's outputs: captured layers, concatenated,
    /// or its final state.
    pub fn features(&self, of_target: &Tensor) -> Result<Tensor> {
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

    /// Runs the next step. Row i of step k reads `tokens[i]`, the text's token at i + 1 + k, is
    /// rotated at position i + k, and predicts the token at i + 2 + k. `features` are those of
    /// [`features`](Self::features) in step 0, then the state of the previous step.
    pub fn step(&self, tokens: &Tensor, features: &Tensor, rows: &HeadRows, history: &mut History) -> Result<HeadStep> {
        let mut embedded = self.embedding.index_select(tokens, 0)?;
        if let Join::NormedLinear { zero_first_embedding: true, .. } = self.spec.join
            && history.steps() == 0
        {
            embedded = embedded.broadcast_mul(&self.all_but_first(rows)?)?;
        }
        let (embedded, normed_features) = match &self.join_norms {
            Some((of_embedding, of_feature)) => (of_embedding.forward(&embedded)?, of_feature.forward(features)?),
            None => (embedded, features.clone()),
        };
        let joined = match self.spec.join {
            Join::NormedLinear { hidden_first: true, .. } => Tensor::cat(&[&normed_features, &embedded], 1)?,
            _ => Tensor::cat(&[&embedded, &normed_features], 1)?,
        };
        let (input, stream) = match (&self.projection, self.spec.join) {
            (Some(projection), _) => {
                let stream = projection.forward(&joined)?;
                let input = self.input_norm.as_ref().map_or(Ok(stream.clone()), |norm| norm.forward(&stream))?;
                (input, stream)
            }
            (None, Join::NormedIntoAttention { residual_is_normed: true }) => (joined, normed_features),
            (None, _) => (joined, features.clone()),
        };
        let stream = (&stream + self.attention.forward(&input, rows, history)?)?;
        let output = (&stream + self.ffn.forward(&self.post_attention_norm.forward(&stream)?)?)?;
        let normed = self.output_norm.as_ref().map_or(Ok(output.clone()), |norm| norm.forward(&output))?;
        let state = if self.spec.feedback == Feedback::Normed { normed.clone() } else { output };
        let vocabulary = self.vocabulary.to_dtype(self.dtype)?;
        Ok(HeadStep { logits: math::product(&normed, &vocabulary, self.trains_vocabulary)?, state })
    }

    /// 0 for rows at position 0, 1 for all others: `[batch · rows, 1]`.
    fn all_but_first(&self, rows: &HeadRows) -> Result<Tensor> {
        let of_text = |start: &usize| (*start..start + rows.each).map(|at| if at == 0 { 0.0 } else { 1.0 });
        let factors: Vec<f32> = rows.starts.iter().flat_map(of_text).collect();
        Tensor::from_vec(factors, (rows.count(), 1), &self.device)?.to_dtype(self.dtype)
    }
}

impl HeadRows {
    /// Number of texts.
    pub fn batch(&self) -> usize {
        self.starts.len()
    }

    /// Number of rows of all texts.
    pub fn count(&self) -> usize {
        self.starts.len() * self.each
    }
}

/// A tensor of token ids.
pub fn indices(tokens: &[u32], device: &Device) -> Result<Tensor> {
    Tensor::from_slice(tokens, tokens.len(), device)
}

fn unsupported(what: &str) -> TrainingError {
    TrainingError::Configuration(format!(
        "drafts with {what} cannot be trained yet: EAGLE-1/2, EAGLE-3 and MTP heads with grouped attention and one dense \
         feed-forward block can"
    ))
}
