//! What runs, and how the engine is set up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LARGEST, each_within, within};
use crate::toml_file::Wrong;

/// Target and draft.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Models {
    /// Folder of the target, as published on Hugging Face, or the id of one in the local Hugging Face cache.
    #[serde(default)]
    pub target: String,
    /// Folder of the draft, or its id. Leave it out for the MTP layer of the target's own checkpoint (NEXTN, EAGLE).
    #[serde(default)]
    pub draft: String,
    /// Random weights of a published shape (such as llama-3.1-8b with its EAGLE-3 head) in place of target and draft: for
    /// timing. Acceptance is then made up as `acceptance` says.
    pub model_shape: Option<String>,
    /// Of that shape the first layers alone, where all do not fit into memory. Times are those of a smaller model.
    pub num_layers: Option<usize>,
    /// A JSON file with accept lengths by tree shape, measured elsewhere: imported in place of a replay, and marked as such.
    pub acceptance: Option<Acceptance>,
    /// EAGLE, EAGLE3 or NEXTN; checked against the draft's tensors.
    pub algorithm: String,
    /// Type of weights and activations: auto, float32, bfloat16, float16. The CPU computes in float32.
    #[serde(default = "auto")]
    pub dtype: String,
    /// How 16-bit weights of target and draft are quantised when they are loaded: fp8, or left out for not at all. Outputs are
    /// then those of the quantised target.
    pub quantization: Option<String>,
}

/// An acceptance table that was measured elsewhere. Rows that lack a shape of the space leave that shape unpredicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acceptance {
    /// The file: `{"source": …, "rows": [{"num_steps", "topk", "num_draft_tokens", "accept_length", …}]}`.
    pub file: String,
    /// Only rows of this target.
    pub target: Option<String>,
    /// Only rows of this draft.
    pub draft: Option<String>,
    /// Only rows of this task; of several rows of a shape the mean counts.
    pub task: Option<String>,
}

/// Settings of the engine, the same for all configurations but where `[knobs]` tries others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSettings {
    /// Device to run on: auto, cpu, cuda or cuda:N. `--device` on the command line wins.
    pub device: String,
    /// GPUs of the host that share the models (tensor parallelism), from the device on. `--tp-size` on the command line wins.
    #[serde(skip_serializing_if = "is_one")]
    pub tp_size: usize,
    /// Longest sequence; the target's own unless given.
    pub context_length: Option<usize>,
    /// Maximum number of running requests; others wait. Unless given, the largest batch of `[batch]` and of the tables, and
    /// at least 48 where requests come by themselves. No batch of `[batch]` may be larger.
    pub max_running_requests: Option<usize>,
    /// Tokens per KV page.
    pub page_size: usize,
    /// Share of the device's memory for weights and KV cache.
    pub mem_fraction_static: f64,
    /// Most prompt tokens of one prefill pass.
    pub chunked_prefill_size: usize,
    /// Batch sizes for which CUDA graphs are captured; of no effect on the CPU.
    pub capture_sizes: Vec<usize>,
}

impl Models {
    /// Whether the target's own MTP layer drafts where no draft is named, as in SGLang.
    pub fn drafts_with_the_target(&self) -> bool {
        ["NEXTN", "EAGLE"].iter().any(|name| self.algorithm.eq_ignore_ascii_case(name))
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        match (&self.model_shape, self.target.is_empty(), self.draft.is_empty()) {
            (None, true, _) => return Err(Wrong::at(&["models"], "the key `target` is missing")),
            (None, _, true) if !self.drafts_with_the_target() => {
                return Err(Wrong::at(
                    &["models"],
                    "the key `draft` is missing: only NEXTN and EAGLE draft with the target's own MTP layer",
                ));
            }
            (Some(_), false, _) | (Some(_), _, false) => {
                return Err(Wrong::at(
                    &["models", "model_shape"],
                    "random weights take the place of target and draft: leave those out",
                ));
            }
            (Some(_), true, true) if self.acceptance.is_none() => {
                let reason = "random weights accept nothing: give models.acceptance, a table measured elsewhere";
                return Err(Wrong::at(&["models", "model_shape"], reason));
            }
            _ => {}
        }
        match (self.num_layers, &self.model_shape) {
            (Some(_), None) => {
                let reason = "of no effect without models.model_shape: a checkpoint runs with all of its layers";
                return Err(Wrong::at(&["models", "num_layers"], reason));
            }
            (Some(layers), Some(_)) => within(&["models", "num_layers"], layers)?,
            (None, _) => {}
        }
        const DTYPES: [&str; 6] = ["auto", "half", "float16", "bfloat16", "float", "float32"];
        if !DTYPES.contains(&self.dtype.as_str()) {
            return Err(Wrong::word(&["models", "dtype"], &self.dtype, &DTYPES));
        }
        match &self.quantization {
            Some(name) if name != "fp8" => Err(Wrong::word(&["models", "quantization"], name, &["fp8"])),
            _ => Ok(()),
        }
    }
}

impl EngineSettings {
    pub(crate) fn check(&self) -> Result<(), Wrong> {
        let number = self.device.strip_prefix("cuda:").is_some_and(|number| number.parse::<usize>().is_ok());
        if !number && !["auto", "cpu", "cuda"].contains(&self.device.as_str()) {
            return Err(Wrong::word(&["engine", "device"], &self.device, &["auto", "cpu", "cuda", "cuda:N"]));
        }
        if !(1..=MOST_GPUS).contains(&self.tp_size) {
            return Err(Wrong::at(&["engine", "tp_size"], format!("expected 1 to {MOST_GPUS}")));
        }
        if let Some(context_length) = self.context_length {
            within(&["engine", "context_length"], context_length)?;
        }
        if let Some(requests) = self.max_running_requests {
            within(&["engine", "max_running_requests"], requests)?;
        }
        within(&["engine", "page_size"], self.page_size)?;
        within(&["engine", "chunked_prefill_size"], self.chunked_prefill_size)?;
        if !(self.mem_fraction_static > 0.0 && self.mem_fraction_static <= 1.0) {
            return Err(Wrong::at(&["engine", "mem_fraction_static"], "expected a number above 0 and at most 1"));
        }
        each_within(&["engine", "capture_sizes"], &self.capture_sizes, LARGEST)
    }
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            device: auto(),
            tp_size: 1,
            context_length: None,
            max_running_requests: None,
            page_size: 1,
            mem_fraction_static: 0.8,
            chunked_prefill_size: 2048,
            capture_sizes: Vec::new(),
        }
    }
}

/// GPUs of a host that share a model, at most.
const MOST_GPUS: usize = 8;

/// What is not written keeps the meaning of finished trials as it was before it could be.
fn is_one(count: &usize) -> bool {
    *count == 1
}

fn auto() -> String {
    "auto".into()
}
