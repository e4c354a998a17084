//! # SD150: mem-fraction-conflict
//!
//! The memory needed outside the static fraction does not fit.
//!
//! ## What it does
//!
//! Estimates the memory needed in addition to weights and KV cache: activations of a prefill chunk,
//! graphs, the logits of the largest verify pass with the copies that sampling makes of them, and,
//! up to 0.5.12, the draft's weights. It compares the sum with the GPU memory that
//! `--mem-fraction-static` leaves. It needs the GPU (`--gpu-memory`) and the models' sizes; unknown
//! parts count as zero.
//!
//! ## Why is this bad?
//!
//! The engine allocates the KV cache first. It then runs out of memory while graphs are captured,
//! or under load.
//!
//! ## What SGLang does
//!
//! CUDA runs out of memory at capture or in the first large verify pass. A smaller fraction may
//! fail as well, with `Not enough memory. Please try to increase --mem-fraction-static.`, if the
//! weights fill it.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9 memory:81559 also:SD154
//! python -m sglang.launch_server --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64 --max-running-requests 128 \
//!   --attention-backend fa3 --mem-fraction-static 0.9
//! ```
//!
//! ```target
//! {"architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
//!  "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
//!  "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9 memory:81559
//! python -m sglang.launch_server --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 128 \
//!   --attention-backend fa3 --mem-fraction-static 0.8
//! ```
//!
//! ```target
//! {"architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
//!  "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
//!  "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! All; the draft's weights count outside the static fraction up to 0.5.12.post1. Between it and
//! 0.5.15.post1 they are omitted from the sum.
//!
//! ## Source
//!
//! sglang issues #4330 and #6875, PRs #2863 and #28855; the reserve for activations and graphs is
//! that of `arg_groups/memory_hook.py`.

use launch::resolve::readable;
use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD150",
    name: "mem-fraction-conflict",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.algorithm()?;
    let memory = context.resolved.memory.as_ref()?;
    let (outside, needed) = (memory.outside()?, memory.needed_outside());
    if needed <= outside {
        return None;
    }
    let share = context.resolved.mem_fraction_static.as_ref()?.value;
    let message = format!(
        "a static share of {share} leaves {} of the GPU's {}, and about {} have to fit there",
        readable(outside),
        readable(memory.gpu),
        readable(needed)
    );
    let part = |name: &str, bytes: Option<u64>| {
        bytes.filter(|bytes| *bytes > 0).map(|bytes| format!("{name} {}", readable(bytes)))
    };
    let parts: Vec<String> = [
        part("activations and graphs", memory.activations),
        part("logits of the largest verify, once,", memory.verify_logits),
        part("draft weights", memory.draft_weights.filter(|_| !memory.draft_is_static)),
        part("the draft's KV cache beyond what the engine counts", memory.draft_kv_beyond),
    ]
    .into_iter()
    .flatten()
    .collect();
    Some(
        Finding::new(context.value_place(Key::MemFractionStatic), message, "an estimate")
            .related(context.span(Key::SpeculativeNumDraftTokens), "each request of a batch verifies this many rows")
            .note(format!("estimated: {}; sampling makes three copies of the logits", parts.join(", ")))
            .note("where the weights fill the share, a smaller one fails too")
            .help(format!(
                "verify fewer rows (draft tokens, `{}`), or write a smaller `{}`",
                context.flag(Key::CudaGraphMaxBs),
                context.flag(Key::MemFractionStatic)
            )),
    )
}
