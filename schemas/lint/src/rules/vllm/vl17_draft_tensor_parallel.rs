//! # VL17: draft-tensor-parallel
//!
//! vLLM does not support this number of ranks for the draft.
//!
//! ## What it does
//!
//! Compares `draft_tensor_parallel_size` with `--tensor-parallel-size`: it must be one or the
//! target's, and for a draft model the target's. MTP layers and EAGLE heads always run on the
//! target's ranks; another number for them is a warning.
//!
//! ## Why is this bad?
//!
//! vLLM does not start, or drafts on all ranks, with an all-reduce for every step.
//!
//! ## What vLLM does
//!
//! `ValueError: speculative_draft_tensor_parallel_size=2 cannot be other value than 1 or target
//! model tensor_parallel_size`; for a draft model `Currently, 'draft_tensor_parallel_size' and
//! 'tensor_parallel_size' must be the same`. Of the other methods only `dspark` reads the number.
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --tensor-parallel-size 4 \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 2}'
//! ```
//!
//! ```launch bad
//! vllm serve target --tensor-parallel-size 4 \
//!   --speculative-config '{"method": "draft_model", "model": "draft", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --tensor-parallel-size 4 \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//!
//! ## Versions
//!
//! As read in 0.28.0 and 0.33.0; older versions were not read.
//!
//! ## Source
//!
//! vLLM `config/speculative.py`, `v1/spec_decode/draft_model.py`; issue #31345, PR #31886.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL17",
    name: "draft-tensor-parallel",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// Methods whose drafts are models with their own ranks.
const METHODS: [&str; 6] = ["eagle", "eagle3", "dflash", "dspark", "draft_model", "mtp"];

/// Methods that always run on the target's ranks.
const FIXED: [&str; 4] = ["eagle", "eagle3", "dflash", "mtp"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let method = method_of(&config).filter(|method| METHODS.contains(method))?;
    let own = config.integer("draft_tensor_parallel_size").filter(|own| *own >= 1)?;
    let given = context.launch.integer(Key::TpSize);
    let ranks = match given {
        Some(ranks) => ranks.value,
        None if context.launch.has(Key::TpSize) || !context.launch.is_complete() => return None,
        None => 1,
    };
    let is_fixed = FIXED.contains(&method);
    if own == ranks || (own == 1 && !is_fixed && method != "draft_model") {
        return None;
    }
    let place = context.launch.vllm_key_place("draft_tensor_parallel_size").unwrap_or(config.span);
    let finding = |message: String, label: &'static str, help: &'static str| {
        Finding::new(place, message, label).related(given.map(|ranks| ranks.span), "the target's").help(help)
    };
    let over = if own == 1 { "1 rank".to_owned() } else { format!("{own} ranks") };
    Some(match () {
        () if method == "draft_model" => finding(
            format!("the draft model is to run over {over}, and the target runs over {ranks}"),
            "not the target's",
            "take `draft_tensor_parallel_size` out, or write the target's",
        ),
        () if own == 1 => finding(
            format!("{method} runs over the target's {ranks} ranks, whatever is written"),
            "without effect",
            "take `draft_tensor_parallel_size` out",
        )
        .at_most(Severity::Warning),
        () => finding(
            format!("the draft is to run over {over}, and the target runs over {ranks}"),
            "neither one nor the target's",
            "take `draft_tensor_parallel_size` out, or write the target's",
        ),
    })
}
