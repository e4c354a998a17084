//! The rotary embedding that a config.json specifies.

use kernels::reference::{Pairing, RopeScaling};
use schemas::model::RopeParameters;
use serde_json::Value as Json;

use super::{Config, neutral::is_off};
use crate::{error::EngineError, spec::RopeSpec};

/// The largest weight of yarn's scale that is read; published ones are about 1.
const MOST_SCALE: f64 = 100.0;

/// Settings without a field that are read elsewhere ([`settings`](super::settings)), or have no
/// effect on what a model computes.
const KNOWN: [&str; 5] = ["truncate", "mrope_section", "mrope_interleaved", "rope_dim", "finetuned"];

/// Reads `rope_theta` and `rope_scaling`, or `rope_parameters` of transformers 5, in the same way
/// as the linter. `share` is the rotated share of a head if no `partial_rotary_factor` is given.
///
/// # Errors
/// When the kind is not default, linear, llama3 or yarn, one of its numbers is missing or invalid,
/// or a setting is not known.
pub fn read(config: &Config<'_>, head_dim: usize, share: f64) -> Result<RopeSpec, EngineError> {
    let fields = config.fields();
    let (theta, parameters) = (fields.rope_base(), fields.rope());
    if !(theta as f32 > 1.0 && (theta as f32).is_finite()) {
        return Err(config.malformed(format!("rope_theta is {theta}, expected a number above 1")));
    }
    let share = parameters.partial_rotary_factor.unwrap_or(share);
    let dims = (head_dim as f64 * share) as usize;
    if !(share > 0.0 && share <= 1.0) || dims == 0 || !dims.is_multiple_of(2) {
        return Err(config.malformed(format!(
            "partial_rotary_factor is {share}: the rotated part of a head ({} is {head_dim}) must be even",
            if fields.is_mla() { "qk_rope_head_dim" } else { "head_dim" }
        )));
    }
    let scaling = scaling(config, &parameters)?;
    check_known(config, &parameters, head_dim)?;
    Ok(RopeSpec { dims, pairing: Pairing::Halves, theta: theta as f32, scaling })
}

/// The factor by which yarn scales the scores of latent attention, in addition to the rotation: the
/// square of the scale from `mscale_all_dim`.
///
/// # Errors
/// When it is not defined for the kind of scaling, or a number is missing.
pub fn score_factor(config: &Config<'_>) -> Result<f32, EngineError> {
    let parameters = config.fields().rope();
    let weight = parameters.mscale_all_dim.filter(|weight| *weight != 0.0 && parameters.scaling().is_some());
    let Some(weight) = weight else { return Ok(1.0) };
    match scaling(config, &parameters)? {
        RopeScaling::Yarn { factor, .. } => Ok(yarn_scale(factor, weight).powi(2)),
        _ => Err(config.unsupported("mscale_all_dim with a rope_scaling that is not yarn", "only yarn is supported")),
    }
}

/// Refuses settings that are not known, and so may change the rotation: unless they are off, and
/// `rope_dim` unless it is a whole head.
fn check_known(config: &Config<'_>, parameters: &RopeParameters, head_dim: usize) -> Result<(), EngineError> {
    let has_effect = |name: &str, value: &Json| match (name, value) {
        (_, Json::Null) => false,
        ("rope_dim", dims) => dims.as_u64() != Some(head_dim as u64),
        ("apply_yarn_scaling", applied) => *applied != Json::Bool(true),
        ("extrapolation_factor", factor) => factor.as_f64() != Some(1.0),
        (name, _) if KNOWN.contains(&name) => false,
        (_, value) => !is_off(value),
    };
    match parameters.other.iter().find(|(name, value)| has_effect(name, value)) {
        None => Ok(()),
        Some((name, value)) => Err(config.unsupported(
            format!("{name} = {value} in the parameters of the rotary embedding"),
            "this engine does not know the setting, which may change the rotation; supported: default, linear, llama3 and \
             yarn as published for text, over whole heads or the share of partial_rotary_factor",
        )),
    }
}

