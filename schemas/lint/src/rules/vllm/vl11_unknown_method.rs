//! # VL11: unknown-method
//!
//! This version of vLLM does not have the method, or none has.
//!
//! ## What it does
//!
//! Looks for a `method` that vLLM, or this version of it, does not have: `mtp` was added in 0.11,
//! `dflash` in 0.20, `dspark` in 0.25; `medusa` and `mlp_speculator` were removed in 0.33. Names
//! that end with `_mtp` depend on the model: an unknown one is not checked.
//!
//! ## Why is this bad?
//!
//! vLLM does not start. Names are accepted in lower case only, and some differ from SGLang's.
//!
//! ## What vLLM does
//!
//! `1 validation error for SpeculativeConfig: method: Input should be 'ngram', 'medusa', …`
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "EAGLE3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! NEXTN is SGLang's name for layers that predict several tokens:
//!
//! ```launch bad
//! vllm serve target --spec-method nextn --spec-tokens 1
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "medusa", "model": "heads", "num_speculative_tokens": 3}'
//! ```
//!
//! The type of the draft is the method, if none is given:
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"model": "accelerator", "num_speculative_tokens": 3}'
//! ```
//! ```draft
//! {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator"}
//! ```
//!
//! ```launch bad version:0.20.0 also:VL24,VL25
//! vllm serve target --speculative-config '{"method": "dflash", "model": "draft", "num_speculative_tokens": 7}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! The contents of a variable in the JSON are not checked, and do not hide other findings:
//!
//! ```launch good
//! vllm serve target --speculative-config "{\"method\": \"$METHOD\", \"num_speculative_tokens\": 3}"
//! ```
//!
//! ## Versions
//!
//! 0.10.0 and later; earlier versions did not reject unknown names in every case. The methods were
//! read from {vllm versions}; in a version between two of them, a method that only the later one
//! has may or may not exist, which is information. A name that resembles no known one is a warning:
//! a version that was not read, or a fork, may have it.
//!
//! ## Source
//!
//! vLLM `config/speculative.py`, `SpeculativeMethod`.

use schemas::{
    diagnostic::Severity,
    engines::Engine,
    flags::{self, Speculative, Word},
    text::{Span, distance, shortened},
    version::EngineVersion,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, variants::DraftVariant};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL11",
    name: "unknown-method",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The first version that compares a method with a list. Earlier ones run what they make of the
/// draft.
const FIRST: EngineVersion = EngineVersion::new(0, 10, 0);

/// Methods that came to the list later, and whose drafts earlier versions may run.
const READ_BEFORE: [&str; 4] = ["draft_model", "eagle3", "mimo_mtp", "mtp"];

/// Other engines' names of methods.
const ELSEWHERE: [(&str, &str); 3] = [("nextn", "mtp"), ("standalone", "draft_model"), ("draft", "draft_model")];

/// Maximum edit distance at which a name counts as a typo of a method.
const SLIP: usize = 2;

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    // The type of a draft names its method too.
    let method = context.method_of_type(&config).map(str::to_owned).or(config.method)?;
    let version = context.version();
    let place = context.launch.vllm_key_place("method").unwrap_or(config.span);
    if version < FIRST {
        // A draft of a kind that those versions do not have cannot run, whatever it is called.
        let is_later =
            |word: &&Word| word.since.is_some_and(|since| FIRST < since) && !READ_BEFORE.contains(&word.text);
        return elsewhere(context, Speculative::Method.word(&method).filter(is_later)?, place);
    }
    if let Some(word) = Speculative::Method.word(&method) {
        return elsewhere(context, word, place);
    }
    // Prompt lookup is also accepted in brackets, and a plugin may add methods.
    if method.ends_with("_mtp") || method == "[ngram]" {
        return None;
    }
    let shown = shortened(&method);
    let finding = Finding::new(place, format!("vllm has no method `{shown}`"), "not known");
    // `dflash2` is a kind of draft, and no method.
    let variant = DraftVariant::named(&method);
    Some(match meant(&method).filter(|_| variant.is_none()) {
        None if variant.is_some() => finding.help(variant.map(DraftVariant::runs).unwrap_or_default()),
        Some(known) => finding.help(format!("write `{}`", context.config_pair("method", &format!("\"{known}\"")))),
        None if context.launch.forks.any_of(Engine::Vllm) => return None,
        None => finding
            .at_most(Severity::Warning)
            .note("a version that was not read, or a fork, may have it")
            .help(format!("write one of {}", listed(version))),
    })
}

