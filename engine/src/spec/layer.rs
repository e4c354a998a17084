//! A decoder layer.

use super::{AttentionSpec, FfnSpec, LayerFormats};

/// A decoder layer: `x += attention(norm(x)); x += ffn(norm(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Added to mean squares in its norms.
    pub epsilon: f32,
    /// Whether the stream is normed before attention. EAGLE-1/2 heads do without; EAGLE-3 heads norm what they join
    /// instead ([`Join::NormedIntoAttention`](super::Join)).
    pub input_norm: bool,
    /// Attention.
    pub attention: AttentionSpec,
    /// Feed-forward.
    pub ffn: FfnSpec,
    /// How its matrices are kept.
    pub formats: LayerFormats,
}
