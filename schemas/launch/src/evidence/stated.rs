//! What a text states of an engine's version: tags of images, requirements, variables, clones and
//! prose.

use schemas::{
    text::{Located, Span},
    version::EngineVersion,
};

use super::{
    clones::clones,
    version_text::{is_far_from_its_tag, plausible, version_at},
};
use crate::Engine;

/// Maximum number of mentions of an engine that are inspected per text.
const MOST: usize = 1 << 12;

/// A version that a text states, with its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatedVersion {
    pub engine: Engine,
    pub version: Located<EngineVersion>,
}

/// How certain it is that the version is the one that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
    /// An image's tag, a requirement, a variable.
    Tag,
    /// Prose.
    Words,
}

impl StatedVersion {
    /// Whether it applies to a launch of this engine.
    pub fn is_of(&self, engine: Engine) -> bool {
        match engine {
            Engine::Sglang | Engine::Slime => self.engine == Engine::Sglang,
            Engine::Vllm => self.engine == Engine::Vllm,
            Engine::Spectune => false,
        }
    }
}

/// The version in an image's tag: `lmsysorg/sglang:v0.5.9-cu129`.
pub fn version_in_image(image: &str, span: Span) -> Option<StatedVersion> {
    let found = all(image).into_iter().find(|(_, strength)| *strength == Strength::Tag)?.0;
    // Requirements are handled elsewhere.
    (!image.contains("==")).then_some(StatedVersion { version: Located::new(found.version.value, span), ..found })
}

/// The version that a requirement pins: `sglang[all]==0.5.9`.
pub fn version_in_requirement(requirement: &str, span: Span) -> Option<StatedVersion> {
    let (name, version) = requirement.split_once("==")?;
    let engine = match name.split('[').next()?.trim() {
        "sglang" => Engine::Sglang,
        "vllm" => Engine::Vllm,
        _ => return None,
    };
    if version.find(".dev").and_then(|at| version.get(at..)).is_some_and(is_far_from_its_tag) {
        return None;
    }
    Some(StatedVersion { engine, version: Located::new(plausible(version.trim().parse().ok()?)?, span) })
}

/// Every version that a text states.
pub(super) fn all(text: &str) -> Vec<(StatedVersion, Strength)> {
    let mut found: Vec<(StatedVersion, Strength)> = if text.contains("git ") {
        clones(text).into_iter().map(|(engine, version)| (StatedVersion { engine, version }, Strength::Tag)).collect()
    } else {
        Vec::new()
    };
    let bytes = text.as_bytes();
    let begins = |at: &usize| {
        let is = |name: &[u8]| bytes.get(*at..*at + name.len()).is_some_and(|here| here.eq_ignore_ascii_case(name));
        is(b"sgl") || is(b"vllm") || is(b"v1 llm engine")
    };
    for at in (0..bytes.len())
        .filter(|at| matches!(bytes.get(*at), Some(b's' | b'S' | b'v' | b'V')))
        .filter(begins)
        .take(MOST)
    {
        found.extend(stated_at(text, at));
    }
    found
}

/// Names of engines, in lower case; longer ones first.
const NAMES: [(&str, Engine); 6] = [
    ("sglang", Engine::Sglang),
    ("sgl-dev", Engine::Sglang),
    ("sgl", Engine::Sglang),
    // vLLM's first line in a log.
    ("v1 llm engine", Engine::Vllm),
    ("vllm-openai", Engine::Vllm),
    ("vllm", Engine::Vllm),
];

/// Words between an engine's name and its version in reports and logs.
const WORDS: [&str; 6] = [" version", " api server version", " nightlies", " nightly", " docker image", " engine"];

/// Signs that set a version off in prose and tables of Markdown.
const SOFT: [char; 8] = [' ', '*', '|', '(', '`', '"', '\'', ':'];

/// Words before a version of an engine that is not the one that fails.
const PAST: [&str; 18] = [
    "works on",
    "works with",
    "works in",
    "worked on",
    "worked with",
    "worked in",
    "works fine on",
    "fine on",
    "fine in",
    "fine with",
    "back to",
    "downgrade to",
    "downgrading to",
    "downgraded to",
    "not on",
    "not in",
    "regression from",
    "upgraded from",
];

/// Words before a version that has a fault, unlike `fixed in`.
const PRESENT: [&str; 8] =
    ["exists in", "present in", "persists in", "reproduced in", "happens in", "fails in", "broken in", "seen in"];

