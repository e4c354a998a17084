//! Definition and measurements of one trial: the records of the journal.

use external::failure::ServerFailure;
use schemas::sweep::Metric;
use serde::{Deserialize, Serialize};

use crate::{
    host::machine::HostActivity,
    trials::{
        configuration::{Configuration, TrialLoad},
        shard::Shard,
    },
};
pub use crate::{
    host::mark::TrialMark,
    trials::exclusion::{Exclusion, leaves_too_few},
};
pub use engine::Fingerprint;

/// One measured point: configuration × load × repeat (the workload is in the [`Fingerprint`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Trial {
    /// The configuration.
    pub configuration: Configuration,
    /// How requests arrive.
    pub load: TrialLoad,
    /// Index of the repeat, from zero.
    pub repeat: usize,
}

/// Why a configuration is in the race.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateRole {
    /// From the space of the sweep.
    Candidate,
    /// No speculation: always measured.
    NoSpeculation,
    /// The engine's default: always measured.
    EngineDefault,
    /// What runs now, by the sweep file: always measured.
    Current,
    /// Not ranked: a start of a server that runs a different chain at each batch size, so that one
    /// start measures rounds of several chains. The chains share the GPU's memory, so separate
    /// starts decide which is the fastest.
    Probe,
}

/// Where a trial was measured. Merging keeps it, so that pairs stay within one machine and one part
/// of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrialOrigin {
    /// The name of the journal that it was first written to, unique to that journal.
    pub journal: String,
    /// Name of the host; empty if it has none.
    pub host: String,
    /// The part of the sweep; `None` for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// A finished trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Content hash of trial and fingerprint: the same trial has the same id everywhere.
    pub id: String,
    /// What ran.
    pub trial: Trial,
    /// Why its configuration is in the race.
    pub role: CandidateRole,
    /// Where and with what it ran.
    pub fingerprint: Fingerprint,
    /// The journal that it was first written to: trials are compared within one.
    #[serde(default)]
    pub origin: TrialOrigin,
    /// Seconds since the Unix epoch at the end of the trial.
    pub finished_at: u64,
    /// The figures, or the failure.
    pub outcome: Outcome,
}

/// Outcome of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Outcome {
    /// It ran.
    Measured(Box<Measurement>),
    /// It failed; the sweep continued.
    Failed {
        /// The error message.
        reason: String,
        /// The failure found in the server's log, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<ServerFailure>,
    },
}

/// Shares of stalled time below this are within the noise of a quiet machine, and change no
/// comparison.
const FELT_STALL: f64 = 0.05;
/// Share of stalled steps above which too few others are left to estimate the time of a step.
const MOST_STALLED_STEPS: f64 = 0.4;
/// The same for the time of an open loop, whose figures cannot be computed without the stalls.
const MOST_STALLED_TIME: f64 = 0.1;

