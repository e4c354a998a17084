//! # SD134: ngram-device
//!
//! NGRAM does not run on this device.
//!
//! ## What it does
//!
//! Looks at `--device` under NGRAM.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! Up to 0.5.15 `ValueError: Ngram speculative decoding only supports CUDA device.`; in 0.5.23
//! `Ngram speculative decoding only supports CUDA, CPU, or XPU devices.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.9 also:SD108
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --device cpu
//! ```
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --device npu
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --max-running-requests 16 --device cpu
//! ```
//!
//! ## Versions
//!
//! CPU and XPU were added between 0.5.15.post1 and 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`; before 0.5.15 `server_args.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD134",
    name: "ngram-device",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Devices of SGLang other than CUDA.
const OTHERS: [&str; 6] = ["cpu", "hpu", "mps", "musa", "npu", "xpu"];

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Ngram)?;
    let device = context.launch.text(Key::Device).filter(|device| OTHERS.contains(&device.value))?;
    let edge = Edge::new(V0_5_15, V0_5_23);
    let version = context.version();
    let later = matches!(device.value, "cpu" | "xpu");
    let (severity, says) = match edge.side(version) {
        Side::After if later => return None,
        Side::Between if later => (Severity::Warning, "Ngram speculative decoding only supports CUDA device."),
        Side::After => (Severity::Error, "Ngram speculative decoding only supports CUDA, CPU, or XPU devices."),
        Side::Before | Side::Between => (Severity::Error, "Ngram speculative decoding only supports CUDA device."),
    };
    let message = format!("NGRAM does not run on {} in sglang {version}", device.value);
    Some(
        Finding::new(device.span, message, "not this device")
            .at_most(severity)
            .related(context.span(Key::SpeculativeAlgorithm), "looks tokens up")
            .sglang_says(says)
            .maybe_note(edge.doubt(version).filter(|_| later))
            .by_version()
            .help(format!("run it on CUDA, or take `{}` out", context.flag(Key::SpeculativeAlgorithm))),
    )
}
