//! # SD117: not-bitwise
//!
//! Reproducible output need not equal the output without speculation.
//!
//! ## What it does
//!
//! Looks for `--enable-deterministic-inference` or `--rl-on-policy-target`, which suggest that
//! identical output is expected, under speculation.
//!
//! ## Why is this bad?
//!
//! This is not an error, but a test that compares bits fails. Verification computes several tokens
//! of a request at once, with different kernels and orders of summation than for one token at a
//! time. If two tokens are nearly equally likely, the other one can win.
//!
//! ## What SGLang does
//!
//! Without these switches, on an H200 with 0.5.16, greedy output with a chain was equal to that
//! without speculation in 93 to 100% of the requests; with a tree, in 52 to 70% in bfloat16 and in
//! 90 to 95% in float16. That is rounding, not wrong acceptance.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --enable-deterministic-inference
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All; what the switches add to these numbers was not measured.
//!
//! ## Source
//!
//! Measured; sglang `arg_groups/validation_hook.py`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD117",
    name: "not-bitwise",
    severity: Severity::Info,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let wanted = [Key::EnableDeterministicInference, Key::RlOnPolicyTarget];
    let key = wanted.into_iter().find(|key| context.launch.has(*key))?;
    let tree = context.resolved.topk.as_ref().is_some_and(|topk| topk.value > 1);
    let finding = Finding::new(
        context.place(key),
        "the output may differ from that without speculation where two tokens are nearly equal",
        "repeats itself, no more",
    )
    .related(context.span(Key::SpeculativeAlgorithm), "verifies several tokens at once");
    Some(if tree {
        let chain = context.line(Key::SpeculativeEagleTopk, "1");
        finding.help(format!("write `{chain}`: chains differ far less often than trees"))
    } else {
        finding
    })
}
