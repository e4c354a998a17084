//! One race: all trials of a load, their ranking, and the repeats of each entry.

use schemas::sweep::Metric;
use tuner::{
    results::selection::{
        self, Comparison, Disturbance, ExcludedTrial, Interval, LoadRanking, Looks, Ranked, SerialCorrelation,
        SpeculationVerdict, Starts,
    },
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{CandidateRole, Exclusion, Measurement, Record, TrialSpread},
    },
};

use crate::statistics;

/// All results under one load.
pub struct Race {
    /// How requests arrived.
    pub load: TrialLoad,
    /// Best first, failed ones last.
    pub entries: Vec<RaceEntry>,
    /// Measured only to learn costs ([`CandidateRole::Probe`]), so not ranked.
    pub probes: Vec<RaceEntry>,
    /// The chosen configuration.
    pub chosen: Option<Configuration>,
    /// Selection's verdict on speculation.
    pub verdict: SpeculationVerdict,
    /// The metric of the ranking: the objective, or latency if every configuration keeps up with
    /// the load.
    pub metric: Metric,
    /// Whether every configuration keeps up with the load, so that latency was compared.
    pub keeps_up: bool,
    /// How much other work disturbed the trials.
    pub disturbance: Disturbance,
    /// The measured trials that take no part in comparisons.
    pub excluded: Vec<ExcludedTrial>,
    /// Whether consecutive repeats resemble each other, which widens intervals.
    pub serial: Option<SerialCorrelation>,
    /// The starts that the verdict rests on, on servers with a number of repeats that was decided
    /// beforehand.
    pub starts: Option<Starts>,
    /// Whether intervals hold at every look or once.
    pub looks: Looks,
    /// Gain of the chosen configuration over the engine's default under the metric, paired by
    /// repeat; `None` if they are the same or one is missing.
    pub over_default: Option<Interval>,
}

/// One configuration under one load.
pub struct RaceEntry {
    /// Its rank, from one; `None` for a failed configuration and a probe.
    pub rank: Option<usize>,
    /// Selection's figures.
    pub ranked: Ranked,
    /// Whether it is the chosen one.
    pub chosen: bool,
    /// Whether it is chosen only because nothing is shown to be faster: it is unknown whether
    /// speculation pays.
    pub kept: bool,
    /// Whether acceptance was simulated; then times are real but texts are not.
    pub simulated: bool,
    /// Mean time between a request's output tokens after its first one, in ms: median over
    /// requests, then over repeats.
    pub inter_token_ms: Option<f64>,
    /// Output tokens per joule of the GPU: median over repeats; `None` if its driver does not tell
    /// the energy.
    pub tokens_per_joule: Option<f64>,
    /// Times that a request was put back because the KV cache was full: median over repeats; `None`
    /// if there was none, or it is not told.
    pub retractions: Option<f64>,
    /// Mean number of requests that ran together: median over repeats; `None` if not recorded.
    pub mean_batch: Option<f64>,
    /// Share of the prompt tokens found in the prefix cache: median over repeats; `None` if not
    /// reported.
    pub cached_share: Option<f64>,
    /// Time in ms in which the device waits before a round for drafts that the host looks up:
    /// median over rounds, then over repeats; `None` if it looks none up.
    pub draft_wait_ms: Option<f64>,
    /// Parts of a round in ms, if they were measured.
    pub split: Option<RaceSplit>,
    /// Entry k − 1 is the share of rounds in which at least k drafts were accepted.
    pub positions: Vec<f64>,
    /// Noise between the repeats.
    pub noise: Option<Noise>,
    /// The failed repeats, from one, with their reasons.
    pub failures: Vec<(usize, String)>,
}

/// Parts of a round in ms: medians over repeats of each repeat's median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RaceSplit {
    /// Drafting, if the round has this part.
    pub draft: Option<f64>,
    /// The target's pass over the tree.
    pub verify: f64,
    /// Extending the draft's cache, if the round has this part.
    pub extend: Option<f64>,
    /// Sum of the parts, if they were timed in separate rounds after the trials.
    pub apart: Option<f64>,
}

/// Differences between the repeats of a configuration, in output tokens per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Noise {
    /// One per measured repeat, in order.
    pub repeats: Vec<Repeat>,
    /// (largest − smallest) / median of the repeats that count; `None` with fewer than two.
    pub spread: Option<f64>,
}

/// A measured repeat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeat {
    /// Its number, from one.
    pub number: usize,
    /// Output tokens per second, as compared.
    pub output_tokens_per_s: f64,
    /// Why it takes no part in comparisons, if it does not.
    pub excluded: Option<Exclusion>,
}

impl Noise {
    /// Output tokens per second of the repeats that count: their median is the throughput of the
    /// configuration.
    pub fn counted(&self) -> Vec<f64> {
        let all_excluded = self.repeats.iter().all(|one| one.excluded.is_some());
        let counted = self.repeats.iter().filter(|one| all_excluded || one.excluded.is_none());
        counted.map(|one| one.output_tokens_per_s).collect()
    }
}

