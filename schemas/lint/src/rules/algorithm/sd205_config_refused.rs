//! # SD205: config-refused
//!
//! SGLang refuses the draft's or the target's config.json under this algorithm, and does not start.
//!
//! ## What it does
//!
//! Looks the config.json up in a table of the conditions that SGLang checks when it loads a draft
//! of blocks (DFLASH, DSPARK), a head of EAGLE-3, or a layer of the target's own: windows and kinds
//! of layers, mask tokens, layers of the target, the parts of variants. Some targets refuse an
//! algorithm or a flag, and some backends a draft. What a config lacks is reported only if the file
//! itself was read.
//!
//! ## Why is this bad?
//!
//! The server does not start, often only after the target's weights were loaded.
//!
//! ## What SGLang does
//!
//! The finding quotes its message.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-draft-tokens 8
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "num_hidden_layers": 36, "vocab_size": 151936}
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "torch_dtype": "bfloat16", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-draft-tokens 8
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "num_hidden_layers": 36, "vocab_size": 151936}
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "torch_dtype": "bfloat16", "num_hidden_layers": 1, "mask_token_id": 151936}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-draft-tokens 8
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "num_hidden_layers": 36, "vocab_size": 151936}
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "torch_dtype": "bfloat16", "num_hidden_layers": 1, "layer_types": ["sliding_attention"],
//!  "sliding_window": 2048, "mask_token_id": 151669}
//! ```
//!
//! ## Versions
//!
//! Those of each row, read in each version from 0.5.9 to 0.5.23, and in 0.5.1 to 0.5.8 in part. If
//! the version is not stated, a condition that some versions lack is a warning.
//!
//! ## Source
//!
//! sglang `speculative/dflash_utils.py`, `speculative/dspark_components/`, `models/dflash.py` and
//! the models' own files; the rows are in `schemas/lint/src/rules/refused/sglang_configs.json`.

use schemas::diagnostic::Severity;

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, refused::refused_configs};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD205",
    name: "config-refused",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    refused_configs(context)
}
