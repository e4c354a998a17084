//! `columns.md`: what the columns of the tables mean.

use std::fmt::Write;

use crate::{columns::COLUMNS, definitions};

/// A column, or several with a common meaning, and what it means.
type Meaning = (&'static str, &'static str);

/// Columns of `trials.csv` whose name does not say everything.
const TRIALS: &[Meaning] = &[
    ("section", "number of the section of the page: trials of one fingerprint"),
    ("sweep", "the folder of the sweep"),
    ("id", "hash of the trial's definition and fingerprint"),
    (
        "load, batch_size, request_rate",
        "how requests arrived: running requests of a closed loop, or arrivals per second of an open one",
    ),
    ("configuration, num_steps, topk, num_draft_tokens", "what ran; for a table, the tree of its last row"),
    (
        "role",
        "candidate, no_speculation, engine_default, current (what runs now), or probe (measured to learn costs, not ranked)",
    ),
    ("repeat", "number of the repeat, from 0"),
    ("host, finished_at", "where it ran, and when it ended in seconds since 1970-01-01 UTC"),
    ("status, reason", "measured, or failed with its reason"),
    (
        "excluded, excluded_because",
        "why the trial takes no part in medians and comparisons, by name (stalled, slow) and in words; empty for one that does, that failed, or that is a probe",
    ),
    (
        "requests, output_tokens, rounds",
        "completed requests, tokens that they produced, rounds of the whole running batch",
    ),
    (
        "output_tokens_per_s",
        "the throughput: output tokens / seconds while the whole batch runs; of open loops output_tokens / elapsed_s. The throughput of a configuration is the median over its trials without a word in excluded",
    ),
    (
        "counted_share",
        "share of the output tokens that throughput counts: those that arrived while the whole batch ran; 1 for a whole trial",
    ),
    (
        "tokens_per_s_per_user, goodput_tokens_per_s, elapsed_s, inter_token_ms_*, time_to_first_token_ms_*, latency_ms_*",
        "without stalls where the trial separates them, as all figures that are compared",
    ),
    ("wall_*", "the same by the wall clock, stalls included; equal where nothing stalled or stalls are not separated"),
    ("stalled_share", "share of the wall time that was stalls"),
    (
        "*_min, *_median, *_p90, *_p99, *_max",
        "spread over the rounds (round_ms, draft_ms, verify_ms, extend_ms, draft_wait_ms) or requests of the trial. p90 is empty below 10 values and p99 below 100: there they would be the largest value, which is in *_max",
    ),
    (
        "tokens_per_joule",
        "output tokens per joule that the GPU used in the trial, prefill included; empty where its driver does not tell",
    ),
    ("in_time", "share of the requests within the objective's limits"),
    (
        "offered_per_s, served_per_s, unserved_at_last",
        "open loops: requests sent and served per second from the first arrival to the last, and those not served by then",
    ),
    ("mean_batch", definitions::MEAN_BATCH),
    ("cached_share", "share of the prompt tokens found in the prefix cache; empty if the server does not report it"),
    ("draft_wait_ms_*", definitions::DRAFT_WAIT),
    ("apart_*", "parts of rounds that were timed after the trial"),
    ("accept_length", definitions::ACCEPT_LENGTH),
    ("accept_histogram", "entry k counts the request-rounds in which k drafts were accepted"),
    ("running_batch", "entry k counts the rounds of k + 1 requests"),
    (
        "retractions",
        "times that a request was put back into the queue because the KV cache was full; empty if not counted",
    ),
    ("simulated", "whether acceptance was simulated"),
    (
        "device, device_name, driver, engine, settings, target, draft, workload",
        "the fingerprint: only trials that agree in it are ranked together",
    ),
];

/// Columns of `ranking.csv` besides those of the page.
const RANKING: &[Meaning] = &[
    ("rank", "the place by speedup under this load; empty for a configuration that failed, and for a probe"),
    ("chosen, tied_with_best, too_noisy", "what selection concluded"),
    ("repeats, excluded_repeats", "measured repeats, and how many of them take no part in medians and comparisons"),
    ("*_low, *_high", "the ends of the interval of a figure"),
    ("wall_output_tokens_per_s", "median throughput by the wall clock, stalls included"),
    ("requests", "requests per trial; in the repeat with the fewest"),
    ("*_p90, *_p99, *_max", "percentiles over requests, each the median over repeats; empty as in trials.csv"),
    ("mean_batch, cached_share", "as in trials.csv: medians over repeats"),
    ("parts_apart", "whether draft, verify and extend were timed after the trials"),
    ("spread", "(largest − smallest) / median of output_tokens_per_s over the repeats that count"),
    ("failure", "why no repeat was measured"),
];

/// The page.
pub fn page() -> String {
    let mut text = String::from(
        "# Columns\n\nThe CSV and Parquet files have the same columns. Empty: not measured, or not applicable. \
         `report.json` has the same figures.\n",
    );
    let mut table = |title: &str, meanings: &mut dyn Iterator<Item = (&str, String)>| {
        let _ = write!(text, "\n## {title}\n\n| column | meaning |\n|---|---|\n");
        meanings.for_each(|(name, meaning)| {
            let names: Vec<String> = name.split(", ").map(|name| format!("`{name}`")).collect();
            let _ = writeln!(text, "| {} | {meaning} |", names.join(", "));
        });
    };
    let of = |meanings: &'static [Meaning]| meanings.iter().map(|(name, meaning)| (*name, (*meaning).to_owned()));
    table("trials: one row per trial, failed ones and probes included", &mut of(TRIALS));
    let shown = COLUMNS.iter().map(|column| {
        let unit = if column.unit.is_empty() { String::new() } else { format!(", in {}", column.unit) };
        (column.key, format!("{}{unit}", column.meaning))
    });
    table("ranking: one row per configuration and load", &mut of(RANKING).chain(shown));
    let _ = writeln!(text, "\nStalls: {}.", definitions::STALLS);
    text
}

/// Whether the page explains this column of `trials` or `ranking`.
#[cfg(test)]
fn explains(column: &str) -> bool {
    let is_meant = |name: &str| match name.split_once('*') {
        Some((start, end)) => column.starts_with(start) && column.ends_with(end),
        None => column == name,
    };
    let meanings = TRIALS.iter().chain(RANKING).flat_map(|(names, _)| names.split(", "));
    meanings.chain(COLUMNS.iter().map(|column| column.key)).any(is_meant)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_column_is_explained() {
        for frame in [crate::frames::trials(&[]), crate::frames::ranking(&[])] {
            for column in frame.expect("a frame").get_column_names() {
                assert!(super::explains(column), "{column}");
            }
        }
    }
}
