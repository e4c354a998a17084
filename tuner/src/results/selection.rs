//! Chooses the best configuration, with the confidence in that choice.

mod across;
mod blocks;
mod choice;
mod keeps_up;
mod looks;
mod replacement;
mod scores;
mod serial;
mod slow;
mod starts;
mod uneven;

use std::collections::{BTreeMap, BTreeSet};

use schemas::sweep::{Metric, StrategyName, SweepFile, Until};
use serde::{Deserialize, Serialize};

pub use self::{
    across::{Across, Change, across},
    choice::INDIFFERENT,
    looks::{Looks, MOST_REPEATS},
    replacement::{Replacement, replacement},
    serial::{IntervalBasis, SerialCorrelation},
    starts::Starts,
};
use self::{
    choice::{Blame, Judge},
    scores::Scores,
    uneven::Sides,
};
pub use crate::statistics::{Interval, RangeKind};
use crate::{
    statistics::{interval, median},
    trials::{
        configuration::{Configuration, TrialLoad},
        record::{
            ACCEPT_LENGTH_OFF, CandidateRole, Exclusion, Measurement, Record, Trial, TrialOrigin, TrialSpread,
            VALUES_FOR_P90, VALUES_FOR_P99, leaves_too_few,
        },
    },
};

/// One configuration under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// The configuration.
    pub configuration: Configuration,
    /// Why it is in the race.
    pub role: CandidateRole,
    /// Number of measured repeats.
    pub repeats: usize,
    /// Why it failed, if no repeat was measured.
    pub failure: Option<String>,
    /// Output tokens per second of all requests together: median over the repeats that are not
    /// excluded (over all, if all are), without stalls if the trials separate them
    /// ([`Measurement::compared`]). The same holds for the other figures.
    pub output_tokens_per_s: Option<Interval>,
    /// The same by the wall clock, stalls included.
    pub wall_tokens_per_s: Option<Interval>,
    /// Output tokens per second of the requests within the objective's limits; `None` without
    /// limits.
    pub goodput_tokens_per_s: Option<Interval>,
    /// Output tokens per second as one request sees it.
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
    /// Objective relative to no speculation, paired by repeat: 1.5 is 50% faster. The verdict uses
    /// the ends of this interval.
    pub speedup: Option<Interval>,
    /// Objective relative to the best measured, computed in the same way; `None` for the best
    /// itself.
    pub against_best: Option<Interval>,
    /// Time to first token in ms: percentiles over requests, each the median over repeats.
    pub first_token: Option<Tail>,
    /// Mean time between output tokens of a request, in ms: percentiles as above.
    pub inter_token: Option<Tail>,
    /// Share of the requests within the objective's limits, median over repeats; `None` without
    /// limits.
    pub in_time: Option<f64>,
    /// Requests per second of an open loop, medians over repeats.
    pub request_rate: Option<RequestRate>,
    /// Share of the wall time in which steps stalled, median over repeats; `None` if unknown.
    pub stalled_share: Option<f64>,
    /// Number of repeats that were disturbed.
    pub marked: usize,
    /// Number of repeats excluded from every comparison, because nearly all of their steps stalled
    /// or they are far slower than the other repeats of their configuration.
    pub left_out: usize,
    /// Whether no configuration under any load is better in both the total tokens per second and
    /// those of one request.
    pub on_front: bool,
    /// Whether it is the best, or not significantly different from the best.
    pub tied_with_best: bool,
    /// Whether its interval is too wide to decide between a difference from the best and a tie.
    pub too_noisy: bool,
    /// Whether a lead over no speculation would rest on removing more stalls of one side than of
    /// the other in nearly every repeat: by the wall clock it is not faster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuted: bool,
    /// Set if the wall clock puts it above the chosen configuration, where more stalls of one of
    /// the two were removed in nearly every repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_rival: Option<WallRival>,
}

/// A configuration that only the removal of stalls puts below the chosen one. Shares are of the
/// wall time, means over the trials that are not excluded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WallRival {
    /// Its stalls.
    pub stalled: f64,
    /// Those of the chosen configuration.
    pub chosen_stalled: f64,
    /// The objective relative to the chosen configuration by the wall clock, stalls included.
    pub over_chosen: f64,
}

