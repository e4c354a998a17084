//! Settings that no family reads and that would change what the tensors mean. They are refused
//! unless their value has no effect.
//!
//! Families read, in addition to the sizes: `architectures`, `hidden_act`, `rms_norm_eps`,
//! `tie_word_embeddings`, `attention_bias`, `mlp_bias`, `head_dim`, `rope_theta`, `rope_scaling`,
//! `rope_parameters`, `partial_rotary_factor`, `sliding_window` with its switches, and for experts
//! `norm_topk_prob`, `routed_scaling_factor`, `scoring_func`, `topk_method`, `n_group`,
//! `topk_group`, `first_k_dense_replace`, `decoder_sparse_step`, `mlp_only_layers`,
//! `n_shared_experts`, `use_qk_norm`, for latent attention `q_lora_rank`, `kv_lora_rank`,
//! `qk_nope_head_dim`, `qk_rope_head_dim`, `v_head_dim`, `rope_interleave`, and the number of MTP
//! layers. Any other setting is assumed to be about training or serving, unless it is listed here.
//! A new setting that no list contains usually comes with tensors that nothing reads, which
//! [`unread`](super::unread) refuses.

use serde_json::Value as Json;

use super::{
    Config,
    config::malformed_config,
    neutral::{Neutral, is_off},
};
use crate::{
    checkpoint::{Folder, warn_skipped},
    error::EngineError,
};

/// Settings that are not read, grouped by what they change.
const SETTINGS: &[(&str, Neutral)] = &[
    // Attention.
    ("attn_logit_softcapping", Neutral::Off),
    ("attention_multiplier", Neutral::Off),
    ("query_pre_attn_scalar", Neutral::Off),
    ("attention_chunk_size", Neutral::Off),
    ("attn_temperature_tuning", Neutral::Off),
    ("attention_value_scale", Neutral::One),
    ("add_full_attention_sink_bias", Neutral::Off),
    ("add_swa_attention_sink_bias", Neutral::Off),
    ("clip_qkv", Neutral::Off),
    ("qk_layernorm", Neutral::Off),
    ("use_mla", Neutral::Off),
    ("index_topk", Neutral::Off),
    ("linear_num_value_heads", Neutral::Off),
    ("full_attention_interval", Neutral::Off),
    ("hybrid_layer_pattern", Neutral::Off),
    ("attn_output_gate", Neutral::Off),
    // Positions.
    ("rope_interleaved", Neutral::Off),
    ("interleaved_rope", Neutral::Off),
    ("use_mrope", Neutral::Off),
    ("no_rope_layers", Neutral::Off),
    ("no_rope_layer_interval", Neutral::Off),
    ("position_embedding_type", Neutral::Off),
    ("alibi", Neutral::Off),
    // The stream and its norms.
    ("embedding_multiplier", Neutral::One),
    ("residual_multiplier", Neutral::One),
    ("scale_emb", Neutral::One),
    ("scale_depth", Neutral::One),
    ("use_parallel_residual", Neutral::Off),
    ("parallel_attn", Neutral::Off),
    ("hc_mult", Neutral::One),
    ("norm_type", Neutral::Off),
    // Logits.
    ("final_logit_softcapping", Neutral::Off),
    ("logits_soft_cap", Neutral::Off),
    ("logit_scale", Neutral::One),
    ("logits_scaling", Neutral::One),
    ("lm_head_bias", Neutral::Off),
    // Experts.
    ("shared_expert_intermediate_size", Neutral::Off),
    ("mlp_layer_types", Neutral::Off),
    ("moe_layer_freq", Neutral::One),
    ("router_jitter_noise", Neutral::Off),
    ("swiglu_limit", Neutral::Off),
    ("compression_config", Neutral::Off),
];

/// Settings that say how a target's layers differ from those of Llama. An EAGLE head has one layer
/// of its own, whose tensors say what it is, and often a config.json that is a copy of its
/// target's.
const OF_TARGET_LAYERS: &[&str] = &[
    "attention_chunk_size",
    "attn_temperature_tuning",
    "attention_value_scale",
    "add_full_attention_sink_bias",
    "add_swa_attention_sink_bias",
    "qk_layernorm",
    "use_mla",
    "index_topk",
    "linear_num_value_heads",
    "full_attention_interval",
    "hybrid_layer_pattern",
    "attn_output_gate",
    "use_mrope",
    "no_rope_layers",
    "no_rope_layer_interval",
    "hc_mult",
    "shared_expert_intermediate_size",
    "mlp_layer_types",
    "moe_layer_freq",
    "router_jitter_noise",
    "swiglu_limit",
    "compression_config",
];

