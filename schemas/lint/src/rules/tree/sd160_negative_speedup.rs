//! # SD160: negative-speedup
//!
//! Speculation seldom pays off with this many concurrent requests.
//!
//! ## What it does
//!
//! If the expected concurrency is known (`--expected-concurrency`), checks whether it is above 64.
//!
//! ## Why is this bad?
//!
//! Speculation trades arithmetic for latency. With few requests a GPU has arithmetic to spare,
//! since reading the weights takes the time anyway; with many requests it does not, and verifying
//! rejected drafts takes time from other requests.
//!
//! ## What SGLang does
//!
//! It runs. Losses have been reported for rollouts of 256 requests on an H20 (half the throughput),
//! for a 32B model on four GPUs, and for RL training of an 8B model; SGLang's maintainers say that
//! speculation is for small batches.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9 concurrency:256
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 256 --attention-backend fa3 \
//!   --cuda-graph-max-bs 256 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9 concurrency:8
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 256 --attention-backend fa3 \
//!   --cuda-graph-max-bs 256 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All; the break-even point depends on the GPU and the models, so measure: `spectune sweep`.
//!
//! ## Source
//!
//! sglang issues #6949, #11948, #4847; slime PR #277; verl documentation.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD160",
    name: "negative-speedup",
    severity: Severity::Warning,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

/// Concurrency at which speculation has seldom paid in published measurements.
const MANY: usize = 64;

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let expected = context.expected_concurrency.filter(|expected| *expected > MANY)?;
    let message =
        format!("speculation seldom pays at {expected} concurrent requests: measure it against no speculation");
    Some(
        Finding::new(context.value_place(Key::SpeculativeAlgorithm), message, "for small batches")
            .related(context.span(Key::MaxRunningRequests), "the most that run together")
            .help("compare with no speculation at your load (`spectune sweep`), or use it while few requests run only"),
    )
}
