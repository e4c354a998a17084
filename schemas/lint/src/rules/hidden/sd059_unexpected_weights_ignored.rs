//! # SD059: unexpected-weights-ignored
//!
//! The EAGLE-3 head's checkpoint lacks weights of SGLang's class, or has some that the class lacks.
//!
//! ## What it does
//!
//! Compares the names of the draft's tensors with those of `LlamaForCausalLMEagle3`: `fc`, `norm`,
//! and one layer `midlayer` (or `layers.0`). A checkpoint without such a layer, a quantised one,
//! and one with several layers are not checked.
//!
//! ## Why is this bad?
//!
//! A missing weight keeps its random initial values, and hardly any token is accepted. An ignored
//! weight was part of the training: without it the head computes something else.
//!
//! ## What SGLang does
//!
//! It skips every unknown name, and does not check whether a weight is missing. There is no error.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 512, "draft_vocab_size": 128,
//!  "num_hidden_layers": 1, "torch_dtype": "bfloat16"}
//! ```
//! ```draft-tensors
//! midlayer.self_attn.q_proj.weight BF16 64x128
//! midlayer.self_attn.k_proj.weight BF16 64x128
//! midlayer.self_attn.v_proj.weight BF16 64x128
//! midlayer.self_attn.o_proj.weight BF16 64x64
//! midlayer.mlp.gate_proj.weight BF16 128x64
//! midlayer.mlp.up_proj.weight BF16 128x64
//! midlayer.mlp.down_proj.weight BF16 64x128
//! midlayer.input_layernorm.weight BF16 64
//! midlayer.post_attention_layernorm.weight BF16 64
//! norm.weight BF16 64
//! lm_head.weight BF16 128x64
//! d2t I64 128
//! fc.weight BF16 64x192
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 512, "draft_vocab_size": 128,
//!  "num_hidden_layers": 1, "torch_dtype": "bfloat16"}
//! ```
//! ```draft-tensors
//! midlayer.self_attn.q_proj.weight BF16 64x128
//! midlayer.self_attn.k_proj.weight BF16 64x128
//! midlayer.self_attn.v_proj.weight BF16 64x128
//! midlayer.self_attn.o_proj.weight BF16 64x64
//! midlayer.mlp.gate_proj.weight BF16 128x64
//! midlayer.mlp.up_proj.weight BF16 128x64
//! midlayer.mlp.down_proj.weight BF16 64x128
//! midlayer.input_layernorm.weight BF16 64
//! midlayer.post_attention_layernorm.weight BF16 64
//! norm.weight BF16 64
//! lm_head.weight BF16 128x64
//! d2t I64 128
//! fc.weight BF16 64x192
//! midlayer.hidden_norm.weight BF16 64
//! midlayer.self_attn.q_norm.weight BF16 16
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 512, "draft_vocab_size": 128,
//!  "num_hidden_layers": 1, "torch_dtype": "bfloat16"}
//! ```
//! ```draft-tensors
//! midlayer.self_attn.q_proj.weight BF16 64x128
//! midlayer.self_attn.k_proj.weight BF16 64x128
//! midlayer.self_attn.v_proj.weight BF16 64x128
//! midlayer.self_attn.o_proj.weight BF16 64x64
//! midlayer.mlp.gate_proj.weight BF16 128x64
//! midlayer.mlp.up_proj.weight BF16 128x64
//! midlayer.mlp.down_proj.weight BF16 64x128
//! midlayer.input_layernorm.weight BF16 64
//! midlayer.post_attention_layernorm.weight BF16 64
//! norm.weight BF16 64
//! lm_head.weight BF16 128x64
//! d2t I64 128
//! fc.weight BF16 64x192
//! midlayer.hidden_norm.weight BF16 64
//! ```
//!
//! ## Versions
//!
//! All versions with EAGLE3.
//!
//! ## Source
//!
//! sglang `models/llama_eagle3.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, model::ModelFacts};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, support::count};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD059",
    name: "unexpected-weights-ignored",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

/// The weights of the layer, without biases.
const LAYER: [&str; 10] = [
    "hidden_norm.weight",
    "input_layernorm.weight",
    "mlp.down_proj.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "post_attention_layernorm.weight",
    "self_attn.k_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_proj.weight",
    "self_attn.v_proj.weight",
];

/// The layer's names in published checkpoints.
const PREFIXES: [&str; 2] = ["midlayer.", "layers.0."];

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(weights) = IgnoredWeights::from_context(context) else { return Vec::new() };
    let place = context.value_place(Key::SpeculativeDraftModelPath);
    let mut found = Vec::new();
    if let Some(first) = weights.missing.first() {
        let message =
            format!("the draft's checkpoint lacks {}, which stay random", count(weights.missing.len(), "weight"));
        found.push(
            Finding::new(place, message, format!("no `{first}`"))
                .note(format!("missing: {}", weights.missing.join(", ")))
                .note("there is no error at startup: accept length will be near 1")
                .help("export the head again with all its weights"),
        );
    }
    if let Some(first) = weights.ignored.first() {
        let message = format!("sglang ignores {} of the draft's checkpoint", count(weights.ignored.len(), "weight"));
        found.push(
            Finding::new(place, message, format!("`{first}` is not used"))
                .at_most(Severity::Info)
                .note(format!("ignored: {}", weights.ignored.join(", ")))
                .help("use a head of the architecture that sglang runs"),
        );
    }
    found
}

/// How the names in a checkpoint differ from those of the class.
struct IgnoredWeights {
    missing: Vec<String>,
    ignored: Vec<String>,
}

impl IgnoredWeights {
    fn from_context(context: &Context<'_>) -> Option<Self> {
        context.only(Algorithm::Eagle3)?;
        let draft = context.draft_config()?;
        let quantised = draft.quantization_config.as_ref().is_some_and(|value| !value.is_null());
        let single = draft.num_hidden_layers.is_none_or(|layers| layers == 1);
        if quantised || !single || draft.architecture() != Some("LlamaForCausalLMEagle3") {
            return None;
        }
        let names = names(context.draft?)?;
        let prefix = PREFIXES.into_iter().find(|prefix| names.iter().any(|name| name.starts_with(prefix)))?;
        let in_layer: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix(prefix)).collect();
        // Checkpoints with fused projections use other names.
        if in_layer.iter().any(|name| name.contains("qkv_proj") || name.contains("gate_up_proj")) {
            return None;
        }
        let outside = ["fc.weight", "norm.weight"].into_iter().filter(|name| !names.contains(name)).map(str::to_owned);
        let inside = LAYER.into_iter().filter(|name| !in_layer.contains(name)).map(|name| format!("{prefix}{name}"));
        let ignored = in_layer.iter().filter(|name| name.ends_with(".weight") && !LAYER.contains(name));
        Some(Self {
            missing: outside.chain(inside).collect(),
            ignored: ignored.map(|name| format!("{prefix}{name}")).collect(),
        })
    }
}

/// The names of all tensors, without the model's own prefix.
fn names(facts: &ModelFacts) -> Option<Vec<&str>> {
    let names = facts.tensor_names()?;
    Some(names.map(|name| name.strip_prefix("model.").unwrap_or(name)).collect())
}
