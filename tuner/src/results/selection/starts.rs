//! Starts of servers: what one start of a server has in common is not in the scatter of its
//! repeats.
//!
//! A start decides memory layout, captured graphs, the choice of kernels and clocks for all repeats
//! that it measures. With a number of repeats that is decided beforehand, each configuration runs
//! in one start, so intervals cannot contain these differences. They are measured where
//! configurations have two starts: no speculation, and the configuration that a verdict is about
//! once it is confirmed (`search.confirm`). A verdict that they may explain is not given.

use std::collections::BTreeMap;

use schemas::sweep::Metric;
use serde::{Deserialize, Serialize};

use super::{
    ConfigurationRace, Ranked, RankedPlace, SpeculationVerdict, blocks::InOrder, choice::WORTHWHILE, scores::ERROR,
};
use crate::{
    statistics::{median, student::quantile_above},
    trials::{configuration::Configuration, record::Record},
};

/// The starts behind a race.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Starts {
    /// The configuration that the verdict is about: the chosen one, or the best that speculates.
    pub subject: Configuration,
    /// Its starts.
    pub of_subject: usize,
    /// Starts of what it is compared with: no speculation, where a verdict rests on it.
    pub of_baseline: usize,
    /// Largest ratio of the scores of two starts of one of the two, at least 1; `None` if both were
    /// started once.
    pub largest_ratio: Option<f64>,
    /// Relative deviation of a start from the mean of its configuration's starts; `None` if both
    /// were started once.
    pub deviation: Option<f64>,
}

/// The start of each record: consecutive trials of one configuration in one journal share a start.
///
/// A sweep that was resumed in the middle of a configuration has one start more than this shows.
pub fn starts(records: &[&Record], in_order: &InOrder<'_>) -> Vec<usize> {
    let (mut starts, mut next) = (vec![0; records.len()], 0);
    for places in in_order.values() {
        // Journals do not record starts. A server is restarted for each configuration, so one that
        // is measured again later has had another start.
        let same = |a: &usize, b: &usize| records[*a].trial.configuration == records[*b].trial.configuration;
        for start in places.chunk_by(same) {
            start.iter().for_each(|place| starts[*place] = next);
            next += 1;
        }
    }
    starts
}

impl Starts {
    /// The starts of the configuration that a verdict is about, the chosen row or the best that
    /// speculates, and of no speculation, with the ratio of the two. Entries are best first.
    pub(super) fn behind(
        race: &ConfigurationRace<'_>,
        entries: &[(usize, &Ranked)],
        chosen: Option<usize>,
        off: usize,
        metric: Metric,
    ) -> Option<(Self, f64)> {
        let others = || entries.iter().filter(|(row, _)| *row != off);
        let is_chosen = |(row, _): &&(usize, &Ranked)| chosen == Some(*row);
        let best = || others().find(|(_, entry)| !entry.configuration.is_off());
        let (row, entry) = others().find(is_chosen).or_else(best)?;
        Some((Self::from_pair(race, *row, off, metric)?, entry.speedup?.median))
    }

