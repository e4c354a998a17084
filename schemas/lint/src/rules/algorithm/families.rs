//! Which architectures carry their own draft layers.
//!
//! Taken from sglang 0.5.23: `arg_groups/speculative_hook.py` (default draft paths),
//! `configs/model_config.py` (classes replaced for a draft).

/// Architectures for which a missing draft path defaults to the target's.
const FILLED_IN: &[&str] = &[
    "BailingMoeForCausalLM",
    "BailingMoeV2ForCausalLM",
    "BailingMoeV2_5ForCausalLM",
    "DeepseekV32ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV4ForCausalLM",
    "Glm4MoeForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "GlmMoeDsaForCausalLM",
    "HYV3ForCausalLM",
    "HYV4ForCausalLM",
    "MistralLarge3ForCausalLM",
    "PixtralForConditionalGeneration",
    "Qwen4ExpForConditionalGeneration",
];

/// Those of `FILLED_IN` whose draft is nevertheless a separate checkpoint.
const OWN_DRAFTS: &[&str] = &["MistralLarge3ForCausalLM", "PixtralForConditionalGeneration"];

/// Prefixes of architectures whose class is replaced by their MTP class when they are loaded as the
/// draft.
const EXCHANGED: &[&str] = &[
    "BailingMoe",
    "DeepseekV3",
    "DeepseekV4",
    "Dots3",
    "Ernie4_5_Moe",
    "ExaoneMoE",
    "ExaoneMoe",
    "GigaChat35",
    "Glm4Moe",
    "Glm5Next",
    "GlmMoeDsa",
    "GlmOcr",
    "HYV3",
    "HYV4",
    "IQuestQ1",
    "Inkling",
    "InternS2",
    "LongcatFlash",
    "MiMoForCausalLM",
    "MiMoV2",
    "NemotronH",
    "Qwen3Moe",
    "Qwen3Next",
    "Qwen3_5",
    "Qwen4Exp",
    "Step3p5",
    "Step3p7",
];

/// Those of `EXCHANGED` whose loader reads `num_nextn_predict_layers` and rejects a checkpoint
/// without it.
const COUNTED: &[&str] = &["DeepseekV3", "Glm4Moe", "GlmMoeDsa"];

/// Whether SGLang uses the target's own checkpoint as the draft if no path is given.
pub(super) fn fills_in_path(architecture: &str) -> bool {
    FILLED_IN.contains(&architecture)
}

/// Whether the draft path defaults to the target's and the draft is the MTP layer in the target's
/// checkpoint.
pub(super) fn drafts_from_its_own_checkpoint(architecture: &str) -> bool {
    fills_in_path(architecture) && !OWN_DRAFTS.contains(&architecture)
}

/// Whether there is an MTP class for the architecture.
pub(super) fn has_mtp_class(architecture: &str) -> bool {
    EXCHANGED.iter().any(|known| architecture.starts_with(known))
}

/// Whether its MTP class needs `num_nextn_predict_layers` in the config.
pub(super) fn counts_mtp_layers(architecture: &str) -> bool {
    COUNTED.iter().any(|known| architecture.starts_with(known))
}
