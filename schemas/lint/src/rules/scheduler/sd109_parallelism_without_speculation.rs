//! # SD109: parallelism-without-speculation
//!
//! A kind of parallelism that does not run with speculation.
//!
//! ## What it does
//!
//! Looks for `--dwdp-size` above 1, `--enable-layernorm-sp` and `--enable-kv-cache-sharding` with
//! speculation. Elastic expert parallelism is restricted only while it grows, and is not checked.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! An error at start, such as `ValueError: --enable-kv-cache-sharding does not support speculative
//! decoding.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --tp 2 --dwdp-size 2
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --tp 2 --enable-layernorm-sp
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --tp 2
//! ```
//!
//! ## Versions
//!
//! The flags are in 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/parallel_hook.py`, `arg_groups/layernorm_sp_hook.py`,
//! `arg_groups/kv_shard_hook.py`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD109",
    name: "parallelism-without-speculation",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    if !context.resolved.speculative {
        return Vec::new();
    }
    let several = context.launch.count(Key::DwdpSize).is_some_and(|ranks| ranks.value > 1);
    let refused = [
        (Key::DwdpSize, several, "AssertionError: DWDP does not support speculative decoding (MTP/draft workers)"),
        (
            Key::EnableLayernormSp,
            context.launch.has(Key::EnableLayernormSp),
            "ValueError: --enable-layernorm-sp is not compatible with speculative decoding (EAGLE/EAGLE3): …",
        ),
        (
            Key::EnableKvCacheSharding,
            context.launch.has(Key::EnableKvCacheSharding),
            "ValueError: --enable-kv-cache-sharding does not support speculative decoding.",
        ),
    ];
    let found = refused.into_iter().filter(|(_, given, _)| *given).map(|(key, _, says)| {
        Finding::new(
            context.place(key),
            format!("`{}` does not run with speculation", context.flag(key)),
            "refused at start",
        )
        .related(context.span(Key::SpeculativeAlgorithm), "beside speculation")
        .sglang_says(says)
        .help(format!("take `{}` out", context.flag(key)))
    });
    found.collect()
}
