//! # SD202: flags-refused
//!
//! SGLang refuses these flags together, or this number with that one, and does not start.
//!
//! ## What it does
//!
//! Looks the launch up in a table of the conditions that SGLang checks at start: caches,
//! parallelism, experts, adapters, separate prefill and decode engines, states of linear attention,
//! and variables of verification. Most conditions of speculation have rules of their own.
//!
//! ## Why is this bad?
//!
//! The server does not start, often only after minutes in which other nodes were started.
//!
//! ## What SGLang does
//!
//! The finding quotes its message.
//!
//! ## Example
//!
//! ```launch bad version:0.5.20
//! sglang serve --model-path target --enable-hierarchical-cache --disable-radix-cache
//! ```
//!
//! ```launch bad version:0.5.20
//! sglang serve --model-path target --tp-size 3 --nnodes 2 --node-rank 0
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 4 \
//!   --speculative-num-draft-tokens 8 --max-running-requests 16 --attention-backend triton --enable-linear-replayssm-spec
//! ```
//!
//! ```launch bad version:0.5.23
//! SGLANG_RAGGED_VERIFY_MODE=cap-accept sglang serve --model-path target --speculative-algorithm DSPARK --speculative-draft-model-path draft \
//!   --max-running-requests 16 --speculative-dspark-sps-table-path table.json --enable-lora --lora-paths a=/adapters/a
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.20
//! sglang serve --model-path target --enable-hierarchical-cache
//! ```
//!
//! ```launch good version:0.5.20
//! sglang serve --model-path target --tp-size 4 --nnodes 2 --node-rank 0
//! ```
//!
//! ## Versions
//!
//! Those of each row, read in 28 versions from 0.4.7 to 0.5.23. If the version is not stated, a
//! condition that some versions lack is a warning.
//!
//! ## Source
//!
//! sglang `server_args.py`, `arg_groups/`, `layers/attention/`, `model_executor/`, `speculative/`;
//! the rows are in `schemas/lint/src/rules/refused/sglang.json`.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, refused::refused};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD202",
    name: "flags-refused",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    refused(context)
}
