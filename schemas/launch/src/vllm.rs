//! vLLM's speculative configuration: the JSON after `--speculative-config`, its keys as separate
//! flags, or the flags of older versions.

mod holes;
mod keys;
pub(super) mod runner;
mod values;

use std::collections::BTreeMap;

use keys::{ConfigFlag, is_config, named};
use schemas::{
    engines::Engine,
    flags::{self, Arity, Key, Lookup},
    text::{Located, Span},
    version::EngineVersion,
};
use serde_json::Value as Json;

use super::{Argument, Launch, Setting, writing::Writing};
pub(super) use values::bad_values;

/// The speculative configuration of a vLLM launch. `None` means not given, or unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VllmSpeculation {
    /// Its span.
    pub span: Span,
    /// For example `eagle3`, `ngram`, `mtp`.
    pub method: Option<String>,
    /// The draft.
    pub model: Option<String>,
    /// Draft tokens per round, without the bonus token.
    pub num_speculative_tokens: Option<i64>,
    /// Whether a number of draft tokens is given, even if its value is unknown.
    pub gives_tokens: bool,
    /// Its keys, with underscores.
    pub keys: BTreeMap<String, VllmKey>,
    /// Whether it may have further keys.
    pub is_open: bool,
    /// Whether it is given by the flags that vLLM had before `--speculative-config`. This does not
    /// say whether a version accepts them.
    pub is_legacy: bool,
}

/// A key of the speculative configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct VllmKey {
    /// Its span, or that of the enclosing JSON.
    pub span: Span,
    /// Its name as written.
    pub written: String,
    /// Its value, if known.
    pub value: Option<Json>,
}

impl VllmSpeculation {
    /// Whether a key is given, or may be.
    pub fn may_give(&self, key: &str) -> bool {
        self.is_open || self.gives(key)
    }

    /// The value of a key, if it is an integer.
    pub fn integer(&self, key: &str) -> Option<i64> {
        values::integer(self.keys.get(key)?.value.as_ref()?)
    }

    /// The value of a key, if it is a number.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.keys.get(key)?.value.as_ref()?.as_f64()
    }

    /// The method that vLLM uses: the given one, or else the one it infers from the draft's name.
    /// `None` if it may be given elsewhere, or if the checkpoint decides.
    pub fn method_in_use(&self) -> Option<&str> {
        if self.may_give("method") {
            return self.method.as_deref();
        }
        let Some(model) = self.model.as_deref() else {
            return (!self.may_give("model")).then_some("draft_model");
        };
        let name = model.to_ascii_lowercase();
        let is_path =
            !name.contains('/') && name.split('.').count() > 1 && name.split('.').all(|part| !part.is_empty());
        Some(match name.as_str() {
            "ngram" | "[ngram]" => "ngram",
            _ if is_path => "custom_class",
            _ if name.contains("eagle-") => "eagle",
            _ if name.contains("eagle3") => "eagle3",
            _ if name.contains("dflash") => "dflash",
            _ if name.contains("dspark") => "dspark",
            // The checkpoint's own config precedes the default, and is unknown here.
            _ if name.contains("mtp") || name.contains("assistant") => return None,
            _ => "draft_model",
        })
    }

    /// Whether the draft that it names, if any, is loaded: look-ups in the text load none.
    pub(crate) fn loads_draft(&self) -> bool {
        !matches!(self.method_in_use(), Some("ngram" | "[ngram]" | "ngram_gpu" | "suffix"))
    }

    /// The value of a key, if it is a string.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.keys.get(key)?.value.as_ref()?.as_str()
    }

    /// The value of a key as JSON, strings without quotes.
    pub fn shown(&self, key: &str) -> Option<String> {
        let value = self.keys.get(key)?.value.as_ref()?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// Whether a key is given; null does not count.
    pub fn gives(&self, key: &str) -> bool {
        self.keys.get(key).is_some_and(|key| key.value != Some(Json::Null))
    }

    fn add(&mut self, name: &str, span: Span, value: Option<Json>) {
        let value = value.filter(|value| !value.as_str().is_some_and(holes::has_hole));
        self.is_open |= holes::has_hole(name);
        self.keys.insert(name.replace('-', "_"), VllmKey { span, written: name.to_owned(), value });
    }
}

impl Launch {
    /// The speculative configuration of a vLLM launch, if it has one that can be parsed.
    pub fn vllm_speculation(&self) -> Option<VllmSpeculation> {
        if self.engine != Engine::Vllm {
            return None;
        }
        let gives_whole =
            || self.arguments.iter().any(|argument| named(&argument.flag.value) == Some(ConfigFlag::Whole));
        let mut found = speculation(&self.arguments)?;
        found.is_open |= !self.is_complete() && !gives_whole();
        found.gives_tokens |= found.is_open;
        Some(found)
    }

    /// Whether a flag gives a speculative configuration, or a key of one, whatever it contains.
    pub fn has_vllm_speculation(&self) -> bool {
        self.arguments.iter().any(|argument| named(&argument.flag.value).is_some())
    }

    /// The span of a key of the speculative configuration that is given as a separate flag.
    pub fn vllm_key_place(&self, key: &str) -> Option<Span> {
        self.vllm_key_argument(key).map(|argument| argument.span)
    }

    /// The flag that gives a key of the speculative configuration by itself.
    pub fn vllm_key_flag(&self, key: &str) -> Option<&str> {
        self.vllm_key_argument(key).map(|argument| argument.flag.value.as_str())
    }

