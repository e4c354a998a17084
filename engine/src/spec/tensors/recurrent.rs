//! Tensors of a recurrent draft.

use super::{LayerTensors, LinearTensors, Role, TensorSpec, TensorSplit};
use crate::spec::{EmbeddingSource, Features, Join, RecurrentSpec, RecurrentTensorLayout, VocabularySource};

/// Tensors of a draft that its checkpoint contains. Embedding and head are missing if they are the
/// target's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecurrentTensors {
    /// `[target vocabulary, hidden]`.
    pub embedding: Option<TensorSpec>,
    /// `[vocabulary, hidden]`.
    pub head: Option<TensorSpec>,
    /// Norm over the concatenation of all captured features.
    pub joined_norm: Option<TensorSpec>,
    /// Norms of the individual captured features.
    pub capture_norms: Vec<TensorSpec>,
    /// Reduces captured features: `[hidden, captured · target hidden]`.
    pub reduce: Option<LinearTensors>,
    /// Joins embedding and feature.
    pub join: JoinTensors,
    /// Tensors of its layer.
    pub layer: LayerTensors,
    /// Norm after its layer.
    pub output_norm: Option<TensorSpec>,
}

/// Tensors that join embedding and feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinTensors {
    /// Norm of the embedding.
    pub embedding_norm: Option<TensorSpec>,
    /// Norm of the feature.
    pub feature_norm: Option<TensorSpec>,
    /// `[hidden, 2 · hidden]`, if both are projected to the stream.
    pub projection: Option<LinearTensors>,
}

/// The published names of a layout's tensors outside its layer; norms and projections without
/// `.weight`.
struct DraftNames {
    layer: String,
    projection: String,
    embedding_norm: String,
    feature_norm: String,
    output_norm: String,
}

impl RecurrentTensorLayout {
    /// The common prefix of the names of the layer's tensors, without a trailing dot.
    pub fn layer_prefix(&self) -> String {
        self.names().layer
    }

    /// The tensor that joins embedding and feature; its name identifies a layout.
    pub fn projection(&self) -> String {
        format!("{}.weight", self.names().projection)
    }

    fn names(&self) -> DraftNames {
        let under = |prefix: &str, [projection, embedding, feature, output]: [&str; 4]| DraftNames {
            layer: prefix.to_owned(),
            projection: format!("{prefix}.{projection}"),
            embedding_norm: format!("{prefix}.{embedding}"),
            feature_norm: format!("{prefix}.{feature}"),
            output_norm: format!("{prefix}.{output}"),
        };
        match self {
            // EAGLE-3 has an `fc` too, but it reduces the features: its join has no projection.
            Self::Eagle { layer } | Self::Eagle3 { layer } => DraftNames {
                layer: layer.clone(),
                projection: "fc".into(),
                embedding_norm: format!("{layer}.input_layernorm"),
                feature_norm: format!("{layer}.hidden_norm"),
                output_norm: "norm".into(),
            },
            Self::Mimo { prefix } => {
                under(prefix, ["input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm"])
            }
            Self::NextN { prefix } => under(prefix, ["eh_proj", "enorm", "hnorm", "shared_head.norm"]),
            Self::QwenMtp => DraftNames {
                layer: "mtp.layers.0".into(),
                ..under("mtp", ["fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"])
            },
        }
    }
}

impl RecurrentSpec {
    /// The tensors that its checkpoint contains, for a target with this vocabulary size.
    pub fn tensors(&self, target_vocabulary: usize) -> RecurrentTensors {
        let hidden = self.hidden();
        let names = self.tensors.names();
        let norms = self.layer.norms;
        let norm = |name: &str, length| TensorSpec::norm(format!("{name}.weight"), length).stored(norms);
        let linear = |name: &str, inputs, bias| {
            LinearTensors::new(name, hidden, inputs, bias, Role::Join, TensorSplit::Replicated)
        };
        let matrix = |name: &str, rows, role, split| TensorSpec::matrix(name.into(), rows, hidden, role, split);
        let captured = match &self.features {
            Features::Final => None,
            Features::Captured(captured) => Some(captured),
        };
        let each = captured.filter(|captured| captured.norms.each);
        RecurrentTensors {
            embedding: (self.embedding == EmbeddingSource::Own)
                .then(|| matrix("embed_tokens.weight", target_vocabulary, Role::Embedding, TensorSplit::Replicated)),
            head: (self.head == VocabularySource::Own)
                .then(|| matrix("lm_head.weight", self.head_rows, Role::VocabularyHead, TensorSplit::Rows)),
            joined_norm: captured
                .filter(|captured| captured.norms.joined)
                .map(|captured| norm("input_norm", captured.width())),
            capture_norms: each.map_or_else(Vec::new, |captured| {
                (0..captured.at.len()).map(|at| norm(&format!("fc_norm.{at}"), captured.width)).collect()
            }),
            reduce: captured.and_then(|captured| Some(linear("fc", captured.width(), captured.fc?.bias))),
            join: self.join.tensors(&names, norm, linear, hidden),
            layer: self.layer.tensors(&names.layer),
            output_norm: self.output_norm().then(|| norm(&names.output_norm, hidden)),
        }
    }
}

impl Join {
    fn tensors(
        self,
        names: &DraftNames,
        norm: impl Fn(&str, usize) -> TensorSpec,
        linear: impl Fn(&str, usize, bool) -> LinearTensors,
        hidden: usize,
    ) -> JoinTensors {
        // EAGLE-1 and EAGLE-2 join embedding and feature as they are.
        let normed = !matches!(self, Self::Linear { .. });
        JoinTensors {
            embedding_norm: normed.then(|| norm(&names.embedding_norm, hidden)),
            feature_norm: normed.then(|| norm(&names.feature_norm, hidden)),
            projection: match self {
                Self::Linear { bias } => Some(linear(&names.projection, 2 * hidden, bias)),
                Self::NormedIntoAttention { .. } => None,
                Self::NormedLinear { .. } => Some(linear(&names.projection, 2 * hidden, false)),
            },
        }
    }
}

impl RecurrentTensors {
    /// All tensors.
    pub fn all(&self) -> Vec<&TensorSpec> {
        let Self { embedding, head, joined_norm, capture_norms, reduce, join, layer, output_norm } = self;
        let norms = joined_norm.iter().chain(capture_norms).chain(&join.embedding_norm).chain(&join.feature_norm);
        let linear = reduce.iter().chain(&join.projection).flat_map(LinearTensors::all);
        embedding.iter().chain(head).chain(norms).chain(linear).chain(layer.all()).chain(output_norm).collect()
    }
}
