//! The rotary embedding that a config.json specifies.

use kernels::reference::{Pairing, RopeScaling};
use schemas::model::RopeParameters;
use serde_json::Value as Json;

use super::Config;
use crate::{error::EngineError, spec::RopeSpec};

/// The largest weight of yarn's scale that is read; published ones are about 1.
const MOST_SCALE: f64 = 100.0;

/// Reads `rope_theta` and `rope_scaling`, or `rope_parameters` of transformers 5, in the same way
/// as the linter. `share` is the rotated share of a head if no `partial_rotary_factor` is given.
///
/// # Errors
/// When the kind is not default, linear, llama3 or yarn, or one of its numbers is missing or
/// invalid.
pub fn read(config: &Config<'_>, head_dim: usize, share: f64) -> Result<RopeSpec, EngineError> {
    let fields = config.fields();
    let (theta, parameters) = fields.effective_rope();
    if !(theta as f32 > 1.0 && (theta as f32).is_finite()) {
        return Err(config.malformed(format!("rope_theta is {theta}, expected a number above 1")));
    }
    let inner = fields.rope_parameters.as_ref().or(fields.rope_scaling.as_ref());
    let share = inner.and_then(|rope| rope.partial_rotary_factor).or(fields.partial_rotary_factor).unwrap_or(share);
    let dims = (head_dim as f64 * share) as usize;
    if !(share > 0.0 && share <= 1.0) || dims == 0 || !dims.is_multiple_of(2) {
        return Err(config.malformed(format!(
            "partial_rotary_factor is {share}: the rotated part of a head ({} is {head_dim}) must be even",
            if fields.is_mla() { "qk_rope_head_dim" } else { "head_dim" }
        )));
    }
    let scaling = parameters.map_or(Ok(RopeScaling::None), |parameters| scaling(config, parameters))?;
    Ok(RopeSpec { dims, pairing: Pairing::Halves, theta: theta as f32, scaling })
}

/// The factor by which yarn scales the scores of latent attention, in addition to the rotation: the
/// square of the scale from `mscale_all_dim`.
///
/// # Errors
/// When it is not defined for the kind of scaling, or a number is missing.
pub fn score_factor(config: &Config<'_>) -> Result<f32, EngineError> {
    let Some(parameters) = config.fields().effective_rope().1 else { return Ok(1.0) };
    let Some(weight) = parameters.mscale_all_dim.filter(|weight| *weight != 0.0) else { return Ok(1.0) };
    match scaling(config, parameters)? {
        RopeScaling::Yarn { factor, .. } => Ok(yarn_scale(factor, weight).powi(2)),
        _ => Err(config.unsupported("mscale_all_dim with a rope_scaling that is not yarn", "only yarn is supported")),
    }
}

/// Yarn's scale at this factor.
fn yarn_scale(factor: f32, weight: f64) -> f32 {
    if factor > 1.0 { 0.1 * weight as f32 * factor.ln() + 1.0 } else { 1.0 }
}

fn scaling(config: &Config<'_>, parameters: &RopeParameters) -> Result<RopeScaling, EngineError> {
    const LARGEST: usize = Config::LARGEST;
    let kind = parameters.name().unwrap_or("default");
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
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: number(parameters.factor, "factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: number(parameters.factor, "factor")?,
            low_frequency_factor: number(parameters.low_freq_factor, "low_freq_factor")?,
            high_frequency_factor: number(parameters.high_freq_factor, "high_freq_factor")?,
            original: original(None)?,
        },
        "yarn" => {
            let factor = number(parameters.factor, "factor")?;
            let scale = |weight| yarn_scale(factor, weight);
            for (name, value) in [("mscale", parameters.mscale), ("mscale_all_dim", parameters.mscale_all_dim)] {
                if value.is_some_and(|value| !(0.0..=MOST_SCALE).contains(&value)) {
                    return Err(config.malformed(format!(
                        "rope_scaling of type {kind}: {name} is {}, expected a number from 0 to {MOST_SCALE}",
                        value.unwrap_or_default()
                    )));
                }
            }
            let attention_factor = match (parameters.attention_factor, parameters.mscale, parameters.mscale_all_dim) {
                (Some(given), _, _) => number(Some(given), "attention_factor")?,
                (None, Some(mscale), Some(all)) if all != 0.0 => scale(mscale) / scale(all),
                _ => scale(1.0),
            };
            let beta_fast = number_or(parameters.beta_fast, "beta_fast", 32.0)?;
            let beta_slow = number_or(parameters.beta_slow, "beta_slow", 1.0)?;
            RopeScaling::Yarn {
                factor,
                original: original(config.fields().max_position_embeddings)?,
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