/// Percentiles, as far as the number of values suffices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// Number of values in the repeat with the fewest.
    pub count: usize,
    /// The median.
    pub p50: f64,
    /// The 90th percentile; `None` below [`VALUES_FOR_P90`].
    pub p90: Option<f64>,
    /// The 99th percentile; `None` below [`VALUES_FOR_P99`].
    pub p99: Option<f64>,
    /// The largest.
    pub max: f64,
}

/// The rates of an open loop, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRate {
    /// Requests sent per second.
    pub offered: f64,
    /// Requests served per second, over the same time: from the first arrival to the last. Never
    /// above `offered`.
    pub served: f64,
    /// Requests not yet served when the last one arrived, that one included.
    pub unserved: f64,
}

/// All configurations under one load, best first, failed ones last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadRanking {
    /// How requests arrived.
    pub load: TrialLoad,
    /// Best first.
    pub entries: Vec<Ranked>,
    /// The chosen configuration: the simplest of those that beat no speculation and tie with the
    /// best of them; no speculation if none is shown to beat it.
    pub chosen: Option<Configuration>,
    /// The metric of the ranking: the objective, or latency if this load does not distinguish
    /// throughputs.
    pub metric: Metric,
    /// Whether every configuration keeps up with this load, so that throughputs are equal and
    /// latency was compared instead.
    pub keeps_up: bool,
    /// Whether speculation pays.
    pub verdict: SpeculationVerdict,
    /// How much other work disturbed the trials.
    pub disturbance: Disturbance,
    /// The measured trials that take no part in comparisons.
    pub excluded: Vec<ExcludedTrial>,
    /// The correlation of consecutive repeats that intervals allow for; they are then as wide as
    /// those of fewer repeats.
    pub serial: Option<SerialCorrelation>,
    /// The starts that the verdict rests on, where each configuration needs one and the number of
    /// repeats was decided beforehand; `None` without a pair.
    pub starts: Option<Starts>,
}

/// What configurations are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The objective.
    pub metric: Metric,
    /// How often results are looked at before measuring ends.
    pub looks: Looks,
}

/// A measured trial that takes no part in comparisons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExcludedTrial {
    /// What ran.
    pub trial: Trial,
    /// The id of its record.
    pub id: String,
    /// Where it was measured: pooled journals may contain the same trial.
    pub origin: TrialOrigin,
    /// Why it is excluded.
    pub reason: Exclusion,
}

impl ExcludedTrial {
    fn is_of(&self, record: &Record) -> bool {
        self.id == record.id && self.origin == record.origin
    }
}

/// Stalls in the trials of a race.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Number of measured trials.
    pub trials: usize,
    /// Number of marked trials.
    pub marked: usize,
    /// Number of trials excluded from every comparison.
    pub left_out: usize,
    /// Share of wall time that was stalls: median over trials; `None` if no trial recorded it.
    pub stalled_share: Option<f64>,
    /// The speed-up of the best speculating configuration by the wall clock, stalls included, if it
    /// differs from [`Ranked::speedup`] by more than 5%; `None` for an open loop, whose figures are
    /// all by the wall clock.
    pub wall_speedup: Option<f64>,
    /// Stalls of the two sides of the verdict, if they differ too much to be removed alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uneven: Option<UnevenStalls>,
}

/// Stalls of the two sides of a verdict, as shares of the wall time: means over the trials that are
/// not excluded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnevenStalls {
    /// Of the speculating configuration: the chosen one, else the best.
    pub speculating: f64,
    /// Of no speculation.
    pub no_speculation: f64,
    /// The speed-up of that configuration by the wall clock, stalls included.
    pub wall_speedup: f64,
}

impl Comparison {
    /// The comparison that a sweep file asks for.
    pub fn from_sweep(file: &SweepFile) -> Self {
        let looks = match file.search.until {
            // A guided search in process repeats what its first repeats leave open.
            Until::Repeats if file.search.strategy == StrategyName::Guided && file.system.is_in_process() => {
                Looks::Twice
            }
            Until::Repeats if file.system.is_in_process() => Looks::Planned,
            Until::Repeats => Looks::PlannedStarts,
            Until::Decided if file.system.is_in_process() => Looks::Every,
            Until::Decided => Looks::EveryStart { repeats: file.search.repeats },
        };
        Self { metric: file.objective.metric, looks }
    }
}

