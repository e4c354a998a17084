//! Block heads with reproducible weights, for the target `tests/data/families/qwen3`.

use std::{fs, path::Path};

use safetensors::Dtype;
use serde_json::{Value, json};

use super::tensors::{Tensors, weight, write};

const HIDDEN: usize = 32;
const HEAD_DIM: usize = 8;
const INTERMEDIATE: usize = 24;
const TOKENS: usize = 64;
const RANK: usize = 4;

/// Writes a DFLASH or DSPARK head of one layer that reads the outputs of two layers.
pub fn block_head(folder: &Path, dspark: bool) {
    let mut tensors = Tensors::new();
    let mut add = |name: &str, shape: &[usize]| {
        let seed = tensors.len() as u64;
        let values = (0..shape.iter().product()).flat_map(|at: usize| weight(seed, at, shape).to_le_bytes()).collect();
        tensors.insert(name.to_owned(), (Dtype::F32, shape.to_vec(), values));
    };
    for norm in ["norm", "hidden_norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm"] {
        add(&format!("{norm}.weight"), &[HIDDEN]);
    }
    for (name, outputs, inputs) in [
        ("fc", HIDDEN, 2 * HIDDEN),
        ("layers.0.self_attn.q_proj", 2 * HEAD_DIM, HIDDEN),
        ("layers.0.self_attn.k_proj", HEAD_DIM, HIDDEN),
        ("layers.0.self_attn.v_proj", HEAD_DIM, HIDDEN),
        ("layers.0.self_attn.o_proj", HIDDEN, 2 * HEAD_DIM),
        ("layers.0.mlp.gate_proj", INTERMEDIATE, HIDDEN),
        ("layers.0.mlp.up_proj", INTERMEDIATE, HIDDEN),
        ("layers.0.mlp.down_proj", HIDDEN, INTERMEDIATE),
    ] {
        add(&format!("{name}.weight"), &[outputs, inputs]);
    }
    for norm in ["q_norm", "k_norm"] {
        add(&format!("layers.0.self_attn.{norm}.weight"), &[HEAD_DIM]);
    }
    if dspark {
        add("markov_head.markov_w1.weight", &[TOKENS, RANK]);
        add("markov_head.markov_w2.weight", &[TOKENS, RANK]);
    }
    fs::create_dir_all(folder).expect("a folder");
    write(&folder.join("model.safetensors"), &tensors);
    fs::write(folder.join("config.json"), config(dspark).to_string()).expect("a config");
}

fn config(dspark: bool) -> Value {
    let mut config = json!({
        "architectures": [if dspark { "DSparkDraftModel" } else { "DFlashDraftModel" }], "model_type": "qwen3",
        "hidden_act": "silu", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": HEAD_DIM, "num_hidden_layers": 1, "rms_norm_eps": 1e-6,
        "vocab_size": TOKENS, "rope_theta": 10_000.0, "max_position_embeddings": 128, "block_size": 4,
        "layer_types": ["full_attention"], "tie_word_embeddings": false,
        "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 1]},
    });
    if dspark {
        config["dflash_config"]["markov_rank"] = RANK.into();
    }
    config
}
