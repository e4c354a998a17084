//! # SD194: known-corruption
//!
//! The output is known to be wrong with this configuration in these versions.
//!
//! ## What it does
//!
//! Looks the launch up in a table of faults that were reported with wrong output: algorithm,
//! target, draft, flags, GPU and versions of each.
//!
//! ## Why is this bad?
//!
//! Speculation should only change the speed. Here it changed tokens, without a message.
//!
//! ## What SGLang does
//!
//! It runs. The finding names the versions and the issues.
//!
//! ## Example
//!
//! ```launch bad version:0.5.17 also:SD193
//! sglang serve --model-path deepseek-ai/DeepSeek-V4-Flash-0731 --tp 4 --speculative-algorithm DSPARK --max-running-requests 16
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm DFLASH --max-running-requests 16 \
//!   --speculative-draft-model-path /models/head
//! ```
//! ```draft
//! {"architectures": ["Qwen3DSparkModel"], "block_size": 7, "markov_rank": 0, "enable_confidence_head": false,
//!  "target_layer_ids": [1, 9, 17, 25, 33], "mask_token_id": 151669}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path deepseek-ai/DeepSeek-V4-Flash-0731 --tp 4 --speculative-algorithm DSPARK --max-running-requests 16
//! ```
//!
//! ## Versions
//!
//! Those of each row, as far as reports name them.
//!
//! ## Source
//!
//! `schemas/lint/src/rules/known/faults.json`, which names the issues of each row.

use schemas::diagnostic::Severity;

use crate::rules::{
    Applies, Context, Definition, Finding, RuleCheck,
    known::{Harm, met},
};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD194",
    name: "known-corruption",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    met(context, Harm::Corruption)
}