/// Yarn's scale at this factor.
fn yarn_scale(factor: f32, weight: f64) -> f32 {
    if factor > 1.0 { 0.1 * weight as f32 * factor.ln() + 1.0 } else { 1.0 }
}

fn scaling(config: &Config<'_>, parameters: &RopeParameters) -> Result<RopeScaling, EngineError> {
    const LARGEST: usize = Config::LARGEST;
    let kind = parameters.scaling().unwrap_or("default");
    let number = |value: Option<f64>, name: &str| match value {
        Some(value) if value > 0.0 && value <= LARGEST as f64 => Ok(value as f32),
        Some(value) => Err(config.malformed(format!(
            "rope_scaling of type {kind}: {name} is {value}, expected a number above 0 and up to {LARGEST}"
        ))),
        None => Err(config.malformed(format!("rope_scaling of type {kind} has no {name}"))),
    };
    let number_or = |value: Option<f64>, name: &str, default: f64| number(Some(value.unwrap_or(default)), name);
    let original = |fallback: Option<usize>| {
        let length = parameters.original_max_position_embeddings.or(fallback).map(|length| length as f64);
        number(length, "original_max_position_embeddings")
    };
    Ok(match kind {
        // The sections of `mrope` change nothing in text.
        "default" | "mrope" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: number(parameters.factor, "factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: number(parameters.factor, "factor")?,
            low_frequency_factor: number(parameters.low_freq_factor, "low_freq_factor")?,
            high_frequency_factor: number(parameters.high_freq_factor, "high_freq_factor")?,
            original: original(None)?,
        },
        "yarn" => {
            // As in transformers, the ratio of the two lengths if no factor is given.
            let longest = config.fields().max_position_embeddings;
            let ratio = longest.zip(parameters.original_max_position_embeddings).filter(|(_, original)| *original > 0);
            let ratio = ratio.map(|(longest, original)| longest as f64 / original as f64);
            let factor = number(parameters.factor.or(ratio), "factor")?;
            let scale = |weight| yarn_scale(factor, weight);
            for (name, value) in [("mscale", parameters.mscale), ("mscale_all_dim", parameters.mscale_all_dim)] {
                if value.is_some_and(|value| !(0.0..=MOST_SCALE).contains(&value)) {
                    return Err(config.malformed(format!(
                        "rope_scaling of type {kind}: {name} is {}, expected a number from 0 to {MOST_SCALE}",
                        value.unwrap_or_default()
                    )));
                }
            }
            let more = number_or(parameters.attn_factor, "attn_factor", 1.0)?;
            let attention_factor = match (parameters.attention_factor, parameters.mscale, parameters.mscale_all_dim) {
                (Some(given), _, _) if more != 1.0 => {
                    return Err(config.malformed(format!(
                        "the rotary embedding has attention_factor = {given} and attn_factor = {more}, and engines differ in \
                         which one they read: remove one"
                    )));
                }
                (Some(given), _, _) => number(Some(given), "attention_factor")?,
                (None, Some(mscale), Some(all)) if mscale != 0.0 && all != 0.0 => scale(mscale) / scale(all) * more,
                _ => scale(1.0) * more,
            };
            let beta_fast = number_or(parameters.beta_fast, "beta_fast", 32.0)?;
            let beta_slow = number_or(parameters.beta_slow, "beta_slow", 1.0)?;
            RopeScaling::Yarn {
                factor,
                original: original(longest)?,
                beta_fast,
                beta_slow,
                attention_factor,
                truncate: parameters.other.get("truncate") != Some(&Json::Bool(false)),
            }
        }
        other => {
            return Err(config.unsupported(
                format!("a rotary embedding of rope_type {other}"),
                "supported: default, linear, llama3 and yarn",
            ));
        }
    })
}
