//! # SD095: dflash-dp
//!
//! DFLASH does not run with DP attention, or only if the output head is split too and the draft is
//! a plain one.
//!
//! ## What it does
//!
//! Looks for DP attention under DFLASH: any up to 0.5.22, later without `--enable-dp-lm-head` or
//! with a Domino or LiLiCorr draft.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! Up to 0.5.22: `Currently DFLASH speculative decoding does not support dp attention.` (NPUs from
//! 0.5.20 on do). In 0.5.23: `DFLASH with dp attention requires --enable-dp-lm-head.` and
//! `ValueError: DFLASH with dp attention supports plain DFlash and DFlash2 drafts; Domino and
//! LiLiCorr heads are not supported.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.15.post1
//! sglang serve --model-path target --tp-size 4 --dp-size 4 --enable-dp-attention --speculative-algorithm DFLASH --max-running-requests 16 \
//!   --speculative-draft-model-path draft --attention-backend fa3
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --tp-size 4 --dp-size 4 --enable-dp-attention --enable-dp-lm-head --max-running-requests 16 \
//!   --speculative-algorithm DFLASH --speculative-draft-model-path Huang2020/Qwen3-8B-Domino-b16 --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --tp-size 4 --dp-size 4 --enable-dp-attention --enable-dp-lm-head --max-running-requests 16 \
//!   --speculative-algorithm DFLASH --speculative-draft-model-path draft --attention-backend fa3
//! ```
//!
//! ## Versions
//!
//! As read in 0.5.13 to 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`, `speculative/dflash_worker_v2.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, variants::DraftVariant, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD095",
    name: "dflash-dp",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Variants whose heads are not split over ranks.
const UNSPLIT: [&str; 2] = ["Domino", "LiLiCorr"];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Dflash)?;
    let several = |key: Key| context.launch.count(key).filter(|ranks| ranks.value > 1).map(|ranks| ranks.span);
    let place = context.span(Key::EnableDpAttention).or(several(Key::AttnDpSize))?;
    if context.launch.text(Key::Device).is_some_and(|device| device.value.starts_with("npu")) {
        return None;
    }
    let finding = |message: &str| {
        Finding::new(place, message, "not supported")
            .related(context.span(Key::SpeculativeAlgorithm), "drafts a block at once")
            .by_version()
    };
    if context.version() <= V0_5_22 {
        return Some(
            finding("DFLASH does not run with DP attention")
                .sglang_says("Currently DFLASH speculative decoding does not support dp attention.")
                .help(format!("take `{}` out", context.flag(Key::EnableDpAttention))),
        );
    }
    if let Some((variant, is_by_config)) =
        DraftVariant::from_context(context).filter(|(one, _)| UNSPLIT.contains(&one.name))
    {
        let found = finding(&format!("DP attention does not run with {} drafts", variant.name))
            .sglang_says(
                "ValueError: DFLASH with dp attention supports plain DFlash and DFlash2 drafts; Domino and LiLiCorr heads \
                 are not supported.",
            )
            .on_facts("draft", context.draft.filter(|_| is_by_config))
            .help(format!("take `{}` out, or use a plain DFlash draft", context.flag(Key::EnableDpAttention)));
        return Some(if is_by_config { found } else { found.at_most(Severity::Warning) });
    }
    context.is_absent(Key::EnableDpLmHead).then(|| {
        finding("DFLASH with DP attention needs the head to be split as well")
            .sglang_says("ValueError: DFLASH with dp attention requires --enable-dp-lm-head.")
            .help(format!("add `{}`", context.flag(Key::EnableDpLmHead)))
    })
}
