//! # NR02: mla-backend-draft
//!
//! The target's attention backend supports MLA only, and the draft has no separate backend.
//!
//! ## What it does
//!
//! Looks for trtllm_mla, flashmla or cutlass_mla as the attention backend, given or the default of
//! the GPU, with an EAGLE-3 draft of the Llama class, without a separate backend for the draft.
//!
//! ## Why is this bad?
//!
//! The draft inherits the backend; a backend for compressed keys and values only cannot run
//! ordinary heads.
//!
//! ## What SGLang does
//!
//! It stops while the draft's attention backend is built.
//!
//! ## Example
//!
//! ```launch bad version:0.5.12
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend trtllm_mla --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"]}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.12
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend trtllm_mla --speculative-draft-attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"]}
//! ```
//!
//! ## Versions
//!
//! Reported for about 0.5.10; the flag for the draft is in 0.5.9 and later. The default is that of
//! SM 10.x from 0.5.5 to 0.5.16.
//!
//! ## Source
//!
//! sglang issue #23490.

use schemas::{diagnostic::Severity, flags::Key, gpu::Architecture, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR02",
    name: "mla-backend-draft",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Backends for compressed keys and values only.
const MLA_ONLY: [&str; 3] = ["trtllm_mla", "flashmla", "cutlass_mla"];

/// Targets whose default on SM 10.x is such a backend, with the first version of it.
const BY_DEFAULT: [(&str, EngineVersion); 2] =
    [("DeepseekV3ForCausalLM", V0_5_5), ("KimiK25ForConditionalGeneration", V0_5_9)];

/// The backend that is taken for such a target if no flag names one, in versions that were read.
fn default_of(context: &Context<'_>) -> Option<&'static str> {
    let class = context.target_config()?.architecture()?;
    let (_, since) = BY_DEFAULT.iter().find(|(known, _)| *known == class)?;
    let is_own = matches!(context.architecture(), Some(Architecture::Sm(10, _)));
    let flags = [Key::AttentionBackend, Key::PrefillAttentionBackend, Key::DecodeAttentionBackend];
    let is_read = *since <= context.version() && context.version() < V0_5_17;
    (is_own && is_read && flags.iter().all(|flag| context.is_absent(*flag))).then_some("trtllm_mla")
}

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let given = context.launch.text(Key::AttentionBackend);
    let name = match &given {
        Some(backend) => backend.value,
        None => default_of(context)?,
    };
    if !MLA_ONLY.contains(&name) {
        return None;
    }
    let place = given.as_ref().map_or_else(|| context.value_place(Key::SpeculativeAlgorithm), |backend| backend.span);
    let own = Key::SpeculativeDraftAttentionBackend;
    let draft = context.draft_config()?;
    let llama = draft.architecture().is_some_and(|class| class.starts_with("LlamaForCausalLMEagle"));
    if !context.target_config()?.is_mla() || draft.is_mla() || !llama || !context.is_absent(own) {
        return None;
    }
    let message = format!("{name} cannot run the draft, which has ordinary heads");
    let finding = Finding::new(place, message, "for compressed keys and values only");
    let finding = if given.is_some() { finding } else { finding.at_most(Severity::Warning) };
    Some(
        finding
            .related(context.span(Key::SpeculativeDraftModelPath), "ordinary heads")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .by_version()
            .help(format!("add `{}`", context.line(own, context.other_backend()))),
    )
}
