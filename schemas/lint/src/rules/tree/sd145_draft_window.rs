//! # SD145: draft-window
//!
//! The draft's window or sink has no effect here, or is invalid.
//!
//! ## What it does
//!
//! Looks for `--speculative-draft-window-size` under an algorithm other than EAGLE, EAGLE3 and
//! DFLASH, or below 1, and for `--speculative-draft-sink-size` without a window or below 0. A
//! window shorter than a DFLASH block is another finding (SD140).
//!
//! ## Why is this bad?
//!
//! The requested value is not the one that runs, or the server does not start.
//!
//! ## What SGLang does
//!
//! A window below 1 is a ValueError, and so is a sink without a window; other algorithms ignore
//! them.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --speculative-draft-window-size 1024 --max-running-requests 16 \
//!   --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-window-size 1024 --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Since the flags were added (0.5.12, the sink in 0.5.21); read in 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD145",
    name: "draft-window",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    [window(context), sink(context)].into_iter().flatten().collect()
}

fn window(context: &Context<'_>) -> Option<Finding> {
    let key = Key::SpeculativeDraftWindowSize;
    let place = context.span(key)?;
    let algorithm = context.algorithm()?;
    let reads = matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3 | Algorithm::Dflash);
    let size = context.launch.integer(key).map(|size| size.value);
    let (message, harm) = match size {
        Some(size) if size < 1 => (format!("a window of {size} is not possible"), Severity::Error),
        _ if !reads => (format!("{} does not read the draft's window", algorithm.name()), Severity::Warning),
        _ => return None,
    };
    let finding = Finding::new(place, message, if harm == Severity::Error { "refused" } else { "no effect" });
    Some(finding.at_most(harm).help(format!("take `{}` out", context.flag(key))))
}

fn sink(context: &Context<'_>) -> Option<Finding> {
    let argument = context.argument("speculative-draft-sink-size")?;
    let (place, written) = (argument.span, &argument.flag.value);
    let size = argument.known().and_then(|value| value.parse::<i64>().ok());
    let alone = context.is_absent(Key::SpeculativeDraftWindowSize);
    let (message, says) = match size {
        Some(size) if size < 0 => (
            format!("a sink of {size} tokens is not possible"),
            "ValueError: --speculative-draft-sink-size must be non-negative",
        ),
        _ if alone => (
            "the draft's sink is set without a window".to_owned(),
            "ValueError: --speculative-draft-sink-size requires --speculative-draft-window-size.",
        ),
        _ => return None,
    };
    Some(
        Finding::new(place, message, "refused")
            .sglang_says(says)
            .help(format!("add `{}`, or take `{written}` out", context.line(Key::SpeculativeDraftWindowSize, "1024"))),
    )
}
