//! Values of unsupported fields that have no effect, by endpoint and field; clients write defaults
//! out. Any other value, or a value of another type, is refused.
//!
//! `neutral/published.tsv` has the fields and defaults of the request types that OpenAI, SGLang and
//! vLLM publish (`schemas/scripts/read_requests.py` reads them). [`FURTHER`] and [`ASKING`] are
//! what the types do not say. A field that a handler reads never gets here: which fields are
//! supported is what the handlers read.

use std::{collections::HashMap, sync::OnceLock};

use serde_json::Value;

/// The published fields, one per line: endpoint, field, defaults, values that are empty, packages.
const PUBLISHED: &str = include_str!("neutral/published.tsv");

/// An endpoint whose fields are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/responses`.
    Responses,
    /// `/generate`.
    Generate,
    /// `/tokenize`.
    Tokenize,
    /// `/detokenize`.
    Detokenize,
    /// Any other one, which reads all of its fields.
    #[default]
    Other,
}

/// Values that have no effect.
#[derive(Clone, Copy, Debug)]
enum NeutralField {
    /// Either boolean: a switch of a feature that does not exist here.
    Switch,
    /// Any object: metadata for the client's accounting.
    Object,
    /// Any string: metadata for the client's accounting.
    Text,
    /// This number.
    Number(f64),
    /// One of these words.
    Words(&'static [&'static str]),
    /// A list of this word.
    ListOf(&'static str),
}

use NeutralField::{ListOf, Number, Object, Switch, Text, Words};

/// Values without an effect that the published types do not mention, on any endpoint.
const FURTHER: [(&str, NeutralField); 25] = [
    // Accounting of the client or of a router. Responses and caches do not depend on it.
    ("conversation_id", Text),
    ("log_metrics", Switch),
    ("metadata", Object),
    ("routing_key", Text),
    ("safety_identifier", Text),
    ("session_id", Text),
    ("user", Text),
    // Hints for a prefix cache; the one here needs none.
    ("prompt_cache_key", Text),
    ("prompt_cache_options.mode", Text),
    ("prompt_cache_options.ttl", Text),
    ("prompt_cache_retention", Text),
    // Nothing is stored, which is what OpenAI's clients expect of a server without storage.
    ("store", Switch),
    // The only modality, the only tier, and the usual length of an answer.
    ("modalities", ListOf("text")),
    ("service_tier", Words(&["auto", "default"])),
    ("text.verbosity", Words(&["medium"])),
    ("verbosity", Words(&["medium"])),
    // Where the template knows no effort, there is none.
    ("reasoning_effort", Words(&["none"])),
    // The client's request for a summary of reasoning is a wish: the whole reasoning is part of the
    // response.
    ("reasoning.generate_summary", Words(&["auto"])),
    ("reasoning.summary", Words(&["auto"])),
    // Reasoning is separated by the model's marks only.
    ("separate_reasoning", Switch),
    ("stream_reasoning", Switch),
    // Only affects slow tokenizers.
    ("spaces_between_special_tokens", Switch),
    // Every round is sent.
    ("stream_interval", Number(1.0)),
    // Names of older versions.
    ("typical_p", Number(1.0)),
    ("length_penalty", Number(1.0)),
];

/// Fields whose presence asks for something, even if the object is empty.
const ASKING: [&str; 3] = ["moderation", "prediction", "web_search_options"];

/// Why a field is not supported, where that is not obvious.
const REASONS: [(&str, &str); 2] = [
    ("priority", "this server has no priorities: requests run in the order in which they arrive"),
    ("stream_options.include_obfuscation", "chunks are sent without padding"),
];

/// Published fields of an endpoint.
#[derive(Debug)]
struct PublishedField {
    /// Defaults that the types state.
    defaults: Vec<Value>,
    /// Values that are empty by their type.
    empty: Vec<Value>,
}

type NeutralTable = HashMap<Endpoint, HashMap<&'static str, PublishedField>>;

/// Whether a field that was not read can be ignored. `field` is a dotted name.
pub fn has_no_effect(endpoint: Endpoint, field: &str, value: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    if FURTHER.iter().any(|(name, neutral)| *name == field && neutral.is(value)) {
        return true;
    }
    let Some(published) = table().get(&endpoint).and_then(|fields| fields.get(field)) else { return false };
    // An empty object asks for these features with their defaults.
    let is_asking = ASKING.contains(&field);
    let known = published.defaults.iter().chain(published.empty.iter().filter(|_| !is_asking));
    let is_object = || published.empty.iter().any(Value::is_object) && !is_asking;
    match value {
        // An object is as neutral as its members.
        Value::Object(members) if !members.is_empty() => {
            is_object()
                && members.iter().all(|(name, value)| has_no_effect(endpoint, &format!("{field}.{name}"), value))
        }
        _ => known.into_iter().any(|known| same(known, value)),
    }
}

