//! Which configuration is best, and how sure that is.

use std::collections::{BTreeMap, BTreeSet};

use schemas::sweep::Metric;
use serde::{Deserialize, Serialize};

use crate::{
    configuration::{Configuration, Load},
    noise::Scores,
    record::{Measurement, Record, Role},
    statistics::{interval, relative_deviation},
};

/// Differences from the best that are no differences: nobody feels one percent.
const INDIFFERENT: f64 = 0.01;
/// Relative median absolute deviation beyond which a configuration is too noisy to be chosen.
const TOO_NOISY: f64 = 0.10;

/// A median with its interval: of 95%, or the range where there are fewer than
/// [`FEWEST_FOR_INTERVAL`](crate::statistics::FEWEST_FOR_INTERVAL) repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median over repeats.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// One configuration under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// What ran.
    pub configuration: Configuration,
    /// Why it is here.
    pub role: Role,
    /// Repeats that were measured.
    pub repeats: usize,
    /// Why it failed, if no repeat was measured.
    pub failure: Option<String>,
    /// Output tokens a second, all requests together.
    pub output_tokens_per_s: Option<Interval>,
    /// Output tokens a second of the requests that kept the objective's limits; `None` without limits.
    pub goodput_tokens_per_s: Option<Interval>,
    /// Output tokens a second as one user sees it.
    pub tokens_per_s_per_user: Option<Interval>,
    /// Median request latency in ms.
    pub latency_ms: Option<Interval>,
    /// Median time to first token in ms.
    pub time_to_first_token_ms: Option<Interval>,
    /// Median wall time of a round in ms.
    pub round_ms: Option<Interval>,
    /// Output tokens / rounds, first and bonus tokens included.
    pub accept_length: Option<f64>,
    /// Entry k counts the request-rounds in which k drafts were accepted, over all repeats.
    pub accept_histogram: Vec<u64>,
    /// Objective relative to no speculation, paired by repeat: 1.5 is half as fast again.
    pub speedup: Option<Interval>,
    /// Whether no configuration under any load is better both in all requests' tokens a second and in one user's.
    pub on_front: bool,
    /// Whether it cannot be told apart from the best.
    pub tied_with_best: bool,
    /// Median absolute deviation of the objective over repeats, relative to its median.
    pub relative_deviation: Option<f64>,
    /// Whether its repeats differ too much for it to be chosen; no speculation is all the same where nothing beats it.
    pub too_noisy: bool,
}

/// All configurations under one load, best first, failed ones last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadRanking {
    /// How requests came.
    pub load: Load,
    /// Best first.
    pub entries: Vec<Ranked>,
    /// The chosen one: the simplest of those that tie with the best.
    pub chosen: Option<Configuration>,
}

impl Ranked {
    /// What a metric says of it, turned so that more is better; negative infinity where the figure is missing.
    pub fn score(&self, metric: Metric) -> f64 {
        let score = match metric {
            Metric::Throughput | Metric::Pareto => self.output_tokens_per_s.map(|rate| rate.median),
            Metric::Latency => self.latency_ms.map(|latency| 1e3 / latency.median),
            Metric::Goodput => self.goodput_tokens_per_s.map(|rate| rate.median),
        };
        score.unwrap_or(f64::NEG_INFINITY)
    }

    /// Whether it can be chosen. No speculation always can if it was measured: without it in the race whatever is left would
    /// win, be it slower than none.
    pub fn may_be_chosen(&self) -> bool {
        self.repeats > 0 && (!self.too_noisy || self.configuration.is_off())
    }
}

/// What a race says of speculation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The chosen shape speculates and is better than none.
    Pays,
    /// None is best, or nothing that speculates can be told apart from it.
    DoesNotPay,
    /// No speculation was not measured: there is nothing to compare with.
    Unknown,
}

impl LoadRanking {
    /// What a metric says of exactly this configuration, if it was measured: more is better. A table is none of its shapes.
    pub fn score(&self, configuration: &Configuration, metric: Metric) -> Option<f64> {
        let entry = self.entries.iter().find(|entry| entry.configuration == *configuration)?;
        Some(entry.score(metric)).filter(|score| *score > 0.0)
    }

    /// The chosen configuration.
    pub fn winner(&self) -> Option<&Ranked> {
        self.entries.iter().find(|entry| Some(&entry.configuration) == self.chosen.as_ref())
    }

