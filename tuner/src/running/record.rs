//! What is kept of a measurement of running servers: the servers as they describe themselves, and
//! the trials.

use schemas::sweep::Workload;
use serde::{Deserialize, Serialize};

use crate::trials::{
    configuration::TrialLoad,
    record::{FullLoop, TrialSpread},
};

/// Version of the format.
pub const FORMAT: u32 = 1;

/// The settings of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningSettings {
    /// URLs of one or two servers.
    pub urls: Vec<String>,
    /// The workload; its paths refer to `folder`.
    pub workload: Workload,
    /// The folder that the workload's paths refer to.
    pub folder: String,
    /// How requests arrive.
    pub loads: Vec<TrialLoad>,
    /// Trials of each load on each server.
    pub repeats: usize,
    /// Time after which no further trial starts, in seconds.
    pub seconds: Option<f64>,
    /// Whether the prefix cache is flushed before every trial.
    pub flush: bool,
}

/// The first line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningHeader {
    /// Always `running`: sets it apart from the journal of a sweep.
    pub kind: String,
    /// Version of the format.
    pub format: u32,
    /// The settings.
    // The name in journals of earlier versions, which can be continued.
    #[serde(rename = "asked")]
    pub requested: RunningSettings,
    /// The servers, in the order of the URLs.
    pub servers: Vec<RunningServer>,
    /// How often the measurement was started. Trials of a later start draw prompts that no earlier
    /// one can have sent.
    pub starts: usize,
    /// Number of different prompts that the workload has; `None` if they are drawn at random.
    pub prompts: Option<usize>,
    /// Whether the end of closed loops does not count ([`RunningFigures::full`]); in journals of
    /// earlier versions it does.
    #[serde(default)]
    pub full_loops: bool,
}

/// A running server as it describes itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunningServer {
    /// Its URL.
    pub url: String,
    /// The engine's name: SGLang, vLLM or spectune.
    pub engine: String,
    /// The engine's version.
    pub version: Option<String>,
    /// Names of the models that it serves.
    pub models: Vec<String>,
    /// The host that it runs on.
    pub host: String,
    /// The processor or the GPUs that it runs on, if told by it or found on this host.
    pub device: Option<String>,
    /// Whether it speculates; `None` if it is not told.
    pub speculates: Option<bool>,
    /// Maximum number of requests that it runs together, if told.
    pub limit: Option<usize>,
    /// Its settings.
    pub settings: Vec<ServerSetting>,
    /// Name of the file with its launch, if given.
    pub launch: Option<String>,
    /// What the linter says of its launch.
    pub findings: Vec<ServerFinding>,
    /// Why nothing was checked; `None` if it was.
    pub unchecked: Option<String>,
}

/// A setting of a running server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSetting {
    /// Its name: SGLang's, and vLLM's where they differ.
    pub name: String,
    /// Its value; `None` if nothing tells it.
    pub value: Option<String>,
    /// Where the value comes from.
    pub from: SettingSource,
}

/// Where the value of a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingSource {
    /// The server's own description of its configuration.
    Server,
    /// Its metrics.
    Metrics,
    /// The launch file that the user gave.
    Launch,
    /// Nowhere.
    // As in journals of earlier versions.
    #[serde(rename = "not_told")]
    Unknown,
}

/// A finding of the linter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFinding {
    /// error, warning or info.
    pub severity: String,
    /// The rule's code.
    pub code: String,
    /// The message.
    pub message: String,
}

/// One finished trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningRecord {
    /// Index of the server.
    pub server: usize,
    /// How requests arrived.
    pub load: TrialLoad,
    /// Index of the repeat, from zero.
    pub repeat: usize,
    /// The start of the measurement that drew its prompts; both servers get the same ones.
    pub draw: usize,
    /// Seconds since the Unix epoch at its end.
    pub finished_at: u64,
    /// Its result.
    pub outcome: RunningOutcome,
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum RunningOutcome {
    /// It ran.
    Measured(Box<RunningFigures>),
    /// A request failed.
    Failed {
        /// The error message.
        reason: String,
    },
}

