//! # SD052: eagle3-num-aux
//!
//! The EAGLE-3 head contradicts itself about how many hidden states it takes.
//!
//! ## What it does
//!
//! Compares the draft's `num_aux_hidden_states`, the number of layer ids in `eagle_config`, and the
//! width of the tensor `fc.weight` with one another. Without the first two, SGLang assumes three,
//! also if a list that it does not read names more: `target_layer_ids` of DeepSpec,
//! `aux_hidden_states_layer_ids` of AngelSlim, or a list outside `eagle_config`.
//!
//! ## Why is this bad?
//!
//! The hidden states from the target do not fit the layer that receives them, or the weights do not
//! fit the layer.
//!
//! ## What SGLang does
//!
//! It builds `fc` for `num_aux_hidden_states`, else for the layer ids, else for three states, and
//! captures the layers of `eagle_config`: a shape error when weights are loaded or when the draft
//! first runs.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "torch_dtype": "bfloat16",
//!  "num_aux_hidden_states": 3, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5]}}
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "torch_dtype": "bfloat16"}
//! ```
//! ```draft-tensors
//! fc.weight BF16 64x128
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "torch_dtype": "bfloat16",
//!  "target_layer_ids": [1, 9, 17, 25, 33]}
//! ```
//! ```draft-tensors
//! fc.weight BF16 64x320
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
//!   --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "torch_dtype": "bfloat16",
//!  "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 9]}}
//! ```
//! ```draft-tensors
//! fc.weight BF16 64x192
//! ```
//!
//! ## Versions
//!
//! The order of the sources is that of 0.5.23.
//!
//! ## Source
//!
//! sglang `models/llama_eagle3.py`, `speculative/spec_aux_hidden_state.py`.

use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    engines::Engine,
    flags::Key,
    model::{CapturedList, DEFAULT_STATES, DraftKind},
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD052",
    name: "eagle3-num-aux",
    severity: Severity::Error,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let (facts, draft) = (context.draft?, context.draft_config()?);
    // With a single hidden state `fc` has another meaning.
    let single = draft.eagle_config.as_ref().is_some_and(|eagle| eagle.use_aux_hidden_state == Some(false));
    if single || context.draft_kind() != Some(DraftKind::Eagle3) {
        return None;
    }
    let lists = draft.captured_lists().ok()?;
    let is_read = |list: &CapturedList| context.launch.engine == Engine::Spectune || list.is_of_eagle_config();
    let stated = draft.num_aux_hidden_states;
    let ids = lists.iter().find(|list| is_read(list)).map(|list| list.ids.len());
    let place = context.value_place(Key::SpeculativeDraftModelPath);
    let finding = |message: String, label: &str| {
        Finding::new(place, message, label)
            .sglang_says("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
            .on_facts("draft", context.draft)
    };
    let contradicts = |message: String| {
        finding(message, "the config contradicts itself").help(
            "correct `num_aux_hidden_states` and `eagle_config` in the draft's config.json to what it was trained with",
        )
    };
    if let (Some(stated), Some(ids)) = (stated, ids)
        && stated != ids
    {
        return Some(contradicts(format!(
            "the draft takes {stated} hidden states by one field of its config, {ids} by another"
        )));
    }
    let [_, inputs] = facts.tensors.as_ref()?.find("fc.weight")?.shape.as_slice() else { return None };
    let width = draft.target_hidden_size.or(draft.hidden_size).filter(|_| !facts.partial)?;
    let states = stated.or(ids).unwrap_or(DEFAULT_STATES);
    if Some(*inputs) == width.checked_mul(states) {
        return None;
    }
    let unread = lists.iter().find(|list| !is_read(list) && Some(*inputs) == width.checked_mul(list.ids.len()));
    Some(match unread {
        Some(CapturedList { name, ids, .. }) => {
            let message =
                format!("the draft reads {} layers by `{name}`, which is not read: it gets {states}", ids.len());
            finding(message, "layers outside `eagle_config`").help(
                "write the layers into `eagle_config.eagle_aux_hidden_state_layer_ids` of the draft's config.json, counted by \
                 the layers' outputs",
            )
        }
        None => {
            contradicts(format!("the draft's `fc.weight` takes {inputs} inputs, its config makes {states} × {width}"))
        }
    })
}
