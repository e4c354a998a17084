//! # SD131: ngram-page
//!
//! NGRAM drafts a tree by default, which does not work with pages of several tokens.
//!
//! ## What it does
//!
//! Looks for `--page-size` above 1 under NGRAM with a breadth above 1 (default 10) on a backend
//! other than flashinfer.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: speculative_eagle_topk(10) > 1 with page_size(16) > 1 is unstable and produces
//! incorrect results for paged attention backends.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm NGRAM --page-size 16 --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm NGRAM --page-size 16 --speculative-ngram-max-bfs-breadth 1 \
//!   --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ## Versions
//!
//! As read in 0.5.6 to 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD131",
    name: "ngram-page",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The default breadth.
const BREADTH: usize = 10;

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Ngram)?;
    let page = context.launch.count(Key::PageSize).filter(|page| page.value > 1)?;
    let key = Key::SpeculativeNgramMaxBfsBreadth;
    let breadth = if context.launch.has(key) { context.launch.count(key)?.value } else { BREADTH };
    let backend = &context.resolved.attention_backend.as_ref()?.value;
    if breadth <= 1 || backend == "flashinfer" {
        return None;
    }
    let size = page.value;
    Some(
        Finding::new(
            page.span,
            format!("NGRAM with a breadth of {breadth} cannot run on pages of {size}"),
            "pages of 1",
        )
        .related(context.span(key), "a tree")
        .sglang_says(format!(
            "speculative_eagle_topk({breadth}) > 1 with page_size({size}) > 1 is unstable and produces incorrect \
                 results"
        ))
        .by_version()
        .help(format!("write `{}`, or pages of 1", context.line(key, "1"))),
    )
}
