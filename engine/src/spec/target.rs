//! The target: the model whose output is generated.

use super::{AttentionSpec, DeltaNet, KvLayout, LayerSpec, NormWeights, RopeSpec, StateLayout};

/// A target: embedding, layers, norm and vocabulary head.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of tokens.
    pub vocabulary: usize,
    /// Whether the embedding is also the vocabulary head.
    pub tied: bool,
    /// Rows of its vocabulary head on this rank: all tokens, or one rank's part
    /// ([`Share`](super::Share)).
    pub head_rows: usize,
    /// Added to mean squares in the final norm.
    pub epsilon: f32,
    /// In order; they may differ in their feed-forward blocks. At least one.
    pub layers: Vec<LayerSpec>,
}

impl TargetSpec {
    /// Layout of the cache of each layer that has one; backends keep one layout.
    pub fn kv(&self) -> KvLayout {
        let mut layouts = self.layers.iter().map(|layer| layer.attention.kv());
        layouts.find(|kv| kv.values() > 0).unwrap_or_default()
    }

    /// The rotation, which is the same in all layers that have one.
    pub fn rope(&self) -> Option<&RopeSpec> {
        self.layers.iter().find_map(|layer| layer.attention.rope())
    }

    /// How checkpoints store the weights of its norms.
    pub fn norms(&self) -> NormWeights {
        self.layers.first().map_or(NormWeights::Whole, |layer| layer.norms)
    }

    /// What all layers together keep of a running request beside the pages of its caches.
    pub fn state(&self) -> StateLayout {
        self.layers.iter().map(|layer| layer.attention.state()).fold(StateLayout::default(), std::ops::Add::add)
    }

    /// Number of the first `layers` layers that have a cache.
    pub fn caches_before(&self, layers: usize) -> usize {
        self.layers.iter().take(layers).filter(|layer| layer.attention.kv().values() > 0).count()
    }

    /// The gated delta nets among its layers, in order.
    pub fn delta_nets(&self) -> impl Iterator<Item = &DeltaNet> {
        self.layers.iter().filter_map(|layer| match &layer.attention {
            AttentionSpec::Delta(delta) => Some(delta),
            AttentionSpec::Grouped(_) | AttentionSpec::Latent(_) => None,
        })
    }

    /// The layer that differs from the others in a property that all must share (width, cache,
    /// rotation), if one does: backends keep one kind of cache and one rotation table for all
    /// layers.
    pub fn odd_layer(&self) -> Option<usize> {
        let same = |layer: &LayerSpec| {
            let kept = layer.attention.rope().is_none()
                || layer.attention.kv() == self.kv() && layer.attention.rope() == self.rope();
            layer.hidden == self.hidden && kept
        };
        self.layers.iter().position(|layer| !same(layer))
    }
}
