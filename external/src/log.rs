//! What a server's log says about its rounds: the lines that SGLang and vLLM print every few
//! seconds under load, and the configuration that they print at the start.
//!
//! Lines that are not understood are skipped: logs mix the output of several programs. Figures are
//! those of the engine; nothing is corrected here.

mod printed;
mod sglang;
mod vllm;
mod words;

use serde_json::Value;

use crate::api::ApiKind;

/// A log.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerLog {
    /// The engine that wrote it.
    pub kind: ApiKind,
    /// The configuration that it printed.
    pub settings: LoggedSettings,
    /// Periods between two reports, in order.
    pub intervals: Vec<LogInterval>,
    /// How many times requests were put back because the KV cache was full.
    pub retractions: usize,
}

/// What a server printed about its configuration; `None` for what it did not print.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedSettings {
    /// The engine's own name, if it is another that answers in the form of [`ServerLog::kind`].
    pub engine: Option<String>,
    /// The method of speculation, by the engine's name; `None` also without speculation.
    pub algorithm: Option<String>,
    /// Depth of the tree of drafts.
    pub num_steps: Option<usize>,
    /// Children of a node.
    pub topk: Option<usize>,
    /// Rows that are verified for each request, the root included.
    pub verified_rows: Option<usize>,
    /// Maximum number of running requests.
    pub max_running: Option<usize>,
    /// Whether CUDA graphs are off.
    pub graphs_off: bool,
    /// Sizes for which graphs of the target were captured: requests in SGLang, rows in vLLM.
    pub captured: Vec<usize>,
    /// The arguments of SGLang's server, by name, as it printed or answered them; else null.
    pub arguments: Value,
    /// The engine's version.
    pub version: Option<String>,
    /// Memory of a GPU that was free before weights were loaded, in MiB.
    pub free_memory: Option<u64>,
    /// Whether acceptance is made up.
    pub simulated: bool,
}

/// A period between two reports of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogInterval {
    /// Running requests, at its end.
    pub running: f64,
    /// Waiting requests, at its end.
    pub waiting: f64,
    /// Tokens generated per second.
    pub tokens_per_s: f64,
    /// Tokens per round and request, bonus token included; `None` without speculation.
    pub accept_length: Option<f64>,
    /// The share of rounds in which each position of the chain was accepted, if the engine reports
    /// it.
    pub positions: Vec<f64>,
    /// Whether rounds ran as CUDA graphs, if the engine reports it.
    pub graph: Option<bool>,
    /// Used share of the KV cache.
    pub cache_used: Option<f64>,
    /// Whether prompts were processed in it too.
    pub prompts: bool,
    /// What its time was spent on, if the engine counts that.
    pub spent: Option<Spent>,
}

/// What a server spent its time on, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// The whole period.
    pub all: f64,
    /// Number of rounds.
    pub rounds: f64,
    /// Time in rounds.
    pub in_rounds: f64,
    /// Time in prefill.
    pub in_prefill: f64,
    /// The parts of rounds that draft, verify, and extend the draft; all 0 where the device does
    /// not time them.
    pub parts: [f64; 3],
}

impl Spent {
    /// Both periods together.
    pub fn and(self, other: Self) -> Self {
        let parts = [0, 1, 2].map(|part| self.parts[part] + other.parts[part]);
        Self {
            all: self.all + other.all,
            rounds: self.rounds + other.rounds,
            in_rounds: self.in_rounds + other.in_rounds,
            in_prefill: self.in_prefill + other.in_prefill,
            parts,
        }
    }
}

impl LogInterval {
    /// Milliseconds from one round of a request to its next one.
    pub fn round_ms(&self) -> f64 {
        self.running * self.accept_length.unwrap_or(1.0) / self.tokens_per_s * 1e3
    }
}

impl ServerLog {
    /// Reads a log; `None` if no line reports rounds of SGLang or vLLM.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = words::without_escapes(text);
        [sglang::read(&plain), vllm::read(&plain)].into_iter().flatten().max_by_key(|log| log.intervals.len())
    }
}

/// What a server says of its configuration in the form of SGLang's arguments, as it answers them at
/// `/server_info`.
pub fn sglang_settings(arguments: &Value) -> LoggedSettings {
    sglang::settings(arguments)
}

#[cfg(test)]
mod tests;
