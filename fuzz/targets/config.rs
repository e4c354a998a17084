//! The config.json of a model, and everything that is derived from it.
#![no_main]

use fuzz::text;
use libfuzzer_sys::fuzz_target;
use schemas::model::{ModelConfig, TensorHeaders};

fuzz_target!(|input: &[u8]| {
    let Some(text) = text(input) else { return };
    let Ok(config) = ModelConfig::parse(text) else { return };
    let tensors = TensorHeaders::default();
    let _ = (config.derived_context_length(), config.states_context_length(), config.weights_dtype());
    let _ = (config.head_dim(), config.key_value_heads(), config.is_mla(), config.mtp_layers());
    let _ = (config.rope(), config.architecture(), config.draft_kind());
    let _ = schemas::model::DraftHead::detect(&config, &tensors);
});
