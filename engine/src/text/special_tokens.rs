//! The special tokens and the chat template in tokenizer_config.json.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{checkpoint::Folder, error::EngineError};

/// The names of special tokens in chat templates.
const NAMES: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Special tokens and chat template of a tokenizer.
#[derive(Debug, Default)]
pub struct TokenizerConfig {
    /// The chat template, if it is not in a separate file.
    pub chat_template: Option<String>,
    /// Texts of the tokenizer's special tokens, by name.
    pub special_tokens: BTreeMap<&'static str, String>,
}

impl TokenizerConfig {
    /// Reads tokenizer_config.json, and special_tokens_map.json for what older checkpoints keep
    /// there. A field of the wrong type counts as absent.
    ///
    /// # Errors
    /// When a file exists but is not a JSON object.
    pub fn open(folder: &Folder) -> Result<Self, EngineError> {
        Ok(Self::from_json(&object(folder, "tokenizer_config.json")?, &object(folder, "special_tokens_map.json")?))
    }

    fn from_json(config: &Map<String, Value>, map: &Map<String, Value>) -> Self {
        // As in transformers: a file that lists its added tokens is complete.
        let complete = config.contains_key("added_tokens_decoder");
        let token = |name: &'static str| {
            let older = if complete { None } else { map.get(name) };
            Some((name, text(config.get(name).or(older)?)?))
        };
        Self {
            chat_template: config.get("chat_template").and_then(chat_template),
            special_tokens: NAMES.into_iter().filter_map(token).collect(),
        }
    }
}

fn object(folder: &Folder, name: &str) -> Result<Map<String, Value>, EngineError> {
    Ok(folder.optional_object(name)?.unwrap_or_default())
}

/// A token is given as its text, or as an object with the text in `content`.
fn text(token: &Value) -> Option<String> {
    token.as_str().or_else(|| token.get("content")?.as_str()).map(ToOwned::to_owned)
}

/// A template, or several named ones, of which `default` is the one for chats.
fn chat_template(value: &Value) -> Option<String> {
    let named = |value: &Value| {
        let default = |template: &&Value| template.get("name").and_then(Value::as_str) == Some("default");
        value.as_array()?.iter().find(default)?.get("template")?.as_str().map(ToOwned::to_owned)
    };
    value.as_str().map(ToOwned::to_owned).or_else(|| named(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &str, map: &str) -> TokenizerConfig {
        let object = |text: &str| serde_json::from_str(text).expect("an object");
        TokenizerConfig::from_json(&object(config), &object(map))
    }

    #[test]
    fn special_tokens_are_found_in_either_file_and_form() {
        let check = |config: &str, map: &str, expected: &[(&'static str, &str)]| {
            let expected = expected.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
            assert_eq!(read(config, map).special_tokens, expected, "{config} {map}");
        };
        check("{}", "{}", &[]);
        check(
            r#"{"eos_token": "</s>", "bos_token": {"content": "<s>"}}"#,
            "{}",
            &[("bos_token", "<s>"), ("eos_token", "</s>")],
        );
        check(r#"{"bos_token": false, "eos_token": 3, "pad_token": null}"#, "{}", &[]);
        check(
            "{}",
            r#"{"bos_token": "<s>", "pad_token": {"content": "<pad>"}}"#,
            &[("bos_token", "<s>"), ("pad_token", "<pad>")],
        );
        check(r#"{"eos_token": "a"}"#, r#"{"eos_token": "b"}"#, &[("eos_token", "a")]);
        check(r#"{"added_tokens_decoder": {}}"#, r#"{"eos_token": "b"}"#, &[]);
    }

    #[test]
    fn the_template_for_chats_is_the_only_one_or_the_default_one() {
        let check = |template: &str, expected: Option<&str>| {
            let found = read(&format!(r#"{{"chat_template": {template}}}"#), "{}").chat_template;
            assert_eq!(found.as_deref(), expected, "{template}");
        };
        check("null", None);
        check("\"a\"", Some("a"));
        check(r#"[{"name": "tool_use", "template": "t"}, {"name": "default", "template": "a"}]"#, Some("a"));
        check(r#"[{"name": "tool_use", "template": "t"}]"#, None);
    }
}
