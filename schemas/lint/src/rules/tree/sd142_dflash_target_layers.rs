//! # SD142: dflash-target-layers
//!
//! The DFLASH draft was trained with a target of a different depth.
//!
//! ## What it does
//!
//! Compares `num_target_layers` of the draft's config (or of its `dflash_config`) with the number
//! of the target's layers.
//!
//! ## Why is this bad?
//!
//! The draft reads hidden states from layers spread over the target. With a different depth they
//! come from different layers than in its training, and few of its tokens are accepted.
//!
//! ## What SGLang does
//!
//! It starts, with the warning `DFLASH draft config num_target_layers=32 differs from runtime
//! target num_hidden_layers=36; selecting capture layers based on the runtime target model.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "torch_dtype": "bfloat16", "dflash_config": {"num_target_layers": 32}}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "torch_dtype": "bfloat16"}
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "torch_dtype": "bfloat16", "num_target_layers": 36}
//! ```
//!
//! ## Versions
//!
//! Since DFLASH was added; read in 0.5.12 to 0.5.23.
//!
//! ## Source
//!
//! sglang `model_executor/model_runner_components/spec_aux_hidden_state.py`,
//! `speculative/dflash_utils.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD142",
    name: "dflash-target-layers",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Dflash)?;
    let layers = context.target_config()?.num_hidden_layers?;
    let trained = context.draft_config()?.trained_target_layers()?;
    (trained != layers).then(|| {
        let message = format!("the draft was trained with a target of {trained} layers, and this one has {layers}");
        Finding::new(context.value_place(Key::SpeculativeDraftModelPath), message, "for another target")
            .related(context.span(Key::ModelPath), format!("{layers} layers"))
            .note("sglang only warns, and takes the hidden states from other layers than in training")
            .on_facts("target", context.target)
            .on_facts("draft", context.draft)
            .help("use the draft that was trained for this target")
    })
}