/// A method that only other versions have.
fn elsewhere(context: &Context<'_>, word: &Word, place: Span) -> Option<Finding> {
    let (version, method) = (context.version(), word.text);
    let message = match (word.since, word.until) {
        (_, Some(gone)) if gone <= version => format!("vllm {version} no longer has the method `{method}`"),
        (Some(since), _) => {
            let before = flags::vllm().versions().iter().rev().find(|read| **read < since)?;
            if version >= since {
                return None;
            }
            if version > *before {
                return Some(between(context, word, [*before, since], place));
            }
            format!("vllm {version} does not have the method `{method}` yet")
        }
        _ => return None,
    };
    let finding = Finding::new(place, message, "not in this version").by_version();
    Some(match word.since.filter(|since| *since > version) {
        Some(since) => finding.help(format!("use vllm {since} or later, or one of {}", listed(version))),
        None => finding.help(format!("write one of {}", listed(version))),
    })
}

/// A method that came between two versions that were read, in a version between them.
fn between(context: &Context<'_>, word: &Word, [before, since]: [EngineVersion; 2], place: Span) -> Finding {
    let (version, method) = (context.version(), word.text);
    Finding::new(place, format!("vllm {version} may not have the method `{method}` yet"), "perhaps not in this version")
        .note(format!("it came between vllm {before} and {since}; on which side {version} lies is not known"))
        .by_version()
        .at_most(Severity::Info)
        .help(format!("use vllm {since} or later, or one of {}", listed(version)))
}

/// The methods of a version, without model-specific ones.
fn listed(version: EngineVersion) -> String {
    let known = Speculative::Method.words_in(version).filter(|method| !method.ends_with("_mtp"));
    known.collect::<Vec<_>>().join(", ")
}

/// The method that a name was probably meant to be.
fn meant(method: &str) -> Option<&'static str> {
    let folded = method.to_ascii_lowercase().replace('-', "_");
    if let Some((_, known)) = ELSEWHERE.iter().find(|(name, _)| *name == folded) {
        return Some(known);
    }
    let near = Speculative::Method.words().map(|known| (distance(known.text, &folded), known.text)).min();
    near.filter(|(far, known)| *far <= SLIP && far * 2 < known.len()).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use super::*;
    use crate::report::{ReportOptions, report_text};

    #[test]
    fn a_method_that_came_between_two_versions_is_a_doubt_there_and_an_error_before() {
        let text = "vllm serve m --speculative-config '{\"method\": \"dflash\", \"model\": \"d\", \"num_speculative_tokens\": 7}'";
        let severity = |version: EngineVersion| {
            let options = ReportOptions { version: Some(version), ..ReportOptions::default() };
            let found = report_text(&Source::new("run.sh", text), &options).findings;
            found.iter().find(|one| one.code == "VL11").map(|one| one.severity)
        };
        assert_eq!(severity(EngineVersion::new(0, 19, 0)), Some(Severity::Error), "0.19.1 does not have it either");
        assert_eq!(severity(EngineVersion::new(0, 20, 1)), Some(Severity::Info));
        assert_eq!(severity(EngineVersion::new(0, 20, 2)), None);
    }

    #[test]
    fn versions_that_compare_no_methods_do_not_run_later_ones_either() {
        let severity = |method: &str, version: EngineVersion| {
            let text = format!(
                "vllm serve m --speculative-config '{{\"method\": \"{method}\", \"model\": \"d\", \"num_speculative_tokens\": 3}}'"
            );
            let options = ReportOptions { version: Some(version), ..ReportOptions::default() };
            let found = report_text(&Source::new("run.sh", text), &options).findings;
            found.iter().find(|one| one.code == "VL11").map(|one| one.severity)
        };
        for version in [EngineVersion::new(0, 8, 5), EngineVersion::new(0, 9, 2)] {
            for method in ["suffix", "dflash", "glm4_moe_mtp"] {
                assert_eq!(severity(method, version), Some(Severity::Error), "{method} in {version}");
            }
            for method in ["eagle", "eagle3", "deepseek_mtp", "mtp", "ngram"] {
                assert_eq!(severity(method, version), None, "{method} in {version}");
            }
        }
    }
}
