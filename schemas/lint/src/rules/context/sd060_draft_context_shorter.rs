//! # SD060: draft-context-shorter
//!
//! The draft was trained for shorter sequences than the context.
//!
//! ## What it does
//!
//! Compares the context length (`--context-length`, or the target's config) with the length that
//! SGLang derives from the draft's config: the first of `max_sequence_length`, `seq_length`,
//! `max_seq_len`, `model_max_length` and `max_position_embeddings`, times the factor of the rotary
//! scaling; 2048 if none of them is given. Most EAGLE heads for Llama 3 have 2048.
//!
//! ## Why is this bad?
//!
//! The draft is built with the target's context length, which its config does not allow. The server
//! does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: Warning: Target model's context_length (131072) is greater than the derived
//! context_length (2048). This may lead to incorrect model outputs or CUDA errors. … To allow
//! overriding this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1` (its own
//! CI is exempt, so that documented commands work there.)
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE3 --dtype float16 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
//!  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048, "torch_dtype": "float16",
//!  "vocab_size": 128256, "draft_vocab_size": 32000}
//! ```
//!
//! ## Use instead
//!
//! The draft's length, or the variable if all sequences stay within it:
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE3 --dtype float16 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --context-length 2048
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
//!  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048, "torch_dtype": "float16",
//!  "vocab_size": 128256, "draft_vocab_size": 32000}
//! ```
//!
//! ```launch good version:0.5.9
//! SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct \
//!   --speculative-algorithm EAGLE3 --speculative-draft-model-path lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --dtype float16
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
//!  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048, "torch_dtype": "float16",
//!  "vocab_size": 128256, "draft_vocab_size": 32000}
//! ```
//!
//! ## Versions
//!
//! 0.5.1 and later (PR #9388; read in 0.5.2). In earlier versions the variable is on by default:
//! see SD061. A launch without a version whose flags only such versions take is information.
//!
//! ## Source
//!
//! sglang `configs/model_config.py`, `utils/hf_transformers/common.py`; slime's guide to
//! speculative decoding.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::{self, Key},
    version::EngineVersion,
};

use super::draft_length::{DEFAULT_CHANGED, OVERWRITE, Short};
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::V0_5_2};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD060",
    name: "draft-context-shorter",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let short = Short::from_context(context).filter(|short| !short.allowed)?;
    let (draft, length) = (short.draft, short.context);
    let key = Key::ContextLength;
    let draft_place = context.value_place(Key::SpeculativeDraftModelPath);
    // A length that is written is the place to change; else the target's own length is too long.
    let (place, label) = match context.span(key) {
        Some(_) => (context.value_place(key), format!("longer than the draft's {draft}")),
        None => (draft_place, format!("trained for {draft} tokens")),
    };
    let message = format!(
        "the draft was trained for {draft} tokens, but the context has {length}: startup fails with a ValueError"
    );
    let line = context.line(key, &draft.to_string());
    let finding = Finding::new(place, message, label)
        .related(Some(draft_place), format!("trained for {draft} tokens"))
        .sglang_says(format!(
            "ValueError: Warning: Target model's context_length ({length}) is greater than the derived context_length \
                 ({draft}). This may lead to incorrect model outputs or CUDA errors. Note that the derived \
                 context_length \
                 may differ from max_position_embeddings in the model's config. To allow overriding this maximum, \
                 set the \
                 env var {OVERWRITE}=1"
        ))
        .maybe_note(DEFAULT_CHANGED.doubt(context.version()))
        .on_facts("target", context.target)
        .on_facts("draft", context.draft)
        .by_version()
        .help(format!(
            "{} `{line}`, or set {OVERWRITE}=1 if no sequence gets longer than that",
            context.add_or_write(key)
        ))
        .fix(Safety::Unsafe, "keep to the draft's length", context.set(key, &draft.to_string()));
    Some(if is_of_old(context) { finding.at_most(Severity::Info) } else { finding })
}

/// Whether a launch that states no version has flags that only versions up to the change take: it
/// was written for one of those.
fn is_of_old(context: &Context<'_>) -> bool {
    let takes = |version: &&EngineVersion| context.launch.has_flags_of(**version);
    let mut read = flags::sglang().versions().iter();
    // Flags that only old versions have say that the launch is older than the check.
    !context.resolved.version_given && read.rfind(takes).is_some_and(|newest| *newest < V0_5_2)
}
