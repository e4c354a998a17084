//! Random block heads for the random dense target: between them they have a window, both kinds of
//! causality, a scaled value, a Markov head with a state, and a confidence head.

use schemas::tree::Block;
use serde_json::{Value, json};

use super::{HIDDEN, LAYERS, Pair, VOCABULARY, layer};
use crate::spec::{
    BlockLayer, BlockSpec, BlockTensorLayout, CaptureNorms, CapturedFeatures, ConfidenceSpec, EmbeddingSource,
    LayerSpec, LinearSpec, MarkovKind, MarkovSpec, VocabularySource,
};

/// Number of drafts of a path in the block of each head: enough for the deepest shape that is
/// checked.
const DRAFTS: usize = 8;
const MASK: u32 = 1;
const RANK: usize = 8;
const WINDOW: usize = 7;

/// The head's part of its config.json.
pub fn config(pair: Pair) -> Value {
    match pair {
        Pair::Dspark => json!({
            "architectures": ["DSparkDraftModel"], "num_hidden_layers": 1, "block_size": DRAFTS,
            "dflash_config": {
                "projector_type": "dspark", "markov_rank": RANK, "markov_head_type": "rnn", "mask_token_id": MASK,
                "enable_confidence_head": true, "confidence_head_with_markov": true, "attention_value_scale": 0.5,
            },
        }),
        _ => json!({
            "architectures": ["DFlashDraftModel"], "num_hidden_layers": 2, "block_size": DRAFTS + 1,
            "layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW,
            "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, LAYERS - 1]},
        }),
    }
}

/// The head's description, as far as its tensors depend on it.
pub fn spec(pair: Pair) -> BlockSpec {
    let dspark = pair == Pair::Dspark;
    let layer = LayerSpec { input_norm: true, ..layer(HIDDEN) };
    let layer = BlockLayer { layer, causal: false, window: None };
    BlockSpec {
        tensors: BlockTensorLayout::PLAIN,
        features: CapturedFeatures {
            at: if dspark { vec![LAYERS / 2 + 1] } else { vec![1, LAYERS] },
            width: HIDDEN,
            norms: CaptureNorms::default(),
            fc: Some(LinearSpec { bias: false }),
        },
        layers: vec![layer; if dspark { 1 } else { 2 }],
        block: if dspark { Block::DSPARK } else { Block::DFLASH },
        mask: MASK,
        mask_embedding: dspark,
        value_scale: 1.0,
        markov: dspark.then_some(MarkovSpec { rank: RANK, kind: MarkovKind::Recurrent }),
        confidence: dspark.then_some(ConfidenceSpec { with_markov: true }),
        embedding: EmbeddingSource::Target,
        head: VocabularySource::Target,
        vocabulary: VOCABULARY,
        head_rows: VOCABULARY,
        tokens: None,
    }
}
