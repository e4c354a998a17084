//! What the words of a report mean; they stand in every form of it.

/// Accept length: engines differ, so the definition stands wherever the number does.
pub const ACCEPT_LENGTH: &str =
    "output tokens / rounds, the first token and bonus tokens included (SGLang's definition); none without speculation";

/// What is to be said of parts of a round that were not measured in the trials.
pub const PARTS_APART: &str = "The parts of a round (draft, verify, extend) are measured apart from the trials, in a few rounds of their own: in a trial a round is one graph, and here it is three, so that the parts add up to slightly more than the whole.";

/// The words and what they mean.
pub const DEFINITIONS: &[(&str, &str)] = &[
    ("accept length", ACCEPT_LENGTH),
    (
        "configuration",
        "a tree shape num_steps,topk,num_draft_tokens; num_draft_tokens counts the root, so a chain (topk 1) has num_steps + 1",
    ),
    ("no speculation", "the same engine on the same workload with speculation off: always in the race"),
    (
        "engine's default",
        "the triple that SGLang would choose for this model without being told one: always in the race",
    ),
    (
        "range, interval",
        "the ends beside a figure: a confidence interval of at least 95% where the repeats allow one, with its true level; else the range, least to greatest, of which its level is said (of three repeats, 75%); with one repeat there is neither",
    ),
    (
        "tie (≈)",
        "cannot be told apart from the best by its own comparison with it, or is behind by less than 1%; the chosen configuration is the simplest of those that beat no speculation and tie with the best",
    ),
    (
        "round",
        "draft → verify → accept → extend of the whole running batch; yields 1 to num_steps + 1 tokens a request",
    ),
];

/// What figures have in common where some are predicted.
pub const KIND_WITH_PREDICTIONS: &str = "Every figure in this report is measured, but for those that are called predicted, replayed or extrapolated where they stand. A missing figure (—) was not measured.";

/// What all figures have in common.
pub const KIND: &str = "Every figure in this report is measured; none is predicted or extrapolated. A missing figure (—) was not measured.";
