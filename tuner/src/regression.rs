//! Whether a newer run of the chosen configuration is worse than older runs: the check of
//! `report --fail-if`.
//!
//! Two runs at different hours differ by more than the repeats of each do, so the scatter comes
//! from several older runs of the same thing; or from two servers that were measured in turns.

use std::str::FromStr;

use crate::{
    results::selection::{Comparison, rank},
    running::result::{FIGURES, Paired},
    statistics::{Interval, RangeKind, median, student::quantile_above},
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{Fingerprint, Measurement, Record, leaves_too_few},
    },
};

/// Fewest older runs whose scatter is an estimate.
pub const FEWEST_RUNS: usize = 3;
/// Probability that a ratio is outside of its interval, on each side.
const OUTSIDE: f64 = 0.025;

/// A figure of a trial that can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegressionFigure {
    /// Output tokens per second.
    Throughput,
    /// Time of a request.
    Latency,
    /// Time to first token.
    Ttft,
    /// Inter-token time.
    Itl,
    /// Accept length.
    AcceptLength,
}

/// A condition on the ratio of a figure, newer to older: `throughput < 0.97`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailCondition {
    /// The figure.
    pub figure: RegressionFigure,
    /// Whether it holds below the ratio, not above.
    pub below: bool,
    /// The ratio.
    pub ratio: f64,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckOutcome {
    /// The condition does not hold.
    Fine,
    /// The condition holds: the whole interval is beyond its ratio.
    Worse,
    /// It is not known whether it holds, for this reason.
    Unknown(String),
}

/// The check of a configuration under a load.
#[derive(Clone, Debug, PartialEq)]
pub struct RegressionCheck {
    /// How requests arrive.
    pub load: TrialLoad,
    /// What was compared; `None` for servers that were measured as they are.
    pub configuration: Option<Configuration>,
    /// The figure in the newer run relative to the older ones.
    pub ratio: Option<Interval>,
    /// The result.
    pub outcome: CheckOutcome,
}

/// The journal of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunSummary<'a> {
    /// Its name for the user.
    pub name: &'a str,
    /// Its trials.
    pub records: &'a [Record],
}

impl RegressionFigure {
    const ALL: [(&'static str, Self); 5] = [
        ("throughput", Self::Throughput),
        ("latency", Self::Latency),
        ("ttft", Self::Ttft),
        ("itl", Self::Itl),
        ("accept_length", Self::AcceptLength),
    ];

    fn value(self, trial: &Measurement) -> Option<f64> {
        let compared = trial.compared();
        Some(match self {
            Self::Throughput => compared.output_tokens_per_s,
            Self::Latency => compared.latency_ms.median,
            Self::Ttft => compared.time_to_first_token_ms.median,
            Self::Itl => compared.inter_token_ms?.median,
            Self::AcceptLength => trial.accept_length,
        })
    }

    /// Its name among the figures of running servers.
    fn server_figure(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "request",
            Self::Ttft => "time to first token",
            Self::Itl => "inter-token time",
            Self::AcceptLength => "accept length",
        }
    }
}

impl FailCondition {
    fn outcome(&self, interval: &Interval) -> CheckOutcome {
        let (low, high) = (interval.low, interval.high);
        let (is_beyond, is_within) = match self.below {
            true => (high < self.ratio, low >= self.ratio),
            false => (low > self.ratio, high <= self.ratio),
        };
        match (is_beyond, is_within) {
            (true, _) => CheckOutcome::Worse,
            (_, true) => CheckOutcome::Fine,
            _ => CheckOutcome::Unknown(format!("the interval contains {}", self.ratio)),
        }
    }
}

impl FromStr for FailCondition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || RegressionFigure::ALL.map(|(name, _)| name).join(", ");
        let expected = || format!("expected a condition such as 'throughput < 0.97', with one of {}", names());
        let at = text.find(['<', '>']).ok_or_else(expected)?;
        let (name, ratio) = (text[..at].trim(), text[at + 1..].trim());
        let figure = RegressionFigure::ALL.iter().find(|(known, _)| *known == name).ok_or_else(expected)?.1;
        let ratio: f64 = ratio.parse().map_err(|_| expected())?;
        if !(ratio > 0.0 && ratio.is_finite()) {
            return Err(format!("{ratio} is not a ratio: expected a number above 0"));
        }
        Ok(Self { figure, below: text[at..].starts_with('<'), ratio })
    }
}