impl Race {
    /// Builds a race from a ranking and the trials of its load.
    pub fn new(ranking: LoadRanking, records: &[&Record], looks: Looks) -> Self {
        let LoadRanking { load, entries, chosen, metric, keeps_up, verdict, disturbance, excluded, serial, starts } =
            ranking;
        let defaults =
            || entries.iter().filter(|entry| entry.role == CandidateRole::EngineDefault).map(|one| &one.configuration);
        // Of several drafts, the default for the chosen one.
        // With one draft each sweep there is only one default; with several each has its own.
        let own = |default: &&Configuration| chosen.as_ref().is_some_and(|chosen| chosen.draft == default.draft);
        let default = defaults().find(own).or_else(|| defaults().next());
        let over_default =
            chosen.as_ref().zip(default).filter(|(chosen, default)| chosen != default).and_then(|(chosen, default)| {
                let comparison = Comparison { metric, looks };
                selection::relative(records.iter().copied(), load, chosen, default, comparison)
            });
        let of_load = || records.iter().copied().filter(|record| record.trial.load == load);
        let mut place = 0;
        let entries = entries.into_iter().map(|ranked| {
            let measured = ranked.output_tokens_per_s.is_some();
            place += usize::from(measured);
            let rank = measured.then_some(place);
            let is_own = |record: &&Record| {
                record.role != CandidateRole::Probe && record.trial.configuration == ranked.configuration
            };
            RaceEntry::new(&ranked, rank, chosen.as_ref(), of_load().filter(is_own).collect(), &excluded)
        });
        let mut entries: Vec<RaceEntry> = entries.collect();
        let is_known =
            matches!(verdict, SpeculationVerdict::Pays | SpeculationVerdict::DoesNotPay | SpeculationVerdict::Tie);
        // Chosen without evidence: the report says that it was kept, not that it won.
        entries.iter_mut().for_each(|entry| entry.kept = entry.chosen && !is_known);
        let probes = selection::probes(records.iter().copied(), load).into_iter().map(|ranked| {
            let is_own = |record: &&Record| {
                record.role == CandidateRole::Probe && record.trial.configuration == ranked.configuration
            };
            RaceEntry::new(&ranked, None, None, of_load().filter(is_own).collect(), &[])
        });
        let probes = probes.collect();
        Self {
            load,
            entries,
            probes,
            chosen,
            verdict,
            metric,
            keeps_up,
            disturbance,
            excluded,
            serial,
            starts,
            looks,
            over_default,
        }
    }

    /// A load under which nothing was ranked.
    pub fn unranked(load: TrialLoad, metric: Metric, records: &[&Record], looks: Looks) -> Self {
        let ranking = LoadRanking {
            load,
            entries: Vec::new(),
            chosen: None,
            metric,
            keeps_up: false,
            verdict: SpeculationVerdict::NotCompared,
            disturbance: Disturbance::default(),
            excluded: Vec::new(),
            serial: None,
            starts: None,
        };
        Self::new(ranking, records, looks)
    }

    /// Why a trial takes no part in the comparisons, if it does not.
    pub fn exclusion(&self, record: &Record) -> Option<Exclusion> {
        exclusion(&self.excluded, record)
    }

    /// Whether acceptance was simulated in any trial.
    pub fn simulated(&self) -> bool {
        self.entries.iter().any(|entry| entry.simulated)
    }

    /// Whether parts of a round were timed separately from the trials.
    pub fn has_parts_apart(&self) -> bool {
        self.measured().any(|entry| entry.split.is_some_and(|split| split.apart.is_some()))
    }

    /// The entry of the chosen configuration.
    pub fn winner(&self) -> Option<&RaceEntry> {
        self.entries.iter().find(|entry| entry.chosen)
    }

    /// No speculation, if it was measured.
    pub fn baseline(&self) -> Option<&RaceEntry> {
        self.measured().find(|entry| entry.is_off() && entry.ranked.configuration.is_plain())
    }

    /// The engine's default, if it was measured.
    pub fn engine_default(&self) -> Option<&RaceEntry> {
        self.measured().find(|entry| entry.ranked.role == CandidateRole::EngineDefault)
    }

    /// Entries with figures, best first.
    pub fn measured(&self) -> impl Iterator<Item = &RaceEntry> {
        self.entries.iter().filter(|entry| entry.rank.is_some())
    }

    /// Probes with figures.
    pub fn measured_probes(&self) -> impl Iterator<Item = &RaceEntry> {
        self.probes.iter().filter(|entry| entry.ranked.repeats > 0)
    }

    /// The best speculating configuration: the winner, unless that is no speculation.
    pub fn best_speculating(&self) -> Option<&RaceEntry> {
        let winner = self.winner().filter(|entry| !entry.is_off());
        winner.or_else(|| self.measured().find(|entry| !entry.is_off()))
    }
}

