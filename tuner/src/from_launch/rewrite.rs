//! The launch changed to another shape and other capture sizes, by edits of the user's text.

use launch::{Launch, Options, Syntax, parse, resolve::version_of};
use schemas::{
    diagnostic::Edit,
    drafting::{sglang_flags, vllm_method},
    engines::Engine,
    flags::Key,
    quoting::quoted,
    text::{Source, Span},
    tree::TreeShape,
    version::EngineVersion,
};
use serde_json::{Map, Value};

use super::{LaunchDraft, speculation};
use crate::trials::configuration::Configuration;

/// A changed launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The whole text with the change, if it can be written there.
    pub text: Option<String>,
    /// The flags that change, as words on a command line; empty if speculation is removed and
    /// nothing else changes.
    pub flags: String,
}

/// Changes a launch to the shape of a configuration, and to its capture sizes if it has some.
/// [`TreeShape::OFF`] removes speculation.
pub fn rewrite(source: &Source, launch: &Launch, draft: &LaunchDraft, to: &Configuration) -> Rewritten {
    let written = as_written(source, launch).filter(Launch::is_editable);
    let edits = written.as_ref().and_then(|written| match launch.engine {
        // Another draft changes the whole JSON.
        Engine::Vllm if !to.shape.is_off() && has_other_draft(launch, draft) => None,
        Engine::Vllm => edits_of_vllm(source, written, to.shape),
        Engine::Sglang | Engine::Slime | Engine::Spectune => edits_of_flags(written, launch, draft, to),
    });
    let text = edits.map(|edits| applied(source.text(), edits));
    // A value may come from elsewhere than where it is used: what was written is read again.
    let text = text.filter(|text| runs(source.name(), text, launch, to));
    Rewritten { text, flags: flags(launch, draft, to) }
}

/// The launch of the text alone, without variables from outside, whose values have no place in it.
fn as_written(source: &Source, launch: &Launch) -> Option<Launch> {
    let parsed = parse(source, &Options { engine: Some(launch.engine), ..Options::default() });
    parsed.launches.into_iter().find(|written| written.anchor == launch.anchor)
}

/// Whether a draft is not the one that a launch has.
fn has_other_draft(launch: &Launch, draft: &LaunchDraft) -> bool {
    speculation::launch_speculation(launch, None).is_ok_and(|own| own.draft != *draft)
}

/// The edits of flags; `None` if the value of one comes from outside the text. `read` is the launch
/// with the variables from outside.
fn edits_of_flags(launch: &Launch, read: &Launch, draft: &LaunchDraft, to: &Configuration) -> Option<Vec<Edit>> {
    let (version, _) = version_of(launch, None);
    let speculative = Key::ALL.iter().filter(|key| is_of_speculation(**key));
    let removed = speculative.filter(|_| to.shape.is_off()).filter_map(|key| launch.remove(*key));
    let is_drafts = |key: Key| matches!(key, Key::SpeculativeAlgorithm | Key::SpeculativeDraftModelPath);
    // The launch's own draft stays as it is written.
    let has = |key: Key, value: &str| read.text(key).is_none_or(|own| own.value.eq_ignore_ascii_case(value));
    let values =
        values(launch, draft, to).filter(|(key, value)| !(is_drafts(*key) && launch.has(*key) && has(*key, value)));
    // A draft that is part of the target has no folder.
    let removed = removed.chain(
        Some(Key::SpeculativeDraftModelPath)
            .filter(|_| !to.shape.is_off() && draft.path.is_empty())
            .and_then(|key| launch.remove(key)),
    );
    let edit = |(key, value): (Key, String)| {
        let is_known = || if key == Key::CudaGraphBs { captures(launch).is_some() } else { launch.text(key).is_some() };
        (!launch.has(key) || is_known()).then(|| launch.set(key, version, &value))
    };
    removed.map(Some).chain(values.map(edit)).collect()
}

