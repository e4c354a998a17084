//! GPU memory: weights, drafts, KV cache and everything else that must fit.

pub(super) mod sd150_mem_fraction_conflict;
pub(super) mod sd151_mem_fraction_too_low;
pub(super) mod sd152_kv_budget;
pub(super) mod sd153_paged_decode_leak;
pub(super) mod sd154_logits_memory;
