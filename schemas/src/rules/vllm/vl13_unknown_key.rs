//! # VL13: unknown-key
//!
//! No version of vLLM that was read has the key.
//!
//! ## What it does
//!
//! Looks for keys of the speculative configuration that are none of vLLM's.
//!
//! ## Why is this bad?
//!
//! vLLM does not start: it refuses keys that it does not have. So it does with `tensor_parallel_size`, which is a flag of the
//! target.
//!
//! ## What vLLM does
//!
//! `1 validation error for SpeculativeConfig: Unexpected keyword argument`, or `'tensor_parallel_size' is not a valid argument in
//! the speculative_config. Please pass 'draft_tensor_parallel_size' instead.`
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_token": 3}'
//! ```
//!
//! ```launch bad
//! vllm serve target --spec-method eagle3 --spec-model draft --spec-tokens 3 --speculative-config.tensor_parallel_size 1
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
//! ```
//!
//! Dashes are taken for underscores:
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "mtp", "num-speculative-tokens": 3}'
//! ```
//!
//! ## Versions
//!
//! 0.33.0. Older versions may ignore such keys, which is a warning. A name that is far from all that are known is one too: a
//! version that nobody read, or a fork, may have it.
//!
//! ## Source
//!
//! vLLM `config/speculative.py`, `config/utils.py` and `engine/arg_utils.py` of 0.33.0.

use crate::{
    diagnostic::Severity,
    rules::{Applies, Check, Context, Finding, Rule},
    text::distance,
    version::EngineVersion,
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "VL13",
    name: "unknown-key",
    severity: Severity::Error,
    applies: Applies::Vllm,
    file: include_str!("vl13_unknown_key.rs"),
    check: Check::One(check),
};

/// The version that was read.
const READ: EngineVersion = EngineVersion::new(0, 33, 0);

/// The keys of 0.33.0, and those that it no longer has.
const KEYS: &[&str] = &[
    "acceptance_method",
    "attention_backend",
    "code_revision",
    "disable_by_batch_size",
    "disable_eagle_block_drop",
    "disable_log_stats",
    "disable_logprobs",
    "disable_lookahead_block_hashes",
    "disable_mqa_scorer",
    "disable_padded_drafter_batch",
    "draft_lm_head_quantization",
    "draft_load_config",
    "draft_model_config",
    "draft_parallel_config",
    "draft_sample_method",
    "draft_tensor_parallel_size",
    "dspark_draft_topk",
    "enable_adaptive_verification",
    "enable_chunked_prefill",
    "enforce_eager",
    "fly_entropy_threshold",
    "fly_entropy_top_k",
    "fly_window_size",
    "index_share_for_mtp_iteration",
    "kv_cache_dtype",
    "max_model_len",
    "method",
    "model",
    "moe_backend",
    "num_speculative_tokens",
    "num_speculative_tokens_per_batch_size",
    "parallel_drafting",
    "posterior_alpha",
    "posterior_threshold",
    "prompt_lookup_max",
    "prompt_lookup_min",
    "quantization",
    "rejection_sample_method",
    "revision",
    "speculative_token_tree",
    "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor",
    "suffix_decoding_max_tree_depth",
    "suffix_decoding_min_token_prob",
    "synthetic_acceptance_length",
    "synthetic_acceptance_rate",
    "synthetic_acceptance_rates",
    "target_model_config",
    "target_parallel_config",
    "use_heterogeneous_vocab",
    "use_local_argmax_reduction",
    "xpress_topc",
];

/// What is called otherwise elsewhere.
const ELSEWHERE: [(&str, &str); 4] = [
    ("tensor_parallel_size", "draft_tensor_parallel_size"),
    ("speculative_model", "model"),
    ("draft_model", "model"),
    ("num_spec_tokens", "num_speculative_tokens"),
];

/// Farthest that a slip of the pen is taken for the key that was meant.
const SLIP: usize = 2;

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let (name, key) = config.keys.iter().find(|(name, _)| !KEYS.contains(&name.as_str()))?;
    let shown: String = name.chars().take(60).collect();
    let finding =
        Finding::new(key.span, format!("the speculative configuration of vllm has no key `{shown}`"), "not known");
    let finding = match meant(name) {
        Some(known) => finding.help(format!("write `{known}`")),
        None => finding
            .at_most(Severity::Warning)
            .note("a version that was not read, or a fork, may have it")
            .help("take it out"),
    };
    let is_older = context.resolved.version_given && context.version() < READ;
    Some(if is_older { finding.at_most(Severity::Warning) } else { finding })
}

/// The key that a name stands for.
fn meant(name: &str) -> Option<&'static str> {
    let folded = name.to_ascii_lowercase();
    if let Some((_, known)) = ELSEWHERE.iter().find(|(other, _)| *other == folded) {
        return Some(known);
    }
    let near = KEYS.iter().map(|known| (distance(known, &folded), *known)).min();
    near.filter(|(far, known)| *far <= SLIP && far * 2 < known.len()).map(|(_, known)| known)
}
