//! The target: the model whose output is generated.

use super::{KvLayout, LayerSpec, RopeSpec};

/// A target: embedding, layers, norm and vocabulary head.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of tokens.
    pub vocabulary: usize,
    /// Whether the embedding is also the vocabulary head.
    pub tied: bool,
    /// Rows of its vocabulary head on this rank: all tokens, or one rank's part ([`Share`](super::Share)).
    pub head_rows: usize,
    /// Added to mean squares in the final norm.
    pub epsilon: f32,
    /// In order; they may differ in their feed-forward blocks. At least one.
    pub layers: Vec<LayerSpec>,
}

impl TargetSpec {
    /// Layout of each layer's cache.
    pub fn kv(&self) -> KvLayout {
        self.layers.first().map_or(KvLayout { planes: 0, width: 0 }, |layer| layer.attention.kv())
    }

    /// The rotation, which is the same in all layers.
    pub fn rope(&self) -> Option<&RopeSpec> {
        self.layers.first().map(|layer| layer.attention.rope())
    }

    /// The layer that differs from the first in a property that all must share (width, cache, rotation), if one does:
    /// backends keep one cache and one rotation table for all layers.
    pub fn odd_layer(&self) -> Option<usize> {
        let same = |layer: &LayerSpec| {
            layer.hidden == self.hidden
                && layer.attention.kv() == self.kv()
                && Some(layer.attention.rope()) == self.rope()
        };
        self.layers.iter().position(|layer| !same(layer))
    }
}
