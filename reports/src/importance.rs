//! Parameter importance: the share of the variance between configurations that each parameter
//! explains on its own.

use std::collections::BTreeMap;

use schemas::sweep::Metric;
use tuner::{prediction::guide::Guide, trials::configuration::Configuration};

use crate::race::Race;

/// Minimum number of configurations for meaningful shares.
const FEWEST: usize = 6;

/// Importance of the parameters under one load.
pub struct Importance {
    /// Whether the figures are predicted (for the whole space) or measured.
    pub predicted: bool,
    /// Number of configurations.
    pub configurations: usize,
    /// Share of the variance of the objective's logarithm that a parameter's main effect explains,
    /// minus what the same number of groups would explain by chance. Only parameters with more than
    /// one value are listed.
    pub shares: Vec<(String, f64)>,
}

/// The importance under the load of a race: over its predictions if there are any, else over the
/// measurements. Only speculating configurations with a single tree count. `None` with too few of
/// them, or if nothing differs.
pub fn compute(guide: Option<&Guide>, race: &Race, metric: Metric) -> Option<Importance> {
    let better = |throughput: Option<f64>, latency: Option<f64>| match metric {
        // So that higher is better under every metric.
        Metric::Latency => latency.map(|latency| 1.0 / latency),
        Metric::Throughput | Metric::Goodput | Metric::Pareto => throughput,
    };
    let predictions = guide.into_iter().flat_map(|guide| &guide.predictions).filter(|one| one.load == race.load);
    let predicted: Vec<(&Configuration, f64)> = predictions
        .filter_map(|one| Some((&one.configuration, better(Some(one.output_tokens_per_s), Some(one.latency_ms))?)))
        .collect();
    let measured = || {
        let score = |entry: &'_ crate::race::RaceEntry| {
            let median =
                |interval: Option<tuner::results::selection::Interval>| interval.map(|interval| interval.median);
            let throughput = match metric {
                Metric::Goodput => entry.ranked.goodput_tokens_per_s,
                Metric::Throughput | Metric::Latency | Metric::Pareto => entry.ranked.output_tokens_per_s,
            };
            better(median(throughput), median(entry.ranked.latency_ms))
        };
        race.measured().filter_map(|entry| Some((&entry.ranked.configuration, score(entry)?))).collect::<Vec<_>>()
    };
    let is_predicted = !predicted.is_empty();
    let points: Vec<(&Configuration, f64)> = if is_predicted { predicted } else { measured() }
        .into_iter()
        .filter(|(configuration, score)| !configuration.is_off() && configuration.table.is_empty() && *score > 0.0)
        .map(|(configuration, score)| (configuration, score.ln()))
        .filter(|(_, score)| score.is_finite())
        .collect();
    if points.len() < FEWEST {
        return None;
    }
    // By place, which keeps the order of `settings`.
    let mut parameters: BTreeMap<usize, (String, Vec<String>)> = BTreeMap::new();
    for (configuration, _) in &points {
        for (place, (name, value)) in settings(configuration).into_iter().enumerate() {
            parameters.entry(place).or_insert_with(|| (name.to_owned(), Vec::new())).1.push(value);
        }
    }
    let scores: Vec<f64> = points.iter().map(|(_, score)| *score).collect();
    let shares: Vec<(String, f64)> =
        parameters.into_values().filter_map(|(name, levels)| Some((name, explained(&levels, &scores)?))).collect();
    (!shares.is_empty()).then_some(Importance { predicted: is_predicted, configurations: points.len(), shares })
}

fn settings(configuration: &Configuration) -> Vec<(&'static str, String)> {
    let Configuration { shape, knobs, draft, .. } = configuration;
    let number = |value: Option<usize>| value.map_or_else(String::new, |value| value.to_string());
    vec![
        ("draft", draft.clone()),
        ("num_steps", shape.num_steps.to_string()),
        ("topk", shape.topk.to_string()),
        ("num_draft_tokens", shape.num_draft_tokens.to_string()),
        ("row_budget", shape.row_budget.map_or_else(String::new, |rows| rows.to_string())),
        ("max_running_requests", number(knobs.max_running_requests)),
        ("mem_fraction_static", knobs.mem_fraction_static.map_or_else(String::new, |share| share.0.to_string())),
        ("attention_backend", knobs.attention_backend.clone().unwrap_or_default()),
        ("page_size", number(knobs.page_size)),
        ("chunked_prefill_size", number(knobs.chunked_prefill_size)),
    ]
}

/// The share of the variance of `scores` between groups of equal `levels`, corrected for chance
/// (epsilon squared), at least 0. `None` with one group, without variance, or with a group for
/// nearly every score.
fn explained(levels: &[String], scores: &[f64]) -> Option<f64> {
    let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (level, score) in levels.iter().zip(scores) {
        groups.entry(level).or_default().push(*score);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let spread = |values: &[f64], around: f64| values.iter().map(|value| (value - around).powi(2)).sum::<f64>();
    let total = spread(scores, mean(scores));
    let within: f64 = groups.values().map(|group| spread(group, mean(group))).sum();
    let free = scores.len().saturating_sub(groups.len());
    // Equal scores differ by rounding alone.
    if groups.len() < 2 || free < 2 || total <= 1e-18 {
        return None;
    }
    let chance = within / free as f64 * (groups.len() - 1) as f64;
    Some(((total - within - chance) / total).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(levels: &[usize], scores: &[f64], expected: Option<f64>) {
        let levels: Vec<String> = levels.iter().map(usize::to_string).collect();
        let found = explained(&levels, scores);
        let equal = match (found, expected) {
            (Some(found), Some(expected)) => (found - expected).abs() < 1e-9,
            (found, expected) => found == expected,
        };
        assert!(equal, "{found:?}, expected {expected:?}");
    }

    #[test]
    fn a_parameter_explains_what_lies_between_its_groups() {
        // All of it, none of it, and corrected for chance: 4/6 between, 2/6 within on 2 degrees of
        // freedom.
        check(&[1, 1, 2, 2], &[1.0, 1.0, 3.0, 3.0], Some(1.0));
        check(&[1, 2, 1, 2], &[1.0, 1.0, 3.0, 3.0], Some(0.0));
        check(&[1, 1, 2, 2], &[0.0, 1.0, 1.0, 2.0], Some(0.25));
    }

    #[test]
    fn what_cannot_be_reported_stays_missing() {
        check(&[1, 1, 1], &[1.0, 2.0, 3.0], None);
        check(&[1, 2, 3], &[1.0, 2.0, 3.0], None);
        check(&[1, 1, 2, 2], &[1.0, 1.0, 1.0, 1.0], None);
    }
}
