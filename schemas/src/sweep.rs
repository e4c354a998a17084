//! The sweep file: what to measure, on what, and what counts as better.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::Diagnostic,
    text::Source,
    toml_file::{self, Wrong},
    tree::TreeShape,
};

/// A sweep: models, workload, space, search, objective. Paths are relative to the file's own folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepFile {
    /// What runs.
    pub models: Models,
    /// How the engine is set up.
    #[serde(default)]
    pub engine: EngineSettings,
    /// What it is asked.
    pub workload: Workload,
    /// How many requests run together.
    #[serde(default)]
    pub batch: Batch,
    /// Which tree shapes are tried. No speculation and the engine's default are always tried too.
    pub space: Space,
    /// How the space is searched.
    #[serde(default)]
    pub search: Search,
    /// What counts as better.
    #[serde(default)]
    pub objective: Objective,
}

/// Target and draft.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Models {
    /// Folder of the target, as published on Hugging Face.
    pub target: String,
    /// Folder of the draft head.
    pub draft: String,
    /// EAGLE or EAGLE3; checked against the draft's tensors.
    pub algorithm: String,
    /// Type of weights and activations: auto, float32, bfloat16, float16. The CPU computes in float32.
    #[serde(default = "auto")]
    pub dtype: String,
}

/// Settings of the engine that stay the same over the sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSettings {
    /// Where to run: auto, cpu, cuda or cuda:N. `--device` on the command line wins.
    pub device: String,
    /// Longest sequence; the target's own unless given.
    pub context_length: Option<usize>,
    /// Tokens a KV page.
    pub page_size: usize,
    /// Share of the device's memory for weights and KV cache.
    pub mem_fraction_static: f64,
    /// Most prompt tokens of one prefill pass.
    pub chunked_prefill_size: usize,
    /// Batch sizes for which CUDA graphs are captured; of no effect on the CPU.
    pub capture_sizes: Vec<usize>,
}

/// What the engine is asked. Exactly one of `prompts`, `input_ids` and `random` says where prompts come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// A JSONL file of prompts: EAGLE/FastChat questions (`turns`), ShareGPT (`conversations`), OpenAI (`messages`), or
    /// plain ones (`prompt`).
    pub prompts: Option<String>,
    /// A JSON file with a list of token-id lists.
    pub input_ids: Option<String>,
    /// Random tokens of random lengths.
    pub random: Option<RandomPrompts>,
    /// Wrap prompts in the model's chat template. Ignored for token ids.
    #[serde(default)]
    pub chat: bool,
    /// Requests of one trial; a shorter list of prompts is gone through again.
    #[serde(default = "Workload::default_requests")]
    pub requests: usize,
    /// Most new tokens of a request.
    #[serde(default = "Workload::default_output_length")]
    pub output_length: usize,
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
    /// Seed of sampling and of random prompts.
    #[serde(default)]
    pub seed: u64,
}

/// Random prompts, as benchmarks use them. Tokens without meaning: accept lengths on them say nothing about text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomPrompts {
    /// Longest prompt.
    pub input_length: usize,
    /// Shortest prompt as a share of the longest; 1 makes all of one length.
    #[serde(default = "whole")]
    pub ratio: f64,
}

/// How many requests run together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Each size is a race of its own.
    pub sizes: Vec<usize>,
}

/// Which tree shapes are tried: the combinations of three lists, and shapes written out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Space {
    /// Draft steps.
    pub num_steps: Vec<usize>,
    /// Branches a step.
    pub topk: Vec<usize>,
    /// Nodes that the target verifies, the root included. With topk 1 it is always num_steps + 1.
    pub num_draft_tokens: Vec<usize>,
    /// Further shapes, each written as "num_steps,topk,num_draft_tokens".
    pub shapes: Vec<String>,
}

/// How the space is searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Search {
    /// The order in which shapes are tried.
    pub strategy: StrategyName,
    /// How often each shape is measured at each batch size.
    pub repeats: usize,
    /// Stop after this many trials.
    pub trials: Option<usize>,
    /// Start no trial after this many seconds.
    pub seconds: Option<f64>,
    /// Seed of the search.
    pub seed: u64,
}

/// A search strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StrategyName {
    /// Every shape.
    #[default]
    Grid,
    /// Shapes in random order, for a budget that does not reach all of them.
    Random,
}

/// What counts as better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Objective {
    /// The figure that is maximised or minimised.
    pub metric: Metric,
}

/// A figure to optimise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Output tokens a second of all requests together; more is better.
    #[default]
    Throughput,
    /// Median time of a whole request; less is better.
    Latency,
}

/// Largest batch size, request count and length that a file may ask for: larger numbers are slips.
const LARGEST: usize = 1 << 20;
/// Most shapes that the three lists may span.
const MOST_COMBINATIONS: usize = 100_000;

impl SweepFile {
    /// Reads a sweep file.
    ///
    /// # Errors
    /// When it is no TOML, has a wrong key or a value without sense; the finding points at the place.
    pub fn read(source: &Source) -> Result<Self, Box<Diagnostic>> {
        let file: Self = toml_file::read(source)?;
        file.check().map_err(|wrong| Box::new(wrong.locate(source)))?;
        Ok(file)
    }

