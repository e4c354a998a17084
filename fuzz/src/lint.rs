//! The whole path of the linter, from a text to the fixed text.

use schemas::{
    diagnostic::{Diagnostic, fix, tidy},
    launch::{Launch, Options, parse},
    model::{ModelConfig, ModelFacts, published},
    resolve::{resolve, version_of},
    rules::{Context, Selection, lint},
    suppression,
    text::Source,
    version::EngineVersion,
};

use crate::{check_findings, lies_in};

/// What the user gives to the linter in addition to the text.
#[derive(Default)]
pub struct Told {
    /// The target's facts.
    pub target: Option<ModelFacts>,
    /// The draft's facts.
    pub draft: Option<ModelFacts>,
    /// The engine's version.
    pub version: Option<EngineVersion>,
    /// Memory of one GPU in MiB.
    pub gpu_memory: Option<u64>,
    /// Number of requests that are expected to run together.
    pub expected_concurrency: Option<usize>,
}

/// Facts from the text of a config.json.
pub fn facts(text: &str) -> Option<ModelFacts> {
    Some(ModelFacts { config: ModelConfig::parse(text).ok()?, ..ModelFacts::default() })
}

/// Asserts that all spans of a launch are inside its text.
pub fn check_places(source: &Source, launch: &Launch) {
    lies_in(source, launch.span);
    lies_in(source, launch.anchor);
    for argument in &launch.arguments {
        lies_in(source, argument.span);
        lies_in(source, argument.flag.span);
        argument.values.iter().for_each(|value| lies_in(source, value.span));
    }
    for setting in launch.settings.values() {
        lies_in(source, setting.removal);
        setting.value.into_iter().for_each(|span| lies_in(source, span));
    }
}

/// All findings in a text.
pub fn look(source: &Source, told: &Told) -> Vec<Diagnostic> {
    let parsed = parse(source, &Options { engine: None, version: told.version });
    let mut found = parsed.diagnostics;
    for launch in &parsed.launches {
        check_places(source, launch);
        let (target, draft) = published::facts_of(launch);
        let (target, draft) = (told.target.clone().or(target), told.draft.clone().or(draft));
        let (target, draft) = (target.as_ref(), draft.as_ref());
        let (version, given) = version_of(launch, told.version);
        let resolved = resolve(launch, version, given, target, draft, told.gpu_memory);
        let _ = (resolved.table(source), resolved.to_json(source));
        let (expected_concurrency, gpu_memory) = (told.expected_concurrency, told.gpu_memory);
        let context = Context { launch, resolved: &resolved, target, draft, expected_concurrency, gpu_memory };
        found.extend(lint(&context, &Selection::default()));
    }
    let mut found = suppression::apply(source, found, &Selection::default());
    tidy(&mut found);
    found
}

/// Lints a text, fixes it, and lints the fixed text, in which no applicable fix may remain.
pub fn look_and_mend(source: &Source, told: &Told) {
    let found = look(source, told);
    check_findings(source, &found);
    for also_unsafe in [false, true] {
        let mended = fix::until_stable(source, also_unsafe, |source| look(source, told));
        let fixed = Source::new(source.name(), mended.text);
        let left = look(&fixed, told);
        check_findings(&fixed, &left);
        if mended.refused.is_empty() {
            let more = fix::apply(&fixed, &left, also_unsafe);
            assert!(more.applied.is_empty() || more.text == fixed.text(), "a fix is left that could be applied");
        }
    }
}
