//! Definition and measurements of one trial: the records of the journal.

use external::failure::Failure;
use schemas::sweep::Metric;
use serde::{Deserialize, Serialize};

pub use crate::mark::Mark;
use crate::{
    configuration::{Configuration, Load},
    machine::Machine,
    shard::Shard,
};

/// One measured point: configuration × load × repeat (the workload is in the [`Fingerprint`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Trial {
    /// What runs.
    pub configuration: Configuration,
    /// How requests come.
    pub load: Load,
    /// Which repetition, from zero.
    pub repeat: usize,
}

/// What a configuration is in the race for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// From the space of the sweep.
    Candidate,
    /// No speculation: always in the race.
    NoSpeculation,
    /// What the engine would choose by itself: always in the race.
    EngineDefault,
    /// Not ranked: a start of a server that runs a different chain at each batch size, so that one start measures rounds of several
    /// chains. The chains share the GPU's memory, so which is the fastest is measured in separate starts.
    Probe,
}

/// What must agree for trials to be ranked together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// `cpu` or `cuda:N`.
    pub device: String,
    /// Name of the processor or GPU.
    pub device_name: String,
    /// Driver version of a GPU; empty on the CPU.
    pub driver: String,
    /// Threads on a CPU, multiprocessors on a GPU.
    pub units: usize,
    /// Engine and its version, such as `spectune 0.1.0`.
    pub engine: String,
    /// Hash of the target's files.
    pub target: String,
    /// Hash of the draft's files; empty without a draft.
    pub draft: String,
    /// Hash of prompts, lengths and sampling.
    pub workload: String,
    /// How the engine is set up: all that changes a round and stays the same over a sweep, in words.
    pub settings: String,
}

/// Who measured a trial. Merging keeps it, so that pairs stay within one machine and one part of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The journal that it was first written to, by a name that no other journal has.
    pub journal: String,
    /// Name of the host; empty where it has none.
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
    /// What was run.
    pub trial: Trial,
    /// What its configuration is in the race for.
    pub role: Role,
    /// Where and on what.
    pub fingerprint: Fingerprint,
    /// Whose journal it was first written to: trials are compared within one.
    #[serde(default)]
    pub origin: Origin,
    /// Seconds since the Unix epoch at the end of the trial.
    pub finished_at: u64,
    /// What came out.
    pub outcome: Outcome,
}

/// What came out of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Outcome {
    /// It ran.
    Measured(Box<Measurement>),
    /// It did not; the sweep went on.
    Failed {
        /// The error's words.
        reason: String,
        /// What the server's log says about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
}

/// Shares of stalled time below this change no comparison: they lie within the noise of a quiet machine.
const FELT_STALL: f64 = 0.05;
/// Share of stalled steps above which the others are too few to estimate the time of a step.
const MOST_STALLED_STEPS: f64 = 0.4;
/// The same for an open loop, whose figures cannot be had without the stalls.
const MOST_STALLED_TIME: f64 = 0.1;