impl From<Metric> for Comparison {
    /// With a number of repeats that is decided beforehand.
    fn from(metric: Metric) -> Self {
        Self { metric, looks: Looks::Planned }
    }
}

impl Ranked {
    /// The score under a metric, higher is better; negative infinity if the figure is missing.
    pub fn score(&self, metric: Metric) -> f64 {
        let score = match metric {
            Metric::Throughput | Metric::Pareto => self.output_tokens_per_s.map(|rate| rate.median),
            // Inverted, so that for every metric a higher score is better.
            Metric::Latency => self.latency_ms.map(|latency| 1e3 / latency.median),
            Metric::Goodput => self.goodput_tokens_per_s.map(|rate| rate.median),
        };
        score.unwrap_or(f64::NEG_INFINITY)
    }

    /// Whether it may be part of a policy: it was measured, and it runs without speculation or was
    /// shown to be faster than that, which the wall clock does not contradict.
    pub fn may_be_chosen(&self) -> bool {
        let faster = self.speedup.is_some_and(|speedup| speedup.coverage > 0.0 && speedup.low > 1.0) && !self.refuted;
        self.repeats > 0 && (self.configuration.is_off() || faster)
    }
}

/// Whether speculation pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeculationVerdict {
    /// The chosen shape speculates, and its own interval is above no speculation.
    Pays,
    /// The intervals of all speculating configurations are below no speculation.
    DoesNotPay,
    /// Nothing is shown to be faster than no speculation, and gains of more than 5% are excluded.
    Tie,
    /// A gain of more than 5% is neither shown nor excluded.
    CannotTell(Uncertainty),
    /// Every speculating configuration failed.
    AllFailed,
    /// No speculation was not measured, or nothing else was tried.
    NotCompared,
}

/// Why a race is undecided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Uncertainty {
    /// A single repeat does not show the noise.
    OneRepeat,
    /// The repeats are too few for the observed difference.
    FewRepeats,
    /// The machine was busy with other work, which explains the differences between repeats.
    BusyMachine,
    /// One side stalled for more of its time in nearly every repeat, and by the wall clock the
    /// verdict would be another.
    UnevenStalls,
    /// Repeats differ too much, for an unknown reason.
    Noise,
    /// Two starts of one configuration differ by as much as the configurations.
    StartsDiffer,
    /// Consecutive repeats of a configuration resemble each other, so that more of them say little.
    Dependent,
    /// No repeat is common to no speculation and a speculating configuration: other hosts, shards
    /// or hours.
    NoPair,
}

impl LoadRanking {
    /// The measured score of exactly this configuration, higher is better: relative to no
    /// speculation if that was measured too. A table does not count as one of its shapes.
    pub fn score(&self, configuration: &Configuration) -> Option<f64> {
        let entry = self.entries.iter().find(|entry| entry.configuration == *configuration)?;
        let has_baseline =
            self.entries.iter().any(|entry| entry.role == CandidateRole::NoSpeculation && entry.repeats > 0);
        // Speedups are paired within blocks, so they are steadier than medians of absolute rates.
        let score = if has_baseline { entry.speedup?.median } else { entry.score(self.metric) };
        Some(score).filter(|score| *score > 0.0)
    }

    /// Why a trial takes no part in the comparisons of this load; `None` for one that does, that
    /// failed, or that is a [`CandidateRole::Probe`].
    pub fn exclusion(&self, record: &Record) -> Option<Exclusion> {
        self.excluded.iter().find(|one| one.is_of(record)).map(|one| one.reason)
    }

    /// What the wall clock puts highest above the chosen configuration ([`Ranked::wall_rival`]).
    pub fn wall_rival(&self) -> Option<(&Ranked, WallRival)> {
        wall_rival(&self.entries)
    }

