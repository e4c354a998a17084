//! The whole path of the linter, from a text to the fixed text.

use launch::{Launch, parse};
use lint::{published_models, report::{ReportOptions, Report, report}};
use schemas::{diagnostic::{Diagnostic, fix}, model::{ModelConfig, ModelFacts}, text::Source, version::EngineVersion};

use crate::{check_findings, lies_in};

/// What the user gives to the linter in addition to the text.
#[derive(Default)]
pub struct Conditions {
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
pub fn look(source: &Source, conditions: &Conditions) -> Vec<Diagnostic> {
    let Conditions { version, gpu_memory, expected_concurrency, .. } = *conditions;
    let parsed = parse(source, &launch::Options { version, ..launch::Options::default() });
    parsed.launches.iter().for_each(|launch| check_places(source, launch));
    let models = |launch: &Launch| {
        let (target, draft) = published_models::facts_of(launch);
        (conditions.target.clone().or(target), conditions.draft.clone().or(draft))
    };
    let options = ReportOptions { version, gpu_memory, expected_concurrency, ..ReportOptions::default() };
    let Report { findings, resolved, .. } = report(source, parsed, models, &options);
    for resolved in &resolved {
        let _ = (resolved.table(source), resolved.to_json(source));
    }
    findings
}

/// Lints a text, fixes it, and lints the fixed text, in which no applicable fix may remain.
pub fn look_and_mend(source: &Source, conditions: &Conditions) {
    let found = look(source, conditions);
    check_findings(source, &found);
    for also_unsafe in [false, true] {
        let outcome = fix::until_stable(source, also_unsafe, |source| look(source, conditions));
        let fixed = Source::new(source.name(), outcome.text);
        let left = look(&fixed, conditions);
        check_findings(&fixed, &left);
        if outcome.refused.is_empty() {
            let more = fix::apply(&fixed, &left, also_unsafe);
            assert!(more.applied.is_empty() || more.text == fixed.text(), "a fix is left that could be applied");
        }
    }
}
