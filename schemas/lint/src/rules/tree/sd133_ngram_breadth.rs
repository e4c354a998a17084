//! # SD133: ngram-breadth
//!
//! The tree of NGRAM has no possible breadth or depth.
//!
//! ## What it does
//!
//! Looks at NGRAM's breadths and depth: the minimum breadth must be at least 1 and at most the
//! maximum (defaults: 1 and 10), and the trie deeper than 1. Its capacity must be above its depth.
//!
//! ## Why is this bad?
//!
//! The server does not start. With a capacity that is too small it starts, and crashes at the first
//! request.
//!
//! ## What SGLang does
//!
//! The C++ code of the trie stops with `min_bfs_breadth must be less than or equal to
//! max_bfs_breadth` or a similar error. The root counts towards the capacity, so a path of the full
//! depth needs one more node; no version checks this, and the trie frees memory that it never
//! allocated: `munmap_chunk(): invalid pointer`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-ngram-min-bfs-breadth 4 --speculative-ngram-max-bfs-breadth 2
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-ngram-max-trie-depth 1
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-ngram-max-trie-depth 8 --speculative-ngram-capacity 8
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-ngram-min-bfs-breadth 1 --speculative-ngram-max-bfs-breadth 4
//! ```
//!
//! ## Versions
//!
//! As read in 0.5.12 to 0.5.23.
//!
//! ## Source
//!
//! sglang `ngram_corpus/ngram.cpp`; issue #36495.

use schemas::{algorithm::Algorithm, defaults::stated, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD133",
    name: "ngram-breadth",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The default of one of the numbers, in the launch's version.
fn default_of(context: &Context<'_>, key: Key) -> Option<i64> {
    stated(key.flag().name, context.version())?.parse().ok()
}

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Ngram)?;
    if context.version() < V0_5_12 {
        return None;
    }
    let (least_key, greatest_key, depth_key) =
        (Key::SpeculativeNgramMinBfsBreadth, Key::SpeculativeNgramMaxBfsBreadth, Key::SpeculativeNgramMaxTrieDepth);
    if let Some(depth) = context.launch.integer(depth_key).filter(|depth| depth.value <= 1) {
        return Some(
            Finding::new(depth.span, format!("a trie of depth {} finds nothing", depth.value), "has to be above 1")
                .sglang_says(format!("param_.max_trie_depth must be greater than 1, current value: {}", depth.value))
                .help(format!(
                    "write `{}`, which is the default",
                    context.line(depth_key, &default_of(context, depth_key)?.to_string())
                )),
        );
    }
    if let Some(finding) = capacity(context) {
        return Some(finding);
    }
    let breadth = |key| match context.launch.has(key) {
        true => context.launch.integer(key).map(|breadth| breadth.value),
        false => default_of(context, key),
    };
    let (least, greatest) = (breadth(least_key)?, breadth(greatest_key)?);
    if least <= 0 {
        let message = format!("a minimum breadth of {least} is not possible");
        return Some(
            Finding::new(context.value_place(least_key), message, "has to be above 0")
                .sglang_says(format!("min_bfs_breadth must be greater than 0, current value: {least}"))
                .help(format!("write `{}`", context.line(least_key, "1"))),
        );
    }
    if least <= greatest {
        return None;
    }
    let key = if context.launch.has(least_key) { least_key } else { greatest_key };
    Some(
        Finding::new(
            context.value_place(key),
            format!("the least breadth, {least}, is above the greatest, {greatest}"),
            "the other way round",
        )
        .related(context.span(greatest_key), "the greatest")
        .sglang_says(format!(
            "min_bfs_breadth must be less than or equal to max_bfs_breadth, current min_bfs_breadth: {least}, \
             max_bfs_breadth: {greatest}"
        ))
        .help(format!("write `{}`", context.line(least_key, &greatest.max(1).to_string()))),
    )
}

/// A trie that is too small for one path of its full depth.
fn capacity(context: &Context<'_>) -> Option<Finding> {
    let is_own = |name: &str| name.replace('_', "-").ends_with("speculative-ngram-capacity");
    let argument = context.launch.arguments.iter().rfind(|argument| is_own(&argument.flag.value))?;
    let word = argument.values.first()?;
    let capacity: i64 = word.value.known()?.parse().ok()?;
    let key = Key::SpeculativeNgramMaxTrieDepth;
    let depth = match context.launch.has(key) {
        true => context.launch.integer(key)?.value,
        false => default_of(context, key)?,
    };
    (capacity <= depth).then(|| {
        Finding::new(
            word.span,
            format!("a trie of {capacity} nodes has no room for a path of {depth}"),
            "its root is one",
        )
        .related(context.span(key), "the depth")
        .sglang_says("munmap_chunk(): invalid pointer")
        .help(format!(
            "write more than {depth}; it is {} unless given",
            stated("speculative-ngram-capacity", context.version()).unwrap_or("more")
        ))
    })
}