    fn vllm_key_argument(&self, key: &str) -> Option<&Argument> {
        let is_key = |argument: &&Argument| matches!(named(&argument.flag.value), Some(ConfigFlag::Key(own)) if own.replace('-', "_") == key);
        self.arguments.iter().rfind(is_key)
    }

    /// The span of a key in the value of `--speculative-config`, spelled exactly like this.
    pub fn vllm_key_in_config(&self, key: &str) -> Option<Span> {
        let own = |argument: &&Argument| !argument.in_branch && is_config(&argument.flag.value);
        let given: Vec<Argument> = self.arguments.iter().filter(own).cloned().collect();
        speculation(&given)?.keys.get(key).filter(|own| own.written == key).map(|own| own.span)
    }
}

/// The keys that vLLM has too, with its names without dashes.
const KEYS: [(Key, &str); 5] = [
    (Key::ModelPath, "model"),
    (Key::Dtype, "dtype"),
    (Key::TpSize, "tensor-parallel-size"),
    (Key::ContextLength, "max-model-len"),
    (Key::Config, "config"),
];

/// The name of a key's flag, without dashes.
pub(super) fn name_of(key: Key) -> Option<&'static str> {
    KEYS.iter().find(|(own, _)| *own == key).map(|(_, name)| *name)
}

/// Flags that took an optional word in versions before 0.8.5.
const ONCE_OPTIONAL: [&str; 2] = ["enable-chunked-prefill", "multi-step-stream-outputs"];

/// A level of optimisation, or in versions before 0.12 the whole compilation configuration.
const OPTIMIZATION: &str = "-O";

/// The number of words that follow a flag on the command line of `vllm serve`, if known.
pub(super) fn arity(spelling: &str, version: Option<EngineVersion>) -> Option<Arity> {
    let (flag, key) = spelling.split_once('.').map_or((spelling, None), |(flag, key)| (flag, Some(key)));
    if flag == OPTIMIZATION {
        return Some(Arity::One);
    }
    let name = Engine::Vllm.flag_name(flag)?;
    if ONCE_OPTIONAL.contains(&&*name) {
        return Some(Arity::Optional);
    }
    let found = match flags::vllm().lookup(&name, version) {
        Lookup::Unknown | Lookup::Ambiguous(_) if version.is_some() => flags::vllm().lookup(&name, None),
        found => found,
    };
    match found {
        // A key of the flag's JSON.
        Lookup::Exact(_) | Lookup::Abbreviation(_) if key.is_some() => Some(Arity::One),
        Lookup::Exact(spelling) | Lookup::Abbreviation(spelling) => Some(spelling.arity),
        Lookup::Ambiguous(_) | Lookup::Unknown => None,
    }
}

/// The key of a vLLM flag, and the number of words that follow it, if known.
pub(super) fn meaning(spelling: &str) -> (Option<Key>, Option<Arity>) {
    let name = Engine::Vllm.canonical_flag(spelling);
    let key = KEYS.iter().find(|(_, own)| name == Some(*own)).map(|(key, _)| *key);
    let takes_one = key.is_some() || named(spelling).is_some();
    (key, takes_one.then_some(Arity::One))
}

/// vLLM uses the last JSON, and adds the keys that are separate flags (`engine/arg_utils.py`).
fn speculation(arguments: &[Argument]) -> Option<VllmSpeculation> {
    let mut found: Option<VllmSpeculation> = None;
    if let Some(argument) = arguments.iter().rfind(|argument| named(&argument.flag.value) == Some(ConfigFlag::Whole)) {
        let word = argument.values.first()?;
        let whole = found.insert(VllmSpeculation { span: word.span, ..VllmSpeculation::default() });
        for (name, value) in holes::object(&word.value)? {
            whole.add(&name, word.span, Some(value));
        }
    }
    for argument in arguments {
        let Some(ConfigFlag::Key(path)) = named(&argument.flag.value) else { continue };
        let text = argument.known();
        let (name, inside) = path.split_once('.').map_or((path, None), |(name, inside)| (name, Some(inside)));
        let value = match (name.trim_end_matches('+'), inside) {
            ("method" | "model", None) => text.map(Json::from),
            (list, None) if list == name => {
                text.map(|text| serde_json::from_str(text).unwrap_or_else(|_| Json::from(text)))
            }
            _ => None,
        };
        found.get_or_insert_with(|| VllmSpeculation { span: argument.span, ..VllmSpeculation::default() }).add(
            name.trim_end_matches('+'),
            argument.span,
            value,
        );
    }
    let mut found = found?;
    let is_legacy = |argument: &Argument| {
        matches!(argument.flag.value.replace('_', "-").as_str(), "--speculative-model" | "--num-speculative-tokens")
    };
    found.is_legacy = arguments.iter().any(is_legacy) && !arguments.iter().any(|one| is_config(&one.flag.value));
    found.method = found.text("method").map(str::to_owned);
    found.model = found.text("model").map(str::to_owned);
    found.num_speculative_tokens = found.integer("num_speculative_tokens");
    found.gives_tokens = TOKENS.iter().any(|key| found.gives(key));
    Some(found)
}

/// Keys that set the number of drafted tokens.
const TOKENS: [&str; 2] = ["num_speculative_tokens", "num_speculative_tokens_per_batch_size"];

/// The draft as a setting, so that its facts are looked up as for other engines.
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