/// The figures of a trial, all measured by the client except where noted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunningFigures {
    /// Served requests.
    pub requests: usize,
    /// Their output tokens.
    pub output_tokens: u64,
    /// Their prompt tokens.
    pub prompt_tokens: u64,
    /// Time from the first request to the last token, in seconds.
    pub elapsed_s: f64,
    /// Output tokens per second of all requests together: those of [`full`](Self::full), else of
    /// the whole trial.
    pub output_tokens_per_s: f64,
    /// What throughput counts of a closed loop; `None` if it counts the whole trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<FullLoop>,
    /// Output tokens per second of a request after its first token: median over requests; `None` if
    /// no request has a second token.
    pub tokens_per_s_per_user: Option<f64>,
    /// Time to first token in ms.
    pub time_to_first_token_ms: TrialSpread,
    /// Mean time between a request's tokens after its first one in ms, over requests.
    pub inter_token_ms: Option<TrialSpread>,
    /// Duration of whole requests in ms.
    pub latency_ms: TrialSpread,
    /// Output tokens / rounds; `None` without speculation, or if neither requests nor metrics tell
    /// rounds.
    pub accept_length: Option<f64>,
    /// Prompt tokens that the server found in its prefix cache, by its own count; `None` if it does
    /// not tell.
    pub cached_tokens: Option<u64>,
    /// Prompt tokens that it can have found there because prompts of this measurement start alike.
    pub common_tokens: u64,
    /// Requests whose prompt was sent before in this measurement.
    pub repeated_prompts: usize,
    /// Whether the cache was flushed before.
    pub flushed: bool,
    /// Largest number of running requests by the server's gauge.
    pub running_most: Option<f64>,
    /// Largest number of waiting requests by the server's gauge.
    pub waiting_most: Option<f64>,
    /// Requests of others that ran meanwhile.
    pub others: Option<OtherTraffic>,
    /// Requests that were retracted because the KV cache was full.
    pub retracted: Option<f64>,
}

/// Signs of requests that are not ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OtherTraffic {
    /// Tokens that the server generated beyond ours.
    pub tokens: Option<f64>,
    /// Requests that it had beyond ours, at most.
    pub requests: Option<f64>,
}

/// Whether prompts were in the server's prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixCacheUse {
    /// They were new to the server.
    Cold,
    /// The server had seen at least some of them before.
    Warm,
}

/// Share of the prompt tokens above which tokens in the cache that this measurement does not
/// explain make a trial warm.
const WARM: f64 = 0.05;
/// Tokens per request that short prompts have in common by chance.
const BY_CHANCE: usize = 2;

impl RunningFigures {
    /// Whether its prompts were in the cache: by the server's count, else by what this measurement
    /// sent.
    pub fn cache(&self) -> PrefixCacheUse {
        let warm = match self.cached_tokens {
            Some(cached) => {
                let few = (WARM * self.prompt_tokens as f64).max((BY_CHANCE * self.requests) as f64);
                cached.saturating_sub(self.common_tokens) as f64 > few
            }
            None => self.repeated_prompts > 0 && !self.flushed,
        };
        if warm { PrefixCacheUse::Warm } else { PrefixCacheUse::Cold }
    }

    /// Why it is excluded from all figures; `None` if it counts.
    pub fn exclusion(&self) -> Option<String> {
        if let Some(OtherTraffic { tokens, requests }) = self.others {
            let tokens = tokens.map(|tokens| format!("the server generated {tokens:.0} tokens more than ours"));
            let requests = requests.map(|requests| format!("it had up to {requests:.0} requests more than ours"));
            let signs: Vec<String> = tokens.into_iter().chain(requests).collect();
            return Some(format!("other traffic: {}", signs.join(", ")));
        }
        let retracted = self.retracted.filter(|requests| *requests > 0.0)?;
        Some(format!("{retracted:.0} requests were retracted because the server's KV cache was full"))
    }