    /// The chosen configuration.
    pub fn winner(&self) -> Option<&Ranked> {
        self.entries.iter().find(|entry| Some(&entry.configuration) == self.chosen.as_ref())
    }
}

impl SpeculationVerdict {
    /// As a phrase for files and terminals.
    pub fn words(self) -> &'static str {
        match self {
            Self::Pays => "speculation pays",
            Self::DoesNotPay => "speculation does not pay here",
            Self::Tie => "speculation gains at most 5%, if anything",
            Self::CannotTell(doubt) => doubt.words(),
            Self::AllFailed => "not known: every speculating configuration failed",
            Self::NotCompared => "not known: there is nothing to compare with",
        }
    }
}

impl Uncertainty {
    /// As a phrase for files and terminals.
    pub fn words(self) -> &'static str {
        match self {
            Self::OneRepeat => "not known: one repeat does not show the noise",
            Self::FewRepeats => "not known: too few repeats for the difference",
            Self::BusyMachine => "not known: the machine was busy with other things",
            Self::Noise => "not known: the repeats vary too much",
            Self::StartsDiffer => "not known: differences between starts of a server may explain it",
            Self::Dependent => "cannot be decided: the repeats depend on each other",
            Self::UnevenStalls => "not known: not the same by the wall clock",
            Self::NoPair => "not known: no repeat in common with no speculation",
        }
    }
}

/// Ranks records of one fingerprint, load by load. To rank a single load, pass only its records.
///
/// Comparisons are paired: two configurations are compared within the repeats that one host
/// measured for both without a long pause in between (`blocks`). Each ratio to no speculation has
/// an interval that holds, for all contenders together, in 98.5% of races. Speculation pays if the
/// interval of the chosen configuration is above 1. Of the configurations with such an interval,
/// the simplest that ties with the best of them is chosen; each is compared directly with that best
/// one. With [`Looks::Every`] the level holds for all looks at a growing journal together, also if
/// consecutive repeats of a configuration resemble each other.
///
/// Trials that were measured only to learn costs ([`CandidateRole::Probe`]) are not ranked.
pub fn rank<'a>(records: impl IntoIterator<Item = &'a Record>, comparison: impl Into<Comparison>) -> Vec<LoadRanking> {
    let comparison = comparison.into();
    let mut races: BTreeMap<TrialLoad, ConfigurationRace<'_>> = BTreeMap::new();
    for placed in placed(records, comparison.looks) {
        let race = races.entry(placed.record.trial.load).or_default();
        race.entry(&placed.record.trial.configuration).or_default().push(placed);
    }
    let mut rankings: Vec<LoadRanking> =
        races.into_iter().map(|(load, race)| rank_race(load, &race, comparison)).collect();
    mark_front(&mut rankings);
    rankings
}

/// The trials of a load by configuration.
type ConfigurationRace<'a> = BTreeMap<&'a Configuration, Vec<RankedPlace<'a>>>;

/// A trial with its block and its start.
#[derive(Clone, Copy)]
struct RankedPlace<'a> {
    record: &'a Record,
    block: usize,
    start: usize,
}

/// The trials that are ranked, each with its block and its start.
fn placed<'a>(records: impl IntoIterator<Item = &'a Record>, looks: Looks) -> impl Iterator<Item = RankedPlace<'a>> {
    // Probes teach the model of times; their settings are no candidates.
    let records: Vec<&Record> = records.into_iter().filter(|record| record.role != CandidateRole::Probe).collect();
    let in_order = blocks::in_order(&records);
    let blocks = blocks::blocks(&records, &in_order, looks.repeats_per_block());
    let starts = starts::starts(&records, &in_order);
    records.into_iter().zip(blocks).zip(starts).map(|((record, block), start)| RankedPlace { record, block, start })
}

/// Marks the Pareto front over all loads: total throughput against the speed of one request.
fn mark_front(rankings: &mut [LoadRanking]) {
    let figures = |entry: &Ranked| Some((entry.output_tokens_per_s?.median, entry.tokens_per_s_per_user?.median));
    let all: Vec<(f64, f64)> = rankings.iter().flat_map(|ranking| &ranking.entries).filter_map(figures).collect();
    for entry in rankings.iter_mut().flat_map(|ranking| &mut ranking.entries) {
        let Some((rate, user)) = figures(entry) else { continue };
        let beats = |other: &(f64, f64)| other.0 >= rate && other.1 >= user && (other.0 > rate || other.1 > user);
        entry.on_front = !all.iter().any(beats);
    }
}

