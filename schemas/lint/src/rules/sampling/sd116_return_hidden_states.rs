//! # SD116: return-hidden-states
//!
//! Requests cannot return hidden states under this algorithm.
//!
//! ## What it does
//!
//! Looks for `--enable-return-hidden-states` or `--return-hidden-states-mode` under DFLASH (unless
//! its scheduler is synchronous) and UNO.
//!
//! ## Why is this bad?
//!
//! The switch allows requests for hidden states, but each such request is rejected.
//!
//! ## What SGLang does
//!
//! The server starts. A request gets `DFLASH speculative decoding does not support
//! return_hidden_states yet.` or `UNO speculative decoding does not support return_hidden_states.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --enable-return-hidden-states
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DFLASH --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --enable-return-hidden-states --disable-overlap-schedule
//! ```
//!
//! ## Versions
//!
//! 0.5.15 and later; UNO since it was added.
//!
//! ## Source
//!
//! sglang `speculative/dflash_utils.py`, `speculative/uno_validation.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD116",
    name: "return-hidden-states",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let keys = [Key::EnableReturnHiddenStates, Key::ReturnHiddenStatesMode];
    let key = keys.into_iter().find(|key| context.launch.has(*key))?;
    let synchronous = Key::DisableOverlapSchedule;
    let (says, help) = match context.algorithm()? {
        Algorithm::Dflash if context.version() >= V0_5_15 && context.is_absent(synchronous) => (
            "DFLASH speculative decoding does not support return_hidden_states yet.",
            format!("take `{}` out, or add `{}`", context.flag(key), context.flag(synchronous)),
        ),
        Algorithm::Uno => (
            "UNO speculative decoding does not support return_hidden_states.",
            format!("take `{}` out", context.flag(key)),
        ),
        _ => return None,
    };
    Some(
        Finding::new(context.place(key), "every request for hidden states is refused under this algorithm", "refused")
            .related(context.span(Key::SpeculativeAlgorithm), "this algorithm")
            .sglang_says(says)
            .by_version()
            .help(help),
    )
}
