//! # VL06: mtp-pipeline-parallel
//!
//! MTP layers cannot draft over pipeline stages in these versions.
//!
//! ## What it does
//!
//! Looks for `--pipeline-parallel-size` above 1 with an MTP method, up to 0.24.
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
//! ```launch bad version:0.24.0
//! vllm serve target --pipeline-parallel-size 2 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.24.0
//! vllm serve target --tensor-parallel-size 2 --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'
//! ```
//!
//! ## Versions
//!
//! Up to 0.24. 0.33 drafts on one stage; from which version on is not known.
//!
//! ## Source
//!
//! vLLM issues #44697, #49355, #52069, PR #46994; `config/speculative.py` of 0.33.0.

use crate::{
    diagnostic::Severity,
    rules::{Applies, Check, Context, Finding, Rule},
    version::EngineVersion,
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "VL06",
    name: "mtp-pipeline-parallel",
    severity: Severity::Error,
    applies: Applies::Vllm,
    file: include_str!("vl06_mtp_pipeline_parallel.rs"),
    check: Check::One(check),
};

/// The first version that is not judged.
const BEHIND: EngineVersion = EngineVersion::new(0, 25, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    if !context.resolved.version_given || context.version() >= BEHIND {
        return None;
    }
    let config = context.launch.vllm_speculation()?;
    let method = config.method.filter(|method| method.contains("mtp"))?;
    let stages = ["--pipeline-parallel-size", "-pp"].iter().find_map(|name| context.launch.vllm_flag(name))?;
    let count: usize = stages.values.first()?.value.known()?.parse().ok()?;
    (count > 1).then(|| {
        Finding::new(
            stages.span,
            format!("{method} of vllm {} does not draft over {count} pipeline stages", context.version()),
            "one stage only",
        )
        .related(Some(config.span), "MTP layers")
        .help(format!("write `--tensor-parallel-size {count}` instead"))
    })
}