/// One configuration relative to another under a load, compared as in [`rank`]: 1.5 is 50% better
/// under the metric. `None` without a pair.
pub fn relative<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    load: TrialLoad,
    configuration: &Configuration,
    to: &Configuration,
    comparison: impl Into<Comparison>,
) -> Option<Interval> {
    let Comparison { metric, looks } = comparison.into();
    let race = race(records, load, looks);
    let row = |wanted: &Configuration| race.keys().position(|one| *one == wanted);
    let scores = scores(&cells(&race, metric), off_row(&race), metric, looks);
    Some(scores.lead(row(configuration)?, row(to)?, &baselines(&race))?.interval(1))
}

/// The trials of one load.
fn race<'a>(records: impl IntoIterator<Item = &'a Record>, load: TrialLoad, looks: Looks) -> ConfigurationRace<'a> {
    let mut race: ConfigurationRace<'_> = BTreeMap::new();
    for placed in placed(records, looks).filter(|placed| placed.record.trial.load == load) {
        race.entry(&placed.record.trial.configuration).or_default().push(placed);
    }
    race
}

/// The rows through which rows without a common block are compared.
fn baselines(race: &ConfigurationRace<'_>) -> Vec<usize> {
    race.values().enumerate().filter(|(_, trials)| is_baseline(trials)).map(|(row, _)| row).collect()
}

/// The row of no speculation with the sweep file's settings.
fn off_row(race: &ConfigurationRace<'_>) -> Option<usize> {
    race.keys().position(|one| one.is_off() && one.is_plain())
}

/// The trials under a load that are not ranked ([`CandidateRole::Probe`]), by configuration:
/// figures without comparisons.
pub fn probes<'a>(records: impl IntoIterator<Item = &'a Record>, load: TrialLoad) -> Vec<Ranked> {
    let mut probes: ConfigurationRace<'_> = BTreeMap::new();
    for record in records.into_iter().filter(|record| record.role == CandidateRole::Probe && record.trial.load == load)
    {
        probes.entry(&record.trial.configuration).or_default().push(RankedPlace { record, block: 0, start: 0 });
    }
    let is_excluded = |record: &Record| record.measurement().is_some_and(|one| one.exclusion().is_some());
    probes.iter().map(|(configuration, trials)| entry(configuration, trials, &is_excluded)).collect()
}

fn is_baseline(trials: &[RankedPlace<'_>]) -> bool {
    trials.iter().any(|one| one.record.role != CandidateRole::Candidate)
}

/// The trials that count in each block, by configuration.
type Cells<'a> = Vec<Vec<Vec<&'a Record>>>;

/// Whether half of a configuration's repeats or more stalled, so that it cannot be compared.
fn is_mostly_stalled(trials: &[RankedPlace<'_>]) -> bool {
    let figures = || trials.iter().filter_map(|one| one.record.measurement());
    leaves_too_few(figures().filter(|one| one.exclusion().is_some()).count(), figures().count())
}

/// The trials that count in each block: the ones with a score that are not excluded by themselves,
/// the first of each repeat; none of a configuration whose repeats mostly stalled.
fn cells<'a>(race: &ConfigurationRace<'a>, metric: Metric) -> Cells<'a> {
    let blocks: BTreeSet<usize> = race.values().flatten().map(|one| one.block).collect();
    let counts = |record: &&Record| {
        let figures = record.measurement();
        figures.is_some_and(|figures| figures.exclusion().is_none() && figures.score(metric).is_some())
    };
    let row = |trials: &Vec<RankedPlace<'a>>| {
        let compared = if is_mostly_stalled(trials) { &[] } else { trials.as_slice() };
        let cell = |block: &usize| {
            let mut repeats = BTreeSet::new();
            let own = compared.iter().filter(|one| one.block == *block).map(|one| one.record).filter(counts);
            // A trial that was measured again after an interruption counts once.
            own.filter(|record| repeats.insert(record.trial.repeat)).collect()
        };
        blocks.iter().map(cell).collect()
    };
    race.values().map(row).collect()
}

