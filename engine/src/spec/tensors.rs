//! The tensors of a model: published names, shapes, roles. No other module spells them.
//!
//! Names are those of the Hugging Face releases. Exporters differ in a leading `model.`: a reader
//! accepts a tensor under its name here, or with that prefix added or removed.

mod block;
mod layer;
mod recurrent;
mod target;

use kernels::reference::Fp8Rows;

use super::{NormWeights, WeightFormat};

pub use self::{
    block::{BlockTensors, MASK_EMBEDDING, MarkovTensors},
    layer::{
        AttentionTensors, CacheScaleNames, DeltaTensors, ExpertsTensors, FfnTensors, GatedTensors, GroupedTensors,
        LatentTensors, LayerTensors,
    },
    recurrent::{JoinTensors, RecurrentTensors},
    target::TargetTensors,
};

/// A tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its published name.
    pub name: String,
    /// Its shape; matrices are `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Its role in the model.
    pub role: Role,
    /// How ranks split it.
    pub split: TensorSplit,
    /// Format of its values in memory.
    pub format: WeightFormat,
    /// How its inputs are quantised, if it is a matrix in FP8 that multiplies them in FP8.
    pub rows: Option<Fp8Rows>,
}

/// The role of a tensor in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// One row per token.
    Embedding,
    /// Computes logits of tokens.
    VocabularyHead,
    /// Weights of a norm.
    Norm,
    /// Weights of a norm, stored less one: a reader adds one.
    NormLessOne,
    /// A projection of attention, or its bias.
    Attention,
    /// A projection of a dense feed-forward block, or its bias.
    FeedForward,
    /// Computes logits of experts.
    Router,
    /// Added to the scores of experts for choosing only.
    CorrectionBias,
    /// A projection of this routed expert.
    Expert(usize),
    /// A projection of the shared expert, which processes every row.
    SharedExpert,
    /// Joins embedding and feature, or reduces features; or the bias of such a layer.
    Join,
    /// Corrects logits by the token before, or estimates acceptance.
    Markov,
}

/// How the ranks of a tensor-parallel group split a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorSplit {
    /// Each rank has some of its outputs.
    Rows,
    /// Its outputs are sections that follow each other (queries, keys and values), and each rank
    /// has this many of each.
    Sections([usize; 3]),
    /// Each rank has some of its inputs.
    Columns,
    /// Each rank has some experts, or some of the intermediate values of every expert.
    Experts,
    /// Each rank has all of it.
    Replicated,
}

/// A linear layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearTensors {
    /// `[outputs, inputs]`.
    pub weight: TensorSpec,
    /// `[outputs]`.
    pub bias: Option<TensorSpec>,
}

impl TensorSpec {
    /// Number of values.
    pub fn values(&self) -> u64 {
        self.shape.iter().map(|size| *size as u64).product()
    }

    /// Bytes in memory, if the engine computes in elements of this many bytes.
    pub fn bytes(&self, element: usize) -> u64 {
        self.format.bytes(&self.shape, element)
    }

    fn matrix(name: String, outputs: usize, inputs: usize, role: Role, split: TensorSplit) -> Self {
        Self { name, shape: vec![outputs, inputs], role, split, format: WeightFormat::Plain, rows: None }
    }

    fn vector(name: String, length: usize, role: Role, split: TensorSplit) -> Self {
        Self { name, shape: vec![length], role, split, format: WeightFormat::Plain, rows: None }
    }

    /// The same, of a checkpoint that stores the weights of norms like this.
    fn stored(self, norms: NormWeights) -> Self {
        match norms {
            NormWeights::Whole => self,
            NormWeights::LessOne => Self { role: Role::NormLessOne, ..self },
        }
    }

    fn norm(name: String, length: usize) -> Self {
        Self::vector(name, length, Role::Norm, TensorSplit::Replicated)
    }
}

impl LinearTensors {
    /// The tensors of a module.
    fn new(module: &str, outputs: usize, inputs: usize, bias: bool, role: Role, split: TensorSplit) -> Self {
        // A bias is added to outputs: ranks that split the inputs must add it only once.
        let shared = if split == TensorSplit::Columns { TensorSplit::Replicated } else { split };
        Self {
            weight: TensorSpec::matrix(format!("{module}.weight"), outputs, inputs, role, split),
            bias: bias.then(|| TensorSpec::vector(format!("{module}.bias"), outputs, role, shared)),
        }
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.weight.shape[0]
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.weight.shape[1]
    }

    /// Weight and bias.
    pub fn all(&self) -> impl Iterator<Item = &TensorSpec> {
        std::iter::once(&self.weight).chain(&self.bias)
    }
}