/// The figures of a trial, all measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Completed requests.
    pub requests: usize,
    /// Tokens produced by all requests.
    pub output_tokens: u64,
    /// Wall time of the whole trial in seconds, prefill included.
    pub elapsed_s: f64,
    /// Output tokens per second of all requests together: those of [`full`](Self::full), else of
    /// the whole trial.
    pub output_tokens_per_s: f64,
    /// What throughput and goodput count of a closed loop; `None` if they count the whole trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<FullLoop>,
    /// Output tokens per second as one request sees it, after its first token: median over
    /// requests.
    pub tokens_per_s_per_user: f64,
    /// Output tokens per second of the requests within the objective's limits; `None` without
    /// limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_tokens_per_s: Option<f64>,
    /// Whether acceptance was simulated; then times are real but texts are not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// Output tokens / rounds, first and bonus tokens included (SGLang's definition);
    /// [`ACCEPT_LENGTH_OFF`] without speculation.
    pub accept_length: f64,
    /// Entry k counts the request-rounds in which k drafts were accepted.
    pub accept_histogram: Vec<u64>,
    /// Rounds that the engine ran (each for the whole running batch).
    pub rounds: u64,
    /// Wall time of a round in ms.
    pub round_ms: TrialSpread,
    /// Draft part of a round in ms, if measured in the trial's own rounds.
    pub draft_ms: Option<TrialSpread>,
    /// Verify part of a round in ms, if measured in the trial's own rounds.
    pub verify_ms: Option<TrialSpread>,
    /// Extend part of a round in ms, if measured in the trial's own rounds.
    pub extend_ms: Option<TrialSpread>,
    /// Time in ms in which the device waits before a round until drafts are looked up in texts;
    /// `None` if the host looks none up, or does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_wait_ms: Option<TrialSpread>,
    /// Parts of rounds timed after the trial, if its own were not measured: once per configuration
    /// and load, with the first such trial of a journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts_apart: Option<PartsApart>,
    /// Number of running requests, by rounds: entry k counts the rounds of k + 1 requests.
    #[serde(default)]
    pub running_batch: Vec<u64>,
    /// Mean time between a request's output tokens after its first one, in ms, over requests.
    #[serde(default)]
    pub inter_token_ms: Option<TrialSpread>,
    /// Time to first token in ms.
    pub time_to_first_token_ms: TrialSpread,
    /// Duration of whole requests in ms.
    pub latency_ms: TrialSpread,
    /// Total time of its rounds in seconds, as timed by the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_s: Option<f64>,
    /// Total time of its prefills in seconds, as timed by the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefills_s: Option<f64>,
    /// Mean number of requests in the engine or server, waiting ones included, over the time that
    /// throughput counts, as a client sees it. Earlier versions recorded it for servers only, over
    /// the whole trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_batch: Option<f64>,
    /// Share of the prompt tokens that were found in the prefix cache; `None` if not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_share: Option<f64>,
    /// Number of times that a request was retracted because the KV cache was full, and prefilled
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retractions: Option<u64>,
    /// Its stalls; `None` in journals of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
    /// Its figures without stalls; `None` for an open loop, where a stall changes which requests
    /// wait for which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady: Option<Steady>,
    /// Arrivals of an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<ArrivalFigures>,
    /// Share of the requests within the objective's limits; `None` without limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_time: Option<f64>,
    /// The machine's activity during the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<HostActivity>,
}

/// The figures of a trial without stalls: a step that took far longer than others of its kind (the
/// same shape, rows and number of requests; for a prefill, in proportion to its prompt tokens)
/// counts as these do. Without stalls they equal those of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// Seconds of the whole trial.
    pub elapsed_s: f64,
    /// Output tokens per second of all requests together: those of [`Measurement::full`], else of
    /// the whole trial.
    pub output_tokens_per_s: f64,
    /// Output tokens per second as one request sees it, after its first token: median over
    /// requests.
    pub tokens_per_s_per_user: f64,
    /// Output tokens per second of the requests within the objective's limits; `None` without
    /// limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_tokens_per_s: Option<f64>,
    /// Mean time between a request's output tokens after its first one, in ms, over requests.
    #[serde(default)]
    pub inter_token_ms: Option<TrialSpread>,
    /// Time to first token in ms.
    pub time_to_first_token_ms: TrialSpread,
    /// Duration of whole requests in ms.
    pub latency_ms: TrialSpread,
}

/// The part of a closed loop in which as many requests as its batch are in the engine: from the
/// start until the first end of a request after which fewer are left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FullLoop {
    /// Its duration by the wall clock.
    pub seconds: f64,
    /// Tokens that arrived in it.
    pub output_tokens: f64,
}

impl FullLoop {
    /// Share of a trial's tokens from which on this part stands for the trial.
    const LEAST: f64 = 0.5;

    /// The part, unless it holds too little of a trial with this many tokens.
    pub fn of(self, all: u64) -> Option<Self> {
        (self.seconds > 0.0 && self.output_tokens >= Self::LEAST * all as f64).then_some(self)
    }

    /// Tokens per second.
    pub fn rate(self) -> f64 {
        self.output_tokens / self.seconds
    }

    /// The share of this many tokens that a trial counts, which is all without such a part.
    pub fn counted_share(part: Option<Self>, all: u64) -> f64 {
        part.map_or(1.0, |part| part.output_tokens / (all as f64).max(1.0))
    }
}