/// The figures of a trial. All measured, none predicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Requests completed.
    pub requests: usize,
    /// Tokens produced by all requests.
    pub output_tokens: u64,
    /// Wall time of the whole trial in seconds, prefill included.
    pub elapsed_s: f64,
    /// Output tokens / elapsed, all requests together.
    pub output_tokens_per_s: f64,
    /// Output tokens per second as one request sees it, after its first token: median over requests.
    pub tokens_per_s_per_user: f64,
    /// Output tokens per second of those requests that kept the objective's limits; `None` without limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_tokens_per_s: Option<f64>,
    /// Whether acceptance was simulated, so that times are real but texts are not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// Output tokens / rounds, first and bonus tokens included (SGLang's definition).
    pub accept_length: f64,
    /// Entry k counts the request-rounds in which k drafts were accepted.
    pub accept_histogram: Vec<u64>,
    /// Rounds that the engine ran (each for the whole running batch).
    pub rounds: u64,
    /// Wall time of a round in ms.
    pub round_ms: Spread,
    /// Draft part of a round in ms, where measured in the trial's own rounds.
    pub draft_ms: Option<Spread>,
    /// Verify part of a round in ms, where measured in the trial's own rounds.
    pub verify_ms: Option<Spread>,
    /// Extend part of a round in ms, where measured in the trial's own rounds.
    pub extend_ms: Option<Spread>,
    /// Parts of rounds that were timed after the trial, if its own were not measured: once for each configuration and
    /// load, with the first trial of them in a journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts_apart: Option<PartsApart>,
    /// Requests that ran together, by rounds: entry k counts the rounds of k + 1 requests.
    #[serde(default)]
    pub running_batch: Vec<u64>,
    /// Mean time between output tokens of a request after its first one, in ms; over requests.
    #[serde(default)]
    pub inter_token_ms: Option<Spread>,
    /// Time to first token in ms.
    pub time_to_first_token_ms: Spread,
    /// Whole requests in ms.
    pub latency_ms: Spread,
    /// Seconds that its rounds took together, as the engine timed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_s: Option<f64>,
    /// Seconds that its prefills took together, as the engine timed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefills_s: Option<f64>,
    /// What stalls there were; `None` in journals of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
    /// Its figures without them; `None` of an open loop, where a stall changes who waits for whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady: Option<Steady>,
    /// How requests came in an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<ArrivalFigures>,
    /// Share of the requests that kept the objective's limits; `None` without limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_time: Option<f64>,
    /// What the machine did meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
}

/// The figures of a trial without stalls: a step that took far longer than the steps of its kind (as many requests, as many
/// prompt tokens) counts as long as the others of its kind took on average. Where nothing stalls they are those of the wall
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// Seconds of the whole trial.
    pub elapsed_s: f64,
    /// Output tokens / these seconds, all requests together.
    pub output_tokens_per_s: f64,
    /// Output tokens per second as one request sees it, after its first token: median over requests.
    pub tokens_per_s_per_user: f64,
    /// Output tokens per second of those requests that kept the objective's limits; `None` without limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_tokens_per_s: Option<f64>,
    /// Mean time between output tokens of a request after its first one, in ms; over requests.
    #[serde(default)]
    pub inter_token_ms: Option<Spread>,
    /// Time to first token in ms.
    pub time_to_first_token_ms: Spread,
    /// Whole requests in ms.
    pub latency_ms: Spread,
}

/// Stalls of a trial: steps that took far longer than the others of their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// What they took beyond the others of their kind, as a share of the wall time.
    pub of_time: f64,
    /// Their share of all steps.
    pub of_steps: f64,
}

/// How requests came in an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrivalFigures {
    /// Requests a second that were sent: their number less one / seconds from the first arrival to the last.
    pub offered_per_s: f64,
    /// Requests a second that were served, to the end of the last one.
    pub served_per_s: f64,
    /// Requested output tokens per second: those of all requests / the time in which as many requests come at the
    /// offered rate.
    pub offered_tokens_per_s: f64,
    /// Requests that were not served yet when the last one came.
    pub unserved_at_last: usize,
}

/// Parts of rounds that ran part by part, for the sake of these figures alone. What runs apart does not overlap, so they
/// add up to slightly more than a round of the trial takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartsApart {
    /// Rounds that were timed.
    pub rounds: usize,
    /// Requests in each of them: as many as the median round of the trial had.
    pub batch: usize,
    /// Tokens of a request in the cache, mean.
    pub context: f64,
    /// The whole rounds in ms: the sum of their parts.
    pub round_ms: Spread,
    /// Draft steps and tree selection in ms; `None` without speculation.
    pub draft_ms: Option<Spread>,
    /// The target's pass over the tree, and acceptance, in ms.
    pub verify_ms: Spread,
    /// Compaction of the cache and extension of the draft's in ms; `None` where a round does neither.
    pub extend_ms: Option<Spread>,
}

impl Fingerprint {
    /// Without what only a draft makes a difference to: of the settings all but the algorithm, which comes first.
    pub(crate) fn of_target(&self) -> Self {
        let settings = self.settings.split_once(", ").map_or("", |(_, rest)| rest).to_owned();
        Self { draft: String::new(), settings, ..self.clone() }
    }

