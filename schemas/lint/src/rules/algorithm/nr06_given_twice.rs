//! # NR06: given-twice
//!
//! An option is given twice with different values; the last one counts.
//!
//! ## What it does
//!
//! Looks for a flag that is given twice, possibly under another of its names, with different values.
//!
//! ## Why is this bad?
//!
//! Only one of the two can be intended. Which one takes effect depends only on their order.
//!
//! ## What SGLang does
//!
//! argparse uses the last one.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-eagle-topk 4 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All versions.
//!
//! ## Source
//!
//! sglang issue #8126; Python's argparse.

use launch::Argument;
use schemas::diagnostic::Severity;

use crate::rules::{Applies, Check, Context, Definition, Finding};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR06",
    name: "given-twice",
    severity: Severity::Warning,
    applies: Applies::AnyEngine,
    check: Check::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let arguments = &context.launch.arguments;
    let later = |at: usize, argument: &Argument| {
        arguments[at + 1..].iter().find(|other| other.key.is_some() && other.key == argument.key)
    };
    let finding = |(at, argument): (usize, &Argument)| {
        let later = later(at, argument)?;
        let words = |argument: &Argument| argument.values.iter().map(|word| word.value.written().to_owned()).collect();
        let (first, last): (Vec<String>, Vec<String>) = (words(argument), words(later));
        if first == last {
            return None;
        }
        // A branch that gives another value does so on purpose.
        if argument.in_branch != later.in_branch {
            return None;
        }
        let (flag, first, last) = (&later.flag.value, first.join(" "), last.join(" "));
        let message = format!("`{flag}` is given twice: `{last}` is used, not `{first}`");
        Some(
            Finding::new(argument.span, message, "not used")
                .related(Some(later.span), "this counts")
                .help("remove one of the two"),
        )
    };
    arguments.iter().enumerate().filter(|(_, argument)| argument.key.is_some()).filter_map(finding).collect()
}
