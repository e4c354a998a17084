//! # SD090: max-running-48
//!
//! Without an explicit limit, speculation runs 48 requests at a time.
//!
//! ## What it does
//!
//! Looks for a missing `--max-running-requests` if speculation is on. If the expected concurrency
//! is known (`--expected-concurrency`, slime's `--sglang-server-concurrency`, or the samples of a
//! rollout without evaluation: `--rollout-batch-size` × `--n-samples-per-prompt`) and 48 or less,
//! nothing is reported; if it is not known, the finding is a warning for slime, which fills its
//! engines, and else information. One GPU of less than 36 GiB or a DGX Spark serves few users, and
//! is not reported. A text with several such launches is reported once.
//!
//! ## Why is this bad?
//!
//! Without speculation thousands of requests may run together; merely adding the algorithm's flag
//! reduces that to 48, and the others wait. A rollout of a few hundred samples per engine is split
//! into batches of 48. The number is for the whole engine: under DP attention the ranks share it.
//!
//! ## What SGLang does
//!
//! It logs `Max running requests is reset to 48 for speculative decoding. You can override this by
//! explicitly setting --max-running-requests.`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ```launch bad version:0.5.23 concurrency:256 also:SD160
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
//!   --max-running-requests 128
//! ```
//!
//! ```launch good version:0.5.23 concurrency:16
//! sglang serve --model-path target --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
//! ```
//!
//! ## Versions
//!
//! All versions read; 32 for some days in March 2025. For DeepSeek V4 it is 256; UNO sets no limit.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`; PR #34290.

use launch::resolve::Origin;
use schemas::{
    defaults::stated_number,
    diagnostic::{Safety, Severity},
    engines::Engine,
    flags::Key,
    gpu::Architecture,
};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD090",
    name: "max-running-48",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::One(check),
};

/// Memory in MiB of one GPU, below which a machine with one such GPU serves few requests.
const SMALL: u64 = 36 * 1024;

/// Whether the launch is for the few users of a workstation: one GPU, which is a DGX Spark or has
/// little memory.
fn is_for_few(context: &Context<'_>) -> bool {
    let one = context.resolved.tp_size.as_ref().is_some_and(|size| size.value == 1);
    let is_spark = context.architecture() == Some(Architecture::Sm(12, 1));
    one && context.launch.engine != Engine::Slime
        && (is_spark || context.gpu_memory.is_some_and(|memory| memory < SMALL))
}

fn check(context: &Context<'_>) -> Option<Finding> {
    let key = Key::MaxRunningRequests;
    let limit = context.resolved.max_running_requests.as_ref()?;
    let reset = stated_number("max-running-requests", context.version())?;
    if !matches!(limit.origin, Origin::Default { .. }) || limit.value != reset || !context.is_absent(key) {
        return None;
    }
    let slime = context.launch.engine == Engine::Slime;
    let concurrency = context.launch.count(Key::ServerConcurrency).filter(|_| slime).map(|requests| requests.value);
    let expected = context.expected_concurrency.or(concurrency);
    let is_all = context.rollout_requests().is_some_and(|requests| requests <= reset);
    if is_all || expected.map_or_else(|| is_for_few(context), |expected| expected <= reset) {
        return None;
    }
    let message = match expected {
        Some(expected) => format!("at most {reset} of the {expected} expected requests run together, the others wait"),
        None => format!("at most {reset} requests run together: the default under speculation"),
    };
    let place = context.value_place(Key::SpeculativeAlgorithm);
    let ranks = context.launch.attention_ranks().filter(|ranks| *ranks > 1);
    let finding = Finding::new(place, message, format!("sets the limit to {reset}"))
        .sglang_says(format!(
            "Max running requests is reset to {reset} for speculative decoding. You can override this by explicitly \
                 setting --max-running-requests."
        ))
        .maybe_note(ranks.map(|ranks| format!("{ranks} attention ranks share them: {} each", (reset / ranks).max(1))))
        .maybe_note((slime && expected.is_none()).then(|| "slime sends up to 512 requests to an engine".to_owned()));
    // A limit matters only to those who have more requests. slime has; of other launches it is not
    // known.
    let finding = if expected.is_some() || slime { finding } else { finding.at_most(Severity::Info) };
    Some(match expected {
        Some(expected) => finding.help(format!("add `{}`", context.line(key, &expected.to_string()))).fix(
            Safety::Unsafe,
            "run all expected requests together",
            context.set(key, &expected.to_string()),
        ),
        None => finding.help(format!(
            "add `{}` with what is to run together, such as 128 for rollouts, or {reset} to keep it",
            context.flag(key)
        )),
    })
}
