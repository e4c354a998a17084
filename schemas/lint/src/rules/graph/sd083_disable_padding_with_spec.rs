//! # SD083: disable-padding-with-spec
//!
//! `--disable-cuda-graph-padding` does not have the intended effect with speculation.
//!
//! ## What it does
//!
//! Looks for the switch if speculation is on and graphs are captured.
//!
//! ## Why is this bad?
//!
//! It is often tried against crashes with padded batches (SD081). Up to 0.5.2 the list of sizes for
//! speculation ignores it. From 0.5.6 on every size up to the largest is captured, which makes the
//! start slow and takes much memory.
//!
//! ## What SGLang does
//!
//! As above. With `--enable-torch-compile` versions from 0.5.12.post1 on stop with an
//! `AssertionError`. The look-up of the graph was broken for a while (PR #31273).
//!
//! ## Example
//!
//! ```launch bad version:0.5.2
//! sglang serve --model-path target --speculative-algorithm EAGLE --disable-cuda-graph-padding --max-running-requests 48 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --disable-cuda-graph-padding --max-running-requests 48 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --disable-cuda-graph-padding --enable-torch-compile \
//!   --max-running-requests 48 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 48 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Changed between 0.5.2 and 0.5.6. The assertion is not in 0.5.9 and is in 0.5.12.post1.
//!
//! ## Source
//!
//! sglang `arg_groups/cuda_graph_hook.py`, `arg_groups/validation_hook.py`, 0.5.2
//! `model_executor/cuda_graph_runner.py`; slime's guide; PR #31273.

use schemas::{
    diagnostic::{Safety, Severity},
    flags::Key,
};

use super::padding::{Captured, advised_line};
use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, support::count, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD083",
    name: "disable-padding-with-spec",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let key = Key::DisableCudaGraphPadding;
    let place = context.span(key)?;
    let captured = Captured::from_context(context)?;
    let edge = Edge::new(V0_5_2, V0_5_6);
    let version = context.version();
    let flag = context.flag(key);
    let (message, label) = match edge.side(version) {
        Side::Before => (
            format!("`{flag}` does not change the capture sizes of speculation in sglang {version}"),
            "no effect on the list",
        ),
        Side::After => (
            format!("`{flag}` makes sglang capture {}, one for each batch size", count(captured.count(), "graph")),
            "slow start",
        ),
        Side::Between => {
            (format!("`{flag}` either has no effect or makes sglang capture every batch size"), "of little use")
        }
    };
    let compile = context.launch.has(Key::EnableTorchCompile) && version >= V0_5_12;
    let finding = if compile {
        let message =
            format!("`{flag}` and `{}` refuse each other: start fails", context.flag(Key::EnableTorchCompile));
        Finding::new(place, message, "an AssertionError at start")
            .sglang_says("AssertionError: --disable-cuda-graph-padding is incompatible with --enable-torch-compile. …")
    } else {
        Finding::new(place, message, label).at_most(Severity::Warning)
    };
    let finding = finding
        .related(context.span(Key::EnableTorchCompile).filter(|_| compile), "not together")
        .maybe_note(edge.doubt(version))
        .by_version();
    Some(
        finding
            .help(format!(
                "remove `{flag}`; against crashes with padded batches use `{}` or `{}`",
                context.line(Key::AttentionBackend, context.other_backend()),
                advised_line(context, captured.largest(), false)
            ))
            .fix(Safety::Unsafe, "let batches be padded", context.remove(key)),
    )
}