    fn check(&self) -> Result<(), Wrong> {
        let sources =
            [self.workload.prompts.is_some(), self.workload.input_ids.is_some(), self.workload.random.is_some()];
        if sources.iter().filter(|given| **given).count() != 1 {
            return Err(Wrong::at(&["workload"], "give exactly one of prompts, input_ids and random"));
        }
        within(&["workload", "requests"], self.workload.requests)?;
        within(&["workload", "output_length"], self.workload.output_length)?;
        if let Some(random) = &self.workload.random {
            within(&["workload", "random", "input_length"], random.input_length)?;
            if !(random.ratio > 0.0 && random.ratio <= 1.0) {
                return Err(Wrong::at(&["workload", "random", "ratio"], "expected a number above 0 and at most 1"));
            }
        }
        if !(self.workload.temperature >= 0.0 && self.workload.temperature.is_finite()) {
            return Err(Wrong::at(&["workload", "temperature"], "expected a number of at least 0"));
        }
        if !(self.workload.top_p > 0.0 && self.workload.top_p <= 1.0) {
            return Err(Wrong::at(&["workload", "top_p"], "expected a number above 0 and at most 1"));
        }
        if self.batch.sizes.is_empty() {
            return Err(Wrong::at(&["batch", "sizes"], "expected at least one batch size"));
        }
        self.batch.sizes.iter().try_for_each(|size| within(&["batch", "sizes"], *size))?;
        within(&["engine", "page_size"], self.engine.page_size)?;
        within(&["engine", "chunked_prefill_size"], self.engine.chunked_prefill_size)?;
        if !(self.engine.mem_fraction_static > 0.0 && self.engine.mem_fraction_static <= 1.0) {
            return Err(Wrong::at(&["engine", "mem_fraction_static"], "expected a number above 0 and at most 1"));
        }
        within(&["search", "repeats"], self.search.repeats)?;
        if self.search.trials == Some(0) {
            return Err(Wrong::at(&["search", "trials"], "a budget of 0 trials measures nothing"));
        }
        if self.search.seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds.is_finite())) {
            return Err(Wrong::at(&["search", "seconds"], "expected a number above 0"));
        }
        let lists = [&self.space.num_steps, &self.space.topk, &self.space.num_draft_tokens].map(Vec::len);
        if lists.iter().product::<usize>() > MOST_COMBINATIONS {
            return Err(Wrong::at(&["space"], format!("the lists span more than {MOST_COMBINATIONS} combinations")));
        }
        for shape in &self.space.shapes {
            let parsed = shape.parse::<TreeShape>();
            parsed.map_err(|error| Wrong::at(&["space", "shapes"], format!("{shape:?}: {error}")))?;
        }
        Ok(())
    }
}

fn within(path: &'static [&'static str], value: usize) -> Result<(), Wrong> {
    if (1..=LARGEST).contains(&value) {
        return Ok(());
    }
    Err(Wrong::at(path, format!("{value} is out of range, expected 1 to {LARGEST}")))
}

impl Workload {
    fn default_requests() -> usize {
        16
    }

    fn default_output_length() -> usize {
        128
    }
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            device: auto(),
            context_length: None,
            page_size: 1,
            mem_fraction_static: 0.8,
            chunked_prefill_size: 2048,
            capture_sizes: Vec::new(),
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self { sizes: vec![1] }
    }
}

impl Default for Search {
    fn default() -> Self {
        Self { strategy: StrategyName::default(), repeats: 3, trials: None, seconds: None, seed: 0 }
    }
}

fn auto() -> String {
    "auto".into()
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

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[models]
target = "target"
draft = "draft"
algorithm = "EAGLE3"

[workload]
prompts = "prompts.jsonl"

[space]
num_steps = [1, 3]
topk = [1, 4]
num_draft_tokens = [4, 8]
"#;

    /// Reads `GOOD` with one text replaced; returns line, column and message of the finding.
    fn check(from: &str, to: &str) -> Result<SweepFile, (usize, usize, String)> {
        let source = Source::new("sweep.toml", GOOD.replacen(from, to, 1));
        SweepFile::read(&source).map_err(|finding| {
            let place = source.position(finding.span.start);
            (place.line, place.column, finding.message)
        })
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let file = check("", "").expect("a good file");
        assert_eq!((file.batch.sizes, file.search.repeats, file.workload.output_length), (vec![1], 3, 128));
        assert_eq!(file.objective.metric, Metric::Throughput);
    }

    #[test]
    fn errors_point_at_the_place_in_the_users_file() {
        let error = |from, to| check(from, to).expect_err("a bad file");
        assert_eq!(error("[space]", "[spice]").0, 10);
        assert_eq!(error("num_steps = [1, 3]", "num_steps = [1, \"3\"]").0, 11);
        assert_eq!(error("topk = [1, 4]", "shapes = [\"3,1,9\"]").0, 12);
        assert!(error("topk = [1, 4]", "shapes = [\"3,1,9\"]").2.contains("must be num_steps + 1 = 4"));
        assert_eq!(
            error("prompts = \"prompts.jsonl\"", "requests = 3").2,
            "give exactly one of prompts, input_ids and random"
        );
        assert_eq!(error("prompts = \"prompts.jsonl\"", "prompts = \"a\"\noutput_length = 0").0, 9);
        assert_eq!(error("algorithm = \"EAGLE3\"", "").0, 2);
    }
}
