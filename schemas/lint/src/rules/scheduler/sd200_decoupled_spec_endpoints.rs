//! # SD200: decoupled-spec-endpoints
//!
//! Decoupled speculation needs this engine's endpoint, its peers' endpoints and its rank.
//!
//! ## What it does
//!
//! Looks for `--decoupled-spec-role verifier` or `drafter` without
//! `--decoupled-spec-bind-endpoint`, `--decoupled-spec-connect-endpoints` or
//! `--decoupled-spec-rank`.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: --decoupled-spec-bind-endpoint, --decoupled-spec-connect-endpoints, and
//! --decoupled-spec-rank are required for decoupled speculative decoding.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --decoupled-spec-role verifier --decoupled-spec-rank 0 \
//!   --decoupled-spec-bind-endpoint tcp://10.0.0.1:7001
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --decoupled-spec-role verifier --decoupled-spec-rank 0 \
//!   --decoupled-spec-bind-endpoint tcp://10.0.0.1:7001 --decoupled-spec-connect-endpoints '["tcp://10.0.0.2:7001"]'
//! ```
//!
//! ## Versions
//!
//! Since the flags were added (0.5.15); read in 0.5.16, 0.5.20 and 0.5.23.
//!
//! ## Source
//!
//! sglang `server_args.py`, `PortArgs.init_new`.

use schemas::{diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD200",
    name: "decoupled-spec-endpoints",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// The flags that each engine of a decoupled pair needs.
const NEEDED: [Key; 3] = [Key::DecoupledSpecBindEndpoint, Key::DecoupledSpecConnectEndpoints, Key::DecoupledSpecRank];

fn check(context: &Context<'_>) -> Option<Finding> {
    let key = Key::DecoupledSpecRole;
    let role = context.launch.text(key).filter(|role| matches!(role.value, "verifier" | "drafter"))?;
    let missing: Vec<String> = NEEDED
        .into_iter()
        .filter(|key| context.is_absent(*key))
        .map(|key| format!("`{}`", context.flag(key)))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let missing = missing.join(" and ");
    Some(
        Finding::new(role.span, format!("a decoupled {} needs {missing}", role.value), "needs more")
            .sglang_says(
                "ValueError: --decoupled-spec-bind-endpoint, --decoupled-spec-connect-endpoints, and --decoupled-spec-rank \
                 are required for decoupled speculative decoding.",
            )
            .by_version()
            .help(format!("add {missing}")),
    )
}
