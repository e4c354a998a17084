//! What a server's log says about its rounds: the lines that SGLang and vLLM print every few
//! seconds under load, and the configuration that they print at the start.
//!
//! Lines that are not understood are skipped: logs mix the output of several programs. Figures are
//! those of the engine; nothing is corrected here.

mod lines;
mod prefix;
mod printed;
mod sglang;
mod starts;
mod vllm;
mod words;

use std::io::{self, BufRead};

use serde_json::Value;

use crate::api::ApiKind;

/// What a server says of its rounds from one start to the next: one or more engines with the same
/// configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerLog {
    /// The engine that wrote it.
    pub kind: ApiKind,
    /// The configuration that it printed.
    pub settings: LoggedSettings,
    /// Periods between two reports, in order.
    pub intervals: Vec<LogInterval>,
    /// Number of requests that were put back because the KV cache was full, each time.
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
    /// Maximum number of running requests of what a report is about: in a log a data-parallel rank
    /// of SGLang or an engine of vLLM, in metrics the whole server.
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
    /// Which of the ranks and engines reports it, from 0.
    pub source: usize,
    /// Its duration. SGLang reports after a number of rounds, so there it is an estimate, from the
    /// requests at its end.
    pub seconds: f64,
    /// Running requests, at its end.
    pub running: f64,
    /// Waiting requests, at its end.
    pub waiting: f64,
    /// Tokens generated per second.
    pub tokens_per_s: f64,
    /// Whether drafts are verified in it, by the configuration or by the report.
    pub speculates: bool,
    /// Tokens per round and request, bonus token included; `None` without speculation, and where
    /// the engine does not report it.
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
    /// Generated tokens.
    pub fn tokens(&self) -> f64 {
        self.tokens_per_s * self.seconds
    }

    /// Milliseconds from one round of a request to its next one; `None` if the tokens of a round
    /// are not known.
    pub fn round_ms(&self) -> Option<f64> {
        let without = (!self.speculates).then_some(1.0);
        Some(self.running * self.accept_length.or(without)? / self.tokens_per_s * 1e3)
    }
}

impl ServerLog {
    /// Reads a log, in which bytes of other programs may be anything: the servers whose rounds it
    /// reports, in the order of their starts. Engines that run at the same time with the same
    /// configuration are one server. Empty if no line reports rounds of SGLang or vLLM.
    ///
    /// # Errors
    /// If reading fails.
    pub fn read(from: impl BufRead) -> io::Result<Vec<Self>> {
        Ok(Self::read_apart(from)?.0)
    }

    /// The same, and the servers of the other engine, whose reports are fewer: logs of several
    /// containers may have both.
    ///
    /// # Errors
    /// If reading fails.
    pub fn read_apart(from: impl BufRead) -> io::Result<(Vec<Self>, Vec<Self>)> {
        let (mut sglang, mut vllm) = (starts::LoggedStarts::default(), starts::LoggedStarts::default());
        lines::each(from, |line| {
            let plain = words::without_escapes(line);
            sglang::line(&mut sglang, &plain);
            vllm::line(&mut vllm, &plain);
        })?;
        let reports = |logs: &Vec<Self>| logs.iter().map(|log| log.intervals.len()).sum::<usize>();
        let (sglang, vllm) = (sglang::servers(sglang), vllm::servers(vllm));
        Ok(if reports(&sglang) > reports(&vllm) { (sglang, vllm) } else { (vllm, sglang) })
    }

    /// Whether drafts are verified, also where accept lengths are not known.
    pub fn speculates(&self) -> bool {
        self.settings.algorithm.is_some() || self.intervals.iter().any(|interval| interval.speculates)
    }

    /// Number of ranks and engines that report.
    pub fn sources(&self) -> usize {
        self.intervals.iter().map(|interval| interval.source + 1).max().unwrap_or_default()
    }
}

/// What a server says of its configuration in the form of SGLang's arguments, as it answers them at
/// `/server_info`.
pub fn sglang_settings(arguments: &Value) -> LoggedSettings {
    sglang::settings(arguments)
}

#[cfg(test)]
mod tests;
