//! # SD061: draft-context-env-ima
//!
//! Sequences may get longer than the draft's table of positions.
//!
//! ## What it does
//!
//! Like SD060, but for launches whose context may be longer than the draft's config allows: the
//! variable `SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN` is set, or the version has it on by
//! default, and the version does not lengthen the draft's table.
//!
//! ## Why is this bad?
//!
//! The server starts, and crashes at the first sequence that is longer than the draft's length.
//!
//! ## What SGLang does
//!
//! It logs a warning about the context length. Later the rotary table is read past its end:
//! `CUDA error: an illegal memory access was encountered`.
//!
//! ## Example
//!
//! ```launch bad version:0.4.10 also:SD062
//! sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE3 --dtype float16 \
//!   --speculative-draft-model-path lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B --max-running-requests 16 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --context-length 10000
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
//! ```launch bad version:0.5.2 also:SD062
//! SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 sglang serve --model-path meta-llama/Llama-3.1-8B-Instruct \
//!   --speculative-algorithm EAGLE3 --speculative-draft-model-path lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --dtype float16 \
//!   --max-running-requests 16
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
//! ```launch good version:0.4.10
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
//! ## Versions
//!
//! Up to 0.5.0 by default, up to 0.5.2 with the variable set; from 0.5.6 on the draft's table is
//! lengthened (PR #10787). If no longer context is requested, short requests work and the finding
//! is a warning.
//!
//! ## Source
//!
//! sglang issues #3574 and #10713, PR #10787, PR #9388.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use super::draft_length::{OVERWRITE, Short};
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD061",
    name: "draft-context-env-ima",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let short = Short::from_context(context).filter(|short| short.allowed)?;
    let lengthened = Edge::new(V0_5_2, V0_5_6);
    let side = lengthened.side(context.version());
    if side == Side::After {
        return None;
    }
    let (draft, length) = (short.draft, short.context);
    let key = Key::ContextLength;
    let draft_place = context.value_place(Key::SpeculativeDraftModelPath);
    let message =
        format!("a sequence longer than the draft's {draft} tokens (up to {length} are allowed) kills the engine");
    let finding =
        Finding::new(short.request.unwrap_or(draft_place), message, format!("longer than the draft's {draft}"))
            .related(Some(draft_place), format!("trained for {draft} tokens"))
            .sglang_says("CUDA error: an illegal memory access was encountered")
            .note(match context.launch.environment.get(OVERWRITE) {
                Some(_) => format!("{OVERWRITE} turns the check at start into a warning"),
                None => {
                    format!("{OVERWRITE} is on by default in {}: there is a warning at start only", context.version())
                }
            })
            .maybe_note(lengthened.doubt(context.version()))
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .by_version()
            .help(format!("{} `{}`", context.add_or_write(key), context.line(key, &draft.to_string())))
            .fix(Safety::Unsafe, "keep to the draft's length", context.set(key, &draft.to_string()));
    // Without a request that is too long, or in a version in doubt, nothing may ever go wrong.
    let sure = short.request.is_some() && side == Side::Before;
    Some(if sure { finding } else { finding.at_most(Severity::Warning) })
}
