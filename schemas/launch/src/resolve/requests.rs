//! Tokens and KV slots of a request that are set aside for drafts.

use schemas::version::EngineVersion;

use super::{Algorithm, Decided, Given, Resolved};

/// From here on requests whose drafts would exceed the context are refused.
const V0_5_9: EngineVersion = EngineVersion::new(0, 5, 9);
/// From here on every algorithm reserves for two rounds, trees and pages included.
const V0_5_15: EngineVersion = EngineVersion::new(0, 5, 15);

/// Maximum number of tokens of a request, prompt and output together: the context minus the slots
/// of the drafts.
pub(super) fn usable_context(given: &Given<'_>, resolved: &Resolved) -> Option<Decided<usize>> {
    let context = resolved.context_length.as_ref()?;
    let algorithm = match (&resolved.algorithm, resolved.speculative) {
        (Some(algorithm), _) => Some(algorithm.value),
        (None, true) => return None,
        (None, false) => None,
    };
    let whole = |reason: &str| Some(Decided::default(context.value, reason, "sglang managers/utils.py"));
    match algorithm {
        Some(Algorithm::Eagle | Algorithm::Eagle3) if given.version >= V0_5_9 => {
            let drafts = slots_of_a_round(resolved, 1)?;
            let reason =
                format!("the context but for the {drafts} slots of the drafts: max(topk × steps, draft tokens)");
            Some(Decided::default(context.value.saturating_sub(drafts), reason, "sglang managers/utils.py"))
        }
        Some(Algorithm::Eagle | Algorithm::Eagle3) => whole("this version counts no drafts"),
        Some(_) => whole("drafts of this algorithm do not count"),
        None => whole("no drafts"),
    }
}

/// KV slots reserved for each running request in addition to those of its own tokens; `None` if the
/// version's rule is not known.
pub(super) fn reserved_slots(given: &Given<'_>, resolved: &Resolved) -> Option<Decided<usize>> {
    let algorithm = resolved.algorithm.as_ref()?.value;
    let chain = resolved.topk.as_ref().is_some_and(|topk| topk.value == 1);
    if given.version < V0_5_9 || (given.version < V0_5_15 && !chain) {
        return None;
    }
    let page = if algorithm == Algorithm::Ngram { 1 } else { resolved.page_size.as_ref()?.value };
    let (slots, reason) = match algorithm {
        Algorithm::Uno => {
            (resolved.num_draft_tokens.as_ref()?.value.checked_add(1)?, "the draft tokens and a separate root")
        }
        _ if page > 1 && !chain => (slots_of_a_round(resolved, page)?, "whole pages of every branch"),
        _ => (slots_of_a_round(resolved, 1)?, "max(topk × steps, draft tokens)"),
    };
    let reason = format!("two rounds, for overlap, of {slots} slots: {reason}");
    Some(Decided::default(slots.checked_mul(2)?, reason, "sglang mem_cache/allocation_sizing.py"))
}

fn slots_of_a_round(resolved: &Resolved, page: usize) -> Option<usize> {
    let (steps, topk) = (resolved.num_steps.as_ref()?.value, resolved.topk.as_ref()?.value);
    let branch = match page {
        0 | 1 => steps,
        _ => steps.checked_add(2 * (page - 1))? / page * page,
    };
    Some(branch.checked_mul(topk)?.max(resolved.num_draft_tokens.as_ref()?.value))
}