    /// Whether the tokens of a request arrived together, so that neither the first one's time nor
    /// the time between tokens is known: a proxy holds streams back, or the server counts tokens,
    /// or streams them, in large pieces only.
    pub fn arrives_at_once(&self) -> bool {
        /// Tokens of a request that rounds of speculation yield one after the other.
        const MANY: u64 = 8;
        /// Share of a request's time that its tokens take at least.
        const LEAST: f64 = 0.05;
        let (whole, first) = (self.latency_ms.median, self.time_to_first_token_ms.median);
        self.requests > 0 && self.output_tokens >= MANY * self.requests as u64 && whole - first < LEAST * whole
    }

    /// The number of requests that ran together if the server ran fewer than were sent; `None` if
    /// it is not told.
    pub fn held_back(&self, load: TrialLoad) -> Option<usize> {
        let (batch, running, waiting) = (load.batch_size()?, self.running_most?, self.waiting_most?);
        // Gauges are read now and then, so a small number alone may be chance: requests must have
        // waited.
        (waiting >= 1.0 && running < batch as f64 && running > 0.0).then_some(running as usize)
    }
}

impl RunningRecord {
    /// The figures, if it was measured.
    pub fn figures(&self) -> Option<&RunningFigures> {
        match &self.outcome {
            RunningOutcome::Measured(figures) => Some(figures),
            RunningOutcome::Failed { .. } => None,
        }
    }

    /// Why it does not count; `None` if it does.
    pub fn exclusion(&self) -> Option<String> {
        match &self.outcome {
            RunningOutcome::Measured(figures) => figures.exclusion(),
            RunningOutcome::Failed { reason } => Some(format!("failed: {reason}")),
        }
    }
}

impl RunningServer {
    /// Engine and version.
    pub fn name(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", self.engine),
            None => format!("{} (version not told)", self.engine),
        }
    }

    /// What it runs on.
    pub fn place(&self) -> String {
        format!("{}, {}", self.host, self.device.as_deref().unwrap_or("GPU not told"))
    }

    /// The value of a setting, if told.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|one| one.name == name)?.value.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_warm_where_the_cache_holds_more_than_common_beginnings() {
        let figures = |cached, common, repeated, flushed| RunningFigures {
            prompt_tokens: 1000,
            cached_tokens: cached,
            common_tokens: common,
            repeated_prompts: repeated,
            flushed,
            ..RunningFigures::default()
        };
        assert_eq!(figures(Some(500), 500, 0, false).cache(), PrefixCacheUse::Cold, "a system prompt that all share");
        assert_eq!(figures(Some(900), 500, 0, false).cache(), PrefixCacheUse::Warm, "sent by someone before");
        assert_eq!(figures(None, 0, 3, false).cache(), PrefixCacheUse::Warm);
        assert_eq!(figures(None, 0, 3, true).cache(), PrefixCacheUse::Cold, "flushed");
        assert_eq!(figures(Some(0), 0, 3, false).cache(), PrefixCacheUse::Cold, "evicted meanwhile");
    }

    #[test]
    fn streams_that_a_proxy_holds_back_have_no_first_token() {
        let figures = |first: f64, tokens: u64| RunningFigures {
            requests: 4,
            output_tokens: tokens,
            time_to_first_token_ms: TrialSpread { median: first, ..TrialSpread::default() },
            latency_ms: TrialSpread { median: 100.0, ..TrialSpread::default() },
            ..RunningFigures::default()
        };
        assert!(figures(99.0, 64).arrives_at_once());
        assert!(!figures(20.0, 64).arrives_at_once() && !figures(99.0, 8).arrives_at_once());
    }

    #[test]
    fn other_traffic_is_named_with_its_signs() {
        let others = Some(OtherTraffic { tokens: Some(90.0), requests: Some(3.0) });
        let reported = RunningFigures { others, ..RunningFigures::default() }.exclusion().expect("excluded");
        assert_eq!(
            reported,
            "other traffic: the server generated 90 tokens more than ours, it had up to 3 requests more than ours"
        );
        assert_eq!(RunningFigures::default().exclusion(), None);
    }
}
