//! # SD002: nextn-alias
//!
//! NEXTN is an alias of EAGLE.
//!
//! ## What it does
//!
//! Points out that `--speculative-algorithm NEXTN` runs as EAGLE.
//!
//! ## Why is this bad?
//!
//! It is not, but logs, metrics and error messages say EAGLE, which is confusing.
//!
//! ## What SGLang does
//!
//! Replaces the name before anything else reads it.
//!
//! ## Example
//!
//! ```launch bad version:0.5.9
//! sglang serve --model-path XiaomiMiMo/MiMo-7B-RL --speculative-algorithm NEXTN --max-running-requests 16
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.9
//! sglang serve --model-path XiaomiMiMo/MiMo-7B-RL --speculative-algorithm EAGLE --max-running-requests 16
//! ```
//!
//! ## Versions
//!
//! All versions read.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use launch::resolve::Origin;
use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD002",
    name: "nextn-alias",
    severity: Severity::Info,
    applies: Applies::AnyEngine,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    // There it is rejected, which is another finding.
    if context
        .target_config()
        .and_then(|target| target.architecture())
        .is_some_and(|class| class.starts_with("DeepseekV4"))
    {
        return None;
    }
    let Origin::Rewritten { written, .. } = &context.resolved.algorithm.as_ref()?.origin else { return None };
    let finding = Finding::new(*written, "NEXTN runs as EAGLE, and logs and metrics will say EAGLE", "runs as EAGLE");
    Some(
        finding.help(format!("write `{}` to see the name that runs", context.line(Key::SpeculativeAlgorithm, "EAGLE"))),
    )
}
