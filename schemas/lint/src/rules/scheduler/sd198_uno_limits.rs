//! # SD198: uno-limits
//!
//! UNO does not support this setting.
//!
//! ## What it does
//!
//! Looks in a UNO launch for settings that UNO rejects: tensor parallelism, DP attention, LoRA,
//! rejection sampling, an attention backend other than fa3, a device other than CUDA, and a missing
//! number of draft tokens.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: UNO requires TP=PP=1.`, `ValueError: UNO requires FA3 for both prefill and decode
//! attention` and others of this kind. Pipeline parallelism is another finding (SD093), and so are
//! deterministic inference (SD098), the draft model and the adapter (SD009).
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm UNO --uno-lora-path adapter --speculative-num-draft-tokens 8 --tp 2 \
//!   --attention-backend fa3 --max-running-requests 16
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm UNO --uno-lora-path adapter --speculative-num-draft-tokens 8 \
//!   --attention-backend fa3 --max-running-requests 16
//! ```
//!
//! ## Versions
//!
//! Since UNO was added (0.5.20).
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`, `_handle_uno`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, text::shortened};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, support::missing, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD198",
    name: "uno-limits",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

/// Flags that UNO rejects, each with its message.
const REFUSED: [(Key, &str); 5] = [
    (Key::EnableDpAttention, "UNO does not support DP attention or context parallelism."),
    (Key::EnableLora, "UNO does not support public Multi-LoRA serving."),
    (Key::LoraPaths, "UNO does not support public Multi-LoRA serving."),
    (
        Key::SpeculativeUseRejectionSampling,
        "UNO manages its own stochastic verification and does not use --speculative-use-rejection-sampling.",
    ),
    (Key::EnableTwoBatchOverlap, "UNO tree mode does not yet support two-batch overlap."),
];

fn check(context: &Context<'_>) -> Vec<Finding> {
    if context.only(Algorithm::Uno).is_none() || context.version() < V0_5_20 {
        return Vec::new();
    }
    let tree = context.launch.count(Key::SpeculativeEagleTopk).is_some_and(|topk| topk.value > 1);
    let refused =
        REFUSED.iter().filter(|(key, _)| tree || *key != Key::EnableTwoBatchOverlap).filter_map(|(key, says)| {
            let place = context.span(*key)?;
            let message = format!("UNO does not run with `{}`", context.flag(*key));
            let finding = Finding::new(place, message, "refused").sglang_says(format!("ValueError: {says}"));
            Some(finding.by_version().help(format!("take `{}` out", context.flag(*key))))
        });
    let others = [ranks(context), backend(context), device(context), tokens(context)];
    refused.chain(others.into_iter().flatten()).collect()
}

fn ranks(context: &Context<'_>) -> Option<Finding> {
    let ranks = context.launch.count(Key::TpSize).filter(|ranks| ranks.value > 1)?;
    let message = format!("UNO runs on one GPU, not over {}", ranks.value);
    Some(
        Finding::new(ranks.span, message, "one rank only")
            .sglang_says("ValueError: UNO requires TP=PP=1.")
            .by_version()
            .help(format!("write `{}`, or use another algorithm", context.line(Key::TpSize, "1"))),
    )
}

fn backend(context: &Context<'_>) -> Option<Finding> {
    let keys = [Key::PrefillAttentionBackend, Key::DecodeAttentionBackend, Key::AttentionBackend];
    let both = context.launch.has(Key::PrefillAttentionBackend) && context.launch.has(Key::DecodeAttentionBackend);
    let (key, backend) = keys
        .into_iter()
        .filter(|key| !(both && *key == Key::AttentionBackend))
        .filter_map(|key| Some((key, context.launch.text(key)?)))
        .find(|(_, backend)| backend.value != "fa3")?;
    Some(
        Finding::new(backend.span, format!("UNO does not run on {}", backend.value), "fa3 only")
            .sglang_says("ValueError: UNO requires FA3 for both prefill and decode attention")
            .by_version()
            .help(format!("write `{}`", context.line(key, "fa3"))),
    )
}

fn device(context: &Context<'_>) -> Option<Finding> {
    let device = context.launch.text(Key::Device).filter(|device| !is_cuda(device.value))?;
    let shown = shortened(device.value);
    Some(
        Finding::new(device.span, format!("UNO does not run on `{shown}`"), "CUDA only")
            .sglang_says("ValueError: UNO only supports CUDA.")
            .by_version()
            .help("use a GPU, or another algorithm"),
    )
}

fn is_cuda(device: &str) -> bool {
    device == "auto" || device.starts_with("cuda")
}

fn tokens(context: &Context<'_>) -> Option<Finding> {
    context.is_absent(Key::SpeculativeNumDraftTokens).then(|| {
        missing(context, Key::SpeculativeNumDraftTokens, "UNO has no number of tokens to verify")
            .sglang_says("ValueError: UNO requires --speculative-num-draft-tokens to be a positive integer")
            .by_version()
            .help(format!("add `{}`", context.line(Key::SpeculativeNumDraftTokens, "8")))
    })
}