impl RaceEntry {
    /// Whether it never speculates.
    pub fn is_off(&self) -> bool {
        self.ranked.configuration.is_off()
    }

    /// `trials` are all of its trials.
    fn new(
        ranked: &Ranked,
        rank: Option<usize>,
        chosen: Option<&Configuration>,
        mut trials: Vec<&Record>,
        excluded: &[ExcludedTrial],
    ) -> Self {
        trials.sort_by_key(|record| record.trial.repeat);
        let measurements: Vec<&Measurement> = trials.iter().filter_map(|record| record.measurement()).collect();
        let failure = |record: &&Record| Some((record.trial.repeat + 1, record.failure()?.to_owned()));
        let failures = trials.iter().filter_map(failure).collect();
        Self {
            rank,
            chosen: chosen == Some(&ranked.configuration) && rank.is_some(),
            kept: false,
            simulated: measurements.iter().any(|measurement| measurement.simulated),
            inter_token_ms: ranked.inter_token.map(|tail| tail.p50),
            tokens_per_joule: tuner::statistics::median(
                measurements.iter().filter_map(|one| one.tokens_per_joule()).collect(),
            ),
            retractions: statistics::median(
                measurements.iter().filter_map(|one| Some(one.retractions? as f64)).collect(),
            )
            // Zero is what every healthy run has: a column of zeros tells nothing.
            .filter(|count| *count > 0.0),
            mean_batch: statistics::median(measurements.iter().filter_map(|one| one.mean_running_batch()).collect()),
            cached_share: statistics::median(measurements.iter().filter_map(|one| one.cached_share).collect()),
            draft_wait_ms: median_of(&measurements, |one| one.draft_wait_ms),
            split: split(&measurements),
            positions: positions(&ranked.accept_histogram),
            noise: noise(&trials, excluded),
            failures,
            ranked: ranked.clone(),
        }
    }
}

fn split(measurements: &[&Measurement]) -> Option<RaceSplit> {
    // Parts measured within the rounds themselves come before those of a trial apart.
    if let Some(verify) = median_of(measurements, |measurement| measurement.verify_ms) {
        return Some(RaceSplit {
            draft: median_of(measurements, |measurement| measurement.draft_ms),
            verify,
            extend: median_of(measurements, |measurement| measurement.extend_ms),
            apart: None,
        });
    }
    Some(RaceSplit {
        draft: median_of(measurements, |measurement| measurement.parts_apart?.draft_ms),
        verify: median_of(measurements, |measurement| Some(measurement.parts_apart?.verify_ms))?,
        extend: median_of(measurements, |measurement| measurement.parts_apart?.extend_ms),
        apart: median_of(measurements, |measurement| Some(measurement.parts_apart?.round_ms)),
    })
}

/// The median over repeats of each repeat's median.
fn median_of(measurements: &[&Measurement], of: fn(&Measurement) -> Option<TrialSpread>) -> Option<f64> {
    statistics::median(measurements.iter().filter_map(|measurement| Some(of(measurement)?.median)).collect())
}

/// Entry k is the number of rounds in which at least k drafts were accepted.
pub fn at_least(histogram: &[u64]) -> Vec<u64> {
    (0..histogram.len()).map(|accepted| histogram[accepted..].iter().sum()).collect()
}

/// The share of rounds in which the draft at each position was accepted; empty without a round.
pub fn positions(histogram: &[u64]) -> Vec<f64> {
    match at_least(histogram).as_slice() {
        [] | [0, ..] => Vec::new(),
        [rounds, accepted @ ..] => accepted.iter().map(|count| *count as f64 / *rounds as f64).collect(),
    }
}

fn noise(trials: &[&Record], excluded: &[ExcludedTrial]) -> Option<Noise> {
    let repeat = |record: &&Record| {
        Some(Repeat {
            number: record.trial.repeat + 1,
            output_tokens_per_s: record.measurement()?.compared().output_tokens_per_s,
            excluded: exclusion(excluded, record),
        })
    };
    let mut noise = Noise { repeats: trials.iter().filter_map(repeat).collect(), spread: None };
    let counted = noise.counted();
    let median = statistics::median(counted.clone())?;
    let smallest = counted.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = counted.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    noise.spread = (counted.len() > 1 && median > 0.0).then(|| (largest - smallest) / median);
    Some(noise)
}

fn exclusion(excluded: &[ExcludedTrial], record: &Record) -> Option<Exclusion> {
    excluded.iter().find(|one| one.id == record.id && one.origin == record.origin).map(|one| one.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_by_position_counts_rounds_that_reached_it() {
        assert_eq!(positions(&[50, 30, 20]), [0.5, 0.2]);
        assert_eq!(positions(&[7]), [0.0; 0]);
        assert_eq!(positions(&[0, 0, 0]), [0.0; 0]);
    }
}