/// Whether a launch without speculation does not have a flag.
fn is_of_speculation(key: Key) -> bool {
    key.flag().name.starts_with("speculative-")
}

/// The flags of a draft and a shape, and of capture sizes.
fn values(launch: &Launch, draft: &LaunchDraft, to: &Configuration) -> impl Iterator<Item = (Key, String)> {
    let shape = to.shape;
    let mut of_shape = vec![
        (Key::SpeculativeAlgorithm, draft.algorithm.clone()),
        (Key::SpeculativeDraftModelPath, draft.path.clone()),
    ];
    let numbers = sglang_flags(&draft.algorithm, shape).unwrap_or_default();
    of_shape.extend(numbers.into_iter().map(|(key, number)| (key, number.to_string())));
    // Another number than that of the verified rows is refused.
    let has_block = launch.has(Key::SpeculativeDflashBlockSize);
    of_shape.extend(has_block.then(|| (Key::SpeculativeDflashBlockSize, shape.num_draft_tokens.to_string())));
    let sizes = to.knobs.capture_sizes.iter();
    let sizes =
        sizes.map(|sizes| (Key::CudaGraphBs, sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")));
    // A draft that is part of the target has no path.
    let of_shape = of_shape.into_iter().filter(move |(_, value)| !shape.is_off() && !value.is_empty());
    of_shape.chain(sizes)
}

/// The edit of vLLM's JSON: its number of drafts, or all of it. `None` if that is not in the text.
fn edits_of_vllm(source: &Source, launch: &Launch, shape: TreeShape) -> Option<Vec<Edit>> {
    let argument = launch.argument("speculative-config")?;
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

fn flags(launch: &Launch, draft: &LaunchDraft, to: &Configuration) -> String {
    let shape = to.shape;
    if launch.engine == Engine::Vllm {
        if shape.is_off() {
            return String::new();
        }
        let method = vllm_method(&draft.algorithm).map_or(draft.algorithm.as_str(), |method| method.name);
        let mut keys = Map::new();
        keys.insert("method".into(), method.into());
        if !draft.path.is_empty() {
            keys.insert("model".into(), draft.path.clone().into());
        }
        keys.insert("num_speculative_tokens".into(), shape.num_steps.into());
        let own = configuration(launch, shape).filter(|_| !has_other_draft(launch, draft));
        let json = own.unwrap_or_else(|| Value::Object(keys).to_string());
        return format!("--speculative-config {}", quoted(&json));
    }
    let (version, _) = version_of(launch, None);
    let flags = values(launch, draft, to).map(|(key, value)| line(launch, key, version, &value));
    flags.collect::<Vec<_>>().join(" ")
}

/// A flag as words on a command line; capture sizes are several of them.
fn line(launch: &Launch, key: Key, version: EngineVersion, value: &str) -> String {
    let value = if key == Key::CudaGraphBs { value.to_owned() } else { quoted(value) };
    launch.line(key, version, &value)
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

/// Whether the changed text has the same launch with the shape and the capture sizes.
fn runs(name: &str, text: &str, before: &Launch, to: &Configuration) -> bool {
    let source = Source::new(name, text);
    let parsed = parse(&source, &Options { engine: Some(before.engine), ..Options::default() });
    let at = before.anchor.start;
    let nearest = parsed.launches.iter().min_by_key(|launch| launch.anchor.start.abs_diff(at));
    nearest.is_some_and(|launch| {
        let has_shape = match speculation::launch_speculation(launch, None) {
            Ok(found) => found.own == Some(to.shape),
            Err(_) => to.shape.is_off(),
        };
        has_shape && to.knobs.capture_sizes.as_ref().is_none_or(|sizes| captures(launch).as_ref() == Some(sizes))
    })
}

/// The capture sizes that a launch lists; `None` if they are not all in its text.
fn captures(launch: &Launch) -> Option<Vec<usize>> {
    launch.integers(Key::CudaGraphBs)?.iter().map(|size| usize::try_from(size.value).ok()).collect()
}