/// The objective by configuration and block, higher is better: the median over the trials of a
/// block.
fn scores(cells: &Cells<'_>, off: Option<usize>, metric: Metric, looks: Looks) -> Scores {
    let score = |record: &&Record| record.measurement()?.score(metric);
    let cell = |cell: &Vec<&Record>| median(cell.iter().filter_map(score).collect());
    Scores::new(cells.iter().map(|row| row.iter().map(cell).collect()), off, looks)
}

/// The excluded trials: by themselves, or because they are slow.
fn excluded(race: &ConfigurationRace<'_>, cells: &Cells<'_>, scores: &Scores) -> Vec<ExcludedTrial> {
    let of = |record: &Record, reason: Exclusion| ExcludedTrial {
        trial: record.trial.clone(),
        id: record.id.clone(),
        origin: record.origin.clone(),
        reason,
    };
    let alone = race.values().flatten().map(|one| one.record);
    let alone = alone.filter_map(|record| Some(of(record, record.measurement()?.exclusion()?)));
    let slow = scores.slow().iter().filter_map(|(row, column)| cells.get(*row)?.get(*column)).flatten();
    alone.chain(slow.map(|record| of(record, Exclusion::Slow))).collect()
}

fn rank_race(load: TrialLoad, race: &ConfigurationRace<'_>, comparison: Comparison) -> LoadRanking {
    let Comparison { metric: objective, looks } = comparison;
    let figures: Vec<&Measurement> = race.values().flatten().filter_map(|one| one.record.measurement()).collect();
    // If everything keeps up with arrivals, throughput is the offered rate and tells nothing.
    let keeps_up = objective != Metric::Latency && keeps_up::all(&figures, objective);
    let metric = if keeps_up { Metric::Latency } else { objective };
    let cells = cells(race, metric);
    let off = off_row(race);
    let scores = scores(&cells, off, metric, looks);
    let judge = Judge { scores: &scores, off, via: baselines(race) };
    let standings = judge.standings(race.len());
    // Intervals are widened for the number of comparisons that a choice could rest on.
    let comparisons = judge.contenders(&standings);
    let excluded = excluded(race, &cells, &scores);

    let mut entries: Vec<(usize, Ranked)> = race
        .iter()
        .zip(&standings)
        .enumerate()
        .map(|(row, ((configuration, trials), standing))| {
            let speedup = match standing.over_off {
                Some(lead) => Some(lead.interval(comparisons)),
                None => (off == Some(row)).then_some(ITSELF),
            };
            let is_excluded = |record: &Record| excluded.iter().any(|one| one.is_of(record));
            (row, Ranked { speedup, ..entry(configuration, trials, &is_excluded) })
        })
        .collect();
    entries.sort_by(|(a, one), (b, other)| {
        let measured = |entry: &Ranked| entry.repeats > 0;
        let place = |row: usize| standings[row].place;
        (measured(other).cmp(&measured(one)))
            // By paired leads first; absolute scores decide only among entries without a pair.
            .then(place(*b).total_cmp(&place(*a)))
            .then(other.score(metric).total_cmp(&one.score(metric)))
            .then_with(|| one.configuration.cmp(&other.configuration))
    });
    let mut comparable: Vec<(usize, &mut Ranked)> = entries
        .iter_mut()
        .filter(|(row, entry)| entry.repeats > entry.left_out && cells[*row].iter().any(|cell| !cell.is_empty()))
        .map(|(row, entry)| (*row, entry))
        .collect();
    choice::tie(&mut comparable, &judge, comparisons);

    let sides = Sides { race, metric, excluded: &excluded };
    let mut disturbance = disturbance(&sides, &entries, off);
    let blame = Blame {
        repeats: cells.iter().map(|row| row.iter().filter(|cell| !cell.is_empty()).count()).max().unwrap_or_default(),
        stalled: disturbance.stalled_share,
        left_out: disturbance.left_out as f64 / disturbance.trials.max(1) as f64,
        deviation: scores.deviation(),
        dependent: scores.serial().is_some_and(|serial| serial.found),
    };
    let measured: Vec<(usize, &Ranked)> =
        entries.iter().filter(|(_, entry)| entry.repeats > 0).map(|(row, entry)| (*row, entry)).collect();
    let mut speculating =
        entries.iter().map(|(_, entry)| entry).filter(|entry| !entry.configuration.is_off()).peekable();
    let all_failed = speculating.peek().is_some() && speculating.all(|entry| entry.failure.is_some());
    let (chosen, verdict) = choice::choose(&measured, all_failed, &judge, comparisons, &blame);
    let speculates = |row: &usize| race.keys().nth(*row).is_some_and(|configuration| !configuration.is_off());
    let subject = chosen.filter(speculates).or_else(|| best_speculating(&entries).map(|(row, _)| row));
    disturbance.uneven = subject.zip(off).and_then(|(row, off)| sides.stalls([row, off]));
    let (chosen, verdict) = sides.confirmed(chosen, verdict, off);
    let behind = off.filter(|_| looks == Looks::PlannedStarts);
    let (starts, ratio) = behind.and_then(|off| Starts::behind(race, &measured, chosen, off, metric)).unzip();
    let may_be_starts = starts.as_ref().zip(ratio).is_some_and(|(starts, ratio)| starts.explain(verdict, ratio));
    let (chosen, verdict) = if may_be_starts {
        (off, SpeculationVerdict::CannotTell(Uncertainty::StartsDiffer))
    } else {
        (chosen, verdict)
    };
    sides.mark(&mut entries, (off, chosen), &judge, comparisons);
    let chosen = chosen.and_then(|row| race.keys().nth(row)).map(|configuration| (*configuration).clone());
    let mut entries: Vec<Ranked> = entries.into_iter().map(|(_, entry)| entry).collect();
    // What follows from wide intervals of the choice is in the verdict.
    entries
        .iter_mut()
        .filter(|entry| Some(&entry.configuration) == chosen.as_ref())
        .for_each(|entry| entry.too_noisy = false);
    let serial = scores.serial();
    LoadRanking { load, entries, chosen, metric, keeps_up, verdict, disturbance, excluded, serial, starts }
}

