//! # SD203: block-target-unsupported
//!
//! The target's class does not hand out the states that a draft of blocks reads.
//!
//! ## What it does
//!
//! Compares the target's architecture, under DFLASH or under DSPARK with a draft of its own, with
//! the classes that have no `set_dflash_layers_to_capture` (or `set_dspark_layers_to_capture`) in
//! this version. It is a warning if a later version has it, since a branch may have it earlier.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It stops with `ValueError: Model … does not implement set_dflash_layers_to_capture`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path zai-org/GLM-4.5 --tp 8 --speculative-algorithm DFLASH \
//!   --speculative-draft-model-path my/glm-dflash --max-running-requests 16
//! ```
//! ```target
//! {"architectures": ["Glm4MoeForCausalLM"], "hidden_size": 5120}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path zai-org/GLM-4.5 --tp 8 --speculative-algorithm EAGLE --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Glm4MoeForCausalLM"], "hidden_size": 5120}
//! ```
//!
//! ## Versions
//!
//! The classes of each release from 0.5.11, the first with DFLASH, to 0.5.23 (`sglang_hooks.tsv`).
//!
//! ## Source
//!
//! sglang `models/`, `model_executor/model_runner_components/attention_backend_setup.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use super::hooks::{Hook, not_handed_out};
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD203",
    name: "block-target-unsupported",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let hook = match context.algorithm()? {
        Algorithm::Dflash => Hook::DflashStates,
        Algorithm::Dspark if context.launch.has(Key::SpeculativeDraftModelPath) => Hook::DsparkStates,
        _ => return None,
    };
    let instead = "use MTP where the checkpoint has layers for it, or NGRAM";
    not_handed_out(context, hook, "hidden states", "set_dflash_layers_to_capture", instead)
}
