//! The rotary embedding that a config.json asks for.

use std::path::Path;

use kernels::reference::{Rope, RopeScaling};
use schemas::model::ModelConfig;

use crate::error::EngineError;

/// Reads `rope_theta` and `rope_scaling`, or `rope_parameters` of transformers 5, as the linter reads them.
///
/// # Errors
/// When the kind is none of default, linear, llama3, yarn, or one of its numbers is missing or makes no sense.
pub fn rope(config: &ModelConfig, head_dim: usize, path: &Path) -> Result<Rope, EngineError> {
    let malformed = |reason: String| EngineError::Malformed { path: path.join("config.json"), reason };
    let (theta, parameters) = config.effective_rope();
    if !(theta > 0.0 && theta.is_finite()) {
        return Err(malformed(format!("rope_theta is {theta}, expected a number above 0")));
    }
    let Some(parameters) = parameters else {
        return Ok(Rope::new(head_dim, theta as f32, RopeScaling::None));
    };
    let kind = parameters.name().unwrap_or("default");
    let number = |value: Option<f64>, name: &str| match value {
        Some(value) if value > 0.0 && value.is_finite() => Ok(value as f32),
        Some(value) => {
            Err(malformed(format!("rope_scaling of type {kind}: {name} is {value}, expected a number above 0")))
        }
        None => Err(malformed(format!("rope_scaling of type {kind} has no {name}"))),
    };
    let original = |fallback: Option<usize>| {
        let length = parameters.original_max_position_embeddings.or(fallback).map(|length| length as f64);
        number(length, "original_max_position_embeddings")
    };
    let scaling = match kind {
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
            let scale = |weight: f64| if factor > 1.0 { 0.1 * weight as f32 * factor.ln() + 1.0 } else { 1.0 };
            let attention_factor = match (parameters.attention_factor, parameters.mscale, parameters.mscale_all_dim) {
                (Some(given), _, _) => given as f32,
                (None, Some(mscale), Some(all)) if all != 0.0 => scale(mscale) / scale(all),
                _ => scale(1.0),
            };
            RopeScaling::Yarn {
                factor,
                original: original(config.max_position_embeddings)?,
                beta_fast: parameters.beta_fast.unwrap_or(32.0) as f32,
                beta_slow: parameters.beta_slow.unwrap_or(1.0) as f32,
                attention_factor,
            }
        }
        other => {
            return Err(EngineError::Unsupported {
                path: path.to_owned(),
                feature: format!("rope_scaling of type {other}"),
                hint: "supported are default, linear, llama3 and yarn".into(),
            });
        }
    };
    Ok(Rope::new(head_dim, theta as f32, scaling))
}
