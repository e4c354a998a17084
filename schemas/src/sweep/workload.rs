//! The workload, and how its requests arrive.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LARGEST, within};
use crate::toml_file::FieldError;

/// The workload. Exactly one of `prompts`, `prompt_files`, `input_ids`, `random` and `trace` must
/// give the prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// A file of prompts, or the id of a data set in the local Hugging Face cache (`org/name`, or
    /// `org/name/path/of/file` to choose a file of it). JSON, one object per line or all in one
    /// list: EAGLE/FastChat questions (`turns`, the first one), ShareGPT (`conversations`), OpenAI
    /// (`messages`, also inside the `body` of a batch file), Alpaca (`instruction` and `input`),
    /// `question`, plain ones (`prompt` or `text`; a `prompt` may also be a list of messages, as in
    /// data of slime, verl and TRL, or of token ids), or token ids (`prompt_ids`, as in the request
    /// log of `spectune serve`). CSV with a header of these names. Any other text: one plain prompt
    /// per line.
    pub prompts: Option<String>,
    /// Several files as in `prompts`, each a workload of its own with its own results: which draft
    /// and which shape are best may differ between them. Their results are in folders with the
    /// names of the files, which must differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompt_files: Vec<String>,
    /// A JSON file with a list of token-id lists.
    pub input_ids: Option<String>,
    /// Random tokens of random lengths.
    pub random: Option<RandomPrompts>,
    /// A file of requests with arrival times, as BurstGPT's or Azure's CSV, or as JSONL:
    /// `arrival_s` in seconds, `arrival_ms`, or `timestamp` (Mooncake's in ms, Bailian's in
    /// seconds, or a date), `input_length` and `output_length` in tokens, or a prompt in one of the
    /// forms above in place of `input_length`. Times count from the first request. If only the
    /// length of a prompt is given, it consists of random tokens, so accept lengths on it say
    /// nothing about text; shared prefixes (`hash_ids`) are not reproduced.
    pub trace: Option<String>,
    /// Whether prompts are wrapped in the model's chat template. Default: conversations (`turns`,
    /// `conversations`, `messages`) are, if the model has a template, and plain prompts are not. No
    /// effect on token ids.
    pub chat: Option<bool>,
    /// The message of the user with which a conversation ends: "first", "last", or "each" (one
    /// prompt for each message of the user, after all that was said before it). Default: the last
    /// one of `messages`, and of `conversations` the first one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<UserTurn>,
    /// Skip prompts with more tokens than this. By default, a prompt that does not fit the context
    /// is an error.
    pub max_prompt_tokens: Option<usize>,
    /// Requests per trial; a shorter list of prompts is repeated. For a trace, the first N
    /// requests, or all if it has fewer.
    #[serde(default = "Workload::default_requests")]
    pub requests: usize,
    /// Maximum number of new tokens per request; in a trace, for requests that do not specify it.
    #[serde(default = "Workload::default_output_length")]
    pub output_length: usize,
    /// New tokens of each warm-up request. Before every trial, one batch of them runs without being
    /// counted (with `[arrivals]`, as many as may run together); 0 disables warm-up.
    #[serde(default = "Workload::default_warm_up_tokens")]
    pub warm_up_tokens: usize,
    /// Continue after the model's end-of-text tokens, so that every request has the full length.
    #[serde(default = "yes")]
    pub ignore_eos: bool,
    /// Sampling temperature; 0 is greedy.
    #[serde(default)]
    pub temperature: f32,
    /// Sample from the smallest set of most likely tokens whose total probability reaches this.
    #[serde(default = "one")]
    pub top_p: f32,
    /// Sample from this many most likely tokens; 0 for all.
    #[serde(default)]
    pub top_k: usize,
    /// Seed of sampling, of random prompts and lengths, and of arrival times.
    #[serde(default)]
    pub seed: u64,
}

/// A message of the user in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UserTurn {
    /// The first one.
    First,
    /// The last one.
    Last,
    /// Each of them.
    Each,
}

/// Random prompts, as in benchmarks. Their tokens are meaningless: accept lengths on them say
/// nothing about text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomPrompts {
    /// Maximum prompt length.
    pub input_length: usize,
    /// Minimum prompt length as a fraction of the maximum, and minimum output length as a fraction
    /// of `output_length`; lengths are uniform in between. 1 makes all lengths equal.
    #[serde(default = "whole")]
    pub ratio: f64,
}

