//! The launch changed to another shape, by edits of the user's text.

use launch::{Launch, Options, Syntax, parse, resolve::version_of};
use schemas::{
    diagnostic::Edit,
    engines::Engine,
    flags::Key,
    quoting::quoted,
    text::{Source, Span},
    tree::TreeShape,
};
use serde_json::{Map, Value};

use super::{Draft, speculation};
use crate::system::server::vllm_method;

/// Flags that a launch without speculation does not have.
const SPECULATION: [Key; 7] = [
    Key::SpeculativeAlgorithm,
    Key::SpeculativeDraftModelPath,
    Key::SpeculativeNumSteps,
    Key::SpeculativeEagleTopk,
    Key::SpeculativeNumDraftTokens,
    Key::SpeculativeAdaptive,
    Key::SpeculativeAdaptiveConfig,
];

/// A changed launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The whole text with the change, if it can be written there.
    pub text: Option<String>,
    /// The flags that change, as words on a command line; empty if speculation is removed.
    pub flags: String,
}

/// Changes a launch to a shape; [`TreeShape::OFF`](TreeShape) removes speculation.
pub fn rewrite(source: &Source, launch: &Launch, draft: &Draft, shape: TreeShape) -> Rewritten {
    let written = as_written(source, launch).filter(Launch::is_editable);
    let edits = written.as_ref().and_then(|written| match launch.engine {
        Engine::Vllm => edits_of_vllm(source, written, shape),
        Engine::Sglang | Engine::Slime | Engine::Spectune => edits_of_flags(written, draft, shape),
    });
    let text = edits.map(|edits| applied(source.text(), edits));
    // A value may come from elsewhere than where it is used: what was written is read again.
    let text = text.filter(|text| runs(source.name(), text, launch, shape));
    Rewritten { text, flags: flags(launch, draft, shape) }
}

/// The launch of the text alone, without variables from outside, whose values have no place in it.
fn as_written(source: &Source, launch: &Launch) -> Option<Launch> {
    let parsed = parse(source, &Options { engine: Some(launch.engine), ..Options::default() });
    parsed.launches.into_iter().find(|written| written.anchor == launch.anchor)
}

/// The edits of flags; `None` if the value of one comes from outside the text.
fn edits_of_flags(launch: &Launch, draft: &Draft, shape: TreeShape) -> Option<Vec<Edit>> {
    if shape.is_off() {
        return Some(SPECULATION.iter().filter_map(|key| launch.remove(*key)).collect());
    }
    let (version, _) = version_of(launch, None);
    let is_drafts = |key: Key| matches!(key, Key::SpeculativeAlgorithm | Key::SpeculativeDraftModelPath);
    let values = values(draft, shape).filter(|(key, _)| !(is_drafts(*key) && launch.has(*key)));
    let edit = |(key, value): (Key, String)| {
        let is_from_outside = launch.has(key) && launch.text(key).is_none();
        (!is_from_outside).then(|| launch.set(key, version, &value))
    };
    values.map(edit).collect()
}

/// The flags of a draft and a shape.
fn values(draft: &Draft, shape: TreeShape) -> impl Iterator<Item = (Key, String)> {
    let values = [
        (Key::SpeculativeAlgorithm, draft.algorithm.clone()),
        (Key::SpeculativeDraftModelPath, draft.path.clone()),
        (Key::SpeculativeNumSteps, shape.num_steps.to_string()),
        (Key::SpeculativeEagleTopk, shape.topk.to_string()),
        (Key::SpeculativeNumDraftTokens, shape.num_draft_tokens.to_string()),
    ];
    // A draft that is part of the target has no path.
    values.into_iter().filter(|(_, value)| !value.is_empty())
}

/// The edit of vLLM's JSON: its number of drafts, or all of it. `None` if that is not in the text.
fn edits_of_vllm(source: &Source, launch: &Launch, shape: TreeShape) -> Option<Vec<Edit>> {
    let argument = launch.vllm_flag("--speculative-config")?;
    if !shape.is_off() {
        let number = number_after(source, argument.values.first()?.span, "num_speculative_tokens")?;
        return Some(vec![Edit { span: number, replacement: shape.num_steps.to_string() }]);
    }
    // With the blanks and the line continuation before it.
    let before = source.text().get(..argument.span.start)?.trim_end_matches([' ', '\t', '\r', '\n', '\\']);
    let span = Span::new(before.len(), argument.span.end);
    (launch.syntax == Syntax::CommandLine).then(|| vec![Edit { span, replacement: String::new() }])
}

/// The place of the number that a key of JSON has, however the JSON is quoted.
fn number_after(source: &Source, json: Span, key: &str) -> Option<Span> {
    let text = source.slice(json);
    let after = text.find(key)? + key.len();
    let rest = text.get(after..)?;
    let number = rest.trim_start_matches(['\\', '"', '\'', ':', ' ', '\t']);
    let length = number.bytes().take_while(u8::is_ascii_digit).count();
    let start = json.start + after + (rest.len() - number.len());
    (length > 0).then(|| Span::new(start, start + length))
}

/// vLLM's JSON with another number of drafts.
fn configuration(launch: &Launch, shape: TreeShape) -> Option<String> {
    let speculation = launch.vllm_speculation()?;
    let mut keys: Map<String, Value> = Map::new();
    for (name, key) in &speculation.keys {
        keys.insert(name.clone(), key.value.clone()?);
    }
    keys.insert("num_speculative_tokens".into(), shape.num_steps.into());
    Some(Value::Object(keys).to_string())
}

fn flags(launch: &Launch, draft: &Draft, shape: TreeShape) -> String {
    if shape.is_off() {
        return String::new();
    }
    if launch.engine == Engine::Vllm {
        let method = vllm_method(&draft.algorithm).unwrap_or(&draft.algorithm);
        let mut keys = Map::new();
        keys.insert("method".into(), method.into());
        if !draft.path.is_empty() {
            keys.insert("model".into(), draft.path.clone().into());
        }
        keys.insert("num_speculative_tokens".into(), shape.num_steps.into());
        let json = configuration(launch, shape).unwrap_or_else(|| Value::Object(keys).to_string());
        return format!("--speculative-config {}", quoted(&json));
    }
    let (version, _) = version_of(launch, None);
    let flags = values(draft, shape).map(|(key, value)| launch.line(key, version, &quoted(&value)));
    flags.collect::<Vec<_>>().join(" ")
}

/// Applies edits. Of several insertions at one place the first stays the first.
fn applied(text: &str, mut edits: Vec<Edit>) -> String {
    edits.reverse();
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.span.start));
    let mut whole = text.to_owned();
    for edit in edits {
        whole.replace_range(edit.span.start..edit.span.end, &edit.replacement);
    }
    whole
}

/// Whether the changed text has the same launch with the shape.
fn runs(name: &str, text: &str, before: &Launch, shape: TreeShape) -> bool {
    let source = Source::new(name, text);
    let parsed = parse(&source, &Options { engine: Some(before.engine), ..Options::default() });
    let at = before.anchor.start;
    let nearest = parsed.launches.iter().min_by_key(|launch| launch.anchor.start.abs_diff(at));
    nearest.is_some_and(|launch| match speculation::of(launch, None) {
        Ok(found) => found.own == Some(shape),
        Err(_) => shape.is_off(),
    })
}
