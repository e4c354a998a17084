//! Decoder layers of a block head, and what their rows see.

use super::settings::BlockSettings;
use crate::{
    error::EngineError,
    families::{Config, FamilyAttention},
    spec::{AttentionSpec, BlockLayer, Pairing},
};

/// Its decoder layers, in Qwen3's layout.
pub fn layers(config: &Config<'_>, settings: BlockSettings<'_>) -> Result<Vec<BlockLayer>, EngineError> {
    let fields = config.fields();
    let count = config.size(fields.num_hidden_layers, "num_hidden_layers")?;
    let single = count == 1 && config.tensors.has("midlayer.self_attn.q_proj.weight");
    let layer = |at: usize| {
        let prefix = if single { "midlayer".to_owned() } else { format!("layers.{at}") };
        config.tensors.expect(&format!("{prefix}.input_layernorm.weight"), &[config.hidden()?])?;
        let attention = FamilyAttention { bias_setting: false, ..FamilyAttention::PLAIN };
        let mut layer = config.layer(&prefix, attention, config.dense(&prefix)?)?;
        if let AttentionSpec::Grouped(grouped) = &mut layer.attention {
            grouped.rope.pairing = pairing(settings)?;
        }
        let (causal, window) = view(config, settings, at)?;
        Ok(BlockLayer { layer, causal, window })
    };
    (0..count).map(layer).collect()
}

fn pairing(settings: BlockSettings<'_>) -> Result<Pairing, EngineError> {
    let halves = settings.switch("rope_is_neox_style")?.or(settings.switch("is_neox_style")?);
    Ok(if halves == Some(false) { Pairing::Interleaved } else { Pairing::Halves })
}

/// Whether the rows of a block see only rows before them in all layers, if a setting says so.
fn causal(config: &Config<'_>, settings: BlockSettings<'_>) -> Result<Option<bool>, EngineError> {
    let mut found = Vec::new();
    for name in ["is_causal", "causal", "dflash_query_causal"] {
        found.extend(settings.switch(name)?.map(|causal| (name, causal)));
    }
    let Some((name, causal)) = found.first().copied() else { return Ok(None) };
    match found.iter().find(|(_, other)| *other != causal) {
        Some((other, _)) => Err(config.malformed(format!(
            "{name} is {causal} but {other} is not, and engines differ in which one they read: make them equal"
        ))),
        None => Ok(Some(causal)),
    }
}

/// Whether the rows of a block see only rows before them in a layer, and how far. Without a
/// setting, a layer with a window is causal and one without is not.
fn view(config: &Config<'_>, settings: BlockSettings<'_>, at: usize) -> Result<(bool, Option<usize>), EngineError> {
    let fields = config.fields();
    let causal = causal(config, settings)?;
    let sized = |window: Option<usize>, name: &str| config.size(window, name).map(Some);
    let swa = settings.count("swa_window_size")?;
    let types = fields.layer_types.as_ref();
    let is_sliding = |types: &Vec<String>| types.iter().any(|kind| kind == "sliding_attention");
    // In vLLM the switch gives all layers a window, also those that are listed as full attention.
    if settings.switch("use_swa")? == Some(true) && !types.is_some_and(is_sliding) {
        let window = swa.or(fields.sliding_window.filter(|_| types.is_some()));
        return Ok((causal.unwrap_or(false), sized(window, "swa_window_size")?));
    }
    let Some(types) = types else { return Ok((causal.unwrap_or(false), None)) };
    match types.get(at).map(String::as_str) {
        Some("full_attention") => Ok((causal.unwrap_or(false), None)),
        Some("sliding_attention") if fields.use_sliding_window == Some(false) => {
            Err(config.malformed(format!("layer_types[{at}] is sliding_attention, but use_sliding_window is false")))
        }
        Some("sliding_attention") => {
            let non_causal = settings.switch("sliding_window_non_causal")?;
            if (causal, non_causal) == (Some(true), Some(true)) {
                let reason = "is_causal and sliding_window_non_causal are both true, expected one of them";
                return Err(config.malformed(reason.into()));
            }
            let causal = causal.or(non_causal.map(|non_causal| !non_causal)).unwrap_or(true);
            Ok((causal, sized(swa.or(fields.sliding_window), "sliding_window")?))
        }
        Some(other) => {
            Err(config
                .unsupported(format!("layers of type {other}"), "supported are full_attention and sliding_attention"))
        }
        None => Err(config.malformed(format!("layer_types has {} entries, expected one for each layer", types.len()))),
    }
}
