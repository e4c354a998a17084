//! What a race is ranked by, in words.

use schemas::sweep::Metric;

use crate::race::{Race, RaceEntry};

/// Figure, basis and direction of the ranking, and why the median of that figure may be in another
/// order.
pub fn words(race: &Race) -> String {
    let (figure, short, best) = match race.metric {
        Metric::Throughput | Metric::Pareto => ("throughput", "throughput", "highest"),
        Metric::Goodput => ("goodput", "goodput", "highest"),
        Metric::Latency => ("the inverse of latency", "latency", "lowest"),
    };
    if race.baseline().is_none() {
        return format!("Ranked by {short}, {best} first: no speculation was not measured, so there is no speed-up.");
    }
    let mut words = format!(
        "Ranked by speed-up, highest first: {figure} relative to no speculation, compared within each repeat (median \
         over the pairs)."
    );
    if disagrees(race) {
        words.push_str(&format!(
            " Medians of {short} are in another order in places: they include the machine's faster and slower moments, \
             which a comparison within repeats cancels."
        ));
    }
    if race.measured().any(|entry| entry.ranked.speedup.is_none()) {
        words.push_str(" Configurations without a repeat in common with no speculation are last.");
    }
    words
}

/// Whether the median of the figure falls somewhere down the ranking and rises again.
fn disagrees(race: &Race) -> bool {
    let ranked: Vec<f64> = race
        .measured()
        .filter(|entry| entry.ranked.speedup.is_some())
        .filter_map(|entry| figure(entry, race.metric))
        .collect();
    ranked.windows(2).any(|pair| pair[1] > pair[0])
}

/// The median of the ranking's figure, higher is better.
fn figure(entry: &RaceEntry, metric: Metric) -> Option<f64> {
    Some(entry.ranked.score(metric)).filter(|score| score.is_finite())
}
