//! A small whole model that drafts for the dense target: another width, fewer layers, tied
//! embeddings.

use serde_json::{Value, json};

use super::{EPSILON, HEAD_DIM, INTERMEDIATE, KEY_VALUE_HEADS, QUERY_HEADS, VOCABULARY, layer_of};
use crate::spec::{LayerSpec, TargetSpec};

const HIDDEN: usize = 32;
const LAYERS: usize = 2;

/// Its spec.
pub fn spec() -> TargetSpec {
    let layer = LayerSpec { input_norm: true, ..layer_of(HIDDEN, HIDDEN) };
    TargetSpec {
        hidden: HIDDEN,
        vocabulary: VOCABULARY,
        tied: true,
        head_rows: VOCABULARY,
        epsilon: EPSILON,
        layers: vec![layer; LAYERS],
    }
}

/// Its config.json.
pub fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE, "num_hidden_layers": LAYERS, "num_attention_heads": QUERY_HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCABULARY,
        "rms_norm_eps": EPSILON, "max_position_embeddings": 128, "tie_word_embeddings": true, "torch_dtype": "float32",
    })
}
