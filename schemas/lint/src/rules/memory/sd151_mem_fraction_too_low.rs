//! # SD151: mem-fraction-too-low
//!
//! The weights fill the static fraction, and no memory is left for the KV cache.
//!
//! ## What it does
//!
//! Compares the GPU memory of `--mem-fraction-static` with the weights that it has to hold: the
//! target's, and from 0.5.15 on the draft's. It needs the GPU (`--gpu-memory`) and the sizes of the
//! models.
//!
//! ## Why is this bad?
//!
//! The engine does not start.
//!
//! ## What SGLang does
//!
//! From 0.5.15 on: `ValueError: Loaded weights leave no GPU memory for the KV cache under
//! --mem-fraction-static=X. Raise --mem-fraction-static above Y … If using speculative decoding,
//! draft weights are now counted.` Before: `RuntimeError: Not enough memory. Please try to increase
//! --mem-fraction-static.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23 memory:24564
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16 \
//!   --attention-backend triton --mem-fraction-static 0.6
//! ```
//!
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
//!  "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
//!  "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23 memory:24564
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16 \
//!   --attention-backend triton --mem-fraction-static 0.8
//! ```
//!
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
//!  "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
//!  "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! All.
//!
//! ## Source
//!
//! sglang PR #28855, issue #4330; `model_executor/pool_configurator.py`.

use launch::resolve::readable;
use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD151",
    name: "mem-fraction-too-low",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let memory = context.resolved.memory.as_ref()?;
    let (share, weights) = (memory.static_share?, memory.static_weights()?);
    if weights < share {
        return None;
    }
    let key = Key::MemFractionStatic;
    let fraction = context.resolved.mem_fraction_static.as_ref()?.value;
    let whose = if memory.draft_is_static && memory.draft_weights.is_some_and(|bytes| bytes > 0) {
        "target and draft"
    } else {
        "the target"
    };
    let message = format!(
        "the weights of {whose} take {} of each GPU, and a static share of {fraction} is {}",
        readable(weights),
        readable(share)
    );
    let least = weights as f64 / memory.gpu as f64;
    let finding = Finding::new(context.value_place(key), message, "nothing is left for the KV cache")
        .on_facts("target", context.target);
    Some(match least {
        ..0.9 => finding.help(format!(
            "{} at least `{}`",
            context.add_or_write(key),
            context.line(key, &format!("{:.2}", least + 0.1))
        )),
        _ => {
            finding.help("share the weights among more GPUs, or use a quantised model: this GPU is too small for them")
        }
    })
}
