//! Tensors of a block head.

use super::{LayerTensors, LinearTensors, Role, TensorSpec, TensorSplit};
use crate::spec::{BlockSpec, EmbeddingSource, MarkovKind, MarkovSpec, VocabularySource};

/// The name of the vector that stands for a position to be drafted. Published heads have it in a
/// file of its own, `mask_embedding.pt`.
pub const MASK_EMBEDDING: &str = "mask_embedding";

/// Tensors of a block head that its checkpoint contains. Embedding and head are missing if they are
/// the target's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockTensors {
    /// `[target vocabulary, hidden]`.
    pub embedding: Option<TensorSpec>,
    /// `[vocabulary, hidden]`.
    pub head: Option<TensorSpec>,
    /// `[hidden]`: the input vector of a position to be drafted, if it is not a row of the
    /// embedding.
    pub mask: Option<TensorSpec>,
    /// Reduces captured features: `[hidden, captured · target hidden]`.
    pub reduce: LinearTensors,
    /// Norm of the reduced features.
    pub context_norm: TensorSpec,
    /// Tensors of its layers.
    pub layers: Vec<LayerTensors>,
    /// Norm after its layers.
    pub norm: TensorSpec,
    /// What corrects logits by the token before.
    pub markov: Option<MarkovTensors>,
    /// `[1, hidden]`, or with the Markov head's rank more inputs.
    pub confidence: Option<LinearTensors>,
}

/// Tensors of a Markov head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkovTensors {
    /// W1: `[target vocabulary, rank]`.
    pub embedding: TensorSpec,
    /// W2: `[vocabulary, rank]`.
    pub head: TensorSpec,
    /// `gate_proj`, `[rank, hidden + rank]`, or `joint_proj`, `[3 · rank, 2 · rank + hidden]`.
    pub cell: Option<LinearTensors>,
}

impl BlockSpec {
    /// The common prefix of the names of a layer's tensors, without a trailing dot.
    pub fn layer_prefix(&self, layer: usize) -> String {
        self.tensors.single.clone().unwrap_or_else(|| format!("layers.{layer}"))
    }

    /// The tensors that its checkpoint contains, for a target with this vocabulary size.
    pub fn tensors(&self, target_vocabulary: usize) -> BlockTensors {
        let hidden = self.hidden();
        let norm = |name: &str| TensorSpec::norm(format!("{name}.weight"), hidden);
        let matrix = |name: &str, rows, inputs, role| {
            TensorSpec::matrix(format!("{name}.weight"), rows, inputs, role, TensorSplit::Replicated)
        };
        let linear = |name: &str, outputs, inputs, bias, role| {
            LinearTensors::new(name, outputs, inputs, bias, role, TensorSplit::Replicated)
        };
        let named = |name: &str| format!("{}{name}", self.tensors.markov);
        let markov = |MarkovSpec { rank, kind }: MarkovSpec| MarkovTensors {
            embedding: matrix(&named("markov_w1"), target_vocabulary, rank, Role::Embedding),
            head: matrix(&named("markov_w2"), self.vocabulary, rank, Role::Markov),
            cell: match kind {
                MarkovKind::Vanilla => None,
                MarkovKind::Gated => Some(linear(&named("gate_proj"), rank, hidden + rank, true, Role::Markov)),
                MarkovKind::Recurrent => {
                    Some(linear(&named("joint_proj"), 3 * rank, 2 * rank + hidden, true, Role::Markov))
                }
            },
        };
        BlockTensors {
            embedding: (self.embedding == EmbeddingSource::Own)
                .then(|| matrix("embed_tokens", target_vocabulary, hidden, Role::Embedding)),
            head: (self.head == VocabularySource::Own)
                .then(|| matrix("lm_head", self.vocabulary, hidden, Role::VocabularyHead)),
            mask: self
                .mask_embedding
                .then(|| TensorSpec::vector(MASK_EMBEDDING.into(), hidden, Role::Embedding, TensorSplit::Replicated)),
            reduce: linear(
                self.tensors.reduce,
                hidden,
                self.features.width(),
                self.features.fc.is_some_and(|fc| fc.bias),
                Role::Join,
            ),
            context_norm: norm(self.tensors.context_norm),
            layers: (self.layers.iter().enumerate())
                .map(|(at, layer)| layer.layer.tensors(&self.layer_prefix(at)))
                .collect(),
            norm: norm("norm"),
            markov: self.markov.map(markov),
            confidence: self.confidence.map(|confidence| {
                let rank = self.markov.filter(|_| confidence.with_markov).map_or(0, |markov| markov.rank);
                linear(self.tensors.confidence, 1, hidden + rank, true, Role::Markov)
            }),
        }
    }
}

impl BlockTensors {
    /// All tensors.
    pub fn all(&self) -> Vec<&TensorSpec> {
        let Self { embedding, head, mask, reduce, context_norm, layers, norm, markov, confidence } = self;
        let ends = embedding.iter().chain(head).chain(mask).chain(reduce.all()).chain([context_norm, norm]);
        let markov = markov.iter().flat_map(MarkovTensors::all);
        let confidence = confidence.iter().flat_map(LinearTensors::all);
        ends.chain(layers.iter().flat_map(LayerTensors::all)).chain(markov).chain(confidence).collect()
    }
}

impl MarkovTensors {
    /// All tensors.
    pub fn all(&self) -> impl Iterator<Item = &TensorSpec> {
        let cell = self.cell.iter().flat_map(LinearTensors::all);
        [&self.embedding, &self.head].into_iter().chain(cell)
    }
}
