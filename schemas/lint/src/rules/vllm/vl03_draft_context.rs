//! # VL03: draft-context
//!
//! Sequences can be longer than those the draft was trained for.
//!
//! ## What it does
//!
//! Compares the draft's `max_position_embeddings` with `--max-model-len`, or with the target's, in
//! versions that do not make room; and the `max_model_len` that is given for the draft with the
//! same, in all versions.
//!
//! ## Why is this bad?
//!
//! Beyond its own length the draft looks up rotations that do not exist: an illegal memory access,
//! or proposals that are not accepted. With a `max_model_len` of the draft above the target's the
//! server does not start.
//!
//! ## What vLLM does
//!
//! Nothing is checked for heads; long prompts fail. For the given number:
//! `ValueError: speculative_max_model_len=8192 cannot be larger than target_max_model_len=4096`.
//!
//! ## Example
//!
//! ```launch bad version:0.24.0
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048}
//! ```
//!
//! Heads that draft a block have room from 0.33 on:
//!
//! ```launch bad version:0.32.0
//! vllm serve target --speculative-config '{"method": "dflash", "model": "draft", "num_speculative_tokens": 7}'
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 262144}
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "max_position_embeddings": 131072}
//! ```
//!
//! ```launch bad version:0.24.0
//! vllm serve target --max-model-len 4096 \
//!   --speculative-config '{"method": "draft_model", "model": "draft", "num_speculative_tokens": 3, "max_model_len": 8192}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.24.0
//! vllm serve target --max-model-len 2048 \
//!   --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": 2048}
//! ```
//!
//! ## Versions
//!
//! Room for the target's context is made for EAGLE heads from 0.27 on, and for all heads from 0.33
//! on, which shortens the context where it cannot. Runner V1 stops drafting for a batch with a
//! sequence that is longer than the draft's, so between 0.25 and 0.32 DFlash is checked where
//! runner V2 is used, and DSpark always. Methods without a fixed version are checked up to 0.24,
//! which is reported to fail.
//!
//! ## Source
//!
//! vLLM issues #48894, #23072, #57941, PRs #49343, #57964; `config/speculative.py` and
//! `config/vllm.py` of 0.26.0, 0.27.1, 0.32.0 and 0.33.0.

use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, vllm::method_of};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL03",
    name: "draft-context",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The first version that is not checked, where none is known to make room.
const UNCHECKED: EngineVersion = EngineVersion::new(0, 25, 0);
/// The first version that makes room in EAGLE heads, and in all heads.
const ROOM_FOR_EAGLE: EngineVersion = EngineVersion::new(0, 27, 0);
const ROOM_FOR_ALL: EngineVersion = EngineVersion::new(0, 33, 0);
/// The first version whose default is runner V2.
const SECOND_RUNNER: EngineVersion = EngineVersion::new(0, 29, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    above_target(context).or_else(|| untrained(context))
}

/// The length that is given for the draft is above the target's.
fn above_target(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    // Without a draft the key is not read.
    config.model.as_deref().filter(|_| context.loads_draft() && !config.is_legacy)?;
    let (given, length) = (usize::try_from(config.integer("max_model_len")?).ok()?, target_length(context)?);
    (given > length).then(|| {
        let place = context.launch.vllm_key_place("max_model_len").unwrap_or(config.span);
        let message = format!("`max_model_len` of the draft is {given}, above the target's {length}");
        let finding = Finding::new(place, message, "refused")
            .related(context.span(Key::ContextLength), "requested here")
            .vllm_says(format!(
                "ValueError: speculative_max_model_len={given} cannot be larger than target_max_model_len={length}"
            ));
        let is_given = context.launch.has(Key::ContextLength);
        finding.on_facts("target", context.target.filter(|_| !is_given)).help("take `max_model_len` out")
    })
}

/// The length of the target's sequences: the given one, or that of its config.
fn target_length(context: &Context<'_>) -> Option<usize> {
    if context.launch.has(Key::ContextLength) {
        return Some(context.launch.count(Key::ContextLength)?.value);
    }
    Some(context.target_config().filter(|target| target.states_context_length())?.derived_context_length())
}

/// Sequences can be longer than those that the draft was trained for.
fn untrained(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    if !context.resolved.version_given || context.version() >= first_with_room(context, method_of(&config)) {
        return None;
    }
    let draft = context.draft_config().filter(|draft| draft.states_context_length())?.derived_context_length();
    let length = target_length(context)?;
    (draft < length).then(|| {
        let message = format!("the draft was trained for {draft} tokens, but sequences can have {length}");
        Finding::new(config.span, message, "shorter than the context")
            .related(context.span(Key::ContextLength), "requested here")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help(format!("add `--max-model-len {draft}`, or take a head for long contexts"))
            .at_most(Severity::Warning)
    })
}

/// The first version in which a method's heads have room, or long sequences do not reach them.
fn first_with_room(context: &Context<'_>, method: Option<&str>) -> EngineVersion {
    let runner = context.launch.variable("VLLM_USE_V2_MODEL_RUNNER").map(|variable| variable.value);
    let is_second = runner.map_or(context.version() >= SECOND_RUNNER, |chosen| chosen == "1");
    match method {
        Some("eagle" | "eagle3") => ROOM_FOR_EAGLE,
        Some("dspark") => ROOM_FOR_ALL,
        Some("dflash") if is_second => ROOM_FOR_ALL,
        _ => UNCHECKED,
    }
}
