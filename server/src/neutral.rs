//! Unsupported parameters that are accepted with a value that has no effect, since clients write out defaults. Any other
//! value, or a value of another type, is an error.

use serde_json::Value;

/// A value that has no effect.
#[derive(Clone, Copy, Debug)]
enum Neutral {
    /// `false`.
    Off,
    /// Either boolean: a switch of a feature that does not exist here.
    Switch,
    /// An empty list.
    NoList,
    /// An empty object.
    NoObject,
    /// An object: metadata for the client's accounting.
    Object,
    /// An empty string.
    NoText,
    /// A string: metadata for the client's accounting.
    Text,
    /// This number.
    Number(f64),
    /// One of these words.
    Words(&'static [&'static str]),
    /// A list of this word.
    ListOf(&'static str),
}

use Neutral::{ListOf, NoList, NoObject, NoText, Number, Object, Off, Switch, Text, Words};

/// Unsupported parameters of OpenAI, SGLang and vLLM, each with the values that have no effect.
const NEUTRAL: [(&str, &[Neutral]); 59] = [
    ("allowed_token_ids", &[NoList]),
    ("audio", &[NoObject]),
    ("bad_words", &[NoList]),
    ("background", &[Off]),
    ("bootstrap_host", &[NoText]),
    ("cache_salt", &[NoText]),
    ("conversation", &[NoText]),
    ("conversation_id", &[Text]),
    ("custom_logit_processor", &[NoText]),
    ("custom_params", &[NoObject]),
    ("documents", &[NoList]),
    ("ebnf", &[NoText]),
    ("extra_key", &[NoText]),
    ("function_call", &[Words(&["auto", "none"])]),
    ("functions", &[NoList]),
    ("guided_grammar", &[NoText]),
    ("image_data", &[NoList, NoText]),
    ("include", &[NoList]),
    ("include_reasoning", &[Switch]),
    ("length_penalty", &[Number(1.0)]),
    ("log_metrics", &[Switch]),
    ("lora_path", &[NoText]),
    ("metadata", &[Object]),
    ("mm_processor_kwargs", &[NoObject]),
    ("modalities", &[ListOf("text"), NoList]),
    ("previous_response_id", &[NoText]),
    ("priority", &[Number(0.0)]),
    ("prompt_cache_key", &[Text]),
    ("prompt_cache_retention", &[Text]),
    ("reasoning", &[NoObject]),
    ("reasoning_effort", &[Words(&["none"])]),
    ("return_bytes", &[Off]),
    ("return_hidden_states", &[Off]),
    ("return_routed_experts", &[Off]),
    ("return_token_ids", &[Off]),
    ("return_tokens_as_token_ids", &[Off]),
    ("return_prompt_token_ids", &[Off]),
    ("routing_key", &[Text]),
    ("safety_identifier", &[Text]),
    ("separate_reasoning", &[Switch]),
    ("service_tier", &[Words(&["auto", "default"])]),
    ("session_id", &[Text]),
    ("session_params", &[NoObject]),
    // Only affects slow tokenizers.
    ("spaces_between_special_tokens", &[Switch]),
    ("stop_regex", &[NoList, NoText]),
    ("store", &[Switch]),
    ("stream_interval", &[Number(1.0)]),
    ("stream_reasoning", &[Switch]),
    ("structural_tag", &[NoText]),
    ("suffix", &[NoText]),
    ("token_ids_logprob", &[NoList]),
    ("truncate_prompt_tokens", &[]),
    ("truncation", &[Words(&["disabled"])]),
    ("typical_p", &[Number(1.0)]),
    ("use_beam_search", &[Off]),
    ("user", &[Text]),
    ("verbosity", &[Words(&["medium"])]),
    ("video_data", &[NoList, NoText]),
    ("web_search_options", &[NoObject]),
];

/// Names of all these parameters.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    NEUTRAL.iter().map(|(name, _)| *name)
}

/// Whether a parameter that was not read can be ignored.
pub fn asks_for_nothing(name: &str, value: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    let neutral = NEUTRAL.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, neutral)| neutral);
    neutral.iter().any(|neutral| neutral.is(value))
}

impl Neutral {
    fn is(self, value: &Value) -> bool {
        match self {
            Off => value == &Value::Bool(false),
            Switch => value.is_boolean(),
            NoList => value.as_array().is_some_and(Vec::is_empty),
            NoObject => value.as_object().is_some_and(serde_json::Map::is_empty),
            Object => value.is_object(),
            NoText => value.as_str() == Some(""),
            Text => value.is_string(),
            Number(number) => value.as_f64() == Some(number),
            Words(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            ListOf(word) => value.as_array().is_some_and(|list| list.iter().all(|one| one == word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_pass_and_wishes_and_wrong_types_do_not() {
        let check = |name: &str, value: Value, expected: bool| {
            assert_eq!(asks_for_nothing(name, &value), expected, "{name}: {value}");
        };
        for (name, _) in NEUTRAL {
            check(name, Value::Null, true);
            check(name, json!([[]]), false);
        }
        check("functions", json!([]), true);
        check("functions", json!(false), false);
        check("ebnf", json!(""), true);
        check("ebnf", json!([]), false);
        check("length_penalty", json!(1), true);
        check("length_penalty", json!(0.1), false);
        check("length_penalty", json!(false), false);
        check("user", json!("me"), true);
        check("user", json!(false), false);
        check("store", json!(true), true);
        check("never_heard_of", json!(false), false);
        check("never_heard_of", Value::Null, true);
    }
}
