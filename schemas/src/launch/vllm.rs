//! vLLM's speculative configuration: the JSON behind `--speculative-config`, or the flags of older versions.

use serde_json::Value as Json;

use super::{Argument, Launch, Setting, writing::Writing};
use crate::{
    flags::Key,
    launch::Engine,
    text::{Located, Span},
};

/// What a vLLM launch says of speculation. A `None` is not given.
#[derive(Clone, Debug, PartialEq)]
pub struct VllmSpeculation {
    /// Where it stands.
    pub span: Span,
    /// Such as `eagle3`, `ngram`, `mtp`.
    pub method: Option<String>,
    /// The draft.
    pub model: Option<String>,
    /// Draft tokens a round, the bonus token not counted.
    pub num_speculative_tokens: Option<u64>,
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
        self.arguments.iter().find(|argument| dashed(argument) == name)
    }
}

/// A flag's name with dashes for underscores: vLLM takes both.
fn dashed(argument: &Argument) -> String {
    argument.flag.value.replace('_', "-")
}

fn speculation(arguments: &[Argument]) -> Option<VllmSpeculation> {
    let known = |argument: &Argument| Some(argument.values.first()?.value.known()?.to_owned());
    let mut found: Option<VllmSpeculation> = None;
    for argument in arguments {
        let name = dashed(argument);
        let empty = || VllmSpeculation { span: argument.span, method: None, model: None, num_speculative_tokens: None };
        if name == "--speculative-config" {
            let object: Json = serde_json::from_str(&known(argument)?).ok()?;
            let text = |field: &str| object.get(field).and_then(Json::as_str).map(str::to_owned);
            found = Some(VllmSpeculation {
                span: argument.values.first().map_or(argument.span, |value| value.span),
                method: text("method"),
                model: text("model"),
                num_speculative_tokens: object.get("num_speculative_tokens").and_then(Json::as_u64),
            });
            continue;
        }
        let field = match name.strip_prefix("--speculative-config.") {
            Some(field) => field.replace('-', "_"),
            None if name == "--speculative-model" => "model".to_owned(),
            None if name == "--num-speculative-tokens" => "num_speculative_tokens".to_owned(),
            None => continue,
        };
        let Some(value) = known(argument) else { continue };
        let this = found.get_or_insert_with(empty);
        match field.as_str() {
            "method" => this.method = Some(value),
            "model" => this.model = Some(value),
            "num_speculative_tokens" => this.num_speculative_tokens = value.parse().ok(),
            _ => {}
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
