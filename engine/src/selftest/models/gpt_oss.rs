//! A random gpt-oss: sinks, a window in every second layer, biases, and experts in MXFP4, which
//! share tensors.

use std::collections::BTreeMap;

use kernels::reference::{GateActivation, MXFP4_BLOCK};
use serde_json::{Value, json};

use super::{EXPERTS, EXPERTS_PER_TOKEN};
use crate::spec::{
    AttentionSpec, ExpertsLayout, ExpertsSpec, FfnSpec, LayerSpec, RouterPrecision, RouterScore, RouterSpec,
};

/// Whole blocks of MXFP4.
pub const HIDDEN: usize = 64;
/// So that half of it, the part of one of two ranks, is whole blocks too.
const INTERMEDIATE: usize = 2 * MXFP4_BLOCK;
/// Shorter than most texts, and longer than every path through a tree.
const WINDOW: usize = 12;
const LIMIT: f32 = 7.0;

/// The target's part of its config.json.
pub fn config() -> Value {
    json!({
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE, "num_local_experts": EXPERTS, "num_experts_per_tok": EXPERTS_PER_TOKEN,
        "attention_bias": true, "sliding_window": WINDOW, "swiglu_limit": LIMIT,
        "rms_norm_eps": 1e-6, "rope_theta": 10_000.0,
        "quantization_config": {"quant_method": "mxfp4"},
    })
}

/// Layer `at`, from one without anything special.
pub fn layer(plain: LayerSpec, at: usize) -> LayerSpec {
    let mut attention = plain.attention.clone();
    if let AttentionSpec::Grouped(grouped) = &mut attention {
        (grouped.input, grouped.output) = (HIDDEN, HIDDEN);
        (grouped.qkv_bias, grouped.output_bias, grouped.sinks) = (true, true, true);
        grouped.window = at.is_multiple_of(2).then_some(WINDOW);
    }
    let router = RouterSpec {
        score: RouterScore::Softmax,
        logits: RouterPrecision::Model,
        renormalise: Some(0.0),
        correction_bias: false,
        groups: 1,
        groups_kept: 1,
        scaling: 1.0,
        uniform: false,
    };
    let ffn = FfnSpec::Experts(ExpertsSpec {
        router,
        experts: EXPERTS,
        per_token: EXPERTS_PER_TOKEN,
        intermediate: INTERMEDIATE,
        shared: None,
        shared_gate: false,
        activation: GateActivation::Clamped { alpha: 1.702, limit: LIMIT },
        bias: true,
        layout: ExpertsLayout::Alternating,
    });
    LayerSpec { hidden: HIDDEN, attention, ffn, ..plain }
}

/// The shapes of tensors with those of experts as they are published: in one tensor for all experts
/// of a layer.
pub fn packed(shapes: BTreeMap<String, Vec<usize>>) -> BTreeMap<String, Vec<usize>> {
    let mut packed = BTreeMap::new();
    for (name, shape) in shapes {
        let Some((layer, _)) = name.split_once(".experts.") else {
            packed.insert(name, shape);
            continue;
        };
        for (projection, rows, inputs) in
            [("gate_up_proj", 2 * INTERMEDIATE, HIDDEN), ("down_proj", HIDDEN, INTERMEDIATE)]
        {
            let blocks = inputs / MXFP4_BLOCK;
            let name = |part: &str| format!("{layer}.experts.{projection}_{part}");
            packed.insert(name("blocks"), vec![EXPERTS, rows, blocks, MXFP4_BLOCK / 2]);
            packed.insert(name("scales"), vec![EXPERTS, rows, blocks]);
            packed.insert(name("bias"), vec![EXPERTS, rows]);
        }
    }
    packed
}

/// The values of a tensor in bytes, from random numbers below 1; `None` if it has other values.
pub fn bytes(name: &str, count: usize, number: impl Fn(usize) -> f64) -> Option<Vec<u8>> {
    // Numbers of any bits, times 2^-4 to 2^-6, have about the usual spread.
    match name {
        _ if name.ends_with("_proj_blocks") => Some((0..count).map(|at| (number(at) * 256.0) as u8).collect()),
        _ if name.ends_with("_proj_scales") => Some((0..count).map(|at| 121 + (number(at) * 3.0) as u8).collect()),
        _ => None,
    }
}
