//! `generation_config.json`: how a model wants to be sampled, and where it ends.

use serde::Deserialize;

use super::lenient;

/// The fields that matter here; what is absent stays absent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GenerationConfig {
    /// End-of-text tokens: one or several.
    #[serde(deserialize_with = "lenient::one_or_several")]
    pub eos_token_id: Vec<u32>,
    /// Whether the model is meant to be sampled.
    pub do_sample: Option<bool>,
    /// Temperature.
    pub temperature: Option<f32>,
    /// Nucleus.
    pub top_p: Option<f32>,
    /// Best tokens kept.
    pub top_k: Option<usize>,
    /// Share of the best token's probability.
    pub min_p: Option<f32>,
    /// Penalty on tokens that are there already; 1 is none.
    pub repetition_penalty: Option<f32>,
    /// Penalty that grows with every repetition of a token; 0 is none.
    pub frequency_penalty: Option<f32>,
    /// Penalty on tokens of the output; 0 is none.
    pub presence_penalty: Option<f32>,
}

impl GenerationConfig {
    /// Reads the text of the file.
    ///
    /// # Errors
    /// When it is not JSON or a field has the wrong type.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}