/// Stalls of a trial: steps that took far longer than the others of their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// Their excess over other steps of their kind, as a share of the wall time.
    pub of_time: f64,
    /// Their share of all steps.
    pub of_steps: f64,
}

/// Arrivals of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrivalFigures {
    /// Requests sent per second: their number minus one / seconds from the first arrival to the
    /// last.
    pub offered_per_s: f64,
    /// Requested output tokens per second: those of all requests / the time in which this many
    /// requests arrive at the offered rate.
    pub offered_tokens_per_s: f64,
    /// Requests not yet served when the last one arrived, which is one of them.
    pub unserved_at_last: usize,
}

/// Parts of rounds that were run separately, only to time them. Separate parts do not overlap, so
/// their sum is slightly longer than a round of the trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartsApart {
    /// Number of timed rounds.
    pub rounds: usize,
    /// Requests in each of them: the batch of the trial's median round.
    pub batch: usize,
    /// Mean tokens of a request in the cache.
    pub context: f64,
    /// Sum of the parts of a round in ms.
    pub round_ms: TrialSpread,
    /// Draft steps and tree selection in ms; `None` without speculation.
    pub draft_ms: Option<TrialSpread>,
    /// The target's pass over the tree, and acceptance, in ms.
    pub verify_ms: TrialSpread,
    /// Compaction of the cache and the draft's extension in ms; `None` if a round does neither.
    pub extend_ms: Option<TrialSpread>,
}

impl Record {
    /// The measured figures; `None` for a trial that failed.
    pub fn measurement(&self) -> Option<&Measurement> {
        match &self.outcome {
            Outcome::Measured(measurement) => Some(measurement),
            Outcome::Failed { .. } => None,
        }
    }

    /// The reason of the failure; `None` for a trial that was measured.
    pub fn failure(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Measured(_) => None,
            Outcome::Failed { reason, .. } => Some(reason),
        }
    }
}

pub use engine::bench::ACCEPT_LENGTH_OFF;

impl Measurement {
    /// The figures as those of a configuration.
    #[must_use]
    pub fn of(self, configuration: &Configuration) -> Self {
        let accept_length = if configuration.is_off() { ACCEPT_LENGTH_OFF } else { self.accept_length };
        Self { accept_length, ..self }
    }

    /// The figures that are compared and shown: without stalls if the trial separates them, else by
    /// the wall clock.
    pub fn compared(&self) -> Steady {
        self.steady.unwrap_or_else(|| self.by_wall_clock())
    }

    /// Mean number of requests in the engine ([`mean_batch`](Self::mean_batch)); in journals of
    /// earlier versions that lack it, over rounds. `None` if neither is recorded.
    pub fn mean_running_batch(&self) -> Option<f64> {
        let over_rounds = || {
            let rounds: u64 = self.running_batch.iter().sum();
            let sum: f64 =
                self.running_batch.iter().zip(1..).map(|(rounds, size)| *rounds as f64 * f64::from(size)).sum();
            (rounds > 0).then(|| sum / rounds as f64)
        };
        self.mean_batch.or_else(over_rounds)
    }

    /// Share of the output tokens that throughput counts.
    pub fn counted_share(&self) -> f64 {
        FullLoop::counted_share(self.full, self.output_tokens)
    }

    /// Output tokens per joule of the GPU over the whole trial, prefill included; `None` if its
    /// driver does not tell the energy.
    pub fn tokens_per_joule(&self) -> Option<f64> {
        let energy_j = self.machine.as_ref()?.gpu.as_ref()?.energy_j?;
        (energy_j > 0.0).then(|| self.output_tokens as f64 / energy_j)
    }

    /// The same figures with stalls.
    pub fn by_wall_clock(&self) -> Steady {
        Steady {
            elapsed_s: self.elapsed_s,
            output_tokens_per_s: self.output_tokens_per_s,
            tokens_per_s_per_user: self.tokens_per_s_per_user,
            goodput_tokens_per_s: self.goodput_tokens_per_s,
            inter_token_ms: self.inter_token_ms,
            time_to_first_token_ms: self.time_to_first_token_ms,
            latency_ms: self.latency_ms,
        }
    }

