//! A decoder layer.

use super::{AttentionSpec, FfnSpec, LayerFormats};

/// How a checkpoint stores the weights of norms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormWeights {
    /// As they are.
    #[default]
    Whole,
    /// Less one: a row is multiplied by 1 + w (Qwen3.5). The norm of a delta net's outputs is
    /// stored as it is.
    LessOne,
}

/// A decoder layer: `x += attention(norm(x)); x += ffn(norm(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Added to mean squares in its norms.
    pub epsilon: f32,
    /// Whether the stream is normed before attention. EAGLE-1/2 heads have no such norm; EAGLE-3
    /// heads norm the inputs that they join instead ([`Join::NormedIntoAttention`](super::Join)).
    pub input_norm: bool,
    /// How checkpoints store the weights of its norms.
    pub norms: NormWeights,
    /// Attention.
    pub attention: AttentionSpec,
    /// Feed-forward block.
    pub ffn: FfnSpec,
    /// Formats of its matrices.
    pub formats: LayerFormats,
}
