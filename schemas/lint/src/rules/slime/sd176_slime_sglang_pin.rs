//! # SD176: slime-sglang-pin
//!
//! The launch needs a newer SGLang than the one slime runs on.
//!
//! ## What it does
//!
//! If a version after 0.5.15.post1 is given for a slime launch, looks for flags and algorithms that
//! were added after 0.5.15.post1.
//!
//! ## Why is this bad?
//!
//! slime's images contain 0.5.15.post1 with slime's patches. That version does not have the flag,
//! and slime may not start with a version that has it: slime reads the fields of SGLang's
//! `ServerArgs` as those of a dataclass, which it no longer is in 0.5.23.
//!
//! ## What SGLang does
//!
//! The pinned version stops with `unrecognized arguments` or `Unknown speculative algorithm name`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! SGLANG_ARGS=(
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-speculative-use-block-verification
//!    --sglang-speculative-num-steps 3
//!    --sglang-speculative-eagle-topk 1
//!    --sglang-speculative-num-draft-tokens 4
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//! )
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.15.post1
//! SGLANG_ARGS=(
//!    --sglang-speculative-algorithm EAGLE
//!    --sglang-speculative-num-steps 3
//!    --sglang-speculative-eagle-topk 1
//!    --sglang-speculative-num-draft-tokens 4
//!    --sglang-max-running-requests 64
//!    --sglang-attention-backend fa3
//! )
//! ```
//!
//! ## Versions
//!
//! slime of August 2026. That slime does not start on 0.5.23 is inferred from the source, not
//! tested. Without a version, or with the pinned one, SD001 and SD086 report what it lacks.
//!
//! ## Source
//!
//! slime `docker/Dockerfile`, `slime/backends/sglang_utils/sglang_engine.py`; sglang
//! `server_args.py`.

use launch::Argument;
use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    engines::{Engine, SLIME_PIN},
    flags::{self, Key},
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD176",
    name: "slime-sglang-pin",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let newer = context.resolved.version_given && context.version() > SLIME_PIN;
    if context.launch.engine != Engine::Slime || !newer {
        return Vec::new();
    }
    let flags = context.launch.arguments.iter().filter_map(flag);
    flags.chain(algorithm(context)).collect()
}

fn flag(argument: &Argument) -> Option<Finding> {
    let written = argument.flag.value.as_str();
    let since = flags::spelling(written.strip_prefix("--sglang-")?)?.since?;
    (since > SLIME_PIN).then(|| {
        let message = format!("slime runs on sglang {SLIME_PIN}, which does not have `{written}`");
        advised(Finding::new(argument.flag.span, message, "came later"))
    })
}

fn algorithm(context: &Context<'_>) -> Option<Finding> {
    let algorithm = context.algorithm().filter(|one| matches!(one, Algorithm::Dspark | Algorithm::Uno))?;
    let message = format!("slime runs on sglang {SLIME_PIN}, which does not have {}", algorithm.name());
    Some(advised(Finding::new(context.value_place(Key::SpeculativeAlgorithm), message, "came later")))
}

fn advised(finding: Finding) -> Finding {
    finding
        .note("slime reads sglang's ServerArgs as a dataclass, which it no longer is in 0.5.23")
        .help("do without it, or make sure that your slime runs on the version you named")
}
