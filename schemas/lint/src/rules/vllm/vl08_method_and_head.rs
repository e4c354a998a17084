//! # VL08: method-and-head
//!
//! The method does not match the head.
//!
//! ## What it does
//!
//! Compares `eagle`, `eagle3`, `dflash` and `dspark` with the draft's files, and `draft_model` and
//! `medusa` with the draft's name: `eagle-`, `eagle3`, `dflash` and `dspark` in it, even in the
//! name of a folder, override the given method. The latter is a warning.
//!
//! ## Why is this bad?
//!
//! An EAGLE-3 head needs the hidden states of several layers, an EAGLE head those of the last. With
//! the wrong method it does not load, or its tokens are never accepted.
//!
//! ## What vLLM does
//!
//! It builds the method's class; the other method's weights do not fit.
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "eagle", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000, "vocab_size": 128256}
//! ```
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "dflash", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000, "vocab_size": 128256}
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve target --speculative-config '{"method": "dspark", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```draft
//! {"architectures": ["DFlashDraftModel"], "block_size": 8, "num_hidden_layers": 5}
//! ```
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```draft
//! {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36}
//! ```
//!
//! ```launch bad
//! vllm serve target --speculative-config '{"method": "draft_model", "model": "/runs/eagle-baseline/small", "num_speculative_tokens": 3}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --speculative-config '{"method": "eagle3", "model": "draft", "num_speculative_tokens": 3}'
//! ```
//! ```draft
//! {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000, "vocab_size": 128256}
//! ```
//!
//! ## Versions
//!
//! All versions with both methods; names are interpreted like this in 0.28.0 and 0.33.0.
//!
//! ## Source
//!
//! vLLM issues #21737 and #47486, `config/speculative.py`.

use launch::VllmSpeculation;
use schemas::{diagnostic::Severity, drafting::vllm_method, model::DraftKind};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL08",
    name: "method-and-head",
    severity: Severity::Error,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

/// Parts of a draft's name from which vLLM infers a method, in its order.
const NAMES: [(&str, &str); 4] =
    [("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark")];

/// Methods that need a head of their own kind.
const HEADS: [&str; 4] = ["dflash", "dspark", "eagle", "eagle3"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let method = config.method.as_deref()?;
    if let Some(finding) = renamed(context, method, &config) {
        return Some(finding);
    }
    if !HEADS.contains(&method) {
        return None;
    }
    let right = if context.drafts_with_whole_model() { "draft_model" } else { vllm_method(of_head(context)?)?.name };
    if right == method {
        return None;
    }
    let message = match right {
        "draft_model" => format!("the draft is a whole model, and the method {method} needs a head"),
        _ => format!("the draft is a head for the method {right}"),
    };
    Some(
        Finding::new(config.span, message, "another method")
            .on_facts("draft", context.draft)
            .help(format!("write `{}`", context.config_pair("method", &format!("\"{right}\"")))),
    )
}

/// SGLang's name of the algorithm of a head; `None` for a whole model, and for what may be one.
fn of_head(context: &Context<'_>) -> Option<&'static str> {
    match context.draft_kind()? {
        DraftKind::Eagle => Some("EAGLE"),
        DraftKind::Eagle3 => Some("EAGLE3"),
        // As dflash it is a known fault, which has a rule of its own.
        DraftKind::Block if context.drafts_with_plain_dspark() => None,
        DraftKind::Block => context.draft?.drafts_with(),
        DraftKind::Mtp | DraftKind::Standalone => None,
    }
}

/// A draft whose name overrides the given method.
fn renamed(context: &Context<'_>, method: &str, config: &VllmSpeculation) -> Option<Finding> {
    if !matches!(method, "draft_model" | "medusa" | "mlp_speculator") || config.is_legacy {
        return None;
    }
    let name = config.model.as_deref()?.to_ascii_lowercase();
    let (part, taken) = NAMES.into_iter().find(|(part, _)| name.contains(part))?;
    let pair = context.config_pair("method", &format!("\"{taken}\""));
    let message = format!("vllm takes the method from the draft's name: {taken}, not {method}");
    Some(
        Finding::new(config.span, message, format!("`{part}` stands in the name"))
            .help(format!("write `{pair}`, or load the draft from a path without `{part}`"))
            .at_most(Severity::Warning),
    )
}
