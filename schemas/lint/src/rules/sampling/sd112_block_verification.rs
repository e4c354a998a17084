//! # SD112: block-verification
//!
//! Block verification runs only with chains of EAGLE and EAGLE3, and with DFLASH and DSPARK.
//!
//! ## What it does
//!
//! Looks for `--speculative-use-block-verification` with another algorithm, with topk above 1, or
//! on a device other than CUDA.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! It raises a ValueError. Where it runs, it turns rejection sampling on, which needs
//! `--speculative-eagle-topk 1`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm NGRAM --speculative-use-block-verification --max-running-requests 16 \
//!   --attention-backend fa3
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-use-block-verification --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Since the flag was added; read in 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, text::shortened};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD112",
    name: "block-verification",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let place = context.span(Key::SpeculativeUseBlockVerification)?;
    let algorithm = context.algorithm()?;
    let blocks = matches!(algorithm, Algorithm::Dflash | Algorithm::Dspark);
    let trees = context.resolved.topk.as_ref().filter(|topk| topk.value > 1 && !blocks);
    let device = context.launch.text(Key::Device).filter(|device| !runs_on(device.value));
    let (message, key) = match (trees, device) {
        _ if !blocks && !matches!(algorithm, Algorithm::Eagle | Algorithm::Eagle3) => {
            (format!("block verification does not run with {}", algorithm.name()), Key::SpeculativeAlgorithm)
        }
        (Some(topk), _) => {
            (format!("block verification reads chains, and topk is {}", topk.value), Key::SpeculativeEagleTopk)
        }
        (None, Some(device)) => {
            let shown = shortened(device.value);
            (format!("block verification does not run on `{shown}`"), Key::Device)
        }
        (None, None) => return None,
    };
    Some(
        Finding::new(place, message, "chains of EAGLE, DFLASH and DSPARK only")
            .related(context.span(key), "here")
            .help(format!("take `{}` out", context.flag(Key::SpeculativeUseBlockVerification))),
    )
}

fn runs_on(device: &str) -> bool {
    device == "auto" || device.starts_with("cuda")
}
