//! # SD101: pd-decode-radix
//!
//! The prefix cache of a decode engine does not support this algorithm.
//!
//! ## What it does
//!
//! Looks for `--disaggregation-decode-enable-radix-cache` with an algorithm other than EAGLE,
//! EAGLE3 or DSPARK; in 0.5.21 and 0.5.22 with any but DSPARK, before with any.
//!
//! ## Why is this bad?
//!
//! The server does not start.
//!
//! ## What SGLang does
//!
//! `ValueError: --disaggregation-decode-enable-radix-cache is incompatible with speculative
//! decoding (--speculative-algorithm NGRAM)`.
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --disaggregation-mode decode --disaggregation-decode-enable-radix-cache --max-running-requests 16 \
//!   --speculative-algorithm NGRAM --attention-backend fa3
//! ```
//!
//! ```launch bad version:0.5.22
//! sglang serve --model-path target --disaggregation-mode decode --disaggregation-decode-enable-radix-cache --max-running-requests 16 \
//!   --speculative-algorithm EAGLE --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --disaggregation-mode decode --disaggregation-decode-enable-radix-cache --max-running-requests 16 \
//!   --speculative-algorithm EAGLE --attention-backend fa3 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! Since the flag was added, between 0.5.9 and 0.5.11. DSPARK is accepted from 0.5.21 on, EAGLE and
//! EAGLE3 from 0.5.23 on; read in each version from 0.5.14 to 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/pd_disaggregation_hook.py`, in 0.5.23 `arg_groups/speculative_hook.py`; PR
//! #39150.

use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck, versions::*};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD101",
    name: "pd-decode-radix",
    severity: Severity::Error,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

fn check(context: &Context<'_>) -> Option<Finding> {
    let place = context.span(Key::DisaggregationDecodeEnableRadixCache)?;
    let algorithm = context.algorithm()?;
    let version = context.version();
    let (accepted, label): (&[Algorithm], _) = if version >= V0_5_23 {
        (&[Algorithm::Eagle, Algorithm::Eagle3, Algorithm::Dspark], "EAGLE, EAGLE3 and DSPARK only")
    } else if version >= V0_5_21 {
        (&[Algorithm::Dspark], "DSPARK only")
    } else {
        (&[], "without speculation only")
    };
    if accepted.contains(&algorithm) {
        return None;
    }
    let message = format!("a decode engine has no prefix cache under {}", algorithm.name());
    Some(
        Finding::new(place, message, label)
            .related(context.span(Key::SpeculativeAlgorithm), "here")
            .help(format!("take `{}` out", context.flag(Key::DisaggregationDecodeEnableRadixCache))),
    )
}

#[cfg(test)]
mod tests {
    use crate::rules::examples::finds;

    #[test]
    fn algorithms_are_accepted_from_their_version_on() {
        for (algorithm, version, is_refused) in [
            ("DSPARK", "0.5.20", true),
            ("DSPARK", "0.5.21", false),
            ("DSPARK", "0.5.22", false),
            ("EAGLE3", "0.5.22", true),
            ("EAGLE3", "0.5.23", false),
            ("NGRAM", "0.5.23", true),
        ] {
            let text = format!(
                "sglang serve --model-path m --speculative-algorithm {algorithm} --disaggregation-mode decode \
                 --disaggregation-decode-enable-radix-cache"
            );
            assert_eq!(finds("SD101", &text, version), is_refused, "{algorithm} {version}");
        }
    }
}