/// Why a field is not supported, if there is more to say.
pub fn reason(field: &str) -> Option<&'static str> {
    REASONS.iter().find(|(name, _)| *name == field).map(|(_, reason)| *reason)
}

/// Published fields of an endpoint, with their defaults.
#[cfg(test)]
pub fn published(endpoint: Endpoint) -> impl Iterator<Item = (&'static str, &'static [Value])> {
    let fields = table().get(&endpoint).into_iter().flatten();
    fields.map(|(name, published)| (*name, published.defaults.as_slice()))
}

fn table() -> &'static NeutralTable {
    static TABLE: OnceLock<NeutralTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = NeutralTable::new();
        for line in PUBLISHED.lines() {
            if let Some((endpoint, field, published)) = row(line) {
                table.entry(endpoint).or_default().insert(field, published);
            }
        }
        table
    })
}

/// A row of the table; `None` for a comment.
fn row(line: &'static str) -> Option<(Endpoint, &'static str, PublishedField)> {
    let mut columns = line.split('\t');
    let endpoint = match columns.next()? {
        "chat" => Endpoint::Chat,
        "completions" => Endpoint::Completions,
        "responses" => Endpoint::Responses,
        "generate" => Endpoint::Generate,
        "tokenize" => Endpoint::Tokenize,
        "detokenize" => Endpoint::Detokenize,
        _ => return None,
    };
    let field = columns.next()?;
    let mut list = || serde_json::from_str(columns.next()?).ok();
    Some((endpoint, field, PublishedField { defaults: list()?, empty: list()? }))
}

/// Equality of JSON, with `1` the same as `1.0`.
fn same(one: &Value, other: &Value) -> bool {
    one == other || one.is_number() && one.as_f64() == other.as_f64()
}

impl NeutralField {
    fn is(self, value: &Value) -> bool {
        match self {
            Switch => value.is_boolean(),
            Object => value.is_object(),
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
    fn every_line_of_the_table_is_read() {
        for line in PUBLISHED.lines().filter(|line| !line.starts_with('#')) {
            assert!(row(line).is_some(), "{line}");
        }
    }

    #[test]
    fn defaults_pass_and_wishes_and_wrong_types_do_not() {
        let check = |endpoint: Endpoint, field: &str, value: Value, expected: bool| {
            assert_eq!(has_no_effect(endpoint, field, &value), expected, "{endpoint:?} {field}: {value}");
        };
        use Endpoint::{Chat, Completions, Generate, Other};
        check(Chat, "ebnf", json!(""), true);
        check(Chat, "ebnf", json!([]), false);
        check(Chat, "length_penalty", json!(1), true);
        check(Chat, "length_penalty", json!(0.1), false);
        check(Chat, "length_penalty", json!(false), false);
        check(Chat, "user", json!("me"), true);
        check(Chat, "user", json!(false), false);
        check(Chat, "store", json!(true), true);
        for endpoint in [Chat, Other] {
            check(endpoint, "never_heard_of", json!(false), false);
            check(endpoint, "never_heard_of", Value::Null, true);
        }
        // Defaults that only one of the APIs has, and only on one endpoint.
        check(Chat, "echo", json!(false), true);
        check(Chat, "echo", json!(true), false);
        check(Chat, "routed_experts_prompt_start", json!(0), true);
        check(Chat, "routed_experts_prompt_start", json!(1), false);
        check(Generate, "no_logs", json!(false), true);
        check(Chat, "no_logs", json!(false), false);
        check(Generate, "sampling_params.stop_regex", json!([]), true);
        check(Generate, "stop_regex", json!([]), false);
        check(Completions, "priority", json!(0), true);
        check(Completions, "priority", json!(1), false);
    }

    #[test]
    fn objects_are_as_neutral_as_their_members() {
        let check = |value: Value, expected: bool| {
            assert_eq!(has_no_effect(Endpoint::Responses, "prompt_cache_options", &value), expected, "{value}");
        };
        check(json!({}), true);
        check(json!({"mode": "implicit", "prewarm": false, "ttl": null, "unknown": null}), true);
        check(json!({"prewarm": true}), false);
        check(json!({"unknown": false}), false);
        check(json!([]), false);
        for field in ASKING {
            assert!(!has_no_effect(Endpoint::Chat, field, &json!({})), "{field}");
        }
    }
}
