//! What a round must read of memory at least.

use schemas::tree::TreeShape;
use serde::{Deserialize, Serialize};

use crate::model::{HeadFacts, HeadKind, HeadSource, LayerFacts, TargetFacts};

/// Bytes that passes read: weights once however many rows they have, cache rows once for each request. Embeddings are
/// looked up, not read, unless they are the head too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Weights of the target, its head included.
    pub target: u64,
    /// Of these, what final states are multiplied with for a token.
    #[serde(default)]
    pub target_vocabulary: u64,
    /// What a second pass of the target takes beside reading weights, as bytes that are read meanwhile; `None` where it
    /// never runs twice in a round.
    #[serde(default)]
    pub second_pass: Option<u64>,
    /// What one token of the context takes in the target's caches.
    pub target_cache_row: u64,
    /// Weights of the draft that every one of its passes reads, the head included; 0 without a draft.
    pub draft: u64,
    /// Besides these, what only the pass over accepted tokens reads: EAGLE-3 joins captured layers there.
    pub draft_extension: u64,
    /// What one token of the context takes in the draft's cache.
    pub draft_cache_row: u64,
    /// Of one weight, so that weights can be counted.
    pub value: u64,
}

impl Traffic {
    /// For models whose values take `value` bytes.
    pub fn new(target: &TargetFacts, head: Option<&HeadFacts>, value: usize) -> Self {
        let bytes = |values: usize| (values * value) as u64;
        let row = |layer: &LayerFacts| 2 * layer.attention.key_value_heads * layer.attention.head_dim;
        let width = target.layer.hidden;
        let mut traffic = Self {
            target: bytes(target.layers * layer(&target.layer, 2) + width + target.vocabulary * width),
            target_vocabulary: bytes(target.vocabulary * width),
            target_cache_row: bytes(target.layers * row(&target.layer)),
            value: value as u64,
            ..Self::default()
        };
        if let Some(head) = head {
            let hidden = head.layer.hidden;
            let rows = match head.head {
                HeadSource::Own | HeadSource::Target => head.vocabulary,
                HeadSource::Embedding => target.vocabulary,
            };
            let bias = usize::from(head.join_bias) * hidden;
            let (own, join) = match head.kind {
                // No norm at the input.
                HeadKind::Eagle => (layer(&head.layer, 1) + 2 * hidden * hidden + bias, 0),
                // One norm more in the layer, one behind it.
                HeadKind::Eagle3 => (layer(&head.layer, 3) + hidden, head.capture.len() * width * hidden + bias),
            };
            traffic.draft = bytes(own + rows * hidden);
            traffic.draft_extension = bytes(join);
            traffic.draft_cache_row = bytes(row(&head.layer));
        }
        traffic
    }

    /// Bytes of a round of a batch at `context` tokens a request.
    pub fn of_round(&self, shape: TreeShape, batch: usize, context: usize) -> u64 {
        let rows = (batch * context) as u64;
        let target = self.target + rows * self.target_cache_row;
        if shape.is_off() {
            return target;
        }
        // The extension over the accepted tokens is a pass, and takes the place of the first step's.
        let pass = self.draft + rows * self.draft_cache_row;
        target + shape.num_steps as u64 * pass + self.draft_extension
    }
}

/// Values of a layer with some norms.
fn layer(facts: &LayerFacts, norms: usize) -> usize {
    let LayerFacts { hidden, intermediate, attention, .. } = facts;
    let queries = attention.heads * attention.head_dim;
    let keys = attention.key_value_heads * attention.head_dim;
    attention.input * (queries + 2 * keys) + queries * attention.output + 3 * hidden * intermediate + norms * hidden
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{checkpoint::Folder, model::head_facts, options::EngineOptions};

    #[test]
    fn a_round_reads_weights_once_a_pass_and_caches_of_all_requests() {
        fn check(head: &str, shape: &str, batch: usize, context: usize, expected: u64) {
            let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
            let open = |name: &str| {
                let folder = Folder::open(&models.join(name)).expect("a checkpoint");
                let weights = folder.weights().expect("its tensors");
                (folder, weights)
            };
            let ((folder, weights), (head_folder, head_weights)) = (open("target"), open(head));
            let target = TargetFacts::read(&folder, &weights).expect("its facts");
            let options = EngineOptions::default();
            let facts = head_facts(&head_folder, &head_weights, &target, &options).expect("its facts");
            let traffic = Traffic::new(&target, Some(&facts), 4);
            let shape = shape.parse().expect("a shape");
            assert_eq!(traffic.of_round(shape, batch, context), 4 * expected, "{head} {shape}");
        }
        // Attention: 128 → 128 + 64 + 64, back to 128; feed-forward: three of 128 × 384; two norms. Then the last norm
        // and the tied head.
        let layer = 128 * (128 + 64 + 64) + 128 * 128 + 3 * 128 * 384 + 2 * 128;
        let head = 2048 * 128;
        let target = 8 * layer + 128 + head;
        check("eagle3", "0,1,1", 1, 0, target);
        check("eagle3", "0,1,1", 3, 100, target + 3 * 100 * 8 * 128);
        // EAGLE-2: no norm at the input, fc from 256 with a bias, the target's head.
        let eagle2 = layer - 128 + 256 * 128 + 128 + head;
        check("eagle2", "3,1,4", 1, 0, target + 3 * eagle2);
        // EAGLE-3: queries, keys and values from twice the width, one more norm in the layer, one behind it, a head of
        // 1024 tokens; fc from three layers, which only the extension runs.
        let eagle3 = layer + 128 * (128 + 64 + 64) + 2 * 128 + 1024 * 128;
        let join = 384 * 128;
        check("eagle3", "1,8,9", 2, 10, target + 2 * 10 * 8 * 128 + eagle3 + join + 2 * 10 * 128);
        check("eagle3", "5,1,6", 1, 0, target + 5 * eagle3 + join);
    }
}
