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
    /// Whether prompts are wrapped in the model's chat template. Unless given, conversations (`turns`, `conversations`,
    /// `messages`) are where the model has a template, and plain prompts are not. Of no effect on token ids.
    pub chat: Option<bool>,
    /// Leave out prompts with more tokens than this. Unless given, a prompt that does not fit the context is an error.
    pub max_prompt_tokens: Option<usize>,
    /// Requests of one trial; a shorter list of prompts is gone through again.
    #[serde(default = "Workload::default_requests")]
    pub requests: usize,
    /// Most new tokens of a request.
    #[serde(default = "Workload::default_output_length")]
    pub output_length: usize,
    /// New tokens of each warm-up request. Before every trial one batch of them runs and is not counted; 0 leaves it out.
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
    /// Seed of sampling and of random prompts and lengths.
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

/// How many requests run together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Each size is a race of its own.
    pub sizes: Vec<usize>,
}

/// Which tree shapes are tried: the combinations of three lists, and shapes written out. Combinations that are no tree
/// are left out; a written-out shape that is none is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Space {
    /// Draft steps.
    pub num_steps: Vec<usize>,
    /// Branches a step.
    pub topk: Vec<usize>,
    /// Nodes that the target verifies, the root included. With topk 1 it is always num_steps + 1, whatever stands here.
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
    /// Start no trial after this many seconds; a resumed sweep counts from its own start.
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
/// Largest number in a tree shape: twenty times what any engine is run with.
const LARGEST_TREE: usize = 1024;
/// Most trials that a file may span before its budget cuts them.
const MOST_TRIALS: usize = 1_000_000;

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
        self.models.check()?;
        self.engine.check()?;
        self.workload.check()?;
        if self.batch.sizes.is_empty() {
            return Err(Wrong::at(&["batch", "sizes"], "expected at least one batch size"));
        }
        each_within(&["batch", "sizes"], &self.batch.sizes, LARGEST)?;
        self.space.check()?;
        self.search.check()?;
        let trials = [self.batch.sizes.len(), self.search.repeats]
            .iter()
            .fold(self.space.most_shapes(), |product, one| product.saturating_mul(*one));
        if trials > MOST_TRIALS {
            let reason = format!("shapes × batch sizes × repeats are {trials} trials, more than {MOST_TRIALS}");
            return Err(Wrong::at(&["space"], reason));
        }
        Ok(())
    }
}

impl Models {
    fn check(&self) -> Result<(), Wrong> {
        const DTYPES: [&str; 6] = ["auto", "half", "float16", "bfloat16", "float", "float32"];
        if DTYPES.contains(&self.dtype.as_str()) {
            return Ok(());
        }
        Err(Wrong::at(&["models", "dtype"], format!("{:?} is not one of {}", self.dtype, DTYPES.join(", "))))
    }
}

impl EngineSettings {
    fn check(&self) -> Result<(), Wrong> {
        let number = self.device.strip_prefix("cuda:").is_some_and(|number| number.parse::<usize>().is_ok());
        if !number && !["auto", "cpu", "cuda"].contains(&self.device.as_str()) {
            let reason = format!("{:?} is not one of auto, cpu, cuda, cuda:N", self.device);
            return Err(Wrong::at(&["engine", "device"], reason));
        }
        if let Some(context_length) = self.context_length {
            within(&["engine", "context_length"], context_length)?;
        }
        within(&["engine", "page_size"], self.page_size)?;
        within(&["engine", "chunked_prefill_size"], self.chunked_prefill_size)?;
        if !(self.mem_fraction_static > 0.0 && self.mem_fraction_static <= 1.0) {
            return Err(Wrong::at(&["engine", "mem_fraction_static"], "expected a number above 0 and at most 1"));
        }
        each_within(&["engine", "capture_sizes"], &self.capture_sizes, LARGEST)
    }
}

impl Workload {
    fn check(&self) -> Result<(), Wrong> {
        let sources = [self.prompts.is_some(), self.input_ids.is_some(), self.random.is_some()];
        if sources.iter().filter(|given| **given).count() != 1 {
            return Err(Wrong::at(&["workload"], "give exactly one of prompts, input_ids and random"));
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

impl Space {
    fn check(&self) -> Result<(), Wrong> {
        each_within(&["space", "num_steps"], &self.num_steps, LARGEST_TREE)?;
        each_within(&["space", "topk"], &self.topk, LARGEST_TREE)?;
        each_within(&["space", "num_draft_tokens"], &self.num_draft_tokens, LARGEST_TREE)?;
        // Lists that combine to nothing would pass for a sweep that found nothing.
        if self.num_steps.is_empty() != self.topk.is_empty() {
            return Err(Wrong::at(&["space"], "num_steps and topk go together: give both lists or none of them"));
        }
        if self.num_draft_tokens.is_empty() && self.topk.iter().any(|topk| *topk > 1) {
            return Err(Wrong::at(&["space"], "num_draft_tokens is missing: topk above 1 needs it"));
        }
        if self.num_steps.is_empty() && !self.num_draft_tokens.is_empty() {
            return Err(Wrong::at(&["space", "num_draft_tokens"], "of no effect without num_steps and topk"));
        }
        for (at, shape) in self.shapes.iter().enumerate() {
            let wrong = |reason: String| Wrong::at(&["space", "shapes"], format!("{shape:?}: {reason}")).element(at);
            let shape = shape.parse::<TreeShape>().map_err(|error| wrong(error.to_string()))?;
            if shape.num_steps.max(shape.topk).max(shape.num_draft_tokens) > LARGEST_TREE {
                return Err(wrong(format!("numbers above {LARGEST_TREE} are out of range")));
            }
        }
        Ok(())
    }

    /// A bound of the shapes, baselines included.
    fn most_shapes(&self) -> usize {
        let combinations = self.num_steps.len().saturating_mul(self.topk.len());
        let combinations = combinations.saturating_mul(self.num_draft_tokens.len().max(1));
        combinations.saturating_add(self.shapes.len()).saturating_add(2)
    }
}

impl Search {
    fn check(&self) -> Result<(), Wrong> {
        within(&["search", "repeats"], self.repeats)?;
        if self.trials == Some(0) {
            return Err(Wrong::at(&["search", "trials"], "a budget of 0 trials measures nothing"));
        }
        if self.seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds.is_finite())) {
            return Err(Wrong::at(&["search", "seconds"], "expected a number above 0"));
        }
        Ok(())
    }
}

fn within(path: &'static [&'static str], value: usize) -> Result<(), Wrong> {
    out_of_range(value, LARGEST).map_or(Ok(()), |reason| Err(Wrong::at(path, reason)))
}

