//! # NR06: given-twice
//!
//! An option is given twice with different values; the last one counts.
//!
//! ## What it does
//!
//! Looks for a flag that is given twice, possibly under another of its names, with different
//! values. For vLLM the same key of a JSON flag counts too (`--speculative-config.method`). A
//! Python call that gives a keyword twice, by itself and in a dictionary, is an error, whatever the
//! values.
//!
//! ## Why is this bad?
//!
//! Only one of the two can be intended. Which one takes effect depends only on their order. JSON is
//! not merged: the keys of the first `--speculative-config` are lost.
//!
//! ## What SGLang does
//!
//! argparse uses the last one, as in vLLM. Newer versions of vLLM log
//! `Found duplicate keys --master-addr`. A call ends with `TypeError: … got multiple values for
//! keyword argument …`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-eagle-topk 4 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch bad
//! vllm serve target --tensor-parallel-size 2 --nnodes 2 --master-addr node0 --master-addr 29500
//! ```
//!
//! ```launch bad
//! vllm serve target --tensor-parallel-size 2 --max-model-len 4096 -tp 4
//! ```
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}' \
//!   --speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch good
//! vllm serve target --tensor-parallel-size 2 --nnodes 2 --master-addr node0 --master-port 29500
//! ```
//!
//! ## Versions
//!
//! All versions.
//!
//! ## Source
//!
//! sglang issue #8126; vLLM `utils/argparse_utils.py`; Python's argparse.

use launch::Argument;
use schemas::{
    diagnostic::Severity,
    engines::Engine,
    flags::{self, Key, Lookup},
    keywords::Callee,
    text::shortened,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR06",
    name: "given-twice",
    severity: Severity::Error,
    applies: Applies::All,
    check: RuleCheck::Several(check),
};

/// Flags of vLLM that add to a list each time they are given.
const ADDING: [&str; 1] = ["middleware"];

/// What identifies an option.
#[derive(PartialEq, Eq)]
enum FlagIdentity {
    Known(Key),
    /// A flag by its full name, with the key of its JSON if it gives one.
    Named(&'static str, String),
}

fn check(context: &Context<'_>) -> Vec<Finding> {
    let is_vllm = context.launch.engine == Engine::Vllm;
    let engine = context.launch.engine;
    let identity = |argument| if is_vllm { from_vllm(argument) } else { from_sglang(argument, engine) };
    let named: Vec<(&Argument, FlagIdentity)> =
        context.launch.arguments.iter().filter_map(|argument| Some((argument, identity(argument)?))).collect();
    let finding = |(at, (argument, identity)): (usize, &(&Argument, FlagIdentity))| {
        // The next one, not the last: of three, each pair is reported once.
        let (later, _) = named.get(at + 1..)?.iter().find(|(_, other)| other == identity)?;
        let (first, last) = (words(argument), words(later));
        if let Some(callee) = context.launch.callee {
            return Some(repeated(callee, argument, later));
        }
        // A branch that gives another value does so on purpose.
        if first == last || argument.in_branch != later.in_branch {
            return None;
        }
        let flag = &later.flag.value;
        let message = format!("`{flag}` is given twice: `{}` is used, not `{}`", shortened(&last), shortened(&first));
        Some(
            Finding::new(argument.span, message, "not used")
                .at_most(Severity::Warning)
                .related(Some(later.span), "this counts")
                .help("remove one of the two"),
        )
    };
    named.iter().enumerate().filter_map(finding).collect()
}

/// A keyword of a call that is given twice.
fn repeated(callee: Callee, argument: &Argument, later: &Argument) -> Finding {
    let name = later.named(Some(callee));
    Finding::new(argument.span, format!("the call gives `{name}` twice"), "once")
        .related(Some(later.span), "again")
        .note(format!(
            "Python says: `got multiple values for keyword argument '{name}'`, or `keyword argument repeated`"
        ))
        .help("remove one of the two")
}

fn from_sglang(argument: &Argument, engine: Engine) -> Option<FlagIdentity> {
    if let Some(key) = argument.key {
        return Some(FlagIdentity::Known(key));
    }
    match flags::lookup(&engine.flag_name(&argument.flag.value)?, None) {
        // An abbreviation of an unknown flag may stand for several; another rule reports that.
        Lookup::Exact(one) if engine != Engine::Spectune => Some(FlagIdentity::Named(one.canonical, String::new())),
        _ => None,
    }
}

fn from_vllm(argument: &Argument) -> Option<FlagIdentity> {
    let written = Engine::Vllm.flag_name(&argument.flag.value)?;
    // vLLM writes a key of a JSON object as `--flag.key`; different keys do not replace one
    // another.
    let (flag, key) = written.split_once('.').unwrap_or((&written, ""));
    // With `+`, and in a list, the value is added to the others.
    let is_list = !key.is_empty() && argument.values.iter().any(|word| word.value.written().starts_with('['));
    if key.ends_with('+') || is_list || ADDING.contains(&flag) {
        return None;
    }
    match flags::vllm().lookup(flag, None) {
        Lookup::Exact(one) | Lookup::Abbreviation(one) => Some(FlagIdentity::Named(one.canonical, key.to_owned())),
        Lookup::Ambiguous(_) | Lookup::Unknown => None,
    }
}

fn words(argument: &Argument) -> String {
    argument.values.iter().map(|word| word.value.written()).collect::<Vec<_>>().join(" ")
}
