//! # VL20: vllm-value-not-accepted
//!
//! The parser of this version rejects a flag's value.
//!
//! ## What it does
//!
//! Compares the values of each flag with the list and the type that the version's parser registers.
//! If the version is not stated, a value that an older version takes, with every flag of the
//! launch, is information.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What vLLM does
//!
//! argparse stops: `error: argument --dtype: invalid choice: 'fp16' (choose from auto, bfloat16,
//! float, …)`. Quantisation methods, load formats and parsers, which plugins can extend, are not
//! checked.
//!
//! ## Example
//!
//! ```launch bad version:0.33.0
//! vllm serve target --dtype fp16 --speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.33.0
//! vllm serve target --dtype float16 --speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'
//! ```
//!
//! ## Versions
//!
//! The lists were read from {vllm versions}.
//!
//! ## Source
//!
//! vLLM `engine/arg_utils.py`, `config/`, `entrypoints/*/cli_args.py`.

use schemas::{diagnostic::Severity, flags};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, accepted::refused};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL20",
    name: "vllm-value-not-accepted",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let arguments = context.launch.arguments.iter().filter(|argument| !argument.is_positional());
    let found = arguments.filter_map(|argument| {
        let name = argument.flag.value.strip_prefix("--").filter(|name| !name.contains('.'))?.replace('_', "-");
        // A key of the speculative configuration; its values are checked by another rule.
        if name.starts_with("spec-") {
            return None;
        }
        refused(context, flags::vllm(), argument, &name)
    });
    found.collect()
}