    /// What the race says of speculation.
    pub fn verdict(&self) -> Verdict {
        let measured = self.entries.iter().any(|entry| entry.role == Role::NoSpeculation && entry.repeats > 0);
        match &self.chosen {
            Some(chosen) if measured => {
                if chosen.is_off() {
                    Verdict::DoesNotPay
                } else {
                    Verdict::Pays
                }
            }
            _ => Verdict::Unknown,
        }
    }
}

impl Verdict {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Pays => "speculation pays",
            Self::DoesNotPay => "speculation does not pay here",
            Self::Unknown => "no speculation was not measured",
        }
    }
}

/// Ranks records of one fingerprint, load by load. Who wants a single load passes its records only.
///
/// Comparisons are paired: repeat r of one configuration with repeat r of the other, which ran close to it in time. A
/// candidate ties with the best if it is behind by less than one percent, or by no more than chance explains in a race of so
/// many (in one race of twenty between equals it does not), unless the best leads in every repeat that both have, which
/// are at least five (`Scores::always_leads`); of those that tie the simplest is chosen, no speculation being the
/// simplest of all.
pub fn rank<'a>(records: impl IntoIterator<Item = &'a Record>, metric: Metric) -> Vec<LoadRanking> {
    let mut races: BTreeMap<Load, BTreeMap<&Configuration, Vec<&Record>>> = BTreeMap::new();
    for record in records {
        races.entry(record.trial.load).or_default().entry(&record.trial.configuration).or_default().push(record);
    }
    let mut rankings: Vec<LoadRanking> = races.into_iter().map(|(load, race)| rank_race(load, &race, metric)).collect();
    mark_front(&mut rankings);
    rankings
}

/// Marks the Pareto front over all loads: throughput against the speed that one user sees.
fn mark_front(rankings: &mut [LoadRanking]) {
    let figures = |entry: &Ranked| Some((entry.output_tokens_per_s?.median, entry.tokens_per_s_per_user?.median));
    let all: Vec<(f64, f64)> = rankings.iter().flat_map(|ranking| &ranking.entries).filter_map(figures).collect();
    for entry in rankings.iter_mut().flat_map(|ranking| &mut ranking.entries) {
        let Some((rate, user)) = figures(entry) else { continue };
        let beats = |other: &(f64, f64)| other.0 >= rate && other.1 >= user && (other.0 > rate || other.1 > user);
        entry.on_front = !all.iter().any(beats);
    }
}

/// One configuration relative to another under a load, paired by repeat as in [`rank`]: 1.5 is half as fast again in
/// terms of the metric. `None` without a common repeat.
pub fn relative<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    load: Load,
    configuration: &Configuration,
    to: &Configuration,
    metric: Metric,
) -> Option<Interval> {
    let records: Vec<&Record> = records.into_iter().filter(|record| record.trial.load == load).collect();
    let scores = |configuration: &Configuration| {
        let of = records.iter().filter(|record| record.trial.configuration == *configuration);
        scores(&of.copied().collect::<Vec<_>>(), metric)
    };
    let base = scores(to);
    let ratios: Vec<f64> =
        scores(configuration).iter().filter_map(|(repeat, score)| Some(score / base.get(repeat)?)).collect();
    interval(&ratios)
}

fn rank_race(load: Load, race: &BTreeMap<&Configuration, Vec<&Record>>, metric: Metric) -> LoadRanking {
    let plain = race.keys().find(|configuration| configuration.is_off() && configuration.is_plain());
    let baseline = plain.and_then(|plain| race.get(plain)).map(|records| scores(records, metric)).unwrap_or_default();
    let mut entries: Vec<Ranked> =
        race.iter().map(|(configuration, records)| entry(configuration, records, &baseline, metric)).collect();
    entries.sort_by(|a, b| {
        b.score(metric).total_cmp(&a.score(metric)).then_with(|| a.configuration.cmp(&b.configuration))
    });
    tie(&mut entries, race, metric);
    let simplicity = |entry: &&Ranked| entry.configuration.complexity();
    let chosen = entries
        .iter()
        .filter(|entry| entry.tied_with_best)
        .min_by_key(simplicity)
        .map(|entry| entry.configuration.clone());
    LoadRanking { load, entries, chosen }
}

