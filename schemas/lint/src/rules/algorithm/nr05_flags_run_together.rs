//! # NR05: flags-run-together
//!
//! Two flags are written as one word.
//!
//! ## What it does
//!
//! Looks for a flag that is directly followed by another one, with no blank between them.
//!
//! ## Why is this bad?
//!
//! Neither of them is recognised.
//!
//! ## What SGLang does
//!
//! argparse stops: `error: unrecognized arguments: --trust-remote-code--mem-fraction-static`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --trust-remote-code--mem-fraction-static 0.8 --speculative-algorithm EAGLE \
//!   --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --trust-remote-code --mem-fraction-static 0.8 --speculative-algorithm EAGLE \
//!   --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All versions.
//!
//! ## Source
//!
//! sglang issue #17576; Python's argparse.

use launch::Argument;
use schemas::{
    diagnostic::{Edit, Safety, Severity},
    text::Span,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR05",
    name: "flags-run-together",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    context.launch.arguments.iter().filter_map(|argument| look(context, argument)).collect()
}

fn look(context: &Context<'_>, argument: &Argument) -> Option<Finding> {
    let second = argument.second_flag(context.launch.engine)?;
    let written = &argument.flag.value;
    let (first, behind) = written.split_at_checked(second)?;
    let span = argument.flag.span;
    // Quotes and escapes would shift the position in the text.
    let plain = span.end - span.start == written.len();
    let edits = match plain {
        true => vec![Edit { span: Span::new(span.start + second, span.start + second), replacement: " ".into() }],
        false => Vec::new(),
    };
    Some(
        Finding::new(span, format!("`{first}` and `{behind}` are written as one word, so neither is read"), "one word")
            .engine_says(context.launch.engine.reference(), format!("error: unrecognized arguments: {written}"))
            .help(format!("write `{first} {behind}`"))
            .fix(Safety::Unsafe, "put a space between them", edits),
    )
}