/// No speculation relative to itself.
const ITSELF: Interval = Interval { median: 1.0, low: 1.0, high: 1.0, kind: RangeKind::Confidence, coverage: 1.0 };

/// The figures of a configuration; the caller fills in the comparisons.
fn entry(configuration: &Configuration, trials: &[RankedPlace<'_>], is_excluded: &dyn Fn(&Record) -> bool) -> Ranked {
    let all: Vec<&Measurement> = trials.iter().filter_map(|one| one.record.measurement()).collect();
    let sound = trials.iter().map(|one| one.record).filter(|record| !is_excluded(record));
    let sound: Vec<&Measurement> = sound.filter_map(Record::measurement).collect();
    let left_out = all.len() - sound.len();
    // If all trials are excluded, their figures are used nevertheless, and marked.
    let figures = if sound.is_empty() { &all } else { &sound };
    let over =
        |of: &dyn Fn(&Measurement) -> Option<f64>| -> Vec<f64> { figures.iter().filter_map(|one| of(one)).collect() };
    let figure = |of: fn(&Measurement) -> f64| interval(&over(&|one| Some(of(one))));
    let middle = |of: &dyn Fn(&Measurement) -> Option<f64>| median(over(of));
    let tail = |of: fn(&Measurement) -> Option<TrialSpread>| {
        let count = figures.iter().filter_map(|one| Some(of(one)?.count_or(one.requests))).min()?;
        Some(Tail {
            count,
            p50: middle(&|one| Some(of(one)?.median))?,
            p90: middle(&|one| Some(of(one)?.p90)).filter(|_| count >= VALUES_FOR_P90),
            p99: middle(&|one| Some(of(one)?.p99)).filter(|_| count >= VALUES_FOR_P99),
            max: middle(&|one| Some(of(one)?.max))?,
        })
    };
    let rates = || {
        Some(RequestRate {
            offered: middle(&|one| Some(one.arrivals.as_ref()?.offered_per_s))?,
            served: middle(&Measurement::served_per_s)?,
            unserved: middle(&|one| Some(one.arrivals.as_ref()?.unserved_at_last as f64))?,
        })
    };
    let mut accept_histogram = Vec::new();
    // Also those of excluded trials: other load slows rounds down, but does not change tokens.
    for one in &all {
        accept_histogram.resize(one.accept_histogram.len().max(accept_histogram.len()), 0);
        accept_histogram.iter_mut().zip(&one.accept_histogram).for_each(|(sum, count)| *sum += count);
    }
    let failure = trials.iter().find_map(|one| one.record.failure());
    Ranked {
        configuration: configuration.clone(),
        role: trials.first().map_or(CandidateRole::Candidate, |one| one.record.role),
        repeats: all.len(),
        failure: failure.filter(|_| all.is_empty()).map(str::to_owned),
        output_tokens_per_s: figure(|one| one.compared().output_tokens_per_s),
        wall_tokens_per_s: figure(|one| one.output_tokens_per_s),
        goodput_tokens_per_s: interval(&over(&|one| one.compared().goodput_tokens_per_s)),
        tokens_per_s_per_user: figure(|one| one.compared().tokens_per_s_per_user),
        latency_ms: figure(|one| one.compared().latency_ms.median),
        time_to_first_token_ms: figure(|one| one.compared().time_to_first_token_ms.median),
        round_ms: figure(|one| one.round_ms.median),
        // Journals of earlier versions have output tokens / rounds there, with the first token.
        accept_length: if configuration.is_off() {
            (!figures.is_empty()).then_some(ACCEPT_LENGTH_OFF)
        } else {
            middle(&|one| Some(one.accept_length))
        },
        accept_histogram,
        speedup: None,
        against_best: None,
        first_token: tail(|one| Some(one.compared().time_to_first_token_ms)),
        inter_token: tail(|one| one.compared().inter_token_ms),
        in_time: middle(&|one| one.in_time),
        request_rate: rates(),
        stalled_share: middle(&|one| Some(one.stalls?.of_time)),
        marked: all.iter().filter(|one| !one.marks().is_empty()).count(),
        left_out,
        on_front: false,
        tied_with_best: false,
        too_noisy: false,
        refuted: false,
        wall_rival: None,
    }
}

/// The entry that the wall clock puts highest above the chosen one.
pub fn wall_rival<'a>(entries: impl IntoIterator<Item = &'a Ranked>) -> Option<(&'a Ranked, WallRival)> {
    let rivals = entries.into_iter().filter_map(|entry| Some((entry, entry.wall_rival?)));
    rivals.max_by(|(_, a), (_, b)| a.over_chosen.total_cmp(&b.over_chosen))
}

