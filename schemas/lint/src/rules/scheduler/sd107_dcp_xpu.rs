//! # SD107: dcp-xpu
//!
//! Speculation does not run with decode context parallelism on Intel GPUs.
//!
//! ## What it does
//!
//! Looks for `--dcp-size` above 1 with `--device xpu` and speculation.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It rejects the combination.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23 also:SD108
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --device xpu --dcp-size 2
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --device xpu
//! ```
//!
//! ## Versions
//!
//! Since 0.5.22; read in it, in 0.5.21 and in 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/attention_hook.py`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD107",
    name: "dcp-xpu",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let ranks = context.launch.count(Key::DcpSize).filter(|ranks| ranks.value > 1)?;
    let device = context.launch.text(Key::Device).filter(|device| device.value == "xpu")?;
    if !context.resolved.speculative || context.version() < V0_5_22 {
        return None;
    }
    let message = format!("speculation does not run over {} ranks of context parallelism on XPU", ranks.value);
    Some(
        Finding::new(ranks.span, message, "one rank only")
            .related(Some(device.span), "on this device")
            .related(context.span(Key::SpeculativeAlgorithm), "with speculation")
            .by_version()
            .help(format!("remove `{}`", context.flag(Key::DcpSize))),
    )
}
