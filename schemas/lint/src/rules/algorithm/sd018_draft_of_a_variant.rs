//! # SD018: draft-of-a-variant
//!
//! The draft is a variant (DFlash2, Domino, LiLiCorr, XPress, P-EAGLE, PARD) that this engine or
//! version does not run.
//!
//! ## What it does
//!
//! Recognises variants by the class in the draft's config, or else by the draft's name, and
//! compares the engine's version with the first that runs them. By the name alone it is a warning.
//!
//! | draft | SGLang | vLLM |
//! |---|---|---|
//! | DFlash2 | 0.5.19, as DFLASH | 0.28.0, as `dflash` |
//! | Domino | 0.5.20, as DFLASH | no version |
//! | LiLiCorr | 0.5.21, as DFLASH | 0.33.0, as `dflash` |
//! | XPress | no version | 0.33.0, as `dflash` |
//! | P-EAGLE | no version | 0.16.0, as `eagle3` with `parallel_drafting` |
//! | PARD | no version | 0.16.0, as `draft_model` with `parallel_drafting` |
//!
//! ## Why is this bad?
//!
//! The class is not known and the server does not start, or the draft is loaded as the kind that it
//! is built on, without the part that it was trained with, and few of its tokens are accepted.
//!
//! ## What SGLang does
//!
//! `ValueError: Model architectures ['DFlash2DraftModel'] are not supported for now.` vLLM says the
//! same.
//!
//! ## Example
//!
//! ```launch bad version:0.5.18 also:SD194
//! sglang serve --model-path Qwen/Qwen3.8-27B --speculative-algorithm DFLASH --max-running-requests 16 \
//!   --speculative-draft-model-path incoai/Qwen3.8-27B-DFlash2 --speculative-num-draft-tokens 8
//! ```
//!
//! ```launch bad version:0.33.0
//! vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "dflash", "model": "Huang2020/Qwen3-8B-Domino-b16", "num_speculative_tokens": 15}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path Qwen/Qwen3.8-27B --speculative-algorithm DFLASH --max-running-requests 16 \
//!   --speculative-draft-model-path incoai/Qwen3.8-27B-DFlash2 --speculative-num-draft-tokens 8
//! ```
//!
//! ```launch good version:0.33.0
//! vllm serve Qwen/Qwen3.8-27B --speculative-config '{"method": "dflash", "model": "incoai/Qwen3.8-27B-DFlash2", "num_speculative_tokens": 7}'
//! ```
//!
//! ## Versions
//!
//! SGLang's were read in 0.5.18 to 0.5.23, vLLM's in 0.28.0 and 0.33.0; a version between two that
//! were read is not reported, nor is a build of a day (a nightly image) before the two releases
//! that follow it. DFlash2 in older versions of vLLM is a known crash (VL24).
//!
//! ## Source
//!
//! sglang `models/dflash.py`, `models/lilicorr.py`, `speculative/domino_utils.py`; vLLM pull
//! requests #52816, #32887 and
//! #57934.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{
    Applies, Context, Definition, Finding, RuleCheck,
    variants::{DraftVariant, Runs},
};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD018",
    name: "draft-of-a-variant",
    severity: Severity::Error,
    applies: Applies::All,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let (engine, version) = (context.launch.engine.reference(), context.version());
    let (variant, is_by_config) = DraftVariant::from_context(context)?;
    let message = match variant.runs_in(engine) {
        Runs::Since(since) if version > since.last_without || context.may_have(since.first_with) => return None,
        Runs::Since(_) => format!("{engine} {version} does not run {} drafts yet", variant.name),
        Runs::Never => format!("no version of {engine} that was read runs {} drafts", variant.name),
    };
    let place = match context.launch.vllm_key_place("model") {
        Some(place) => place,
        None => context.value_place(Key::SpeculativeDraftModelPath),
    };
    let finding = Finding::new(place, message, format!("{} draft", variant.name))
        .on_facts("draft", context.draft.filter(|_| is_by_config))
        .by_version()
        .by_engine()
        .help(variant.runs());
    // A modified engine, or a plugin, may have its class.
    let is_own = context.launch.forks.any_of(context.launch.engine);
    Some(match (is_own, is_by_config) {
        (true, _) => finding.at_most(Severity::Info),
        (false, true) => finding,
        (false, false) => finding.at_most(Severity::Warning),
    })
}
