//! # SD053: eagle3-aux-ids-default
//!
//! The layers that the EAGLE-3 head was trained on are in a field that SGLang does not read.
//!
//! ## What it does
//!
//! Looks for a list of layers in the draft's config.json that SGLang does not read, and that
//! differs from the layers that it uses by default: `eagle_aux_hidden_state_layer_ids` next to
//! `eagle_config`, as vLLM's speculators write it, `target_layer_ids` of DeepSpec,
//! `aux_hidden_states_layer_ids` of AngelSlim. A config that names no layers at all works for most
//! published heads, and is not reported.
//!
//! ## Why is this bad?
//!
//! The head gets hidden states of different layers than it was trained on. There is no error;
//! acceptance collapses.
//!
//! ## What SGLang does
//!
//! It reads the ids in `eagle_config` only. Without them it captures on entry to layers 2, n/2 and
//! n − 3 of n. If the list has another number of layers than three, the weights do not fit and
//! start fails (SD052).
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16 --attention-backend fa3
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "torch_dtype": "bfloat16",
//!  "eagle_aux_hidden_state_layer_ids": [4, 12, 20]}
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16 --attention-backend fa3
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "torch_dtype": "bfloat16", "target_layer_ids": [3, 11, 19]}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16 --attention-backend fa3
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "torch_dtype": "bfloat16",
//!  "eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 11, 19]}}
//! ```
//!
//! ## Versions
//!
//! All versions with EAGLE3; read in 0.5.23.
//!
//! ## Source
//!
//! sglang `speculative/spec_aux_hidden_state.py`; vllm issue #50170.

use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    flags::Key,
    model::{CapturedList, DEFAULT_STATES, LayerCount},
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD053",
    name: "eagle3-aux-ids-default",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let layers = context.target_config()?.num_hidden_layers?;
    let draft = context.draft_config()?;
    let lists = draft.captured_lists().ok()?;
    let is_alone = draft.eagle_config.as_ref().is_some_and(|eagle| eagle.use_aux_hidden_state == Some(false));
    if is_alone || lists.iter().any(CapturedList::is_of_eagle_config) {
        return None;
    }
    let list = lists.first()?;
    let stated = list.entries()?;
    // Layers that the target does not have are another finding.
    if stated.iter().any(|place| usize::try_from(*place).is_ok_and(|place| place > layers)) {
        return None;
    }
    let entered = [2, layers / 2, layers.checked_sub(3)?].map(|layer| i64::try_from(layer).unwrap_or(i64::MAX));
    // A list of inputs may number layers by their output too, as trainers do.
    let left = entered.map(|layer| layer.saturating_sub(1).max(0));
    if stated == entered || (list.count == LayerCount::Entries && stated == left) {
        return None;
    }
    let shown = |ids: &[i64]| ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let which = if list.count == LayerCount::Outputs { "the outputs of layers" } else { "layers" };
    let message =
        format!("the head was trained on {which} {}, and gets those before {}", shown(&list.ids), shown(&entered));
    Some(
        Finding::new(
            context.value_place(Key::SpeculativeDraftModelPath),
            message,
            format!("`{}` is not read", list.name),
        )
        .related(context.span(Key::ModelPath), format!("{layers} layers"))
        .note(match stated.len() {
            DEFAULT_STATES => "there is no error at startup: accept length will be near 1",
            _ => "the head reads another number of layers than it gets: start fails",
        })
        .on_facts("target", context.target)
        .on_facts("draft", context.draft)
        .help(
            "write the ids into `eagle_config.eagle_aux_hidden_state_layer_ids` of the draft's config.json, counted by \
                 the layers' outputs",
        ),
    )
}
