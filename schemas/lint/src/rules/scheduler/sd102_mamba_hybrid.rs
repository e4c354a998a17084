//! # SD102: mamba-hybrid
//!
//! The states of the target's linear attention cannot be managed in this way under speculation.
//!
//! ## What it does
//!
//! For targets with linear attention or Mamba layers (Qwen3-Next, Qwen3.5, Nemotron-H, Kimi-Linear,
//! Falcon-H1, Granite 4 hybrids) looks at
//!
//! - the strategy `no_buffer` with pages above 1, with the backend `trtllm_mha`, or without
//!   `--disable-overlap-schedule`;
//! - the strategy `extra_buffer` with a `--mamba-track-interval` below the draft tokens;
//! - `--enable-linear-replayssm-spec` with topk above 1.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `AssertionError: no_buffer do not support overlap schedule. Try to set
//! disable_overlap_schedule=True.` and similar errors. Without a strategy it uses `extra_buffer` if
//! overlap or paging is requested.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --mamba-radix-cache-strategy no_buffer
//! ```
//! ```target
//! {"architectures": ["Qwen3NextForCausalLM"], "torch_dtype": "bfloat16"}
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --mamba-radix-cache-strategy extra_buffer --mamba-track-interval 2
//! ```
//! ```target
//! {"architectures": ["Qwen3NextForCausalLM"], "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --mamba-radix-cache-strategy extra_buffer
//! ```
//! ```target
//! {"architectures": ["Qwen3NextForCausalLM"], "torch_dtype": "bfloat16"}
//! ```
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --mamba-radix-cache-strategy no_buffer --disable-overlap-schedule
//! ```
//! ```target
//! {"architectures": ["Qwen3NextForCausalLM"], "torch_dtype": "bfloat16"}
//! ```
//!
//! ## Versions
//!
//! Pages and `trtllm_mha` under `no_buffer` since 0.5.14 (before, pages are set to 1), overlap
//! since
//! 0.5.17 as far as read (0.5.9 to 0.5.13 turn it off automatically); the interval in 0.5.9 and
//! later.
//!
//! ## Source
//!
//! sglang `arg_groups/mamba_hook.py`, 0.5.9 `server_args.py`; slime's recipes for Qwen3.5.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD102",
    name: "mamba-hybrid",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

/// Prefixes of architectures with such layers.
const HYBRID: [&str; 6] = ["FalconH1", "GraniteMoeHybrid", "KimiLinear", "NemotronH", "Qwen3Next", "Qwen3_5"];

fn check(context: &Context<'_>) -> Vec<Finding> {
    let class = context.target_config().and_then(|target| target.architecture()).unwrap_or_default();
    if !context.resolved.speculative || !HYBRID.iter().any(|known| class.starts_with(known)) {
        return Vec::new();
    }
    let strategy = context.launch.text(Key::MambaSchedulerStrategy).map(|strategy| strategy.value);
    let first = match strategy {
        Some("no_buffer") => no_buffer(context),
        Some("extra_buffer") => extra_buffer(context),
        _ => None,
    };
    first.into_iter().chain(replay(context)).collect()
}

fn no_buffer(context: &Context<'_>) -> Option<Finding> {
    if context.version() < V0_5_14 {
        return None;
    }
    let key = Key::MambaSchedulerStrategy;
    let finding = |message: String, says: &str| {
        Finding::new(context.value_place(key), message, "keeps no buffer")
            .sglang_says(says)
            .on_facts("target", context.target)
            .by_version()
            .help(format!("write `{}`", context.line(key, "extra_buffer")))
    };
    let resolved = context.resolved;
    if let Some(page) = resolved.page_size.as_ref().filter(|page| page.value > 1) {
        let message = format!("no_buffer keeps states by single tokens, and a page has {}", page.value);
        return Some(finding(message, "no_buffer only supports page_size=1."));
    }
    if resolved.attention_backend.as_ref().is_some_and(|backend| backend.value == "trtllm_mha") {
        let says = "no_buffer do not support trtllm_mha attention backend.";
        return Some(finding("no_buffer does not run with trtllm_mha".into(), says));
    }
    if context.version() < V0_5_17 {
        return None;
    }
    let says = "no_buffer do not support overlap schedule. Try to set disable_overlap_schedule=True.";
    let message = "no_buffer does not run with the overlap scheduler, which is on".to_owned();
    let overlap = Key::DisableOverlapSchedule;
    context.is_absent(overlap).then(|| {
        finding(message, says).help(format!(
            "write `{}`, or add `{}`",
            context.line(key, "extra_buffer"),
            context.flag(overlap)
        ))
    })
}

fn extra_buffer(context: &Context<'_>) -> Option<Finding> {
    let key = Key::MambaTrackInterval;
    let interval = context.launch.count(key)?;
    let tokens = context.resolved.num_draft_tokens.as_ref()?.value;
    if interval.value >= tokens {
        return None;
    }
    let message = format!("states are kept every {} tokens, and one verify pass has {tokens}", interval.value);
    Some(
        Finding::new(interval.span, message, format!("at least {tokens}"))
            .related(context.span(Key::SpeculativeNumDraftTokens), "more than the interval")
            .sglang_says("AssertionError: assert mamba_track_interval >= speculative_num_draft_tokens")
            .on_facts("target", context.target)
            .help(format!("write `{}`", context.line(key, &tokens.to_string()))),
    )
}

fn replay(context: &Context<'_>) -> Option<Finding> {
    let key = Key::EnableLinearReplayssmSpec;
    let place = context.span(key)?;
    let topk = context.launch.count(Key::SpeculativeEagleTopk).filter(|topk| topk.value > 1)?;
    let message = format!("accepted tokens are replayed from chains only, and topk is {}", topk.value);
    Some(
        Finding::new(place, message, "needs topk 1")
            .related(Some(topk.span), "a tree")
            .on_facts("target", context.target)
            .by_version()
            .help(format!("write `{}`", context.line(Key::SpeculativeEagleTopk, "1"))),
    )
}
