//! # VL06: mtp-pipeline-parallel
//!
//! MTP layers and DSpark drafts cannot draft over pipeline stages in these versions.
//!
//! ## What it does
//!
//! Looks for `--pipeline-parallel-size` above 1 with an MTP method or DSpark, up to 0.29.
//!
//! ## Why is this bad?
//!
//! vLLM does not start, or fails in its first round.
//!
//! ## What vLLM does
//!
//! The MTP layer is on the last stage, its embedding on the first. A draft whose class does not say that it knows of stages is
//! refused: `NotImplementedError: Pipeline parallelism is not supported for this model`.
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
//! Up to 0.24 for MTP, and from 0.25 to 0.29 for DSpark, where it came. From 0.25 to 0.29 some MTP layers know of stages, so that
//! it is a warning there. From 0.30 on vLLM drafts on the last stage.
//!
//! ## Source
//!
//! vLLM issues #44697, #49355, #52069, #52761, PRs #46994 and #53408; vllm-ascend PR #15747; `config/speculative.py` of 0.33.0.

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

/// The first version in which some MTP layers know of stages.
const SOME: EngineVersion = EngineVersion::new(0, 25, 0);

/// The first version that drafts on the last stage.
const ALL: EngineVersion = EngineVersion::new(0, 30, 0);

fn check(context: &Context<'_>) -> Option<Finding> {
    if !context.resolved.version_given || context.version() >= ALL {
        return None;
    }
    let config = context.launch.vllm_speculation()?;
    let method = config.method.filter(|method| method.contains("mtp") || method == "dspark")?;
    let stages = ["--pipeline-parallel-size", "-pp"].iter().find_map(|name| context.launch.vllm_flag(name))?;
    let count: usize = stages.values.first()?.value.known()?.parse().ok()?;
    if count < 2 {
        return None;
    }
    let message = format!("{method} of vllm {} does not draft over {count} pipeline stages", context.version());
    let finding = Finding::new(stages.span, message, "one stage only")
        .related(Some(config.span), "drafts")
        .help(format!("write `--tensor-parallel-size {count}` instead, or use vllm 0.30 or later"));
    let may_know = context.version() >= SOME && method != "dspark";
    Some(if may_know { finding.at_most(Severity::Warning) } else { finding })
}
