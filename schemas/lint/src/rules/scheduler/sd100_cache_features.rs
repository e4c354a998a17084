//! # SD100: cache-features
//!
//! A cache feature cannot be combined with speculation, or with this algorithm.
//!
//! ## What it does
//!
//! Looks for features that SGLang rejects with speculation:
//!
//! - `--enable-hierarchical-cache` over several ranks of decode context parallelism, with any
//!   algorithm but DSPARK (in 0.5.17 with any);
//! - `--enable-unified-memory` with another algorithm than EAGLE, EAGLE3, DFLASH and DSPARK (up to
//!   0.5.21 another than DSPARK), or with topk above 1;
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
//! ```launch bad version:0.5.20
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --enable-unified-memory
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
//! The weight cache and the hierarchical cache over ranks since 0.5.17, the unified pool since
//! 0.5.18, LMCache since 0.5.21, watermarks since 0.5.22; read in each version from 0.5.15 to
//! 0.5.23. Before, CUDA graphs, the hierarchical cache and speculation together crashed some
//! versions (#19177).
//!
//! ## Source
//!
//! sglang `arg_groups/hicache_hook.py`, `arg_groups/kv_cache_hook.py`,
//! `arg_groups/model_path_hook.py`, `arg_groups/validation_hook.py`; before 0.5.19
//! `server_args.py`.

use launch::Argument;
use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD100",
    name: "cache-features",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

/// Whether a launch has a feature that drafts cannot follow.
type FeatureCheck = fn(&Context<'_>) -> Option<Finding>;

fn check(context: &Context<'_>) -> Vec<Finding> {
    if !context.resolved.speculative {
        return Vec::new();
    }
    // Each with the first version that checks it.
    let features: [(EngineVersion, FeatureCheck); 5] =
        [(V0_5_17, weights), (V0_5_17, hierarchical), (V0_5_18, unified), (V0_5_21, lmcache), (V0_5_22, watermark)];
    let checked = features.into_iter().filter(|(since, _)| context.version() >= *since);
    checked.filter_map(|(_, check)| check(context)).collect()
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
    let has_dspark = context.version() >= V0_5_18;
    let algorithm = context.algorithm().filter(|algorithm| *algorithm != Algorithm::Dspark || !has_dspark)?;
    let key = Key::EnableHierarchicalCache;
    let says = if has_dspark {
        "NotImplementedError: HiCache with --dcp-size > 1 only supports DSPARK speculative decoding; …"
    } else {
        "NotImplementedError: HiCache with --dcp-size > 1 does not support speculative decoding yet (the draft-model \
         host pool has no DCP index translation)."
    };
    let message =
        format!("the hierarchical cache over {} ranks does not support {} drafts", ranks.value, algorithm.name());
    Some(
        refused(context, context.span(key).map(|_| key)?, message)
            .related(Some(ranks.span), "over these ranks")
            .sglang_says(says),
    )
}

fn unified(context: &Context<'_>) -> Option<Finding> {
    let key = Key::EnableUnifiedMemory;
    context.span(key)?;
    let algorithm = context.algorithm()?;
    let (known, says): (&[Algorithm], _) = if context.version() >= V0_5_22 {
        let known = &[Algorithm::Dflash, Algorithm::Dspark, Algorithm::Eagle, Algorithm::Eagle3];
        (known, "--enable-unified-memory only supports --speculative-algorithm DSPARK, DFLASH, EAGLE and EAGLE3; …")
    } else {
        (&[Algorithm::Dspark], "--enable-unified-memory only supports --speculative-algorithm DSPARK (chain draft); …")
    };
    if !known.contains(&algorithm) {
        let message = format!("the unified pool does not support {}", algorithm.name());
        return Some(refused(context, key, message).sglang_says(format!("AssertionError: {says}")));
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

#[cfg(test)]
mod tests {
    use crate::rules::examples::finds;

    #[test]
    fn features_are_refused_from_the_version_that_checks_them() {
        let chain = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";
        for (algorithm, flags, before, first) in [
            ("EAGLE", "--weight-cache-mode client", "0.5.16", "0.5.17"),
            ("EAGLE", "--enable-hierarchical-cache --dcp-size 2", "0.5.16", "0.5.17"),
            ("EAGLE", "--enable-unified-memory", "0.5.17", "0.5.18"),
            ("NGRAM", "--enable-unified-memory", "0.5.17", "0.5.22"),
            ("EAGLE", "--enable-lmcache", "0.5.20", "0.5.21"),
            ("EAGLE", "--enable-watermark --speculative-use-rejection-sampling", "0.5.21", "0.5.22"),
        ] {
            let text = format!("sglang serve --model-path m --speculative-algorithm {algorithm} {chain} {flags}");
            assert!(!finds("SD100", &text, before), "{flags} {before}");
            assert!(finds("SD100", &text, first), "{flags} {first}");
        }
        let unified =
            format!("sglang serve --model-path m --speculative-algorithm EAGLE {chain} --enable-unified-memory");
        assert!(!finds("SD100", &unified, "0.5.22"));
        let ranks =
            "sglang serve --model-path m --speculative-algorithm DSPARK --enable-hierarchical-cache --dcp-size 2";
        assert!(finds("SD100", ranks, "0.5.17") && !finds("SD100", ranks, "0.5.18"));
    }
}