    /// The score under a metric: higher is better, without stalls if they are separated. `None` if
    /// the figure is missing or not positive.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        self.compared().score(metric)
    }

    /// The same with stalls, by the wall clock.
    pub fn wall_score(&self, metric: Metric) -> Option<f64> {
        self.by_wall_clock().score(metric)
    }

    /// Requests served per second of an open loop, from the first arrival to the last: over the
    /// time in which they are sent, so that it is never above [`ArrivalFigures::offered_per_s`].
    pub fn served_per_s(&self) -> Option<f64> {
        let arrivals = self.arrivals.as_ref()?;
        let sent = self.requests.checked_sub(1).filter(|sent| *sent > 0)?;
        // The last request arrives at the end of this time, so it is never served within it.
        let served = self.requests.saturating_sub(arrivals.unserved_at_last).min(sent);
        Some(arrivals.offered_per_s * served as f64 / sent as f64)
    }

    /// The disturbances of the trial.
    pub fn marks(&self) -> Vec<TrialMark> {
        let mut marks = Vec::new();
        if let Some(Stalls { of_time, of_steps }) = self.stalls {
            let spoiled = self.exclusion() == Some(Exclusion::Stalled);
            marks.extend((of_time > FELT_STALL || spoiled).then_some(TrialMark::Stalled {
                of_time,
                of_steps,
                spoiled,
            }));
        }
        marks.extend(self.machine.iter().flat_map(|machine| machine.marks(self.elapsed_s)));
        marks
    }

    /// Why the trial by itself is excluded from comparisons, if it is. [`Exclusion::Slow`] depends
    /// on the other repeats, so only [`rank`](crate::results::selection::rank) finds it.
    pub fn exclusion(&self) -> Option<Exclusion> {
        let stalled = self.stalls.is_some_and(|stalls| match self.steady {
            Some(_) => stalls.of_steps > MOST_STALLED_STEPS,
            None => stalls.of_time > MOST_STALLED_TIME,
        });
        stalled.then_some(Exclusion::Stalled)
    }
}

impl Steady {
    fn score(&self, metric: Metric) -> Option<f64> {
        usable(match metric {
            Metric::Throughput | Metric::Pareto => self.output_tokens_per_s,
            Metric::Latency => 1e3 / self.latency_ms.median,
            Metric::Goodput => self.goodput_tokens_per_s?,
        })
    }
}

fn usable(score: f64) -> Option<f64> {
    (score > 0.0 && score.is_finite()).then_some(score)
}

impl Trial {
    /// Its id: a hash of its definition and of its fingerprint.
    pub fn id(&self, fingerprint: &Fingerprint) -> String {
        let text = serde_json::to_string(&(self, fingerprint)).unwrap_or_default();
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }
}

impl TrialSpread {
    /// The spread of some values; `None` without any.
    pub fn from_values(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        // Nearest rank, so that it is the figure of a real round.
        let at = |share: f64| values.get(((values.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied();
        Some(Self {
            min: *values.first()?,
            median: crate::statistics::middle(&values)?,
            p90: at(0.9)?,
            p99: at(0.99)?,
            max: *values.last()?,
            count: values.len(),
        })
    }

    /// Number of values; `unknown` if the record does not contain it.
    pub fn count_or(self, unknown: usize) -> usize {
        if self.count == 0 { unknown } else { self.count }
    }
}

/// Number of values from which on there is a 90th percentile: with fewer it would be the largest
/// value.
pub const VALUES_FOR_P90: usize = 10;
/// The same for the 99th.
pub const VALUES_FOR_P99: usize = 100;

/// A distribution in five numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialSpread {
    /// Smallest.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
    /// Number of values; 0 in journals of earlier versions. With fewer than [`VALUES_FOR_P90`] or
    /// [`VALUES_FOR_P99`], the percentile says no more than the largest value, and is not shown.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub count: usize,
}

fn is_unknown(count: &usize) -> bool {
    *count == 0
}
