//! # NR01: deepep-dispatch-tokens
//!
//! The largest graph verifies more tokens than DeepEP may send.
//!
//! ## What it does
//!
//! If DeepEP's low-latency mode can be in use, compares the largest captured batch of a rank times
//! the draft tokens with `SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK`, which may be at
//! most 1024. If the variable may be set elsewhere, its default, 128, is assumed, and the finding
//! is a warning.
//!
//! ## Why is this bad?
//!
//! The server stops while it captures graphs.
//!
//! ## What SGLang does
//!
//! DeepEP asserts that a rank has no more tokens than its buffers hold; SGLang asserts
//! `self.num_max_dispatch_tokens_per_rank <= 1024`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.15
//! SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=128 sglang serve --model-path target --tp-size 8 --dp-size 8 --enable-dp-attention \
//!   --moe-a2a-backend deepep --speculative-algorithm EAGLE --max-running-requests 512 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.15
//! SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=256 sglang serve --model-path target --tp-size 8 --dp-size 8 --enable-dp-attention \
//!   --moe-a2a-backend deepep --speculative-algorithm EAGLE --max-running-requests 512 --attention-backend fa3 \
//!   --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! The default and the limit were read in 0.5.6 to 0.5.23.
//!
//! ## Source
//!
//! sglang `layers/moe/token_dispatcher/deepep.py`; slime `docs/en/examples/glm5.2-744B-A40B.md`;
//! sglang PR #6081.

use schemas::{diagnostic::Severity, engines::Engine, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "NR01",
    name: "deepep-dispatch-tokens",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

const VARIABLE: &str = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK";

/// The limit if the variable is not set.
const DEFAULT: usize = 128;

/// Maximum number of tokens that DeepEP's low-latency mode can send.
const MOST: usize = 1024;

fn check(context: &Context<'_>) -> Option<Finding> {
    let launch = context.launch;
    let deepep = launch.text(Key::MoeA2aBackend).filter(|backend| backend.value == "deepep")?;
    let normal = launch.has(Key::DeepepMode) && launch.text(Key::DeepepMode).is_none_or(|mode| mode.value == "normal");
    if normal || !context.resolved.speculative || context.version() < V0_5_6 {
        return None;
    }
    let set = !launch.lacks_variable(VARIABLE);
    // The environment of slime's engines is set elsewhere.
    if !set && launch.engine == Engine::Slime {
        return None;
    }
    let variable = launch.variable(VARIABLE);
    let limit = match &variable {
        Some(variable) => variable.value.trim().parse().ok()?,
        None if set => return None,
        None => DEFAULT,
    };
    let place = variable.as_ref().map_or(deepep.span, |variable| variable.span);
    if limit > MOST {
        let message = format!("DeepEP's low latency sends at most {MOST} tokens of a rank, not {limit}");
        return Some(
            Finding::new(place, message, "too many")
                .related(Some(deepep.span), "DeepEP")
                .sglang_says("assert self.num_max_dispatch_tokens_per_rank <= 1024")
                .help(format!("write {VARIABLE}={MOST} or less")),
        );
    }
    let largest = context.resolved.capture_sizes.as_ref()?.value.iter().copied().max()?;
    let tokens = context.resolved.num_draft_tokens.as_ref()?.value;
    // The ranks of one attention layer split its tokens among them.
    let sharing = (context.resolved.tp_size.as_ref()?.value / context.launch.attention_ranks()?).max(1);
    let rows = largest.checked_mul(tokens)?.div_ceil(sharing);
    if rows <= limit {
        return None;
    }
    let message = format!("the graph of {largest} requests verifies {rows} tokens a rank, and DeepEP may send {limit}");
    let finding = Finding::new(place, message, if set { "too few" } else { "128 unless set" })
        .related(Some(deepep.span).filter(|span| *span != place), "DeepEP")
        .related(context.span(Key::SpeculativeNumDraftTokens), format!("{tokens} tokens a request"));
    Some(if rows > MOST {
        finding.at_most(if set { Severity::Error } else { Severity::Warning }).help(format!(
            "capture fewer requests with `{}`: {rows} is above {MOST}, the most that can be set",
            context.flag(Key::CudaGraphMaxBs)
        ))
    } else {
        finding.at_most(if set { Severity::Error } else { Severity::Warning }).help(format!(
            "set {VARIABLE}={rows} or more, or capture fewer requests with `{}`",
            context.flag(Key::CudaGraphMaxBs)
        ))
    })
}
