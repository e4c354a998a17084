//! What the engine is asked, and how the requests come.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LARGEST, within};
use crate::toml_file::Wrong;

/// What the engine is asked. Exactly one of `prompts`, `input_ids`, `random` and `trace` says where
/// prompts come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// A file of prompts, one JSON object a line or all in one JSON list: EAGLE/FastChat questions (`turns`, of which the
    /// first is asked), ShareGPT (`conversations`, the first human turn), OpenAI (`messages` up to the user's last one,
    /// also inside the `body` of a batch file), or plain ones (`prompt` or `text`).
    pub prompts: Option<String>,
    /// A JSON file with a list of token-id lists.
    pub input_ids: Option<String>,
    /// Random tokens of random lengths.
    pub random: Option<RandomPrompts>,
    /// A JSONL file of requests with arrival times: `timestamp` in ms (Mooncake) or `arrival_s` in seconds, `input_length`
    /// and `output_length` in tokens, or a prompt in one of the forms above in place of `input_length`. Times count from the
    /// first request. Where only the length of a prompt is known, it is made of random tokens, so that accept lengths on
    /// it say nothing about text; prefixes that requests shared (`hash_ids`) are not made up.
    pub trace: Option<String>,
    /// Whether prompts are wrapped in the model's chat template. Unless given, conversations (`turns`, `conversations`,
    /// `messages`) are where the model has a template, and plain prompts are not. Of no effect on token ids.
    pub chat: Option<bool>,
    /// Leave out prompts with more tokens than this. Unless given, a prompt that does not fit the context is an error.
    pub max_prompt_tokens: Option<usize>,
    /// Requests of one trial; a shorter list of prompts is gone through again. Of a trace this many of the first ones are
    /// taken, or all where it has fewer.
    #[serde(default = "Workload::default_requests")]
    pub requests: usize,
    /// Most new tokens of a request; in a trace, of those requests that do not say it themselves.
    #[serde(default = "Workload::default_output_length")]
    pub output_length: usize,
    /// New tokens of each warm-up request. Before every trial one batch of them (of as many as may run together, where
    /// requests arrive by themselves) runs and is not counted; 0 leaves it out.
    #[serde(default = "Workload::default_warm_up_tokens")]
    pub warm_up_tokens: usize,
    /// Go on after the model's end-of-text tokens, so that every request has the full length.
    #[serde(default = "yes")]
    pub ignore_eos: bool,
    /// 0 is greedy.
    #[serde(default)]
    pub temperature: f32,
    /// Keep the smallest set of best tokens whose probability reaches this.
    #[serde(default = "one")]
    pub top_p: f32,
    /// Keep this many best tokens; 0 keeps all.
    #[serde(default)]
    pub top_k: usize,
    /// Seed of sampling, of random prompts and lengths, and of arrival times.
    #[serde(default)]
    pub seed: u64,
}

/// Random prompts, as benchmarks use them. Tokens without meaning: accept lengths on them say nothing about text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomPrompts {
    /// Longest prompt.
    pub input_length: usize,
    /// Shortest prompt as a share of the longest, and fewest new tokens as a share of `output_length`; lengths lie evenly
    /// between. 1 makes all of one length.
    #[serde(default = "whole")]
    pub ratio: f64,
}

/// Closed loops: this many requests are kept running together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Each size is a race of its own. [1] unless given, or none where `[arrivals]` says how requests come.
    pub sizes: Option<Vec<usize>>,
}

/// Requests that arrive by themselves, whoever still runs: each rate is a race of its own, beside those of `[batch]`. A
/// trial ends when all its requests are served; latencies and times to the first token count from the arrivals, which are
/// the same for every configuration and repeat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Arrivals {
    /// Requests a second; times between arrivals are exponential (a Poisson process), drawn with the workload's seed.
    pub rates: Vec<f64>,
    /// Whether the arrival times of `workload.trace` are a race, as they were recorded.
    pub recorded: bool,
}

impl Workload {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let sources = [self.prompts.is_some(), self.input_ids.is_some(), self.random.is_some(), self.trace.is_some()];
        if sources.iter().filter(|given| **given).count() != 1 {
            return Err(Wrong::at(&["workload"], "give exactly one of prompts, input_ids, random and trace"));
        }
        within(&["workload", "requests"], self.requests)?;
        within(&["workload", "output_length"], self.output_length)?;
        if self.warm_up_tokens > LARGEST {
            return Err(Wrong::at(&["workload", "warm_up_tokens"], format!("expected at most {LARGEST}")));
        }
        if let Some(tokens) = self.max_prompt_tokens {
            within(&["workload", "max_prompt_tokens"], tokens)?;
        }
        if let Some(random) = &self.random {
            within(&["workload", "random", "input_length"], random.input_length)?;
            if !(random.ratio > 0.0 && random.ratio <= 1.0) {
                return Err(Wrong::at(&["workload", "random", "ratio"], "expected a number above 0 and at most 1"));
            }
        }
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(Wrong::at(&["workload", "temperature"], "expected a number of at least 0"));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(Wrong::at(&["workload", "top_p"], "expected a number above 0 and at most 1"));
        }
        Ok(())
    }

    fn default_requests() -> usize {
        16
    }

    fn default_output_length() -> usize {
        128
    }

    fn default_warm_up_tokens() -> usize {
        8
    }
}

impl Arrivals {
    pub(super) fn check(&self, workload: &Workload) -> Result<(), Wrong> {
        if let Some(at) = self.rates.iter().position(|rate| !(*rate > 0.0 && rate.is_finite())) {
            return Err(Wrong::at(&["arrivals", "rates"], "expected a number above 0").element(at));
        }
        if self.recorded && workload.trace.is_none() {
            return Err(Wrong::at(&["arrivals", "recorded"], "only workload.trace has recorded arrival times"));
        }
        Ok(())
    }

    /// Races of arrivals.
    pub fn count(&self) -> usize {
        self.rates.len() + usize::from(self.recorded)
    }
}

fn yes() -> bool {
    true
}

fn one() -> f32 {
    1.0
}

fn whole() -> f64 {
    1.0
}