fn each_within(path: &'static [&'static str], values: &[usize], largest: usize) -> Result<(), Wrong> {
    let mut reasons = values.iter().enumerate().filter_map(|(at, value)| Some((at, out_of_range(*value, largest)?)));
    reasons.next().map_or(Ok(()), |(at, reason)| Err(Wrong::at(path, reason).element(at)))
}

fn out_of_range(value: usize, largest: usize) -> Option<String> {
    let wrong = !(1..=largest).contains(&value);
    wrong.then(|| format!("{value} is out of range, expected 1 to {largest}"))
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
    use proptest::prelude::*;

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
        assert_eq!((file.objective.metric, file.workload.chat), (Metric::Throughput, None));
    }

    #[test]
    fn errors_point_at_the_place_in_the_users_file() {
        for (from, to, line, column, message) in [
            ("[space]", "[spice]", 10, 2, "unknown field `spice`"),
            ("topk = [1, 4]", "topkk = [1, 4]", 12, 1, "unknown field `topkk`"),
            ("num_steps = [1, 3]", "num_steps = [1, \"3\"]", 11, 17, "expected usize"),
            ("num_steps = [1, 3]", "num_steps = [1, 0]", 11, 17, "0 is out of range, expected 1 to 1024"),
            ("num_steps = [1, 3]", "num_steps = [1, -3]", 11, 17, "expected usize"),
            ("topk = [1, 4]", "topk = [1]\nshapes = [\"3,1,4\", \"3,1,9\"]", 13, 20, "must be num_steps + 1 = 4"),
            ("topk = [1, 4]", "topk = [1]\nshapes = [\"2000,1,2001\"]", 13, 11, "numbers above 1024"),
            ("num_draft_tokens = [4, 8]", "", 10, 1, "num_draft_tokens is missing"),
            ("topk = [1, 4]", "", 10, 1, "num_steps and topk go together"),
            ("num_steps = [1, 3]\ntopk = [1, 4]", "", 12, 20, "of no effect without"),
            ("prompts = \"prompts.jsonl\"", "requests = 3", 7, 1, "exactly one of prompts, input_ids and random"),
            ("prompts = \"prompts.jsonl\"", "prompts = \"a\"\noutput_length = 0", 9, 17, "0 is out of range"),
            ("prompts = \"prompts.jsonl\"", "random = { input_length = 9, ratio = 1.5 }", 8, 38, "at most 1"),
            ("algorithm = \"EAGLE3\"", "", 2, 1, "missing field `algorithm`"),
            ("algorithm = \"EAGLE3\"", "algorithm = \"EAGLE3\"\ndtype = \"f32\"", 6, 9, "not one of auto, half"),
            ("[space]", "[engine]\ndevice = \"gpu\"\n[space]", 11, 10, "not one of auto, cpu, cuda, cuda:N"),
            ("[space]", "[batch]\nsizes = [1, 9999999]\n[space]", 11, 13, "9999999 is out of range"),
            ("[space]", "[search]\nrepeats = 1048576\n[space]", 12, 1, "more than 1000000"),
            ("[space]", "[search]\nstrategy = \"anneal\"\n[space]", 11, 12, "unknown variant `anneal`"),
        ] {
            let found = check(from, to).expect_err(to);
            assert_eq!((found.0, found.1), (line, column), "{to}: {}", found.2);
            assert!(found.2.contains(message), "{to}: {}", found.2);
        }
    }

    proptest! {
        #[test]
        fn no_list_of_numbers_panics(steps in numbers(), topk in numbers(), drafts in numbers(), shape in numbers()) {
            let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
            let space = format!(
                "num_steps = {steps:?}\ntopk = {topk:?}\nnum_draft_tokens = {drafts:?}\nshapes = [\"{}\"]",
                shape.join(",")
            );
            let text = GOOD.split("num_steps").next().unwrap_or_default().to_owned() + &space;
            let _ = SweepFile::read(&Source::new("sweep.toml", text));
        }
    }

    fn numbers() -> impl Strategy<Value = Vec<i64>> {
        prop::collection::vec(prop_oneof![0..9_i64, Just(i64::MAX), any::<i64>()], 0..4)
    }
}
