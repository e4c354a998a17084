//! # VL48: class-not-in-version
//!
//! This version of vLLM has no class for the target's architecture.
//!
//! ## What it does
//!
//! Compares the target's architecture with the architectures that vLLM registers, if the version is
//! stated: those that 0.11.0 lacks, up to the first release that has them. It is silent on
//! platforms and images with models of their own, for nightly builds, and where the launch chooses
//! the implementation (`--model-impl`) or changes the config (`--hf-overrides`).
//!
//! ## Why is this bad?
//!
//! vLLM takes the class of Transformers in its place, if the installed Transformers has one. That
//! class loads only checkpoints of common layers, and none of vLLM's drafts runs with most of them.
//!
//! ## What vLLM does
//!
//! `ValueError: Model architectures ['…'] are not supported for now.` If Transformers has a class,
//! the weights do not fit: `ValueError: There is no module or parameter named '…' in
//! TransformersMultiModalMoEForCausalLM`.
//!
//! ## Example
//!
//! ```launch bad version:0.29.0
//! vllm serve org/model --tensor-parallel-size 4
//! ```
//! ```target
//! {"architectures": ["Glm5NextForConditionalGeneration"]}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.30.0
//! vllm serve org/model --tensor-parallel-size 4
//! ```
//! ```target
//! {"architectures": ["Glm5NextForConditionalGeneration"]}
//! ```
//!
//! ```launch good version:0.29.0
//! vllm serve org/model --tensor-parallel-size 4 --model-impl transformers
//! ```
//! ```target
//! {"architectures": ["Glm5NextForConditionalGeneration"]}
//! ```
//!
//! ## Versions
//!
//! Read in all releases from 0.11.0 to 0.33.0 but 0.21.0.
//!
//! ## Source
//!
//! vLLM `model_executor/models/registry.py`; vllm#54062, vllm#56007.

use std::sync::OnceLock;

use schemas::{diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{
    Applies, Context, Definition, Finding, RuleCheck,
    class_table::ClassTable,
    platform::{Platform, platform_of},
};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL48",
    name: "class-not-in-version",
    severity: Severity::Warning,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// Of each architecture that the oldest version lacks: the first version that has it.
fn table() -> &'static ClassTable<1> {
    static TABLE: OnceLock<ClassTable<1>> = OnceLock::new();
    TABLE.get_or_init(|| ClassTable::from_text(include_str!("vllm_classes.tsv")))
}

/// The first version with the architecture, if this one certainly lacks it.
fn lacks_until(architecture: &str, version: EngineVersion) -> Option<EngineVersion> {
    let [since] = table().class(architecture)?;
    since.filter(|since| table().next_read(version).is_some_and(|next| next < *since))
}

fn check(context: &Context<'_>) -> Option<Finding> {
    let version = context.version();
    // A nightly build has the number of the release before it, and classes of the next one.
    if !context.resolved.version_given || version.to_string().contains("rc") {
        return None;
    }
    let has_own_models = matches!(platform_of(context), Some(Platform::Ascend | Platform::Other));
    let chooses = ["model-impl", "hf-overrides"].into_iter().any(|flag| context.launch.argument(flag).is_some());
    if has_own_models || chooses || context.launch.forks.any_of(context.launch.engine) || context.launch.may_be_fork() {
        return None;
    }
    let architecture = context.target_config()?.architecture()?;
    let since = lacks_until(architecture, version)?;
    let message = format!("vllm {version} has no class for {architecture}");
    Some(
        Finding::new(context.launch.anchor, message, "a version without this model")
            .related(context.span(Key::ModelPath), architecture)
            .vllm_says("ValueError: Model architectures […] are not supported for now, or a weight that a class of Transformers does not have")
            .on_facts("target", context.target)
            .by_version()
            .help(format!("use vllm {since} or later")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        table().check(include_str!("vllm_classes.tsv"), 30, 0..1);
    }

    #[test]
    fn classes_come_with_a_version() {
        let lacks = |name: &str, version: &str| lacks_until(name, version.parse().expect("a version")).is_some();
        assert!(lacks("Glm5NextForConditionalGeneration", "0.29.0"));
        assert!(!lacks("Glm5NextForConditionalGeneration", "0.30.0"));
        // 0.21.0 was not read, and what 0.22.0 has may be in it.
        let [since] = table().class("DeepseekV4ForCausalLM").expect("a row");
        assert_eq!(since, "0.20.0".parse().ok());
        assert!(lacks("DeepseekV4ForCausalLM", "0.19.1") && !lacks("DeepseekV4ForCausalLM", "0.10.2"));
        assert!(!lacks("LlamaForCausalLM", "0.11.0") && !lacks("NotAClassForCausalLM", "0.11.0"));
    }
}
