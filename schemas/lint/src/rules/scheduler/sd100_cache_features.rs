//! # SD100: cache-features
//!
//! A cache feature cannot be combined with speculation, or with this algorithm.
//!
//! ## What it does
//!
//! Looks for features that SGLang rejects with speculation:
//!
//! - `--enable-hierarchical-cache` over several ranks of decode context parallelism, with any
//!   algorithm but DSPARK;
//! - `--enable-unified-memory` with another algorithm than EAGLE, EAGLE3, DFLASH and DSPARK, or
//!   with topk above 1;
//! - `--weight-cache-mode` other than `off`;
//! - `--enable-lmcache` with any algorithm;
//! - `--enable-watermark` with `--speculative-use-rejection-sampling`.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! A `ValueError`, a `NotImplementedError` or an `AssertionError` at start. These features do not
//! know the draft's pages and weights, and a tree moves single tokens where the unified pool moves
//! pages.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --weight-cache-mode client
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --enable-hierarchical-cache --dcp-size 2
//! ```
//!
//! ```launch bad version:0.5.23 also:SD130
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --enable-unified-memory
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --enable-lmcache
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --enable-hierarchical-cache --enable-unified-memory --weight-cache-mode off
//! ```
//!
//! ## Versions
//!
//! Read in 0.5.23. Older versions have no such check, and lack some of the flags; CUDA graphs, the
//! hierarchical cache and speculation together crashed some of them (#19177).
//!
//! ## Source
//!
//! sglang `arg_groups/hicache_hook.py`, `arg_groups/kv_cache_hook.py`,
//! `arg_groups/model_path_hook.py`.

use launch::Argument;
use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD100",
    name: "cache-features",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    if !context.resolved.speculative || context.version() < V0_5_23 {
        return Vec::new();
    }
    let found = [hierarchical(context), unified(context), weights(context), watermark(context), lmcache(context)];
    found.into_iter().flatten().collect()
}

fn lmcache(context: &Context<'_>) -> Option<Finding> {
    let is_it =
        |argument: &&Argument| matches!(argument.flag.value.as_str(), "--enable-lmcache" | "--sglang-enable-lmcache");
    let flag = &context.launch.arguments.iter().find(is_it)?.flag;
    Some(
        Finding::new(flag.span, "LMCache does not hold the draft's pages", "refused at start")
            .related(context.span(Key::SpeculativeAlgorithm), "beside speculation")
            .sglang_says("NotImplementedError: LMCacheUnifiedRadixCache does not yet support speculative decoding")
            .by_version()
            .help(format!("take `{}` out", flag.value)),
    )
}

fn hierarchical(context: &Context<'_>) -> Option<Finding> {
    let ranks = context.launch.count(Key::DcpSize).filter(|ranks| ranks.value > 1)?;
    let algorithm = context.algorithm().filter(|algorithm| *algorithm != Algorithm::Dspark)?;
    let key = Key::EnableHierarchicalCache;
    let message =
        format!("the hierarchical cache over {} ranks does not support {} drafts", ranks.value, algorithm.name());
    Some(
        refused(context, context.span(key).map(|_| key)?, message)
            .related(Some(ranks.span), "over these ranks")
            .sglang_says(
                "NotImplementedError: HiCache with --dcp-size > 1 only supports DSPARK speculative decoding; …",
            ),
    )
}

fn unified(context: &Context<'_>) -> Option<Finding> {
    let key = Key::EnableUnifiedMemory;
    context.span(key)?;
    let algorithm = context.algorithm()?;
    let known = [Algorithm::Dflash, Algorithm::Dspark, Algorithm::Eagle, Algorithm::Eagle3];
    if !known.contains(&algorithm) {
        return Some(refused(context, key, format!("the unified pool does not support {}", algorithm.name())));
    }
    let topk = context.launch.count(Key::SpeculativeEagleTopk).filter(|topk| topk.value > 1)?;
    let message = format!("the unified pool holds chains only, and topk is {}", topk.value);
    Some(refused(context, key, message).related(Some(topk.span), "a tree"))
}

fn weights(context: &Context<'_>) -> Option<Finding> {
    let key = Key::WeightCacheMode;
    let mode = context.launch.text(key).filter(|mode| mode.value != "off")?;
    let message = format!("the weight cache ({}) does not hold the draft's weights", mode.value);
    Some(refused(context, key, message).sglang_says(
        "ValueError: --weight-cache-mode is not supported together with speculative decoding \
         (--speculative-algorithm): …",
    ))
}

fn watermark(context: &Context<'_>) -> Option<Finding> {
    let sampling = context.span(Key::SpeculativeUseRejectionSampling)?;
    let key = Key::EnableWatermark;
    context.span(key)?;
    Some(refused(context, key, "text is not marked under rejection sampling".into()).related(Some(sampling), "here"))
}

fn refused(context: &Context<'_>, key: Key, message: String) -> Finding {
    Finding::new(context.place(key), message, "refused at start")
        .related(context.span(Key::SpeculativeAlgorithm), "beside speculation")
        .by_version()
        .help(format!("take `{}` out", context.flag(key)))
}