/// How much other work disturbed the trials of a race.
fn disturbance(sides: &Sides<'_>, entries: &[(usize, Ranked)], off: Option<usize>) -> Disturbance {
    let figures = || sides.race.values().flatten().filter_map(|one| one.record.measurement());
    let sum = |of: fn(&Ranked) -> usize| entries.iter().map(|(_, entry)| of(entry)).sum();
    let wall_speedup = best_speculating(entries).zip(off).and_then(|((row, steady), off)| {
        let wall = sides.wall_speedup([row, off])?;
        ((wall / steady).ln().abs() > 0.05).then_some(wall)
    });
    Disturbance {
        trials: sum(|entry| entry.repeats),
        marked: sum(|entry| entry.marked),
        left_out: sum(|entry| entry.left_out),
        stalled_share: median(figures().filter_map(|one| Some(one.stalls?.of_time)).collect()),
        wall_speedup,
        uneven: None,
    }
}

/// The row of the best configuration that speculates, with its speed-up.
fn best_speculating(entries: &[(usize, Ranked)]) -> Option<(usize, f64)> {
    let of = |(row, entry): &(usize, Ranked)| Some((*row, entry.speedup?.median));
    entries.iter().filter(|(_, entry)| !entry.configuration.is_off()).find_map(of)
}

#[cfg(test)]
mod races;
#[cfg(test)]
mod tests;
