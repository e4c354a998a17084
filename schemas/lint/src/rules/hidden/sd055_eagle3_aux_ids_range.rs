//! # SD055: eagle3-aux-ids-range
//!
//! The head reads hidden states of layers that the target does not have.
//!
//! ## What it does
//!
//! Compares the layers that the draft's config names with the target's number of layers:
//! `eagle_config.eagle_aux_hidden_state_layer_ids`, and the lists that other libraries write in its
//! place (`target_layer_ids`, `aux_hidden_states_layer_ids`, `eagle_aux_hidden_state_layer_ids`
//! outside `eagle_config`).
//!
//! ## Why is this bad?
//!
//! A missing layer is never captured, so the head gets fewer hidden states than it has weights for.
//!
//! ## What SGLang does
//!
//! Nothing is checked; the first draft pass fails with `mat1 and mat2 shapes cannot be multiplied`.
//! Only for gpt-oss, if the largest id is the number of layers, ids are taken for the layers before
//! which the hidden states are captured, and that one for the output of the last layer.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 16}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 16}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "target_layer_ids": [1, 9, 17, 25, 33]}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}
//! ```
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//! ```target
//! {"architectures": ["GptOssForCausalLM"], "num_hidden_layers": 36}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {"eagle_aux_hidden_state_layer_ids": [24, 30, 36]}}
//! ```
//!
//! ## Versions
//!
//! All versions read; the exception for gpt-oss is in 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/spec_aux_hidden_state.py`, `models/gpt_oss.py`
//! (`set_eagle3_layers_to_capture`).

use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    flags::Key,
    model::{CapturedList, LayerCount},
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD055",
    name: "eagle3-aux-ids-range",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let target = context.target_config()?;
    let layers = target.num_hidden_layers?;
    let of_gpt_oss = target.architecture() == Some("GptOssForCausalLM");
    let is_outside = |list: &CapturedList| {
        // The stream before a layer, or after it: that after the last one is before the next.
        let first =
            i64::try_from(layers).unwrap_or(i64::MAX).saturating_add(i64::from(list.count == LayerCount::Entries));
        if of_gpt_oss && list.is_of_eagle_config() && list.ids.iter().max() == Some(&first) {
            return None;
        }
        list.ids.iter().copied().find(|id| *id >= first)
    };
    let outside = context.draft_config()?.captured_lists().ok()?.iter().find_map(is_outside)?;
    let message = format!("the head wants the hidden states of layer {outside}, and the target has {layers} layers");
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "trained for a deeper target")
            .related(context.span(Key::ModelPath), format!("{layers} layers"))
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help("use the head that was trained for this target, or correct the ids in its config.json"),
    )
}