/// Checks the newer run against the older ones, the first of which says what is checked: the
/// configuration that it chose under each load, or under the given one.
pub fn check(
    older: &[RunSummary<'_>],
    newer: RunSummary<'_>,
    comparison: Comparison,
    load: Option<TrialLoad>,
    condition: FailCondition,
) -> Vec<RegressionCheck> {
    let Some(first) = older.first() else { return Vec::new() };
    let rankings = rank(first.records, comparison);
    let differing = older.iter().skip(1).chain([&newer]).find_map(|run| difference(first, run));
    let chosen = rankings.into_iter().filter(|one| load.is_none_or(|load| one.load == load));
    let check = |load: TrialLoad, chosen: Option<Configuration>| {
        let unknown = |reason: String| RegressionCheck {
            load,
            configuration: chosen.clone(),
            ratio: None,
            outcome: CheckOutcome::Unknown(reason),
        };
        if let Some(reason) = &differing {
            return unknown(reason.clone());
        }
        let Some(configuration) = &chosen else {
            return unknown(format!("{} chose no configuration for this load", first.name));
        };
        match ratio(older, newer, load, configuration, condition.figure) {
            Ok(ratio) => RegressionCheck {
                load,
                configuration: chosen.clone(),
                outcome: condition.outcome(&ratio),
                ratio: Some(ratio),
            },
            Err(reason) => unknown(reason),
        }
    };
    chosen.map(|one| check(one.load, one.chosen)).collect()
}

/// Checks two servers that were measured in turns, the second against the first.
pub fn check_paired(paired: &[Paired], load: Option<TrialLoad>, condition: FailCondition) -> Vec<RegressionCheck> {
    let index = FIGURES.iter().position(|figure| figure.name == condition.figure.server_figure());
    let check = |pair: &Paired| {
        let ratio = index.and_then(|index| pair.ratios[index]);
        let outcome = match ratio {
            None => CheckOutcome::Unknown("a server does not report this figure".into()),
            Some(ratio) if ratio.kind != RangeKind::Confidence => {
                CheckOutcome::Unknown(format!("{} pairs are too few for an interval", pair.pairs))
            }
            Some(ratio) => condition.outcome(&ratio),
        };
        RegressionCheck { load: pair.load, configuration: None, ratio, outcome }
    };
    paired.iter().filter(|pair| load.is_none_or(|load| pair.load == load)).map(check).collect()
}

/// What keeps two runs from being compared; `None` if only the version of the engine differs.
fn difference(first: &RunSummary<'_>, other: &RunSummary<'_>) -> Option<String> {
    let print = |run: &RunSummary<'_>| run.records.first().map(|record| record.fingerprint.clone());
    let (Some(one), Some(two)) = (print(first), print(other)) else {
        return Some(format!("{} or {} has no trial", first.name, other.name));
    };
    // An engine is its name and version, and a new version is what the check is for.
    let without_version = |print: Fingerprint| Fingerprint {
        engine: print.engine.split(' ').next().unwrap_or_default().to_owned(),
        ..print
    };
    let differences = without_version(one).difference(&without_version(two));
    (!differences.is_empty()).then(|| format!("{} and {} differ: {differences}", first.name, other.name))
}

/// The figure in the newer run relative to the mean of the older ones, with the interval that their
/// scatter gives.
fn ratio(
    older: &[RunSummary<'_>],
    newer: RunSummary<'_>,
    load: TrialLoad,
    configuration: &Configuration,
    figure: RegressionFigure,
) -> Result<Interval, String> {
    let value = |run: &RunSummary<'_>| {
        let own = run.records.iter().filter(|one| one.trial.load == load && one.trial.configuration == *configuration);
        let (trials, stalled): (Vec<_>, Vec<_>) =
            own.filter_map(Record::measurement).partition(|trial| trial.exclusion().is_none());
        if leaves_too_few(stalled.len(), stalled.len() + trials.len()) {
            return Err(format!("in {} half of the repeats of this or more stalled", run.name));
        }
        // Runs differ by factors, so logarithms are compared; a value of 0 has none.
        let values: Vec<f64> =
            trials.into_iter().filter_map(|trial| figure.value(trial)).filter(|value| *value > 0.0).collect();
        median(values).map(f64::ln).ok_or_else(|| format!("{} did not measure this", run.name))
    };
    let values: Vec<f64> = older.iter().filter_map(|run| value(run).ok()).collect();
    if values.len() < FEWEST_RUNS {
        return Err(format!(
            "{} of the older runs measured this, but the scatter between runs needs {FEWEST_RUNS}: give more folders",
            values.len()
        ));
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    // The newer run scatters as much as an older one, and so does the mean of these: hence 1 + 1/n.
    let reach = quantile_above(OUTSIDE, count - 1.0) * (variance * (1.0 + 1.0 / count)).sqrt();
    let change = value(&newer)? - mean;
    Ok(Interval {
        median: change.exp(),
        low: (change - reach).exp(),
        high: (change + reach).exp(),
        kind: RangeKind::Confidence,
        coverage: 1.0 - 2.0 * OUTSIDE,
    })
}

#[cfg(test)]
mod tests {
    use schemas::sweep::Metric;

    use super::*;
    use crate::{
        results::selection::Looks,
        trials::record::{CandidateRole, Outcome as Ran, Stalls, Trial, TrialOrigin, TrialSpread},
    };

    /// A run of no speculation and a chain of three, which is twice as fast.
    fn run(rate: f64, engine: &str, load: TrialLoad) -> Vec<Record> {
        let record = |shape: &str, role: CandidateRole, rate: f64, repeat: usize| {
            let spread = TrialSpread { median: 1e3 / rate, ..TrialSpread::default() };
            let trial =
                Trial { configuration: Configuration::from_shape(shape.parse().expect("a shape")), load, repeat };
            let figures = Measurement {
                output_tokens_per_s: rate * (1.0 + 0.001 * repeat as f64),
                accept_length: 2.0,
                latency_ms: spread,
                time_to_first_token_ms: spread,
                ..Measurement::default()
            };
            Record {
                id: format!("{shape} {repeat}"),
                trial,
                role,
                fingerprint: Fingerprint { engine: engine.into(), device: "gpu".into(), ..Fingerprint::default() },
                origin: TrialOrigin::default(),
                finished_at: 0,
                outcome: Ran::Measured(Box::new(figures)),
            }
        };
        (0..6)
            .flat_map(|repeat| {
                [
                    record("0,1,1", CandidateRole::NoSpeculation, rate / 2.0, repeat),
                    record("3,1,4", CandidateRole::Candidate, rate, repeat),
                ]
            })
            .collect()
    }

    fn outcome(condition: &str, older: &[Vec<Record>], newer: &[Record]) -> CheckOutcome {
        let runs: Vec<RunSummary<'_>> = older.iter().map(|records| RunSummary { name: "old", records }).collect();
        let comparison = Comparison { metric: Metric::Throughput, looks: Looks::Planned };
        let found = check(
            &runs,
            RunSummary { name: "new", records: newer },
            comparison,
            None,
            condition.parse().expect(condition),
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].configuration.as_ref().map(ToString::to_string).as_deref(), Some("3,1,4"));
        found[0].outcome.clone()
    }

    #[test]
    fn only_an_interval_beyond_the_ratio_fails() {
        let load = TrialLoad::BatchSize(8);
        let older = [100.0, 100.3, 99.8].map(|rate| run(rate, "sglang 0.5.15", load));
        let newer = |rate: f64| run(rate, "sglang 0.5.16", load);
        assert_eq!(outcome("throughput < 0.97", &older, &newer(100.0)), CheckOutcome::Fine);
        assert_eq!(outcome("throughput < 0.97", &older, &newer(80.0)), CheckOutcome::Worse);
        assert!(matches!(outcome("throughput < 0.97", &older, &newer(97.0)), CheckOutcome::Unknown(_)));
        assert_eq!(outcome("latency > 1.1", &older, &newer(80.0)), CheckOutcome::Worse);
        assert_eq!(outcome("accept_length < 0.99", &older, &newer(80.0)), CheckOutcome::Fine);
        // A scatter of ten percent hides a loss of ten.
        let rough = [90.0, 100.0, 110.0].map(|rate| run(rate, "sglang 0.5.15", load));
        assert!(matches!(outcome("throughput < 0.97", &rough, &newer(90.0)), CheckOutcome::Unknown(_)));
    }

    #[test]
    fn what_cannot_be_compared_is_unknown() {
        let load = TrialLoad::BatchSize(8);
        let older = [100.0, 101.0].map(|rate| run(rate, "sglang 0.5.15", load));
        let reported = outcome("throughput < 0.97", &older, &run(50.0, "sglang 0.5.16", load));
        assert!(
            matches!(&reported, CheckOutcome::Unknown(reason) if reason.contains("2 of the older runs")),
            "{reported:?}"
        );
        let older = [100.0, 101.0, 99.0].map(|rate| run(rate, "sglang 0.5.15", load));
        let mut newer = run(50.0, "sglang 0.5.16", load);
        for record in newer.iter_mut().filter(|record| !record.trial.configuration.is_off()).take(3) {
            if let Ran::Measured(figures) = &mut record.outcome {
                figures.stalls = Some(Stalls { of_time: 0.9, of_steps: 0.9 });
            }
        }
        let reported = outcome("throughput < 0.97", &older, &newer);
        assert!(matches!(&reported, CheckOutcome::Unknown(reason) if reason.contains("stalled")), "{reported:?}");
        let reported = outcome("throughput < 0.97", &older, &run(50.0, "vllm 0.26.0", load));
        assert!(matches!(&reported, CheckOutcome::Unknown(reason) if reason.contains("engine")), "{reported:?}");
        let reported = outcome("throughput < 0.97", &older, &run(50.0, "sglang 0.5.16", TrialLoad::BatchSize(1)));
        assert!(
            matches!(&reported, CheckOutcome::Unknown(reason) if reason.contains("did not measure")),
            "{reported:?}"
        );
        let reported = outcome("itl > 1.1", &older, &run(50.0, "sglang 0.5.16", load));
        assert!(matches!(reported, CheckOutcome::Unknown(_)));
    }

    #[test]
    fn two_servers_in_turns_need_enough_pairs() {
        let interval = |low: f64, high: f64, kind| Interval { median: low, low, high, kind, coverage: 0.97 };
        let paired = |ratio: Interval| {
            let mut ratios = [None; FIGURES.len()];
            ratios[0] = Some(ratio);
            [Paired {
                load: TrialLoad::BatchSize(4),
                cache: crate::running::record::PrefixCacheUse::Cold,
                pairs: 6,
                ratios,
            }]
        };
        let condition: FailCondition = "throughput<0.97".parse().expect("a condition");
        let one = |ratio| check_paired(&paired(ratio), None, condition)[0].outcome.clone();
        assert_eq!(one(interval(0.90, 0.95, RangeKind::Confidence)), CheckOutcome::Worse);
        assert_eq!(one(interval(0.98, 1.02, RangeKind::Confidence)), CheckOutcome::Fine);
        assert!(matches!(one(interval(0.90, 0.95, RangeKind::Range)), CheckOutcome::Unknown(_)));
    }

    #[test]
    fn conditions_are_read_strictly() {
        for text in ["throughput", "speed < 1", "throughput < x", "throughput < 0", "throughput < -1", "< 1", "itl = 3"]
        {
            assert!(text.parse::<FailCondition>().is_err(), "{text}");
        }
        let condition: FailCondition = " itl >1.05 ".parse().expect("a condition");
        assert_eq!((condition.figure, condition.below, condition.ratio), (RegressionFigure::Itl, false, 1.05));
    }
}
