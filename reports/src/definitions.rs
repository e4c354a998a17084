//! Definitions of the terms of a report, included in every format.

/// Definition of the accept length. Engines differ, so it is printed wherever the number is.
pub const ACCEPT_LENGTH: &str =
    "output tokens / rounds, the first token and bonus tokens included (SGLang's definition); none without speculation";

/// Remark on parts of a round that were not measured in the trials.
pub const PARTS_APART: &str = "The parts of a round (draft, verify, extend) are measured in a few extra rounds after the trial: in a trial a round is one CUDA graph, here it is three, so the parts add up to slightly more than the whole round.";

/// The terms and their definitions.
pub const DEFINITIONS: &[(&str, &str)] = &[
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
         configuration is the simplest of the ones that beat no speculation and tie with the best",
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