fn entry(
    configuration: &Configuration,
    records: &[&Record],
    baseline: &BTreeMap<usize, f64>,
    metric: Metric,
) -> Ranked {
    let figures: Vec<&Measurement> = records.iter().filter_map(|record| record.measurement()).collect();
    let figure = |of: fn(&Measurement) -> f64| interval(&figures.iter().map(|one| of(one)).collect::<Vec<_>>());
    let own = scores(records, metric);
    let ratios: Vec<f64> = own.iter().filter_map(|(repeat, score)| Some(score / baseline.get(repeat)?)).collect();
    let deviation = relative_deviation(&own.values().copied().collect::<Vec<_>>());
    let mut accept_histogram = Vec::new();
    for one in &figures {
        accept_histogram.resize(one.accept_histogram.len().max(accept_histogram.len()), 0);
        accept_histogram.iter_mut().zip(&one.accept_histogram).for_each(|(sum, count)| *sum += count);
    }
    let failure = records.iter().find_map(|record| record.failure());
    Ranked {
        configuration: configuration.clone(),
        role: records.first().map_or(Role::Candidate, |record| record.role),
        repeats: figures.len(),
        failure: failure.filter(|_| figures.is_empty()).map(str::to_owned),
        output_tokens_per_s: figure(|one| one.output_tokens_per_s),
        goodput_tokens_per_s: interval(&figures.iter().filter_map(|one| one.goodput_tokens_per_s).collect::<Vec<_>>()),
        tokens_per_s_per_user: figure(|one| one.tokens_per_s_per_user),
        latency_ms: figure(|one| one.latency_ms.median),
        time_to_first_token_ms: figure(|one| one.time_to_first_token_ms.median),
        round_ms: figure(|one| one.round_ms.median),
        accept_length: figure(|one| one.accept_length).map(|length| length.median),
        accept_histogram,
        speedup: interval(&ratios),
        on_front: false,
        tied_with_best: false,
        too_noisy: own.len() >= 3 && deviation.is_some_and(|deviation| deviation > TOO_NOISY),
        relative_deviation: deviation,
    }
}

/// The objective by repeat, turned so that more is better.
fn scores(records: &[&Record], metric: Metric) -> BTreeMap<usize, f64> {
    let score = |record: &&Record| Some((record.trial.repeat, record.measurement()?.score(metric)?));
    records.iter().filter_map(score).collect()
}

