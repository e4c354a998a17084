//! # VL06: mtp-pipeline-parallel
//!
//! MTP layers cannot draft over pipeline stages.
//!
//! ## What it does
//!
//! Looks for `--pipeline-parallel-size` above 1 with an MTP method.
//!
//! ## Why is this bad?
//!
//! vLLM does not start, or fails in its first round.
//!
//! ## What vLLM does
//!
//! The MTP layer is on the last stage, its embedding on the first.
//!
//! ## Example
//!
//! ```launch bad
//! vllm serve target --pipeline-parallel-size 2 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good
//! vllm serve target --tensor-parallel-size 2 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//!
//! ## Versions
//!
//! Open.
//!
//! ## Source
//!
//! vLLM issues #52069, #49355.

use crate::{
    diagnostic::Severity,
    rules::{Applies, Check, Context, Finding, Rule},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "VL06",
    name: "mtp-pipeline-parallel",
    severity: Severity::Error,
    applies: Applies::Vllm,
    file: include_str!("vl06_mtp_pipeline_parallel.rs"),
    check: Check::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let config = context.launch.vllm_speculation()?;
    let method = config.method.filter(|method| method.contains("mtp"))?;
    let stages = ["--pipeline-parallel-size", "-pp"].iter().find_map(|name| context.launch.vllm_flag(name))?;
    let count: usize = stages.values.first()?.value.known()?.parse().ok()?;
    (count > 1).then(|| {
        Finding::new(stages.span, format!("{method} does not draft over {count} pipeline stages"), "one stage only")
            .related(Some(config.span), "MTP layers")
            .help(format!("write `--tensor-parallel-size {count}` instead"))
    })
}