/// Texts that may occur between an engine's name and the operator before its version.
const SUFFIXES: [&str; 16] = [
    "_image_tag",
    "_docker_tag",
    "_version",
    "_image",
    "_tag",
    "_ver",
    "-version",
    "-rocm",
    "-blackwell",
    "-cpu",
    "-xpu",
    "-dev",
    "[all]",
    "[srt]",
    ".git",
    "-source",
];

fn stated_at(text: &str, at: usize) -> Option<(StatedVersion, Strength)> {
    let rest = text.get(at..)?;
    let lower: String = rest.chars().take(64).map(|letter| letter.to_ascii_lowercase()).collect();
    let (name, engine) = NAMES.into_iter().find(|(name, _)| lower.starts_with(name))?;
    let mut length = name.len();
    while let Some(suffix) =
        SUFFIXES.iter().find(|suffix| lower.get(length..).is_some_and(|rest| rest.starts_with(*suffix)))
    {
        length += suffix.len();
    }
    let rest_of_name = lower.get(length..)?;
    let is_plugin = name == "vllm" && rest_of_name.starts_with("-ascend");
    let words = rest_of_name.trim_start_matches("-ascend").trim_start_matches('*');
    let word = WORDS.iter().find(|word| words.starts_with(*word));
    if is_plugin || word.is_some() {
        length = lower.len() - words.len() + word.map_or(0, |word| word.len());
    }
    let between = lower.get(length..)?;
    let signs = between.find(|letter: char| !"=:+_-/@\"'` {}$*|(".contains(letter))?;
    let (signs, version_text) = between.split_at_checked(signs)?;
    let (version, width) = version_at(version_text)?;
    let version = if is_plugin { without_suffixes(version) } else { version };
    let start = at + length + signs.len();
    // `llm-scaler-vllm:0.21.0` is another vendor's product with its own version numbers.
    if text.get(..at).is_some_and(|before| before.ends_with('-')) {
        return None;
    }
    let stated = StatedVersion { engine, version: Located::new(plausible(version)?, Span::new(start, start + width)) };
    let bare = signs.trim_matches(['"', '\'', '`']);
    let strength = match bare.chars().next() {
        None => return None,
        // An image of the plugin is tagged with the plugin's version.
        Some(_) if is_plugin => Strength::Words,
        // `sgl-0.5` is not the name of a release.
        Some(_) if name == "sgl" && length == name.len() => return None,
        Some(_) if bare.chars().all(|letter| SOFT.contains(&letter) && (letter != ':' || word.is_some())) => {
            Strength::Words
        }
        Some('/') => Strength::Words,
        Some(_) => Strength::Tag,
    };
    let after = text.get(start + width..).unwrap_or_default().trim_start_matches(['`', '*', ' ']);
    // A build follows a plus: `0.27.1+rocm723`.
    let is_build = after.strip_prefix('+').is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
    let open = !is_build
        && ["+", "or ", "and ", "through", "to ", "-0", "~", "–", "later"].iter().any(|word| after.starts_with(word));
    let before = text.get(..at).unwrap_or_default().trim_end_matches(['`', '*', ' ', '(']);
    // `min_vllm_version` is not the version that runs.
    if ["min_", "min-", "minimum_", "minimum", "max_", "old_", "previous_"]
        .iter()
        .any(|word| ends_with_ignoring_case(before, word))
    {
        return None;
    }
    if PAST.iter().any(|word| ends_with_ignoring_case(before, word)) {
        return None;
    }
    let bounds = [">=", "since", "from", "before", "until", "after", "requires", "require", "pre", "than", "in"];
    let is_present = PRESENT.iter().any(|word| ends_with_ignoring_case(before, word));
    let bound = !is_present && bounds.iter().any(|word| ends_with_ignoring_case(before, word));
    (strength == Strength::Tag || !(open || bound)).then_some((stated, strength))
}

/// The version of vLLM that a version of its Ascend plugin is made for, which has the same numbers
/// (its page on versions).
fn without_suffixes(version: EngineVersion) -> EngineVersion {
    EngineVersion { candidate: None, post: None, ..version }
}

fn ends_with_ignoring_case(text: &str, word: &str) -> bool {
    let end = text.len().checked_sub(word.len()).and_then(|start| text.get(start..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(word))
}
