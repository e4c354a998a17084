//! Compares a configuration between two runs on different hosts or at different times, where
//! repeats are not paired.

use std::collections::BTreeMap;

use schemas::sweep::Metric;
use serde::{Deserialize, Serialize};

use super::{
    Interval,
    scores::{Lead, Sample},
};
use crate::trials::{
    configuration::{Configuration, TrialLoad},
    record::{Record, leaves_too_few},
};

/// Differences below this are negligible, in logarithms: if larger ones are excluded, there is no
/// change.
const FELT: f64 = 0.05;

/// The second run relative to the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Across {
    /// The objective in the second run / in the first.
    pub ratio: Interval,
    /// The resulting conclusion.
    pub change: Change,
}

/// The conclusion of a comparison of two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The second run is better.
    Better,
    /// The second run is worse.
    Worse,
    /// Differences of more than 5% are excluded.
    None,
    /// A difference of more than 5% is neither shown nor excluded.
    TooNoisy,
    /// Neither run has a second repeat, so the noise is unknown.
    NoiseUnknown,
}

impl Change {
    /// As a phrase.
    pub fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::None => "no significant difference",
            Self::TooNoisy => "too noisy to tell",
            Self::NoiseUnknown => "one repeat: noise unknown",
        }
    }
}

/// Compares every configuration and load that both runs measured. The scatter is that of repeats
/// within a run, drifts included, estimated from all configurations of a load together.
pub fn across<'a>(
    first: impl IntoIterator<Item = &'a Record>,
    second: impl IntoIterator<Item = &'a Record>,
    metric: Metric,
) -> BTreeMap<(TrialLoad, Configuration), Across> {
    let (first, second) = (by_configuration(first, metric), by_configuration(second, metric));
    let samples = |load: TrialLoad| {
        let of =
            |run: &Scored| run.iter().filter(|((of, _), _)| *of == load).map(|(_, scores)| scores.clone()).collect();
        // Both runs together give the scatter, since each alone has few repeats.
        let mut all: Vec<Vec<f64>> = of(&first);
        all.extend(of(&second));
        Sample::new(all)
    };
    let of_load: BTreeMap<TrialLoad, Sample> = first.keys().map(|(load, _)| (*load, samples(*load))).collect();
    let row = |(key, before): (&(TrialLoad, Configuration), &Vec<f64>)| {
        let lead = of_load.get(&key.0)?.lead(second.get(key)?, before)?;
        Some((key.clone(), Across { ratio: lead.interval(1), change: change(&lead) }))
    };
    first.iter().filter_map(row).collect()
}

/// Logarithms of scores.
type Scored = BTreeMap<(TrialLoad, Configuration), Vec<f64>>;

fn by_configuration<'a>(records: impl IntoIterator<Item = &'a Record>, metric: Metric) -> Scored {
    let mut scored = Scored::new();
    // Measured repeats, and those of them that stalled.
    let mut counts: BTreeMap<(TrialLoad, Configuration), (usize, usize)> = BTreeMap::new();
    for record in records {
        let Some(figures) = record.measurement() else { continue };
        let key = (record.trial.load, record.trial.configuration.clone());
        let (measured, stalled) = counts.entry(key.clone()).or_default();
        *measured += 1;
        if figures.exclusion().is_some() {
            *stalled += 1;
            continue;
        }
        // Logarithms turn ratios into differences, whose scatter is alike for fast and slow loads.
        scored.entry(key).or_default().extend(figures.score(metric).map(f64::ln));
    }
    scored.retain(|key, scores| {
        let is_sound = counts.get(key).is_some_and(|(measured, stalled)| !leaves_too_few(*stalled, *measured));
        is_sound && !scores.is_empty()
    });
    scored
}

fn change(lead: &Lead) -> Change {
    match lead.ends(1) {
        None => Change::NoiseUnknown,
        Some((low, _)) if low > 0.0 => Change::Better,
        Some((_, high)) if high < 0.0 => Change::Worse,
        Some((low, high)) if -FELT < low && high < FELT => Change::None,
        Some(_) => Change::TooNoisy,
    }
}
