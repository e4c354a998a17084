//! # NR10: blackwell-paged-chain
//!
//! With pages larger than one token, a Blackwell GPU falls back to a slower attention backend.
//!
//! ## What it does
//!
//! Looks for `--page-size` above 1 with topk 1 and no attention backend, on a GPU of 160 GiB or
//! more (`--gpu-memory`), which is assumed to be a Blackwell.
//!
//! ## Why is this bad?
//!
//! The default would be `trtllm_mha`, which works with pages. With an explicit page size the
//! default becomes flashinfer or triton, and long prompts are slow: in the report, 119 tokens/s
//! with speculation against 229 without.
//!
//! ## What SGLang does
//!
//! For chains it uses `trtllm_mha` only if no page size is given, or 1, and logs nothing about it.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23 memory:183359
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --page-size 16 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "torch_dtype": "bfloat16", "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23 memory:183359
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --page-size 16 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --attention-backend trtllm_mha
//! ```
//! ```target
//! {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "torch_dtype": "bfloat16", "num_nextn_predict_layers": 1}
//! ```
//!
//! ## Versions
//!
//! 0.5.9 to 0.5.23.
//!
//! ## Source
//!
//! sglang issue #39515, PR #39819; `arg_groups/model_override_base.py`.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR10",
    name: "blackwell-paged-chain",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Memory, in MiB, from which a GPU is assumed to be a Blackwell.
const BLACKWELL: u64 = 160 * 1024;

/// Hybrid models, whose default backend follows the same choice.
const HYBRIDS: [&str; 2] = ["Qwen3Next", "Qwen3_5"];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let memory = context.gpu_memory.filter(|memory| *memory >= BLACKWELL && context.version() >= V0_5_9)?;
    let page = context.launch.count(Key::PageSize).filter(|page| page.value > 1)?;
    let topk = context.launch.count(Key::SpeculativeEagleTopk).filter(|topk| topk.value == 1)?;
    let key = Key::AttentionBackend;
    let free =
        [key, Key::DecodeAttentionBackend, Key::PrefillAttentionBackend].iter().all(|key| context.is_absent(*key));
    let class = context.target_config()?.architecture()?;
    let hybrid = HYBRIDS.iter().any(|known| class.starts_with(known));
    let falls = match &context.resolved.attention_backend {
        Some(backend) => backend.value == "flashinfer" && !launch::resolve::uses_mla(context.target_config()?),
        None => hybrid,
    };
    if !free || !falls {
        return None;
    }
    let message = format!("pages of {} tokens take trtllm_mha away: flashinfer or triton runs instead", page.value);
    Some(
        Finding::new(page.span, message, "slower at long prompts")
            .related(Some(topk.span), "a chain, which trtllm_mha can verify")
            .note(format!("taking a GPU of {memory} MiB for a Blackwell"))
            .on_facts("target", context.target)
            .by_version()
            .help(format!("add `{}`", context.line(key, "trtllm_mha")))
            .fix(Safety::Unsafe, "name the backend", context.set(key, "trtllm_mha")),
    )
}