    /// From the logarithm of the score of each start.
    fn from_scores(configuration: Configuration, subject: &[f64], baseline: &[f64]) -> Self {
        // One start says nothing about how starts differ.
        let rows = [subject, baseline].into_iter().filter(|scores| scores.len() > 1);
        let range = |scores: &[f64]| {
            let ends = scores.iter().fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(*one), high.max(*one)));
            ends.1 - ends.0
        };
        let squares = |scores: &[f64]| {
            let mean = scores.iter().sum::<f64>() / scores.len() as f64;
            scores.iter().map(|one| (one - mean).powi(2)).sum::<f64>()
        };
        let freedom: usize = rows.clone().map(|scores| scores.len() - 1).sum();
        let variance = rows.clone().map(squares).sum::<f64>() / freedom as f64;
        Self {
            subject: configuration,
            of_subject: subject.len(),
            of_baseline: baseline.len(),
            largest_ratio: rows.map(range).reduce(f64::max).map(f64::exp),
            deviation: (freedom > 0).then(|| variance.sqrt()),
        }
    }

    /// The starts of one row and of another that it is compared with.
    pub(super) fn from_pair(race: &ConfigurationRace<'_>, row: usize, over: usize, metric: Metric) -> Option<Self> {
        let configuration = (*race.keys().nth(row)?).clone();
        Some(Self::from_scores(configuration, &starts_of(race, row, metric), &starts_of(race, over, metric)))
    }

    /// Whether differences between starts may explain what a verdict rests on: the median ratio of
    /// its subject to no speculation.
    pub fn explain(&self, verdict: SpeculationVerdict, ratio: f64) -> bool {
        let lead = match verdict {
            SpeculationVerdict::Pays | SpeculationVerdict::DoesNotPay => ratio.ln().abs(),
            SpeculationVerdict::Tie => WORTHWHILE,
            SpeculationVerdict::CannotTell(_) | SpeculationVerdict::AllFailed | SpeculationVerdict::NotCompared => {
                return false;
            }
        };
        self.explain_lead(lead)
    }

    /// Whether they may explain a lead, in logarithms.
    pub fn explain_lead(&self, lead: f64) -> bool {
        self.margin().is_some_and(|margin| margin >= lead)
    }

    /// The lead, in logarithms, that chance in the starts may cause; `None` if nothing was started
    /// twice.
    ///
    /// With two starts of each this is the margin of Student's interval for the difference of the
    /// means over starts. With two starts of one only, there is no such margin that ever decides
    /// (one degree of freedom), so their own difference is what a lead must exceed.
    fn margin(&self) -> Option<f64> {
        if self.of_subject < 2 || self.of_baseline < 2 {
            // With one start on a side its scatter is unknown; the range on the other side must do.
            return self.largest_ratio.map(f64::ln);
        }
        let (subject, baseline) = (self.of_subject as f64, self.of_baseline as f64);
        let error = self.deviation? * (1.0 / subject + 1.0 / baseline).sqrt();
        Some(quantile_above(ERROR, subject + baseline - 2.0) * error)
    }
}

/// The logarithm of the score of each start of a row: the median over its trials.
fn starts_of(race: &ConfigurationRace<'_>, row: usize, metric: Metric) -> Vec<f64> {
    let mut by_start: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for RankedPlace { record, start, .. } in race.values().nth(row).into_iter().flatten() {
        let figures = record.measurement().filter(|figures| figures.exclusion().is_none());
        by_start.entry(*start).or_default().extend(figures.and_then(|one| one.score(metric)).map(f64::ln));
    }
    by_start.into_values().filter_map(median).collect()
}

#[cfg(test)]
mod tests {
    use schemas::tree::TreeShape;

    use super::*;

    fn starts(subject: &[f64], baseline: &[f64]) -> Starts {
        let logarithms = |scores: &[f64]| scores.iter().map(|score| score.ln()).collect::<Vec<_>>();
        Starts::from_scores(Configuration::from_shape(TreeShape::OFF), &logarithms(subject), &logarithms(baseline))
    }

    #[test]
    fn two_starts_of_each_decide_a_clear_lead_and_no_small_one() {
        let steady = starts(&[130.0, 131.0], &[100.0, 99.5]);
        assert!(!steady.explain(SpeculationVerdict::Pays, 1.3), "{steady:?}");
        assert!(steady.explain(SpeculationVerdict::Pays, 1.03), "{steady:?}");
        // As met: one start at 1.05, the other at 1.67 of no speculation.
        let wild = starts(&[105.0, 167.0], &[100.0, 101.0]);
        assert!(wild.explain(SpeculationVerdict::Pays, 1.35), "{wild:?}");
        assert!(wild.largest_ratio.is_some_and(|ratio| (ratio - 167.0 / 105.0).abs() < 1e-9));
    }

    #[test]
    fn one_start_of_the_subject_must_exceed_the_difference_of_the_baseline() {
        let once = starts(&[130.0], &[100.0, 110.0]);
        assert_eq!((once.of_subject, once.of_baseline), (1, 2));
        assert!(once.explain(SpeculationVerdict::Pays, 1.09) && !once.explain(SpeculationVerdict::Pays, 1.2));
        assert!(once.explain(SpeculationVerdict::Tie, 1.0), "a tie within 5% is not shown");
        let unknown = starts(&[130.0], &[100.0]);
        assert_eq!((unknown.largest_ratio, unknown.explain(SpeculationVerdict::Pays, 1.001)), (None, false));
    }
}
