//! # SD096: tp-divisibility
//!
//! Target or draft cannot be split over this many GPUs.
//!
//! ## What it does
//!
//! Compares the attention heads and key/value heads of target and draft, and the draft's
//! feed-forward width, with the tensor parallelism, at which SGLang runs both. Under DP attention
//! the attention is split differently, and the heads are not checked; nor are MTP layers, which are
//! split like the target's own layers. With `--device cpu` SGLang pads the heads, and nothing is
//! checked.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It stops with a bare `AssertionError` at `assert self.total_num_heads % tp_size == 0`, or when a
//! layer is split. There is no separate parallelism for drafts.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path Qwen/Qwen2.5-72B-Instruct --tp 8 --speculative-algorithm STANDALONE \
//!   --speculative-draft-model-path Qwen/Qwen2.5-0.5B-Instruct --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,
//!  "intermediate_size": 4864, "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path Qwen/Qwen2.5-72B-Instruct --tp 2 --speculative-algorithm STANDALONE \
//!   --speculative-draft-model-path Qwen/Qwen2.5-0.5B-Instruct --max-running-requests 16
//! ```
//! ```draft
//! {"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,
//!  "intermediate_size": 4864, "torch_dtype": "bfloat16"}
//! ```
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path meta-llama/Llama-3.2-3B-Instruct --tp 3 --device cpu
//! ```
//! ```target
//! {"architectures": ["LlamaForCausalLM"], "num_attention_heads": 24, "num_key_value_heads": 8}
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `models/llama.py`, `layers/linear.py`, `configs/update_config.py`.

use launch::resolve::uses_mla;
use schemas::{
    algorithm::Algorithm,
    diagnostic::Severity,
    engines::Engine,
    flags::Key,
    model::{DraftKind, ModelConfig},
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD096",
    name: "tp-divisibility",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

/// Upper bound of the search for a fitting size; larger than any tensor-parallel group.
const MOST_GPUS: usize = 1024;

fn check(context: &Context<'_>) -> Vec<Finding> {
    let size = context.resolved.tp_size.as_ref().map_or(1, |size| size.value);
    // On CPUs sglang pads heads until they can be split.
    let on_cpu = context.launch.text(Key::Device).is_some_and(|device| device.value == "cpu");
    if size <= 1 || on_cpu {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if let Some(target) = context.target_config() {
        let found = of_model(context, "target", size, &|size| head_misfits(context, target, size));
        findings.extend(found.into_iter().map(|finding| finding.on_facts("target", context.target)));
    }
    if let Some(draft) = context.draft_config().filter(|_| context.resolved.speculative) {
        let found = of_model(context, "draft", size, &|size| misfits(context, draft, size));
        findings.extend(found.into_iter().map(|finding| finding.on_facts("draft", context.draft)));
    }
    findings
}

/// A finding with the parts of a model that cannot be split, and the first one's message.
fn of_model(
    context: &Context<'_>,
    whose: &str,
    size: usize,
    misfits: &dyn Fn(usize) -> Vec<(String, &'static str)>,
) -> Option<Finding> {
    let fits = (1..size.min(MOST_GPUS)).rev().find(|smaller| misfits(*smaller).is_empty());
    let parallel = if context.launch.engine == Engine::Slime { Key::RolloutNumGpusPerEngine } else { Key::TpSize };
    let model = if whose == "draft" { Key::SpeculativeDraftModelPath } else { Key::ModelPath };
    let (parts, messages): (Vec<String>, Vec<&'static str>) = misfits(size).into_iter().unzip();
    let says = messages.first()?;
    let what = match parts.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => parts.concat(),
    };
    let message = format!("the {whose}'s {what} cannot be split over {size} GPUs");
    let finding = Finding::new(context.value_place(model), message, what)
        .related(context.span(parallel), format!("{size} GPUs"))
        .sglang_says(*says);
    Some(match fits {
        Some(fits) => finding.help(format!("write `{}`, or use another {whose}", context.tensor_parallel_line(fits))),
        None => finding.help(format!("use another {whose}")),
    })
}

/// The parts that cannot be split, with the engine's message.
fn misfits(context: &Context<'_>, draft: &ModelConfig, size: usize) -> Vec<(String, &'static str)> {
    let mut wrong = Vec::new();
    let class = draft.architecture().unwrap_or_default();
    if context.algorithm() == Some(Algorithm::Dflash) && class.starts_with("DFlash") {
        let says = "AssertionError: DFlashAttention requires total_num_heads divisible by tp_size.";
        return head_misfits(context, draft, size).into_iter().map(|(part, _)| (part, says)).collect();
    }
    // MTP layers are split like the target's own layers.
    if !matches!(context.draft_kind(), Some(DraftKind::Eagle | DraftKind::Eagle3 | DraftKind::Standalone)) {
        return wrong;
    }
    wrong.extend(head_misfits(context, draft, size));
    if let Some(width) =
        draft.intermediate_size.filter(|width| draft.num_experts.is_none() && !width.is_multiple_of(size))
    {
        wrong.push((format!("feed-forward width of {width}"), "AssertionError: … is not divisible by …"));
    }
    wrong
}

/// The parts of a model's attention that cannot be split.
fn head_misfits(context: &Context<'_>, model: &ModelConfig, size: usize) -> Vec<(String, &'static str)> {
    let mut wrong = Vec::new();
    let split_otherwise = context.launch.has(Key::EnableDpAttention) || context.launch.has(Key::AttnDpSize);
    if let Some(heads) = model.num_attention_heads.filter(|heads| !split_otherwise && *heads > 0) {
        if !heads.is_multiple_of(size) {
            wrong.push((
                format!("{heads} attention heads"),
                "AssertionError: assert self.total_num_heads % tp_size == 0",
            ));
        }
        let groups = model.num_key_value_heads.filter(|groups| *groups > 0 && !uses_mla(model));
        let whole =
            |groups: usize| if groups >= size { groups.is_multiple_of(size) } else { size.is_multiple_of(groups) };
        if let Some(groups) = groups.filter(|groups| !whole(*groups)) {
            wrong.push((
                format!("{groups} key/value heads"),
                "AssertionError: assert self.total_num_kv_heads % tp_size == 0",
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use crate::rules::examples::found_in;

    #[test]
    fn heads_of_block_drafts_are_split_too() {
        let check = |size: usize, heads: usize, is_found: bool| {
            let text = format!(
                "sglang serve --model-path target --tp-size {size} --speculative-algorithm DFLASH \
                 --speculative-draft-model-path draft"
            );
            let draft = format!(r#"{{"architectures": ["DFlashDraftModel"], "num_attention_heads": {heads}}}"#);
            let found = found_in(&text, "0.5.23", "", &draft);
            assert_eq!(found.iter().any(|found| found.code == "SD096"), is_found, "{size} {heads}");
        };
        check(4, 6, true);
        check(4, 32, false);
        check(1, 6, false);
    }
}
