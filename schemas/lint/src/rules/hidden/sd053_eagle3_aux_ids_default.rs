//! # SD053: eagle3-aux-ids-default
//!
//! The layers that the EAGLE-3 head was trained on are in a field that SGLang does not read.
//!
//! ## What it does
//!
//! Looks for a list `eagle_aux_hidden_state_layer_ids` next to `eagle_config` in the draft's
//! config.json, as vLLM's speculators write it, that differs from the layers that SGLang uses by
//! default. A config that names no layers at all works for most published heads, and is not
//! reported.
//!
//! ## Why is this bad?
//!
//! The head gets hidden states of different layers than it was trained on. There is no error;
//! acceptance collapses.
//!
//! ## What SGLang does
//!
//! It reads the ids in `eagle_config` only. Without them it captures on entry to layers 2, n/2 and
//! n − 3 of n. The outer list only determines the width of `fc`.
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

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

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
    let stated = draft.eagle_aux_hidden_state_layer_ids.as_ref()?;
    if draft.eagle_config.as_ref().is_some_and(|eagle| {
        eagle.eagle_aux_hidden_state_layer_ids.is_some() || eagle.use_aux_hidden_state == Some(false)
    }) {
        return None;
    }
    // The list may number layers by their input, as the default does, or by their output.
    let entered = [2, layers / 2, layers.checked_sub(3)?];
    let left = entered.map(|layer| layer.saturating_sub(1));
    if stated.as_slice() == entered || stated.as_slice() == left {
        return None;
    }
    let list = |ids: &[usize]| ids.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let message = format!("the head was trained on layers {}, and gets those before {}", list(stated), list(&entered));
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "ids outside `eagle_config`")
            .related(context.span(Key::ModelPath), format!("{layers} layers"))
            .note("there is no error at startup: accept length will be near 1")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help(
                "write the ids into `eagle_config.eagle_aux_hidden_state_layer_ids` of the draft's config.json, counted by \
                 the layers' outputs",
            ),
    )
}