/// Settings of rotary embeddings that only some families read. Unknown ones are refused where the
/// embedding is read ([`rope`](super::rope)).
const ROPE_SETTINGS: &[&str] = &["mrope_section", "mrope_interleaved"];

/// Words in names of settings that are often about what a model computes.
const TELLING: [&str; 13] = [
    "cap",
    "chunk",
    "norm",
    "rope",
    "scale",
    "scaling",
    "scalar",
    "sink",
    "sinks",
    "softcap",
    "softcapping",
    "window",
    "windows",
];

/// Settings with such a word that are known to change nothing, or are read elsewhere.
const KNOWN: &[&str] = &[
    "chunk_size_feed_forward",
    "dual_chunk_attention_config",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "layernorm_epsilon",
    "max_window_layers",
    "norm_eps",
    "norm_epsilon",
];

/// Fields that do not change what a model computes: if one has the wrong type it is a warning. With
/// another field it is an error, since it would otherwise count as absent.
const HINTS: &[&str] =
    &["model_type", "speculators_model_type", "dtype", "torch_dtype", "bos_token_id", "eos_token_id"];

/// Refuses settings that change the model and are not implemented, except those that the family
/// `reads`.
///
/// # Errors
/// An error with the setting and its value.
pub fn check(config: &Config<'_>, reads: &[&str]) -> Result<(), EngineError> {
    if !reads.iter().any(|name| ["sliding_window", "layer_types"].contains(name)) {
        check_windows(config)?;
    }
    check_but_windows(config, reads)
}

/// The same for models that read the windows of attention.
///
/// # Errors
/// As [`check`].
fn check_but_windows(config: &Config<'_>, reads: &[&str]) -> Result<(), EngineError> {
    check_activation(config)?;
    let fields = config.fields();
    for (name, neutral) in SETTINGS.iter().filter(|(name, _)| !reads.contains(name)) {
        if let Some(value) = fields.other.get(*name).filter(|value| !neutral.is(value)) {
            return Err(config.unsupported(
                format!("{name} = {value} in config.json"),
                "this setting changes what the model computes, and this engine does not implement it",
            ));
        }
    }
    let rope = fields.rope();
    for name in ROPE_SETTINGS.iter().filter(|name| !reads.contains(name)) {
        if let Some(value) = rope.other.get(*name).filter(|value| !is_off(value)) {
            return Err(config.unsupported(
                format!("{name} = {value} in the parameters of the rotary embedding"),
                "supported: default, linear, llama3 and yarn as published for text",
            ));
        }
    }
    Ok(())
}

/// The same for EAGLE heads: settings of the target's layers are ignored with a warning, and the
/// sections of a rotation change nothing in text.
///
/// # Errors
/// As [`check`].
pub fn check_head(config: &Config<'_>) -> Result<(), EngineError> {
    check_but_windows(config, &[OF_TARGET_LAYERS, ROPE_SETTINGS].concat())?;
    let fields = config.fields();
    for name in ["rope_is_neox_style", "is_neox_style"] {
        if fields.other.get(name).and_then(Json::as_bool) == Some(false) {
            return Err(config.unsupported(
                format!("{name} = false in config.json"),
                "the rotation of neighbouring dimensions is not implemented for EAGLE heads",
            ));
        }
    }
    let ignored = SETTINGS.iter().filter(|(name, _)| OF_TARGET_LAYERS.contains(name)).filter_map(|(name, neutral)| {
        let value = fields.other.get(*name).filter(|value| !neutral.is(value))?;
        Some(format!("{name} = {value}"))
    });
    let ignored: Vec<String> = ignored.collect();
    if !ignored.is_empty() {
        tracing::warn!(
            "{}: settings in config.json that are those of the target's layers are ignored for this head: {}",
            config.folder().path().display(),
            ignored.join(", ")
        );
    }
    Ok(())
}

/// The same for block heads.
///
/// # Errors
/// As [`check`].
pub fn check_block_head(config: &Config<'_>) -> Result<(), EngineError> {
    check_but_windows(config, &[&["attention_value_scale"], ROPE_SETTINGS].concat())
}

