//! # VL44: graphs-of-a-full-batch
//!
//! The graphs end below the number of tokens that a full batch verifies.
//!
//! ## What it does
//!
//! Compares `--max-cudagraph-capture-size` with `--max-num-seqs` and the number of drafts, where
//! the size was meant to hold a full batch: it has as many tokens as that, or as many as there are
//! sequences.
//!
//! ## Why is this bad?
//!
//! Sizes of graphs are counted in tokens, and a request verifies its drafts and one more token. The
//! largest batches, and with too small a size all but the smallest, run without graphs.
//!
//! ## What vLLM does
//!
//! It captures 1, 2, 4, every 8th size below 256 and every 16th from there on, lowers the largest
//! to the last of them (`Truncating max_cudagraph_capture_size to …`), and keeps the multiples of
//! the tokens of a request for full graphs.
//!
//! ## Example
//!
//! ```launch bad version:0.28.0
//! vllm serve target --max-num-seqs 6 --max-cudagraph-capture-size 42 --speculative-config '{"method": "mtp", "num_speculative_tokens": 6}'
//! ```
//!
//! ```launch bad version:0.28.0
//! vllm serve target --max-num-seqs 8 --max-cudagraph-capture-size 8 --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.28.0
//! vllm serve target --max-num-seqs 6 --max-cudagraph-capture-size 48 --speculative-config '{"method": "mtp", "num_speculative_tokens": 6}'
//! ```
//!
//! ## Versions
//!
//! Read in 0.12.0 to 0.33.0.
//!
//! ## Source
//!
//! vLLM `config/vllm.py`, `config/compilation.py`; PR #37865.

use schemas::{diagnostic::Severity, version::EngineVersion};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "VL44",
    name: "graphs-of-a-full-batch",
    severity: Severity::Warning,
    applies: Applies::Vllm,
    check: RuleCheck::One(check),
};

const SINCE: EngineVersion = EngineVersion::new(0, 12, 0);
/// Settings that choose other sizes, or no graphs.
const OTHER_SIZES: [&str; 4] = ["cudagraph-capture-sizes", "enforce-eager", "performance-mode", "compilation-config"];

fn check(context: &Context<'_>) -> Option<Finding> {
    let launch = context.launch;
    let config = launch.vllm_speculation()?;
    let tokens = usize::try_from(config.num_speculative_tokens?).ok()?.checked_add(1)?;
    let flag = launch.argument("max-cudagraph-capture-size")?;
    let largest: usize = flag.values.first()?.value.known()?.parse().ok()?;
    let sequences: usize = launch.argument("max-num-seqs")?.values.first()?.value.known()?.parse().ok()?;
    let full = sequences.checked_mul(tokens)?;
    let is_meant = largest >= full || (largest == sequences && sequences > 1);
    if context.version() < SINCE || tokens < 2 || !is_meant {
        return None;
    }
    if OTHER_SIZES.iter().any(|name| launch.argument(name).is_some()) {
        return None;
    }
    let held = requests_held(largest, tokens);
    if held >= sequences {
        return None;
    }
    let message = match largest >= full {
        true => format!("graphs end at {} tokens: those of {sequences} requests have none", size_below(largest)),
        false => format!("{largest} counts tokens, and each of {sequences} requests verifies {tokens}"),
    };
    let needed = (full..).find(|size| requests_held(*size, tokens) >= sequences)?;
    Some(
        Finding::new(flag.span, message, format!("full graphs for {held} requests"))
            .related(Some(config.span), format!("{tokens} tokens a request"))
            .by_version()
            .help(format!("set `--max-cudagraph-capture-size {needed}`")),
    )
}

/// The largest size that is captured for a bound.
fn size_below(bound: usize) -> usize {
    match bound {
        0..=3 => bound.min(2),
        4..=7 => 4,
        8..=255 => bound - bound % 8,
        _ => bound - bound % 16,
    }
}

/// How many requests of this many tokens the largest full graph holds.
fn requests_held(bound: usize, tokens: usize) -> usize {
    let most = size_below(bound);
    // A size is rounded up to a multiple of the tokens of a request, and dropped above the largest.
    let rounded = (1..=most).filter(|size| size_below(*size) == *size).map(|size| size.next_multiple_of(tokens));
    rounded.filter(|size| *size <= most).max().unwrap_or(0) / tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_graphs_hold_multiples_of_the_tokens_of_a_request() {
        assert_eq!(requests_held(42, 7), 5);
        assert_eq!(requests_held(48, 7), 6);
        assert_eq!(requests_held(8, 4), 2);
        assert_eq!(requests_held(256, 4), 64);
        assert_eq!(size_below(300), 288);
    }
}
