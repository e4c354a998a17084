//! Definitions of the terms of a report, included in every format.

use tuner::trials::configuration::TrialLoad;

/// Definition of the accept length. Engines differ, so it is printed wherever the number is.
pub const ACCEPT_LENGTH: &str = "output tokens / rounds, the first token and bonus tokens included (SGLang's definition); 1 without speculation, whose rounds yield one token";

/// Definition of the throughput: the same in every table and file.
pub const THROUGHPUT: &str = "output tokens / seconds of all requests together, prefill included, without stalls, while the whole batch runs; median over repeats";

/// The same, if all loads are open loops.
const THROUGHPUT_OF_OPEN_LOOPS: &str = "output tokens of all requests / seconds of the trial, prefill included, by the wall clock, stalls included, as in every open loop; median over repeats";

/// The same, if there are closed and open loops.
const THROUGHPUT_OF_BOTH: &str = "output tokens / seconds of all requests together, prefill included, without stalls, while the whole batch runs; of open loops over the whole trial by the wall clock, stalls included; median over repeats";

/// What of a closed loop counts.
const WHOLE_BATCH: &str = "from the start of a trial until fewer requests than its batch are left, since the end of a trial says nothing about a batch and is longer with speculation, whose requests end one after the other. If less than half of the tokens arrive by then, throughput and goodput count the whole trial, as they do for trials of earlier versions (counted_share in the files is 1). Latencies are those of all requests";

/// The definition of the throughput under these loads.
pub fn throughput(loads: impl IntoIterator<Item = TrialLoad>) -> &'static str {
    let (mut closed, mut open) = (false, false);
    for load in loads {
        let is_closed = load.batch_size().is_some();
        closed |= is_closed;
        open |= !is_closed;
    }
    match (closed, open) {
        (_, false) => THROUGHPUT,
        (false, true) => THROUGHPUT_OF_OPEN_LOOPS,
        (true, true) => THROUGHPUT_OF_BOTH,
    }
}

/// The terms and their definitions in a report about these loads.
pub fn terms(loads: impl IntoIterator<Item = TrialLoad>) -> impl Iterator<Item = (&'static str, &'static str)> {
    let throughput = throughput(loads);
    DEFINITIONS.iter().map(move |(term, meaning)| (*term, if *term == "throughput" { throughput } else { *meaning }))
}

/// Definition of the time of waiting for drafts.
pub const DRAFT_WAIT: &str = "time before a round in which the device waits until the host has looked drafts up in texts and copied them, which is in none of the round's times, but in those of requests and in throughput: median over rounds; none where the host looks nothing up";

/// Definition of the mean running batch.
pub const MEAN_BATCH: &str = "mean number of requests in the engine, waiting ones included, over the time that throughput counts: the time of all requests within it / that time, as a client sees both, on every engine; over rounds in journals that spectune's own engine wrote in earlier versions";

/// Definition of stalls.
pub const STALLS: &str = "steps that took far longer than the others of their kind, because something else ran on the machine; they count with the mean of their kind. All times and rates are without stalls where trials separate them: a closed loop in spectune's own engine does; servers and open loops do not, so theirs are by the wall clock. Columns that start with wall_ in the files include stalls";

/// What probes are, and why they are not ranked.
pub const PROBES: &str = "Trials of a start that serves several chains, a different one at each batch size, to learn the costs of rounds. They are not ranked: the chains share the GPU's memory, so only separate starts are compared.";

/// Remark on parts of a round that were not measured in the trials.
pub const PARTS_APART: &str = "The parts of a round (draft, verify, extend) are measured in a few extra rounds after the trial: in a trial a round is one CUDA graph, here it is three, so the parts add up to slightly more than the whole round.";

/// The terms and their definitions, for closed loops.
const DEFINITIONS: &[(&str, &str)] = &[
    ("throughput", THROUGHPUT),
    ("while the whole batch runs", WHOLE_BATCH),
    ("stalls", STALLS),
    (
        "speed-up",
        "the objective (throughput, goodput, or the inverse of latency) relative to no speculation, compared within each \
         repeat: the median over the pairs; above 1 is better. The ranking is in this order",
    ),
    (
        "excluded",
        "a measured repeat that takes no part in medians and comparisons, with its reason: too many of its steps \
         stalled, or it is far slower than the other repeats of its configuration",
    ),
    ("probe", PROBES),
    (
        "p50, p90, p99, max",
        "percentiles over the requests of a trial, by nearest rank, then the median over repeats. p90 takes at least \
         10 requests and p99 at least 100: with fewer, the largest value is shown under its own name, max of N",
    ),
    (
        "sent, served",
        "requests per second of an open loop, both from the first arrival to the last: requests that arrived after the \
         first, and those of all requests that ended",
    ),
    ("accept length", ACCEPT_LENGTH),
    (
        "configuration",
        "a tree shape num_steps,topk,num_draft_tokens; num_draft_tokens counts the root, so a chain (topk 1) has \
         num_steps + 1",
    ),
    ("no speculation", "the same engine on the same workload with speculation off; always measured"),
    ("engine's default", "the tree shape that SGLang chooses for this model when none is given; always measured"),
    (
        "range, interval",
        "the bounds next to a figure: a confidence interval of at least 95% where there are enough repeats, with its actual level; otherwise the range from minimum to maximum, with its level (75% for three repeats); with one repeat there is neither",
    ),
    (
        "tie (≈)",
        "not significantly different from the best in a direct comparison, or slower by less than 1%; the chosen \
         configuration is the simplest of the ones that beat no speculation, tie with the best and are measured within 2% \
         of it",
    ),
    (
        "kept: undecided",
        "no speculation, while it is unknown whether speculation pays: a choice by default, not by measurement",
    ),
    (
        "too noisy",
        "its interval is too wide to tell it from the best, or to call it a tie: more repeats or longer trials help",
    ),
    (
        "round",
        "draft → verify → accept → extend of the whole running batch; yields 1 to num_steps + 1 tokens per request",
    ),
];

/// What the figures are, if some are predicted.
pub const KIND_WITH_PREDICTIONS: &str = "Every figure in this report is measured, except where it is marked as predicted, replayed or extrapolated. A missing figure (—) was not measured.";

/// What the figures are, if all are measured.
pub const KIND: &str = "Every figure in this report is measured; none is predicted or extrapolated. A missing figure (—) was not measured.";

#[cfg(test)]
mod tests {
    use tuner::trials::configuration::Real;

    use super::*;

    #[test]
    fn throughput_is_without_stalls_only_where_they_are_separated() {
        let (closed, open) = (TrialLoad::BatchSize(8), TrialLoad::RequestRate(Real(20.0)));
        assert_eq!(throughput([closed]), THROUGHPUT);
        assert!(!throughput([open, TrialLoad::Recorded]).contains("without stalls"));
        assert!(throughput([closed, open]).contains("of open loops over the whole trial by the wall clock"));
        let listed = terms([open]).find(|(term, _)| *term == "throughput");
        assert_eq!(listed, Some(("throughput", THROUGHPUT_OF_OPEN_LOOPS)));
    }
}