/// Closed loops: a constant number of requests is kept running.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Batch sizes, each a separate race. Default: `[1]`, or none with `[arrivals]`.
    pub sizes: Option<Vec<usize>>,
    /// Borders between buckets of contexts, in tokens, ascending: contexts up to the first one, up
    /// to the second one, …, and above the last one. Each batch size is then a race in each bucket,
    /// with the requests whose context halfway through their output is in it, and the tuned file
    /// has a row for each batch and bucket. A bucket without a request is an error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<usize>,
}

/// Open loops: requests arrive at given times, even while others run. Each rate is a separate race,
/// in addition to those of `[batch]`. A trial ends when all its requests are served; latencies and
/// times to first token count from the arrivals, which are the same for every configuration and
/// repeat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Arrivals")]
pub struct SweepArrivals {
    /// Requests per second; arrivals are a Poisson process, drawn with the workload's seed.
    pub rates: Vec<f64>,
    /// Whether to add a race with the recorded arrival times of `workload.trace`.
    pub recorded: bool,
}

impl Workload {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        let files = !self.prompt_files.is_empty();
        let sources =
            [self.prompts.is_some(), files, self.input_ids.is_some(), self.random.is_some(), self.trace.is_some()];
        // None would measure nothing, and of two it would be unclear which one the results are of.
        if sources.iter().filter(|given| **given).count() != 1 {
            return Err(FieldError::at(&["workload"], "give exactly one of prompts, input_ids, random and trace"));
        }
        for (at, path) in self.prompt_files.iter().enumerate() {
            let name = name_of_file(path);
            // Quadratic, but there are a handful of files.
            if self.prompt_files[..at].iter().any(|other| name_of_file(other) == name) {
                let reason =
                    format!("two files are called {name:?}, which is the name of a workload in results: rename one");
                return Err(FieldError::at(&["workload", "prompt_files"], reason).element(at));
            }
        }
        if self.turn == Some(UserTurn::Each) && self.prompts.is_none() && !files {
            let reason = "\"each\" needs workload.prompts: a request of a trace is one turn";
            return Err(FieldError::at(&["workload", "turn"], reason));
        }
        within(&["workload", "requests"], self.requests)?;
        within(&["workload", "output_length"], self.output_length)?;
        if self.warm_up_tokens > LARGEST {
            return Err(FieldError::at(&["workload", "warm_up_tokens"], format!("expected at most {LARGEST}")));
        }
        if let Some(tokens) = self.max_prompt_tokens {
            within(&["workload", "max_prompt_tokens"], tokens)?;
        }
        if let Some(random) = &self.random {
            within(&["workload", "random", "input_length"], random.input_length)?;
            if !(random.ratio > 0.0 && random.ratio <= 1.0) {
                return Err(FieldError::at(
                    &["workload", "random", "ratio"],
                    "expected a number above 0 and at most 1",
                ));
            }
        }
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(FieldError::at(&["workload", "temperature"], "expected a number of at least 0"));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(FieldError::at(&["workload", "top_p"], "expected a number above 0 and at most 1"));
        }
        Ok(())
    }

    /// Prompts of a file without other settings: greedy, up to the model's end of text.
    pub fn from_prompts(prompts: Option<String>, requests: usize, output_length: usize) -> Self {
        Self {
            prompts,
            prompt_files: Vec::new(),
            input_ids: None,
            random: None,
            trace: None,
            chat: None,
            turn: None,
            max_prompt_tokens: None,
            requests,
            output_length,
            warm_up_tokens: 0,
            ignore_eos: false,
            temperature: 0.0,
            top_p: one(),
            top_k: 0,
            seed: 0,
        }
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

impl SweepArrivals {
    pub(super) fn check(&self, workload: &Workload) -> Result<(), FieldError> {
        if let Some(at) = self.rates.iter().position(|rate| !(*rate > 0.0 && rate.is_finite())) {
            return Err(FieldError::at(&["arrivals", "rates"], "expected a number above 0").element(at));
        }
        if self.recorded && workload.trace.is_none() {
            return Err(FieldError::at(&["arrivals", "recorded"], "only workload.trace has recorded arrival times"));
        }
        Ok(())
    }

    /// Number of races with arrivals.
    pub fn count(&self) -> usize {
        self.rates.len() + usize::from(self.recorded)
    }
}

/// The name of the workload of a prompt file: the file's name without its extension, in characters
/// that every file system has.
pub(super) fn name_of_file(path: &str) -> String {
    let last = path.split(['/', '\\']).rfind(|part| !part.is_empty()).unwrap_or_default();
    // A name such as `.jsonl` has no stem, so it stays whole.
    let stem = last.rsplit_once('.').map_or(last, |(stem, _)| if stem.is_empty() { last } else { stem });
    let kept = |one: char| if one.is_ascii_alphanumeric() || "_-".contains(one) { one } else { '-' };
    stem.chars().map(kept).collect()
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
