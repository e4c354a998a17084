//! # SD066: context-beyond-model
//!
//! The launch asks for a longer context than the target's config allows.
//!
//! ## What it does
//!
//! Compares `--context-length` (vLLM: `--max-model-len`) with the length that the target's config
//! states, unless flags change the config or a variable allows more. If only the table of published
//! models knows the config, the finding is a warning.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It stops with a `ValueError`, unless `SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN` is set; vLLM
//! does the same with `VLLM_ALLOW_LONG_MAX_MODEL_LEN`. Positions beyond the length of the training
//! yield poor output unless the rotary embedding is scaled.
//!
//! ## Example
//!
//! ```launch bad version:0.5.16
//! sglang serve --model-path target --context-length 131072 --max-running-requests 16
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 40960, "torch_dtype": "bfloat16"}
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --max-model-len 128k
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 40960, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.16
//! sglang serve --model-path target --context-length 40960 --max-running-requests 16
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 40960, "torch_dtype": "bfloat16"}
//! ```
//!
//! ```launch good version:0.33.0
//! vllm serve target --max-model-len 131072 \
//!   --hf-overrides '{"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}'
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 40960, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! All versions.
//!
//! ## Source
//!
//! sglang `configs/model_config.py`; vLLM `config/model.py`.

use schemas::{diagnostic::Severity, engines::Engine, flags::Key, model::ModelConfig};

use super::draft_length::OVERWRITE;
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD066",
    name: "context-beyond-model",
    severity: Severity::Error,
    applies: Applies::All,
    check: RuleCheck::One(check),
};

/// Flags that change the config that the length is derived from.
const OVERRIDES: [&str; 4] = ["hf-config-path", "hf-overrides", "json-model-override-args", "rope-scaling"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let (variable, says) = match context.launch.engine {
        Engine::Vllm => ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "is greater than the derived max_model_len"),
        Engine::Sglang | Engine::Slime => (OVERWRITE, "is greater than the derived context_length"),
        Engine::Spectune => return None,
    };
    let given = context.launch.count(Key::ContextLength)?;
    let (target, config) = (context.target?, context.target_config()?);
    let own = longest(config).filter(|own| *own < given.value)?;
    let may_differ = OVERRIDES.into_iter().any(|name| context.launch.argument(name).is_some());
    if may_differ || !context.launch.is_complete() || !context.launch.lacks_variable(variable) {
        return None;
    }
    let message = format!("the target's context has {own} tokens, and {} are requested: start fails", given.value);
    let finding = Finding::new(given.span, message, format!("more than {own}"))
        .related(context.span(Key::ModelPath), format!("{own} tokens"))
        .engine_says(context.launch.engine.reference(), format!("… ({}) {says} ({own})", given.value))
        .on_facts("target", Some(target))
        .help(format!("write `{}`, or scale the rotary embedding", context.line(Key::ContextLength, &own.to_string())));
    Some(if target.partial { finding.at_most(Severity::Warning) } else { finding })
}

/// The longest context that a config allows, however an engine scales it.
fn longest(config: &ModelConfig) -> Option<usize> {
    let rope = config.rope();
    let length = rope.original_max_position_embeddings.zip(rope.factor).map(|(length, factor)| length as f64 * factor);
    let scaled = length.filter(|length| (1.0..9e15).contains(length)).map(|length| length as usize);
    let derived = config.derived_context_length();
    config.states_context_length().then(|| scaled.map_or(derived, |scaled| scaled.max(derived)))
}
