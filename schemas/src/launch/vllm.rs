//! vLLM's speculative configuration: the JSON behind `--speculative-config`, its keys as flags of their own, or the flags
//! of older versions.

mod keys;
mod values;

use serde_json::Value as Json;

use super::{Argument, Launch, Setting, writing::Writing};
use crate::{
    flags::{Arity, Key},
    launch::Engine,
    text::{Located, Span},
};
use keys::{Named, named};
pub(super) use values::bad_values;

/// What a vLLM launch says of speculation. A `None` is not given, or not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VllmSpeculation {
    /// Where it stands.
    pub span: Span,
    /// Such as `eagle3`, `ngram`, `mtp`.
    pub method: Option<String>,
    /// The draft.
    pub model: Option<String>,
    /// Draft tokens a round, the bonus token not counted.
    pub num_speculative_tokens: Option<i64>,
    /// Whether a number of draft tokens is given, be it known or not.
    pub gives_tokens: bool,
}

impl Launch {
    /// The speculative configuration of a vLLM launch, where it gives one that can be read.
    pub fn vllm_speculation(&self) -> Option<VllmSpeculation> {
        if self.engine != Engine::Vllm {
            return None;
        }
        speculation(&self.arguments)
    }

    /// Whether a vLLM flag stands there, by its name with dashes.
    pub fn vllm_flag(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.flag.value.replace('_', "-") == name)
    }

    /// Where a key of the speculative configuration stands that is given as a flag of its own.
    pub fn vllm_key_place(&self, key: &str) -> Option<Span> {
        let is_key = |argument: &&Argument| named(&argument.flag.value) == Some(Named::Key(key));
        self.arguments.iter().rfind(is_key).map(|argument| argument.span)
    }
}

/// What a flag means to vLLM, and how many words follow it where that is known.
pub(super) fn meaning(spelling: &str) -> (Option<Key>, Option<Arity>) {
    let key = match spelling.replace('_', "-").as_str() {
        "--model" => Some(Key::ModelPath),
        "--dtype" => Some(Key::Dtype),
        "--tensor-parallel-size" | "--tp" | "-tp" => Some(Key::TpSize),
        "--max-model-len" => Some(Key::ContextLength),
        "--config" => Some(Key::Config),
        _ => None,
    };
    let takes_one = key.is_some() || named(spelling).is_some();
    (key, takes_one.then_some(Arity::One))
}

fn speculation(arguments: &[Argument]) -> Option<VllmSpeculation> {
    let mut found: Option<VllmSpeculation> = None;
    for argument in arguments {
        let known = || argument.values.first().and_then(|value| value.value.known());
        match named(&argument.flag.value) {
            None => {}
            Some(Named::Whole) => {
                let object: Json = serde_json::from_str(known()?).ok()?;
                let text = |field: &str| object.get(field).and_then(Json::as_str).map(str::to_owned);
                let tokens = object.get("num_speculative_tokens").filter(|tokens| !tokens.is_null());
                found = Some(VllmSpeculation {
                    span: argument.values.first().map_or(argument.span, |value| value.span),
                    method: text("method"),
                    model: text("model"),
                    num_speculative_tokens: tokens.and_then(values::integer),
                    gives_tokens: tokens.is_some(),
                });
            }
            Some(Named::Key(key)) => {
                let this =
                    found.get_or_insert_with(|| VllmSpeculation { span: argument.span, ..VllmSpeculation::default() });
                match key {
                    "method" => this.method = known().map(str::to_owned),
                    "model" => this.model = known().map(str::to_owned),
                    "num_speculative_tokens" => {
                        this.num_speculative_tokens = known().and_then(|text| text.trim().parse().ok());
                        this.gives_tokens = true;
                    }
                    _ => {}
                }
            }
        }
    }
    found
}

/// The draft as a setting, so that what is known of it is looked up as for other engines.
pub(super) fn draft_setting(arguments: &[Argument]) -> Option<(Key, Setting)> {
    let VllmSpeculation { span, model, .. } = speculation(arguments)?;
    let value = Located::new(super::Value::Known(model?), span);
    Some((
        Key::SpeculativeDraftModelPath,
        Setting {
            values: vec![value],
            flag: span,
            span,
            value: Some(span),
            spelling: "--speculative-config".into(),
            removal: span,
            writing: Writing::shell(None),
        },
    ))
}
