//! # VL30: flag-given-twice
//!
//! A flag is given twice with different values; the last one counts.
//!
//! ## What it does
//!
//! Looks for a flag of vLLM that is given twice, possibly under another of its names, with different values. The same
//! key of a JSON flag counts too (`--speculative-config.method`).
//!
//! ## Why is this bad?
//!
//! Only one of the two can be intended. JSON is not merged: the keys of the first `--speculative-config` are lost.
//!
//! ## What vLLM does
//!
//! It uses the last one. Newer versions log `Found duplicate keys --master-addr`.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --nnodes 2 --master-addr node0 --master-addr 29500
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}' \
//!   --speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --nnodes 2 --master-addr node0 --master-port 29500
//! ```
//!
//! ## Versions
//!
//! All versions.
//!
//! ## Source
//!
//! vLLM `utils/argparse_utils.py`; Python's argparse.

use launch::Argument;
use schemas::{
    diagnostic::Severity,
    flags::{self, Lookup},
    text::shortened,
};

use crate::rules::{Applies, Check, Context, Definition, Finding};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL30",
    name: "flag-given-twice",
    severity: Severity::Warning,
    applies: Applies::Vllm,
    check: Check::Several(check),
};

/// Flags that add to a list each time they are given.
const ADDING: [&str; 1] = ["middleware"];

fn check(context: &Context<'_>) -> Vec<Finding> {
    let names: Vec<(&Argument, String)> =
        context.launch.arguments.iter().filter_map(|argument| Some((argument, name(argument)?))).collect();
    let finding = |(at, (argument, name)): (usize, &(&Argument, String))| {
        let (later, _) = names.get(at + 1..)?.iter().find(|(_, other)| other == name)?;
        let (first, last) = (words(argument), words(later));
        // A branch that gives another value does so on purpose.
        if first == last || argument.in_branch != later.in_branch {
            return None;
        }
        let flag = &later.flag.value;
        let message = format!("`{flag}` is given twice: `{}` is used, not `{}`", shortened(&last), shortened(&first));
        Some(
            Finding::new(argument.span, message, "not used")
                .related(Some(later.span), "this counts")
                .help("remove one of the two"),
        )
    };
    names.iter().enumerate().filter_map(finding).collect()
}

/// The name that identifies a flag, followed by the key of its JSON if it gives one.
fn name(argument: &Argument) -> Option<String> {
    let written = argument.flag.value.strip_prefix("--").filter(|name| !name.starts_with('-'))?;
    let (flag, key) = written.split_once('.').map_or((written, ""), |(flag, key)| (flag, key));
    let flag = flag.replace('_', "-");
    // With `+`, and in a list, the value is added to the others.
    let is_list = !key.is_empty() && argument.values.iter().any(|word| word.value.written().starts_with('['));
    if key.ends_with('+') || is_list || ADDING.contains(&flag.as_str()) {
        return None;
    }
    match flags::vllm().lookup(&flag, None) {
        Lookup::Exact(one) | Lookup::Abbreviation(one) => Some(format!("{}.{key}", one.canonical)),
        Lookup::Ambiguous(_) | Lookup::Unknown => None,
    }
}

fn words(argument: &Argument) -> String {
    argument.values.iter().map(|word| word.value.written()).collect::<Vec<_>>().join(" ")
}
