//! # SD141: dflash-steps
//!
//! DFLASH and DSPARK draft a block at once: steps and topk are not used.
//!
//! ## What it does
//!
//! Looks for `--speculative-num-steps` or `--speculative-eagle-topk` above 1 under DFLASH or
//! DSPARK.
//!
//! ## Why is this bad?
//!
//! The requested value is not the one that runs.
//!
//! ## What SGLang does
//!
//! It forces both to 1, so a tree (topk above 1) runs as a chain; the block size is the number of
//! draft tokens.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --speculative-num-steps 5 --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --speculative-dflash-block-size 8 --attention-backend fa3
//! ```
//!
//! ## Versions
//!
//! Since the algorithms were added; read in 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD141",
    name: "dflash-steps",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let algorithm = context.algorithm().filter(|one| matches!(one, Algorithm::Dflash | Algorithm::Dspark))?;
    let keys = [Key::SpeculativeNumSteps, Key::SpeculativeEagleTopk];
    let given = |key: &Key| context.launch.count(*key).filter(|number| number.value > 1);
    let (key, number) = keys.into_iter().find_map(|key| Some((key, given(&key)?)))?;
    let name = algorithm.name();
    let chain = if key == Key::SpeculativeEagleTopk { "as a chain, " } else { "" };
    let written = context.line(key, &number.value.to_string());
    let message = format!("{name} runs {chain}with 1 instead of `{written}`");
    Some(
        Finding::new(number.span, message, "not used")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts a block at once")
            .help(format!("take `{}` out", context.flag(key))),
    )
}
