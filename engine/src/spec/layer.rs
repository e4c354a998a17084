//! A decoder layer.

use super::{AttentionSpec, FfnSpec, LayerFormats};

/// A decoder layer: `x += attention(norm(x)); x += ffn(norm(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Added to mean squares in its norms.
    pub epsilon: f32,
    /// Whether the stream is normed before attention. EAGLE-1/2 heads have no such norm; EAGLE-3 heads norm the inputs
    /// that they join instead ([`Join::NormedIntoAttention`](super::Join)).
    pub input_norm: bool,
    /// Attention.
    pub attention: AttentionSpec,
    /// Feed-forward block.
    pub ffn: FfnSpec,
    /// Formats of its matrices.
    pub formats: LayerFormats,
}
