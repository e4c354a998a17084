//! # SD054: eagle3-aux-ids-convention
//!
//! The layer ids of the EAGLE-3 head seem to refer to layer inputs, but SGLang uses outputs.
//!
//! ## What it does
//!
//! Looks for ids in `eagle_config` that are exactly 2, n/2 and n − 3 for a Llama or Qwen target of
//! n layers: the layers on whose entry EAGLE-3 captures by convention.
//!
//! ## Why is this bad?
//!
//! SGLang interprets an id as the layer whose output is needed and captures one layer later. The
//! head gets hidden states that are off by one layer, and its proposals silently become a little
//! worse.
//!
//! ## What SGLang does
//!
//! Llama's and Qwen's classes always add one to the ids. DeepSeek's and GLM's add one only if the
//! first id is 1, so they are not checked.
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
//!  "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}}
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
//!  "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}
//! ```
//!
//! ## Versions
//!
//! All versions that read `eagle_config`.
//!
//! ## Source
//!
//! sglang pull request #25454, `models/llama.py`, `models/qwen3.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD054",
    name: "eagle3-aux-ids-convention",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle3)?;
    let target = context.target_config()?;
    let always_adds_one =
        target.architecture().is_some_and(|name| name.starts_with("Llama") || name.starts_with("Qwen"));
    let layers = target.num_hidden_layers.filter(|_| always_adds_one)?;
    let ids = context.draft_config()?.eagle_config.as_ref()?.eagle_aux_hidden_state_layer_ids.as_ref()?;
    let entered = [2, layers / 2, layers.checked_sub(3)?];
    if ids.as_slice() != entered {
        return None;
    }
    let [first, second, third] = entered;
    let message = format!(
        "the head's layer ids {first}, {second} and {third} are taken for outputs, one layer later than is the custom"
    );
    let [first, second, third] = entered.map(|layer| layer.saturating_sub(1));
    Some(
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "counted by inputs?")
            .related(context.span(Key::ModelPath), format!("{layers} layers"))
            .note("a head that was trained so is right as it is")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help(format!(
                "if the head was trained on the inputs of these layers, write [{first}, {second}, {third}] in its config.json"
            )),
    )
}
