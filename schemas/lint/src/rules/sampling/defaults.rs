//! Sampling parameters of requests that omit them.

use schemas::{engines::Engine, flags::Key, text::Span};
use serde_json::Value as Json;

use crate::rules::{Context, versions::*};

/// A sampling parameter that a launch sets for its requests.
pub(super) struct SamplingDefault {
    pub value: f64,
    /// The value as written.
    pub written: String,
    pub place: Span,
    /// Description of its source.
    pub source: &'static str,
}

impl SamplingDefault {
    /// The default of a parameter: the launch's, or the model's if requests follow it.
    pub fn from_context(context: &Context<'_>, parameter: &str) -> Option<Self> {
        let key = Key::PreferredSamplingParams;
        if context.launch.has(key) {
            let given: Json = serde_json::from_str(context.launch.text(key)?.value).ok()?;
            if let Some(value) = given.get(parameter) {
                let (place, source) = (context.value_place(key), "the preferred sampling parameters");
                return Some(Self { value: value.as_f64()?, written: value.to_string(), place, source });
            }
        }
        let value = of_model(context, parameter)?;
        let place = context.value_place(Key::ModelPath);
        Some(Self {
            value: value.into(),
            written: value.to_string(),
            place,
            source: "the target's generation_config.json",
        })
    }
}

/// The value in the model's own file, if the server follows it: the default from 0.5.6 on. slime
/// sets the sampling parameters of every request.
fn of_model(context: &Context<'_>, parameter: &str) -> Option<f32> {
    let key = Key::SamplingDefaults;
    let follows = context.is_absent(key) || context.launch.text(key).is_some_and(|whose| whose.value == "model");
    if !follows || context.launch.engine == Engine::Slime || context.version() < V0_5_6 {
        return None;
    }
    let generation = context.target?.generation.as_ref()?;
    match parameter {
        "min_p" => generation.min_p,
        "repetition_penalty" => generation.repetition_penalty,
        _ => None,
    }
}
