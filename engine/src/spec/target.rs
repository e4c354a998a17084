//! The target: the model whose output is generated.

use super::{KvLayout, LayerSpec, RopeSpec};

/// A target: embedding, layers, norm and vocabulary head.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Tokens.
    pub vocabulary: usize,
    /// Whether the embedding is the vocabulary head too.
    pub tied: bool,
    /// Rows of its vocabulary head: all tokens, or one rank's ([`Share`](super::Share)).
    pub head_rows: usize,
    /// Added to mean squares in the final norm.
    pub epsilon: f32,
    /// In their order; they may differ in their feed-forward part. At least one.
    pub layers: Vec<LayerSpec>,
}

impl TargetSpec {
    /// What a token leaves in the cache of each layer.
    pub fn kv(&self) -> KvLayout {
        self.layers.first().map_or(KvLayout { planes: 0, width: 0 }, |layer| layer.attention.kv())
    }

    /// The rotation of all its layers.
    pub fn rope(&self) -> Option<&RopeSpec> {
        self.layers.first().map(|layer| layer.attention.rope())
    }

    /// The layer that differs from the first in what all layers share (width, cache, rotation), if one does: backends keep
    /// one cache and one table of rotations for all.
    pub fn odd_layer(&self) -> Option<usize> {
        let same = |layer: &LayerSpec| {
            layer.hidden == self.hidden
                && layer.attention.kv() == self.kv()
                && Some(layer.attention.rope()) == self.rope()
        };
        self.layers.iter().position(|layer| !same(layer))
    }
}
