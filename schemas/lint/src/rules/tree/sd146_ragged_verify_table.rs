//! # SD146: ragged-verify-table
//!
//! DSPARK's table of step costs and the mode of verification do not fit together.
//!
//! ## What it does
//!
//! Under DSPARK, looks for `--speculative-dspark-sps-table-path` or
//! `--speculative-dspark-align-verify-tokens-to-graph-tier` in a mode that does not use them, and
//! for `SGLANG_RAGGED_VERIFY_MODE=compact` or `cap-accept` without a table.
//!
//! ## Why is this bad?
//!
//! In the default mode, static, every drafted token is verified and the table is not read. Without
//! a table the other modes verify every token too: the cost of a step counts as the same for any
//! number of tokens.
//!
//! ## What SGLang does
//!
//! `--speculative-dspark-sps-table-path feeds the ragged-verify budget scheduler, which is off
//! under SGLANG_RAGGED_VERIFY_MODE=static; it will be a no-op.`, or `DSpark SPS table is
//! uninitialized (flat): the verify budget degenerates to verify-all (zero scheduling gain).`
//!
//! ## Example
//!
//! ```launch bad version:0.5.23
//! sglang serve --model-path target --speculative-algorithm DSPARK --speculative-draft-model-path draft --max-running-requests 16 \
//!   --attention-backend fa3 --speculative-dspark-sps-table-path table.json
//! ```
//!
//! ```launch bad version:0.5.23
//! SGLANG_RAGGED_VERIFY_MODE=compact sglang serve --model-path target --speculative-algorithm DSPARK \
//!   --speculative-draft-model-path draft --max-running-requests 16 --attention-backend fa3
//! ```
//!
//! ```launch bad version:0.5.23
//! SGLANG_RAGGED_VERIFY_MODE=cap-accept sglang serve --model-path target --speculative-algorithm DSPARK \
//!   --speculative-draft-model-path draft --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-dspark-sps-table-path table.json --speculative-dspark-align-verify-tokens-to-graph-tier
//! ```
//!
//! ## Use instead
//!
//! ```launch good version:0.5.23
//! SGLANG_RAGGED_VERIFY_MODE=compact sglang serve --model-path target --speculative-algorithm DSPARK \
//!   --speculative-draft-model-path draft --max-running-requests 16 --attention-backend fa3 \
//!   --speculative-dspark-sps-table-path table.json
//! ```
//!
//! ## Versions
//!
//! Since DSPARK was added (0.5.16); read in 0.5.16 to 0.5.23.
//!
//! ## Source
//!
//! sglang `arg_groups/speculative_hook.py`, `speculative/dspark_components/dspark_planner.py`.

use launch::Argument;
use schemas::{algorithm::Algorithm, diagnostic::Severity, flags::Key, text::Span};

use crate::rules::{Applies, Context, Definition, Finding, RuleCheck};

pub(in crate::rules) const RULE: Definition = Definition {
    code: "SD146",
    name: "ragged-verify-table",
    severity: Severity::Warning,
    applies: Applies::Sglang,
    check: RuleCheck::Several(check),
};

const VARIABLE: &str = "SGLANG_RAGGED_VERIFY_MODE";

/// The mode of a launch that sets none.
const DEFAULT: &str = "static";

/// The mode that verifies fewer tokens than it drafted, in graphs for numbers of tokens.
const COMPACT: &str = "compact";

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some((mode, place)) = mode(context).filter(|_| context.only(Algorithm::Dspark).is_some()) else {
        return Vec::new();
    };
    let table = context.argument("speculative-dspark-sps-table-path");
    let align = context.argument("speculative-dspark-align-verify-tokens-to-graph-tier");
    let unread = table.filter(|_| mode == DEFAULT).map(|table| not_read(table, place));
    let unaligned = align.filter(|_| mode != COMPACT).map(|align| not_aligned(align, mode, place));
    let flat = || table.is_none() && context.launch.is_complete();
    let flat = place.filter(|_| mode != DEFAULT && flat()).map(|place| without_table(context, mode, place));
    [unread, unaligned, flat].into_iter().flatten().collect()
}

/// The mode of verification, if it is known, and where it is set.
fn mode<'a>(context: &Context<'a>) -> Option<(&'a str, Option<Span>)> {
    match context.launch.variable(VARIABLE) {
        // Other values are reported by SD192.
        Some(mode) => ["static", "cap-accept", COMPACT].contains(&mode.value).then_some((mode.value, Some(mode.span))),
        None => context.launch.lacks_variable(VARIABLE).then_some((DEFAULT, None)),
    }
}

fn not_read(table: &Argument, place: Option<Span>) -> Finding {
    Finding::new(table.span, "the table of step costs is not read: every drafted token is verified", "not used")
        .related(place, "this mode verifies all")
        .sglang_says(format!("… which is off under {VARIABLE}=static; it will be a no-op."))
        .help(format!("set {VARIABLE}={COMPACT} in the environment, or take `{}` out", table.flag.value))
}

fn not_aligned(align: &Argument, mode: &str, place: Option<Span>) -> Finding {
    Finding::new(
        align.span,
        format!("only the mode {COMPACT} aligns tokens with graphs, and this is {mode}"),
        "not used",
    )
    .related(place, "the mode")
    .sglang_says(format!("… only takes effect with {VARIABLE}=compact (got '{mode}'); it will be a no-op."))
    .help(format!("set {VARIABLE}={COMPACT} in the environment, or take `{}` out", align.flag.value))
}

fn without_table(context: &Context<'_>, mode: &str, place: Span) -> Finding {
    let message = format!("{mode} without a table of step costs verifies every drafted token");
    Finding::new(place, message, "no table")
        .related(context.span(Key::SpeculativeAlgorithm), "drafts blocks")
        .sglang_says("DSpark SPS table is uninitialized (flat): the verify budget degenerates to verify-all …")
        .help(format!("add `--speculative-dspark-sps-table-path` with a measured table, or set {VARIABLE}={DEFAULT}"))
}
