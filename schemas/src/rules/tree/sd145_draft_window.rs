//! # SD145: draft-window
//!
//! The draft's window has no effect here, or is none.
//!
//! ## What it does
//!
//! Looks for `--speculative-draft-window-size` under another algorithm than EAGLE, EAGLE3 and DFLASH, or below 1.
//!
//! ## Why is this bad?
//!
//! What was written is not what runs, or the server does not start.
//!
//! ## What SGLang does
//!
//! A window below 1 is a ValueError; under other algorithms nothing reads it.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --speculative-draft-window-size 1024 --max-running-requests 16 \
//!   --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-window-size 1024 --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Since the flag came; read in 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use crate::{
    diagnostic::Severity,
    flags::Key,
    resolve::Algorithm,
    rules::{Applies, Check, Context, Finding, Rule},
};

pub(in crate::rules) const RULE: Rule = Rule {
    code: "SD145",
    name: "draft-window",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    file: include_str!("sd145_draft_window.rs"),
    check: Check::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let key = Key::SpeculativeDraftWindowSize;
    let place = context.span(key)?;
    let algorithm = context.algorithm()?;
    let reads = matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3 | Algorithm::Dflash);
    let size = context.launch.integer(key);
    let message = match size {
        _ if !reads => format!("{} does not read the draft's window", algorithm.name()),
        Some(size) if size.value < 1 => format!("a window of {} is none", size.value),
        _ => return None,
    };
    Some(Finding::new(place, message, "no effect").help(format!("take `{}` out", context.flag(key))))
}
