//! Flags of `spectune bench` that would change nothing in what is measured.

use anyhow::bail;

use super::Arguments;
use crate::{load_flags::refuse_given, outputs};

/// Refuses flags without effect on what is measured (rounds of equal requests, loads, or the times
/// of rounds), and a file of times that cannot be written.
///
/// # Errors
/// With the flag and what it needs, or the file.
pub fn check(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { times_out, load, contexts, points, policies, draw, .. } = arguments;
    if let Some(path) = times_out {
        check_times(arguments)?;
        return outputs::check_writable(&[("--times-out", path)]);
    }
    refuse_given(&[("--contexts", !contexts.is_empty()), ("--points", points.is_some())], "--times-out")?;
    if !arguments.runs_loads() {
        refuse_given(&load.of_requests(), LOADS)?;
        return refuse_given(&[("--policies", policies.is_some()), ("--draw", draw.is_some())], LOADS);
    }
    refuse_given(
        &[("--output-len", arguments.output_len.is_some())],
        "requests of equal length: outputs of a load are as long as --median-len, --tail and --max-len, or --lengths, say",
    )?;
    let is_rollout = load.rollout()?.is_some();
    refuse_given(
        &[("--batch-size", is_rollout && !arguments.batch_size.is_empty())],
        "a constant batch: --max-running-requests limits how many requests of a rollout run",
    )
}

const LOADS: &str = "a load: --simulate-acceptance with --rollout, or with --requests-per-user and --batch-size";

/// As [`check`], for times of rounds.
fn check_times(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { load, policies, draw, requests_per_user, .. } = arguments;
    if arguments.batch_size.is_empty() || arguments.contexts.is_empty() {
        bail!("--times-out needs --batch-size and --contexts");
    }
    refuse_given(&load.of_requests(), LOADS)?;
    let of_loads = [
        ("--policies", policies.is_some()),
        ("--draw", draw.is_some()),
        ("--requests-per-user", requests_per_user.is_some()),
    ];
    refuse_given(&of_loads, LOADS)?;
    let of_rounds = [
        ("--input-len", arguments.input_len.is_some()),
        ("--output-len", arguments.output_len.is_some()),
        ("--repeats", arguments.repeats.is_some()),
        ("--json", arguments.json),
        ("an accept length (@L) of --shapes", arguments.shapes.iter().any(|trial| trial.simulate.is_some())),
    ];
    refuse_given(
        &of_rounds,
        "a measurement of throughput: --times-out times rounds at --batch-size and --contexts alone",
    )
}
