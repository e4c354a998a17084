//! # VL17: draft-tensor-parallel
//!
//! The draft is to run over a number of ranks that is neither one nor the target's.
//!
//! ## What it does
//!
//! Compares `draft_tensor_parallel_size` with `--tensor-parallel-size`.
//!
//! ## Why is this bad?
//!
//! vLLM does not start.
//!
//! ## What vLLM does
//!
//! `ValueError: speculative_draft_tensor_parallel_size=2 cannot be other value than 1 or target model tensor_parallel_size`
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --tensor-parallel-size 4 \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 2}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --tensor-parallel-size 4 \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1}'
//! ```
//!
//! ## Versions
//!
//! As read in 0.33.0; older versions were not read.
//!
//! ## Source
//!
//! vLLM `config/speculative.py` of 0.33.0.

use crate::{
    diagnostic::Severity,
    flags::Key,
    rules::{Applies, Check, Context, Finding, Rule, vllm::method_of},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "VL17",
    name: "draft-tensor-parallel",
    severity: Severity::Error,
    applies: Applies::Vllm,
    file: include_str!("vl17_draft_tensor_parallel.rs"),
    check: Check::One(check),
};

/// Methods whose drafts are models with their own ranks.
const METHODS: [&str; 6] = ["eagle", "eagle3", "dflash", "dspark", "draft_model", "mtp"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    method_of(&config).filter(|method| METHODS.contains(method))?;
    let own = config.integer("draft_tensor_parallel_size").filter(|own| *own > 1)?;
    let given = context.launch.integer(Key::TpSize);
    let ranks = match given {
        Some(ranks) => ranks.value,
        None if context.launch.has(Key::TpSize) || !context.launch.is_complete() => return None,
        None => 1,
    };
    (own != ranks).then(|| {
        let place = context.launch.vllm_key_place("draft_tensor_parallel_size").unwrap_or(config.span);
        let message = format!("the draft is to run over {own} ranks, and the target runs over {ranks}");
        Finding::new(place, message, "neither one nor the target's")
            .related(given.map(|ranks| ranks.span), "the target's")
            .help("take `draft_tensor_parallel_size` out, or write 1")
    })
}