/// Checks the activation of feed-forward blocks.
fn check_activation(config: &Config<'_>) -> Result<(), EngineError> {
    match config.fields().hidden_act.as_deref() {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => {
            Err(config.unsupported(format!("the activation hidden_act = {other}"), "only silu is supported"))
        }
    }
}

/// Warns about settings of a target that are not read and, by their names, may change what it
/// computes: those that the lists of this file do not have, and that come without tensors.
pub fn warn_unknown(config: &Config<'_>, reads: &[&str]) {
    let fields = config.fields();
    let path = config.folder().path().display();
    if let Some(length) = fields.dual_chunks() {
        tracing::warn!(
            "{path}: dual_chunk_attention_config is not implemented: up to {length} tokens the model computes the same \
             without it, so the context ends there"
        );
    }
    let is_known =
        |name: &str| KNOWN.contains(&name) || reads.contains(&name) || SETTINGS.iter().any(|(known, _)| *known == name);
    let tells = |name: &str| name.split('_').any(|word| TELLING.contains(&word)) && !is_known(name);
    let plain = |value: &Json| is_off(value) || Neutral::One.is(value) || value.is_object();
    let unknown = fields.other.iter().filter(|(name, value)| tells(name) && !plain(value));
    let unknown: Vec<String> = unknown.map(|(name, value)| format!("{name} = {value}")).collect();
    if !unknown.is_empty() {
        tracing::warn!(
            "{path}: settings in config.json that this engine does not know, and that may change what the model computes, \
             are ignored: {}",
            unknown.join(", ")
        );
    }
}

/// Refuses fields of the wrong type, and a context length that no model has.
///
/// # Errors
/// An error with the field and its value.
pub fn check_fields(folder: &Folder) -> Result<(), EngineError> {
    const LARGEST: usize = Config::LARGEST;
    let malformed = |reason: String| Err(malformed_config(folder, reason));
    let fields = &folder.config;
    let (hints, others): (Vec<_>, Vec<_>) =
        fields.unread.iter().partition(|field| HINTS.contains(&field.name.as_str()));
    if let Some(field) = others.first() {
        return malformed(field.to_string());
    }
    warn_skipped(&folder.path().join("config.json"), hints.into_iter());
    if let Some((key, length)) = fields.stated_context_length() {
        let scaled = fields.derived_context_length();
        if !(1..=LARGEST).contains(&length) {
            return malformed(format!("{key} is {length}, expected 1 to {LARGEST}"));
        }
        if !(1..=LARGEST).contains(&scaled) {
            return malformed(format!(
                "{key} is {length}, which the factor of its rotary embedding makes {scaled}, expected 1 to {LARGEST}"
            ));
        }
    }
    Ok(())
}

/// Qwen's files contain a window that is used only if a switch is on; Mistral has no switch. A
/// window at least as long as the longest sequence has no effect.
fn check_windows(config: &Config<'_>) -> Result<(), EngineError> {
    let fields = config.fields();
    let mistral = fields.architecture() == Some("MistralForCausalLM");
    let listed = |types: &Vec<String>| types.iter().any(|kind| kind == "sliding_attention");
    // In Qwen's classes the layers before this one see everything.
    let first = fields.other.get("max_window_layers").and_then(Json::as_u64);
    let none = first.zip(fields.num_hidden_layers).is_some_and(|(first, layers)| first >= layers as u64);
    let windowed = match fields.use_sliding_window {
        Some(false) => false,
        Some(true) => fields.layer_types.as_ref().map_or(!none, listed),
        None => mistral || fields.layer_types.as_ref().is_some_and(listed),
    };
    let cuts = |window: &usize| *window < fields.derived_context_length();
    if let (true, Some(window)) = (windowed, fields.sliding_window.filter(cuts)) {
        return Err(config.unsupported(
            format!("sliding-window attention (window {window})"),
            if mistral {
                "use a model without a window, such as Mistral 7B v0.2 or later"
            } else {
                "use a model without a window; with use_sliding_window false it computes the same up to that many tokens"
            },
        ));
    }
    let known = |kind: &&String| !matches!(kind.as_str(), "full_attention" | "sliding_attention");
    if let Some(kind) = fields.layer_types.iter().flatten().find(known) {
        return Err(config.unsupported(format!("layers of type {kind}"), "only full_attention is supported"));
    }
    Ok(())
}
