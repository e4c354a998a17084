//! # SD047: token-map-tp
//!
//! Under tensor parallelism, a token map selects rows from an output head that is split.
//!
//! ## What it does
//!
//! Looks for `--speculative-token-map` with EAGLE (or NEXTN) where tensor parallelism is above 1.
//! NPUs (`--attention-backend ascend`) support it.
//!
//! ## Why is this bad?
//!
//! Each GPU holds a part of the output head. The map's ids refer to the whole head and are outside
//! that part.
//!
//! ## What SGLang does
//!
//! `head.data[hot_token_id]` fails with the device assertion `index out of bounds`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft --tp 2 \
//!   --speculative-token-map freq_32768.pt --max-running-requests 16
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft \
//!   --speculative-token-map freq_32768.pt --max-running-requests 16
//! ```
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-draft-model-path draft --tp 4 \
//!   --speculative-token-map freq_32768.pt --max-running-requests 16 --attention-backend ascend
//! ```
//!
//! ## Versions
//!
//! All; the issue was closed for inactivity, and the code is the same in 0.5.23.
//!
//! ## Source
//!
//! sglang issue #4328, `speculative/eagle_worker_v2.py`.

use schemas::{
    algorithm::Algorithm,
    diagnostic::{Safety, Severity},
    flags::Key,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD047",
    name: "token-map-tp",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    context.only(Algorithm::Eagle)?;
    let key = Key::SpeculativeTokenMap;
    let place = context.span(key)?;
    let size = context.resolved.tp_size.as_ref()?.value;
    // On NPUs it runs: sglang's own tests start it on four of them.
    let on_npu = context.launch.text(Key::AttentionBackend).is_some_and(|backend| backend.value == "ascend");
    if size < 2 || on_npu {
        return None;
    }
    let message = format!("the token map cuts rows out of a head that is spread over {size} GPUs");
    Some(
        Finding::new(place, message, "needs the whole head")
            .sglang_says("index out of bounds (a device-side assertion)")
            .help(format!("remove `{}`, or run on one GPU", context.flag(key)))
            .fix(Safety::Unsafe, "remove the token map", context.remove(key)),
    )
}
