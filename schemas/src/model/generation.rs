//! `generation_config.json`: recommended sampling parameters, and end tokens.

use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

use super::lenient::{self, JsonFileError, UnreadField, json_object};

/// The fields that spectune uses; absent fields stay absent.
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
    /// Nucleus sampling: total probability of the tokens that are kept.
    pub top_p: Option<f32>,
    /// Number of most likely tokens that are kept; 0, or -1 in the file, keeps all.
    #[serde(deserialize_with = "count_or_all")]
    pub top_k: Option<usize>,
    /// Minimum probability of a token, relative to that of the most likely one.
    pub min_p: Option<f32>,
    /// Penalty on tokens that already occur; 1 for none.
    pub repetition_penalty: Option<f32>,
    /// Penalty that grows with every repetition of a token; 0 for none.
    pub frequency_penalty: Option<f32>,
    /// Penalty on tokens of the output; 0 for none.
    pub presence_penalty: Option<f32>,
    /// The fields that could not be read. They count as absent.
    #[serde(skip)]
    pub unread: Vec<UnreadField>,
}

impl GenerationConfig {
    /// Reads the text of the file, as leniently as a config.json: one odd field does not hide the
    /// others.
    ///
    /// # Errors
    /// If it is not a JSON object.
    pub fn parse(text: &str) -> Result<Self, JsonFileError> {
        let object = json_object(text)?;
        let mut unread = Vec::new();
        let readable = lenient::readable::<Self>(object, "", &mut unread);
        Ok(Self { unread, ..serde_json::from_value(Json::Object(readable))? })
    }
}

fn count_or_all<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let count = Option::<i64>::deserialize(deserializer)?;
    Ok(count.map(|count| usize::try_from(count).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_odd_field_does_not_hide_the_others() {
        let check = |text: &str, expected: GenerationConfig| {
            assert_eq!(GenerationConfig::parse(text).expect("an object"), expected, "{text}");
        };
        let none = GenerationConfig::default();
        check("{}", none.clone());
        check(
            r#"{"eos_token_id": [1, 3], "top_k": -1, "temperature": null}"#,
            GenerationConfig { eos_token_id: vec![1, 3], top_k: Some(0), ..none.clone() },
        );
        check(r#"{"eos_token_id": 1, "top_k": 50.0, "temperature": "0.75", "transformers_version": "4"}"#, {
            GenerationConfig { eos_token_id: vec![1], top_k: Some(50), temperature: Some(0.75), ..none.clone() }
        });
        check(
            r#"{"eos_token_id": -1, "top_p": [1], "min_p": 0.5}"#,
            GenerationConfig {
                min_p: Some(0.5),
                unread: vec![
                    UnreadField {
                        name: "eos_token_id".into(),
                        found: "-1".into(),
                        expected: "a whole number of at least 0",
                    },
                    UnreadField { name: "top_p".into(), found: "[1]".into(), expected: "a number" },
                ],
                ..none
            },
        );
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for text in ["", "[1]", "null", "3", "{"] {
            assert!(GenerationConfig::parse(text).is_err(), "{text}");
        }
    }
}
