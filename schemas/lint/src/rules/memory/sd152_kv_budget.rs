//! # SD152: kv-budget
//!
//! The slots reserved for drafts use up the KV cache.
//!
//! ## What it does
//!
//! Compares the tokens that the KV cache holds with those that running requests reserve for their
//! drafts: twice max(topk × steps, draft tokens) each, in whole pages for every branch. It reports
//! a reserve of more than half of the cache, or a cache in which one request of full length does
//! not fit. It needs `--max-total-tokens`, or the GPU (`--gpu-memory`) and the models' sizes.
//!
//! ## Why is this bad?
//!
//! Fewer requests run than the limit says, and running ones are retracted and computed again.
//!
//! ## What SGLang does
//!
//! Nothing at the start. Under load it logs `KV cache pool is full. Retract requests.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64 --max-running-requests 64 \
//!   --attention-backend fa3 --max-total-tokens 4500
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 64 \
//!   --attention-backend fa3 --max-total-tokens 4500
//! ```
//!
//! ## Versions
//!
//! From 0.5.15 on; chains from 0.5.9 on. The reserve of earlier versions is unknown.
//!
//! ## Source
//!
//! sglang `mem_cache/allocation_sizing.py`, `model_executor/pool_configurator.py`. The thresholds
//! are spectune's own judgement.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD152",
    name: "kv-budget",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let resolved = context.resolved;
    let capped = context.launch.count(Key::MaxTotalTokens).map(|cap| cap.value);
    let estimated = resolved.memory.as_ref().and_then(|memory| usize::try_from(memory.kv_tokens?).ok());
    let (tokens, how) = match (estimated, capped) {
        (Some(tokens), Some(cap)) if tokens < cap => (tokens, "an estimate"),
        (_, Some(cap)) => (cap, "as written"),
        (Some(tokens), None) => (tokens, "an estimate"),
        (None, None) => return None,
    };
    let each = resolved.reserved_slots.as_ref()?.value;
    let running = context.requests_per_worker()?;
    let reserved = running.saturating_mul(each);
    let place = if capped == Some(tokens) { Key::MaxTotalTokens } else { Key::MaxRunningRequests };
    let finding = if reserved.saturating_mul(2) > tokens {
        let message =
            format!("{running} requests keep {reserved} of the {tokens} tokens of the KV cache free for drafts");
        Finding::new(context.value_place(place), message, format!("{each} slots each, {how}")).help(format!(
            "use a smaller tree, or `{}`",
            context.line(Key::MaxRunningRequests, &(tokens / each.max(1) / 4).max(1).to_string())
        ))
    } else {
        let length = resolved.usable_context.as_ref()?.value;
        if length <= tokens || !context.launch.has(Key::ContextLength) {
            return None;
        }
        let message = format!("a request may have {length} tokens, and the KV cache holds {tokens}");
        Finding::new(context.value_place(Key::ContextLength), message, format!("the cache is {how}"))
            .help(format!("write `{}` or less", context.line(Key::ContextLength, &tokens.to_string())))
    };
    Some(
        finding.related(
            context.span(Key::SpeculativeNumDraftTokens),
            "twice max(topk × steps, draft tokens) are reserved",
        ),
    )
}
