//! # SD036: tree-at-high-concurrency
//!
//! A large tree is verified for many requests at once.
//!
//! ## What it does
//!
//! If the expected concurrency is known (`--expected-concurrency`) and above 8, looks for topk
//! above 1 or at least 16 draft tokens.
//!
//! ## Why is this bad?
//!
//! Each round verifies requests × draft tokens rows. With few requests these rows are nearly free,
//! because reading the weights takes the time anyway; with many requests, the rejected rows cost
//! time that other requests could have used, and decoding becomes slower than without speculation.
//!
//! ## What SGLang does
//!
//! It runs, slowly. Measured by others: 6 steps, topk 10, 32 draft tokens are slower than no
//! speculation with more than one request in parallel on an A800; on an H20 with a 70B model 2/4/4
//! and 1/2/2 give 0.52 and 0.56 requests per second, against 0.62 without speculation.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9 concurrency:48
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend fa3 --max-running-requests 48 \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 32
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9 concurrency:48
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend fa3 --max-running-requests 48 \
//!   --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3
//! ```
//!
//! ```launch good version:0.5.9 concurrency:2
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend fa3 --max-running-requests 48 \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 32
//! ```
//!
//! ## Versions
//!
//! All; when a tree pays off depends on the GPU and the models, so measure: `spectune sweep`.
//!
//! ## Source
//!
//! EAGLE issue #298; sglang PR #6995.

use schemas::{diagnostic::Severity, flags::Key};

use super::GivenShape;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD036",
    name: "tree-at-high-concurrency",
    severity: Severity::Warning,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

/// Maximum concurrency at which a tree has paid in published measurements.
const FEW: usize = 8;
/// Number of draft tokens from which a chain also counts as large.
const MANY_TOKENS: usize = 16;

fn check(context: &Context<'_>) -> Option<Finding> {
    let shape = GivenShape::from_context(context)?;
    let expected = context.expected_concurrency?;
    let limit = context.resolved.max_running_requests.as_ref().map_or(expected, |limit| limit.value);
    let requests = expected.min(limit);
    if requests <= FEW || (shape.topk < 2 && shape.num_draft_tokens < MANY_TOKENS) {
        return None;
    }
    let rows = requests.saturating_mul(shape.num_draft_tokens);
    let message = format!(
        "{requests} requests × {} draft tokens = {rows} rows to verify in each round: likely slower than no \
         speculation",
        shape.num_draft_tokens
    );
    let key = Key::SpeculativeNumDraftTokens;
    let place = context.span(key).or(context.span(Key::SpeculativeAlgorithm)).unwrap_or(context.launch.anchor);
    Some(
        Finding::new(place, message, "of which few are accepted")
            .related(context.span(Key::SpeculativeEagleTopk), format!("topk {}", shape.topk))
            .note("trees pay off with few concurrent requests; the limit depends on GPU and models (`spectune sweep` measures it)")
            .help(format!(
                "draft a short chain: `{}`, `{}`, `{}`",
                context.line(Key::SpeculativeNumSteps, "2"),
                context.line(Key::SpeculativeEagleTopk, "1"),
                context.line(key, "3")
            )),
    )
}