    /// What differs from another, each with both values; empty where they agree.
    pub fn difference(&self, other: &Self) -> String {
        let words = |(name, there, here)| format!("{name} {there}, now {here}");
        self.differences(other).into_iter().map(words).collect::<Vec<_>>().join("; ")
    }

    /// What differs from another: name, value here, value there; a value that is empty is "none".
    pub fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
        let fields = |one: &Self| {
            let Self { device, device_name, driver, units, engine, target, draft, workload, settings } = one.clone();
            [
                ("device", device),
                ("processor or GPU", device_name),
                ("driver", driver),
                ("threads or multiprocessors", units.to_string()),
                ("engine", engine),
                ("target", target),
                ("draft", draft),
                ("workload", workload),
                ("settings", settings),
            ]
        };
        let pairs = fields(self).into_iter().zip(fields(other)).filter(|(this, that)| this != that);
        let named = |value: String| if value.is_empty() { "none".to_owned() } else { value };
        pairs.map(|((name, this), (_, that))| (name, named(this), named(that))).collect()
    }
}

impl Record {
    /// What was measured; `None` of a trial that failed.
    pub fn measurement(&self) -> Option<&Measurement> {
        match &self.outcome {
            Outcome::Measured(measurement) => Some(measurement),
            Outcome::Failed { .. } => None,
        }
    }

    /// Why it failed; `None` of a trial that was measured.
    pub fn failure(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Measured(_) => None,
            Outcome::Failed { reason, .. } => Some(reason),
        }
    }
}

impl Measurement {
    /// The score in terms of a metric, signed so that more is better, and without stalls where they are separated; `None` where the
    /// figure is missing, or nothing was good enough to count.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        let Some(steady) = &self.steady else { return self.wall_score(metric) };
        usable(match metric {
            Metric::Throughput | Metric::Pareto => steady.output_tokens_per_s,
            Metric::Latency => 1e3 / steady.latency_ms.median,
            Metric::Goodput => steady.goodput_tokens_per_s?,
        })
    }

    /// The same by the wall clock.
    pub fn wall_score(&self, metric: Metric) -> Option<f64> {
        usable(match metric {
            Metric::Throughput | Metric::Pareto => self.output_tokens_per_s,
            Metric::Latency => 1e3 / self.latency_ms.median,
            Metric::Goodput => self.goodput_tokens_per_s?,
        })
    }

    /// What disturbed it, if anything.
    pub fn marks(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        if let Some(Stalls { of_time, of_steps }) = self.stalls {
            let spoiled = self.is_spoiled();
            marks.extend((of_time > FELT_STALL || spoiled).then_some(Mark::Stalled { of_time, of_steps, spoiled }));
        }
        marks.extend(self.machine.iter().flat_map(|machine| machine.marks(self.elapsed_s)));
        marks
    }

    /// Whether it was disturbed enough to be excluded from comparisons.
    pub fn is_spoiled(&self) -> bool {
        self.stalls.is_some_and(|stalls| match self.steady {
            Some(_) => stalls.of_steps > MOST_STALLED_STEPS,
            None => stalls.of_time > MOST_STALLED_TIME,
        })
    }
}

fn usable(score: f64) -> Option<f64> {
    (score > 0.0 && score.is_finite()).then_some(score)
}

impl Trial {
    /// Its id: a hash of its definition and of where it runs.
    pub fn id(&self, fingerprint: &Fingerprint) -> String {
        let text = serde_json::to_string(&(self, fingerprint)).unwrap_or_default();
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }
}

impl Spread {
    /// The spread of some values; `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        // Nearest rank: the figure of a real round, never one between two.
        let at = |share: f64| values.get(((values.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied();
        Some(Self {
            min: *values.first()?,
            median: crate::statistics::middle(&values)?,
            p90: at(0.9)?,
            p99: at(0.99)?,
            max: *values.last()?,
        })
    }
}

/// A distribution in five numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// Half lie below.
    pub median: f64,
    /// 90% lie below.
    pub p90: f64,
    /// 99% lie below.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}
