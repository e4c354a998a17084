//! The rotary embedding that a config.json asks for.

use std::path::Path;

use kernels::reference::{Rope, RopeScaling};
use schemas::model::ModelConfig;

use crate::error::EngineError;

/// Theta where a config.json has none: EAGLE-3 heads for Llama-3.1 rely on it.
const DEFAULT_THETA: f64 = 10_000.0;

/// Reads `rope_theta` and `rope_scaling`, or `rope_parameters` of transformers 5.
///
/// # Errors
/// When the kind is none of default, linear, llama3, yarn, or one of its numbers is missing.
pub fn rope(config: &ModelConfig, head_dim: usize, path: &Path) -> Result<Rope, EngineError> {
    let parameters = config.rope_scaling.as_ref().or(config.rope_parameters.as_ref());
    let theta = config.rope_theta.or_else(|| config.rope_parameters.as_ref()?.rope_theta).unwrap_or(DEFAULT_THETA);
    let Some(parameters) = parameters else {
        return Ok(Rope::new(head_dim, theta as f32, RopeScaling::None));
    };
    let kind = parameters.rope_type.as_deref().or(parameters.kind.as_deref()).unwrap_or("default");
    let number = |value: Option<f64>, name: &str| {
        value.map(|value| value as f32).ok_or_else(|| EngineError::Malformed {
            path: path.join("config.json"),
            reason: format!("rope_scaling of type {kind} has no {name}"),
        })
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
