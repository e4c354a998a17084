//! # SD017: not-switched-on
//!
//! Settings of speculation without an algorithm: the server runs without speculation.
//!
//! ## What it does
//!
//! Looks for flags that start with `--speculative-` in a launch without `--speculative-algorithm`.
//!
//! ## Why is this bad?
//!
//! Nothing is drafted and the draft is not loaded, although the launch names both. The engine
//! prints no message.
//!
//! ## What SGLang does
//!
//! It ignores the flags. Only `--speculative-use-block-verification` without an algorithm is an
//! error: `ValueError: --speculative-use-block-verification only supports EAGLE / EAGLE3 / NEXTN /
//! DFLASH / DSPARK.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-draft-model-path draft --speculative-num-steps 5 --speculative-num-draft-tokens 6
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-use-block-verification
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6 --attention-backend fa3
//! ```
//!
//! A part of a launch is not reported, because the rest may contain the algorithm:
//!
//! ```launch good version:0.5.23
//! --speculative-num-steps 5 --speculative-num-draft-tokens 6
//! ```
//!
//! ## Versions
//!
//! All versions. Block verification was added in 0.5.22.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py` of 0.5.22 and 0.5.23, `server_args.py` of older
//! versions.

use launch::{Argument, Syntax};
use schemas::{
    diagnostic::Severity,
    engines::Engine,
    flags::{self, Arity, Key},
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD017",
    name: "not-switched-on",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Flags that belong to one algorithm, by the start of their names.
const OF_ALGORITHM: [(&str, &str); 4] = [
    ("speculative-ngram-", "NGRAM"),
    ("speculative-dflash-", "DFLASH"),
    ("speculative-domino-", "DFLASH"),
    ("speculative-dspark-", "DSPARK"),
];

/// The number of further flags that are marked.
const MOST_RELATED: usize = 3;

fn check(context: &Context<'_>) -> Option<Finding> {
    let launch = context.launch;
    // Flags without a model are a part of a launch. slime gives the model elsewhere, so flags that
    // are neither in an array nor behind a program may be an addition to others.
    let is_listed = launch.syntax == Syntax::CommandLine && launch.program.is_empty();
    let is_whole = if launch.engine == Engine::Slime { !is_listed } else { launch.has(Key::ModelPath) };
    if launch.engine == Engine::Spectune || !is_whole || !context.is_absent(Key::SpeculativeAlgorithm) {
        return None;
    }
    let own: Vec<(&Argument, &str)> =
        launch.arguments.iter().filter_map(|argument| Some((argument, name(context, argument)?))).collect();
    // Decoupled speculation is set up by other flags. A misspelt algorithm is reported as an
    // unknown flag.
    let explains = |name: &str| name.contains("decoupled-spec-") || name.starts_with("--speculative-alg");
    if launch.arguments.iter().any(|argument| explains(&argument.flag.value)) {
        return None;
    }
    // A flag without its value shows that the text was read as several launches.
    if own.iter().any(|(argument, name)| argument.values.is_empty() && takes_value(name)) {
        return None;
    }
    let (first, _) = own.iter().find(|(argument, _)| !argument.in_branch)?;
    let algorithm = own.iter().find_map(|(_, name)| {
        OF_ALGORITHM.iter().find(|(start, _)| name.starts_with(start)).map(|(_, algorithm)| *algorithm)
    });
    let message = "speculation is set up but not switched on: no algorithm is given";
    let finding = Finding::new(first.span, message, "not used");
    let others = own.iter().filter(|(argument, _)| argument.span != first.span).take(MOST_RELATED);
    let finding = others.fold(finding, |finding, (other, _)| finding.related(Some(other.span), "nor this"));
    let line = |algorithm: &str| context.line(Key::SpeculativeAlgorithm, algorithm);
    let finding = finding.help(match algorithm {
        Some(algorithm) => format!("add `{}`, or take the flags out", line(algorithm)),
        None => format!(
            "add the draft's algorithm, such as `{}` or `{}`, or take the flags out",
            line("EAGLE3"),
            line("STANDALONE")
        ),
    });
    if context.version() >= V0_5_22 && launch.has(Key::SpeculativeUseBlockVerification) {
        return Some(finding.by_version().sglang_says(
            "ValueError: --speculative-use-block-verification only supports EAGLE / EAGLE3 / NEXTN / DFLASH / DSPARK.",
        ));
    }
    Some(finding.at_most(Severity::Warning))
}

fn takes_value(name: &str) -> bool {
    flags::spelling(name).is_some_and(|flag| matches!(flag.arity, Arity::One | Arity::Several))
}

/// The canonical name of a flag of speculation.
fn name(context: &Context<'_>, argument: &Argument) -> Option<&'static str> {
    context.launch.engine.canonical_flag(&argument.flag.value).filter(|name| name.starts_with("speculative-"))
}