/// Marks what cannot be told apart from the best.
fn tie(entries: &mut [Ranked], race: &BTreeMap<&Configuration, Vec<&Record>>, metric: Metric) {
    let mut eligible: Vec<&mut Ranked> =
        entries.iter_mut().filter(|entry| entry.score(metric) > 0.0 && entry.may_be_chosen()).collect();
    let by_repeat: Vec<BTreeMap<usize, f64>> = eligible
        .iter()
        .map(|entry| race.get(&entry.configuration).map(|records| scores(records, metric)).unwrap_or_default())
        .collect();
    let repeats: BTreeSet<usize> = by_repeat.iter().flat_map(BTreeMap::keys).copied().collect();
    let row = |scores: &BTreeMap<usize, f64>| repeats.iter().map(|repeat| scores.get(repeat).copied()).collect();
    let scores = Scores::new(by_repeat.iter().map(row));
    // Where the scatter is unknown, indifference is all that can be said.
    let chance = scores.chance().unwrap_or_default();
    for (at, entry) in eligible.iter_mut().enumerate() {
        // The best is the first. Without a common repeat nothing is known of the difference: no tie is claimed.
        let lead = scores.lead(0, at);
        // Nobody feels less, whatever the scatter. Beyond that, what chance explains is a tie only as long as the pairs
        // do not all speak for the best.
        let by_chance = |lead: f64| lead <= chance && !scores.always_leads(0, at);
        entry.tied_with_best = lead.is_some_and(|lead| lead <= INDIFFERENT.ln_1p() || by_chance(lead));
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use schemas::tree::TreeShape;

    use super::*;
    use crate::{
        configuration::TableRow,
        made_up,
        record::{Outcome, Trial},
    };

    fn record(shape: &str, repeat: usize, rate: f64) -> Record {
        let shape: TreeShape = shape.parse().expect("a shape");
        let role = if shape.is_off() { Role::NoSpeculation } else { Role::Candidate };
        let trial = Trial { configuration: Configuration::of(shape), load: Load::BatchSize(1), repeat };
        made_up::record(trial, role, rate)
    }

    /// Ranks `(shape, rate of each repeat)`; returns the order and the choice.
    fn check(rates: &[(&str, &[f64])], order: &[&str], chosen: &str, verdict: Verdict) {
        let records: Vec<Record> = rates
            .iter()
            .flat_map(|(shape, rates)| rates.iter().enumerate().map(|(repeat, rate)| record(shape, repeat, *rate)))
            .collect();
        for metric in [Metric::Throughput, Metric::Latency] {
            let ranking = &rank(&records, metric)[0];
            let found: Vec<String> =
                ranking.entries.iter().map(|entry| entry.configuration.shape.to_string()).collect();
            assert_eq!(found, order);
            assert_eq!(ranking.chosen.as_ref().map(|chosen| chosen.shape.to_string()).as_deref(), Some(chosen));
            assert_eq!(ranking.verdict(), verdict);
        }
    }

    #[test]
    fn the_best_wins_and_a_tie_goes_to_the_simpler() {
        let off: (&str, &[f64]) = ("0,1,1", &[100.0, 101.0, 99.0]);
        check(&[off, ("3,1,4", &[200.0, 202.0, 198.0])], &["3,1,4", "0,1,1"], "3,1,4", Verdict::Pays);
        // The bigger tree is better by half a percent: nobody feels that.
        let trees: [(&str, &[f64]); 2] = [("3,4,8", &[201.0, 203.0, 199.0]), ("3,1,4", &[200.0, 202.0, 198.0])];
        check(&[off, trees[0], trees[1]], &["3,4,8", "3,1,4", "0,1,1"], "3,1,4", Verdict::Pays);
        // Better in the median, but not in every pair.
        check(&[off, ("3,1,4", &[110.0, 95.0, 120.0])], &["3,1,4", "0,1,1"], "0,1,1", Verdict::DoesNotPay);
        check(&[off, ("3,1,4", &[80.0, 81.0, 79.0])], &["0,1,1", "3,1,4"], "0,1,1", Verdict::DoesNotPay);
    }

    #[test]
    fn a_configuration_whose_repeats_disagree_is_not_chosen() {
        let off: (&str, &[f64]) = ("0,1,1", &[100.0, 101.0, 99.0]);
        let noisy: (&str, &[f64]) = ("5,4,8", &[190.0, 300.0, 400.0]);
        check(&[off, noisy, ("3,1,4", &[150.0, 151.0, 152.0])], &["5,4,8", "3,1,4", "0,1,1"], "3,1,4", Verdict::Pays);
    }

    #[test]
    fn a_table_is_not_mistaken_for_no_speculation() {
        let off = Configuration::of(TreeShape::OFF);
        let row = TableRow { max_running_batch: 8, shape: "3,1,4".parse().expect("a shape") };
        let table = Configuration { table: vec![row], ..off.clone() };
        let measured = |configuration: &Configuration, rate: f64| {
            let trial = Trial { configuration: configuration.clone(), load: Load::BatchSize(1), repeat: 0 };
            made_up::record(trial, Role::Candidate, rate)
        };
        let records = [measured(&table, 200.0), measured(&off, 100.0)];
        let ranking = &rank(&records, Metric::Throughput)[0];
        assert_eq!(ranking.score(&table, Metric::Throughput), Some(200.0));
        assert_eq!(ranking.score(&off, Metric::Throughput), Some(100.0));
        assert_eq!(ranking.score(&Configuration::of(TreeShape::chain(3)), Metric::Throughput), None);
    }

    #[test]
    fn a_slower_tree_does_not_win_because_no_speculation_is_noisy() {
        let off: (&str, &[f64]) = ("0,1,1", &[517.0, 2093.0, 2615.0]);
        let default: (&str, &[f64]) = ("5,4,8", &[285.0, 1067.0, 1401.0]);
        let order = ["0,1,1", "5,4,8", "7,8,16"];
        check(&[off, default, ("7,8,16", &[402.0])], &order, "0,1,1", Verdict::DoesNotPay);
        // What is faster in every pair wins all the same.
        let off: (&str, &[f64]) = ("0,1,1", &[100.0, 140.0, 180.0, 90.0, 150.0]);
        let tree: (&str, &[f64]) = ("3,1,4", &[200.0, 201.0, 199.0, 202.0, 198.0]);
        check(&[off, tree], &["3,1,4", "0,1,1"], "3,1,4", Verdict::Pays);
    }

    #[test]
    fn shapes_are_compared_repeat_by_repeat() {
        let records = [record("3,1,4", 0, 150.0), record("3,1,4", 1, 300.0), record("5,4,8", 1, 200.0)];
        let shapes = ["3,1,4", "5,4,8", "0,1,1"].map(|shape| Configuration::of(shape.parse().expect("a shape")));
        for metric in [Metric::Throughput, Metric::Latency] {
            let ratio =
                relative(&records, Load::BatchSize(1), &shapes[0], &shapes[1], metric).expect("a common repeat");
            assert!((ratio.median - 1.5).abs() < 1e-9, "{ratio:?}");
            assert_eq!(relative(&records, Load::BatchSize(1), &shapes[0], &shapes[2], metric), None);
            assert_eq!(relative(&records, Load::BatchSize(2), &shapes[0], &shapes[1], metric), None);
        }
    }

    #[test]
    fn what_every_pair_speaks_for_is_no_tie() {
        let off: (&str, &[f64]) = ("0,1,1", &[100.0, 90.0, 110.0, 80.0, 120.0]);
        // Three percent in every single pair, while the machine drifts by far more than that.
        let (plain, better): (Vec<f64>, Vec<f64>) =
            [200.0, 190.0, 210.0, 185.0, 215.0].map(|rate| (rate, rate * 1.03)).into_iter().unzip();
        check(&[off, ("3,4,8", &better), ("3,1,4", &plain)], &["3,4,8", "3,1,4", "0,1,1"], "3,4,8", Verdict::Pays);
    }

    #[test]
    fn the_front_is_what_nothing_beats_in_both_figures() {
        let mut records = vec![record("3,1,4", 0, 150.0), record("5,4,8", 0, 200.0), record("0,1,1", 0, 100.0)];
        for (record, user) in records.iter_mut().zip([60.0, 50.0, 40.0]) {
            if let Outcome::Measured(figures) = &mut record.outcome {
                figures.tokens_per_s_per_user = user;
            }
        }
        let ranking = &rank(&records, Metric::Pareto)[0];
        let front: Vec<bool> = ranking.entries.iter().map(|entry| entry.on_front).collect();
        assert_eq!(front, [true, true, false]);
    }

    #[test]
    fn failures_come_last_with_their_reason() {
        let mut failed = record("3,1,4", 0, 1.0);
        failed.outcome = Outcome::Failed { reason: "why".into() };
        let ranking = &rank(&[failed, record("0,1,1", 0, 100.0)], Metric::Throughput)[0];
        assert_eq!(ranking.entries[1].failure.as_deref(), Some("why"));
        assert_eq!(ranking.chosen, Some(Configuration::of(TreeShape::OFF)));
        assert_eq!(ranking.entries[1].speedup, None);
    }

    #[test]
    fn speculation_that_is_worth_nothing_is_seldom_said_to_pay() {
        let shapes = ["0,1,1", "1,1,2", "2,1,3", "3,1,4", "4,1,5", "3,4,8", "5,4,8", "5,8,32"];
        let mut random = StdRng::seed_from_u64(3);
        let wrong = (0..100)
            .filter(|_| {
                let mut rate = || 100.0 + 8.0 * random.random::<f64>();
                let records: Vec<Record> = shapes
                    .iter()
                    .flat_map(|shape| (0..3).map(|repeat| record(shape, repeat, rate())).collect::<Vec<_>>())
                    .collect();
                rank(&records, Metric::Throughput)[0].verdict() != Verdict::DoesNotPay
            })
            .count();
        // Nominally 5.
        assert!(wrong <= 12, "speculation was said to pay in {wrong} of 100 races between equals");
    }

    #[test]
    fn a_single_repeat_knows_no_noise_and_ties_within_a_percent_only() {
        let rates: [(&str, &[f64]); 3] = [("0,1,1", &[100.0]), ("3,1,4", &[149.5]), ("5,4,8", &[150.0])];
        check(&rates, &["5,4,8", "3,1,4", "0,1,1"], "3,1,4", Verdict::Pays);
    }
}
