//! # SD029: topk-gt1-page-gt1
//!
//! A tree with pages of several tokens, on an attention backend that does not support the
//! combination.
//!
//! ## What it does
//!
//! Looks for topk above 1 together with a page size above 1 (as given, or as the backend sets it),
//! and checks whether the backend supports both in this version. Only `--attention-backend` counts,
//! not the flags for split backends.
//!
//! ## Why is this bad?
//!
//! The branches of a tree share the last page of the prefix. A backend without support for this
//! overwrites one branch with another.
//!
//! ## What SGLang does
//!
//! - 0.4.7 sets topk to 1: `speculative_eagle_topk is adjusted to 1 when page_size > 1`.
//! - 0.4.10 checks nothing, and results may be wrong.
//! - 0.5.2 stops with `ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and
//!   produces incorrect results for paged attention backends. This combination is only supported
//!   for the 'flashinfer' backend.`
//! - 0.5.6 to 0.5.12 stop with the same message except for flashinfer and fa3.
//! - 0.5.15 and later accept flashinfer, fa3 and triton, and otherwise stop with `ValueError:
//!   speculative_eagle_topk > 1 with page_size > 1 is only supported on ('flashinfer', 'fa3',
//!   'triton'); got attention_backend='…'. Use page_size == 1 or one of those backends.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.2
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend fa3 --page-size 256 \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64 --max-running-requests 8
//! ```
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend triton --page-size 16 \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64 --max-running-requests 8
//! ```
//!
//! ```launch bad version:0.4.7
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend flashinfer --page-size 16 \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64 --max-running-requests 8
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend fa3 --page-size 256 \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64 --max-running-requests 8
//! ```
//!
//! ```launch good version:0.5.2
//! sglang serve --model-path target --speculative-algorithm EAGLE --attention-backend fa3 \
//!   --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64 --max-running-requests 8
//! ```
//!
//! ## Versions
//!
//! As above. For a version between two of these the finding says what is unknown.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`, older `server_args.py`; PR #26972.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD029",
    name: "topk-gt1-page-gt1",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Backends that support trees with pages, each with the versions between which support was added.
const PAGED_TREES: &[(&str, Edge)] = &[
    ("flashinfer", Edge::new(V0_4_10, V0_5_2)),
    ("fa3", Edge::new(V0_5_2, V0_5_6)),
    ("triton", Edge::new(V0_5_12, V0_5_15)),
];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.tree_algorithm()?;
    let version = context.version();
    let topk = context.launch.count(Key::SpeculativeEagleTopk).map(|topk| topk.value);
    let topk = topk.or(context.resolved.topk.as_ref().map(|topk| topk.value))?;
    let page = context.resolved.page_size.as_ref()?.value;
    if topk < 2 || page < 2 {
        return None;
    }
    let place = context.place(Key::PageSize);
    let related = |finding: Finding| finding.related(context.span(Key::SpeculativeEagleTopk), format!("topk {topk}"));
    let page_of_one = |finding: Finding| match context.span(Key::PageSize) {
        Some(_) => finding.fix(Safety::Unsafe, "use pages of one token", context.set(Key::PageSize, "1")),
        None => finding,
    };
    let one = context.line(Key::PageSize, "1");
    let silent = Edge::new(V0_4_7, V0_4_10);
    if silent.side(version) != Side::After {
        let message = format!("sglang {version} silently runs topk 1 instead of {topk} with pages of {page} tokens");
        return Some(page_of_one(related(
            Finding::new(place, message, "turns the tree into a chain")
                .at_most(Severity::Warning)
                .sglang_says("speculative_eagle_topk is adjusted to 1 when page_size > 1")
                .maybe_note(silent.doubt(version))
                .by_version()
                .help(format!("{} `{one}`, or write topk 1", context.add_or_write(Key::PageSize))),
        )));
    }
    let checked = Edge::new(V0_4_10, V0_5_2);
    if checked.side(version) == Side::Before {
        let message =
            format!("sglang {version} runs a tree with pages of {page} tokens unchecked, and results may be wrong");
        return Some(page_of_one(related(
            Finding::new(place, message, "a tree needs pages of one token")
                .at_most(Severity::Warning)
                .note("0.5.2 refuses it: 'unstable and produces incorrect results for paged attention backends'")
                .by_version()
                .help(format!("{} `{one}`", context.add_or_write(Key::PageSize))),
        )));
    }
    let backend = backend(context)?;
    // Both have their own rule, regardless of the page size.
    if matches!(backend, "trtllm_mha" | "flashmla") {
        return None;
    }
    let own = PAGED_TREES.iter().find(|(name, _)| *name == backend).map(|(_, edge)| *edge);
    let side = own.map_or(Side::Before, |edge| edge.side(version));
    if side == Side::After {
        return None;
    }
    let allowed: Vec<&str> =
        PAGED_TREES.iter().filter(|(_, edge)| edge.side(version) == Side::After).map(|(name, _)| *name).collect();
    let words = if Edge::new(V0_5_12, V0_5_15).side(version) == Side::Before {
        "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect results for paged \
         attention backends. …"
            .to_owned()
    } else {
        format!(
            "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on ('flashinfer', 'fa3', \
             'triton'); got attention_backend='{backend}'. Use page_size == 1 or one of those backends."
        )
    };
    let message = format!("{backend} cannot run a tree (topk {topk}) with pages of {page} tokens in sglang {version}");
    let finding = related(Finding::new(place, message, format!("pages of {page} tokens")))
        .related(context.span(Key::AttentionBackend), "not with trees")
        .sglang_says(words)
        .maybe_note(own.and_then(|edge| edge.doubt(version)))
        .by_version();
    let others = match allowed.split_first() {
        Some((first, _)) => format!(", or `{}`", context.line(Key::AttentionBackend, first)),
        None => String::new(),
    };
    let finding = page_of_one(finding.help(format!("{} `{one}`{others}", context.add_or_write(Key::PageSize))));
    Some(if side == Side::Between { finding.at_most(Severity::Warning) } else { finding })
}

/// The backend that the engine's own check uses; `None` if only split backends are given.
fn backend<'a>(context: &Context<'a>) -> Option<&'a str> {
    if context.launch.has(Key::AttentionBackend) {
        return Some(context.launch.text(Key::AttentionBackend)?.value);
    }
    if context.launch.has(Key::DecodeAttentionBackend) || !context.is_absent(Key::AttentionBackend) {
        return None;
    }
    context.resolved.attention_backend.as_ref().map(|backend| backend.value.as_str())
}
