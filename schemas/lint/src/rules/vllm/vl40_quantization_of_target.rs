//! # VL40: quantization-of-target
//!
//! The checkpoint is quantised in another way than `--quantization` says.
//!
//! ## What it does
//!
//! Compares the flag with `quantization_config` of the target's config, for methods that do not
//! stand in for one another.
//!
//! ## Why is this bad?
//!
//! The server does not start. The flag is seldom needed: vLLM reads the method from the config.
//!
//! ## What vLLM does
//!
//! `ValueError: Quantization method specified in the model config (compressed-tensors) does not
//! match the quantization method specified in the quantization argument (fp8).`
//!
//! ## Example
//!
//! ```launch bad version:0.30.0
//! vllm serve org/model --quantization fp8
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "quantization_config": {"quant_method": "compressed-tensors"}}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.30.0
//! vllm serve org/model --quantization compressed-tensors
//! ```
//! ```target
//! {"architectures": ["Qwen3ForCausalLM"], "quantization_config": {"quant_method": "compressed-tensors"}}
//! ```
//!
//! ## Versions
//!
//! All versions that were read, 0.8.5 to 0.33.0.
//!
//! ## Source
//!
//! vLLM `config/model.py`, `_verify_quantization`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL40",
    name: "quantization-of-target",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// The kernels that take a checkpoint of each method.
const TAKEN: [(&str, &[&str]); 4] = [
    ("awq", &["awq", "awq_marlin"]),
    ("compressed-tensors", &["compressed-tensors"]),
    ("fp8", &["fp8"]),
    ("gptq", &["gptq", "gptq_marlin"]),
];

fn check(context: &Context<'_>) -> Option<Finding> {
    let flag = context.launch.argument("quantization")?;
    let given = flag.values.first()?.value.known()?;
    let stated = context.target_config()?.quantization_method()?.to_ascii_lowercase();
    let (_, taken) = TAKEN.iter().find(|(method, _)| *method == stated)?;
    let is_other = TAKEN.iter().any(|(_, other)| other.contains(&given)) || given == "bitsandbytes";
    if taken.contains(&given) || !is_other || flag.in_branch {
        return None;
    }
    Some(
        Finding::new(flag.span, format!("the checkpoint is quantised by {stated}, not by {given}"), "another method")
            .related(context.span(Key::ModelPath), stated.clone())
            .vllm_says(format!(
                "ValueError: Quantization method specified in the model config ({stated}) does not match the \
                 quantization method specified in the `quantization` argument ({given})."
            ))
            .on_facts("target", context.target)
            .help("take `--quantization` out: the config names the method"),
    )
}
