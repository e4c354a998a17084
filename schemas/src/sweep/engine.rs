//! The models and the engine settings of a sweep.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LARGEST, check_second_source, each_within, within};
use crate::{toml_file::FieldError, tree::NodeSource};

/// Target and draft.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Models")]
pub struct SweepModels {
    /// Folder of the target, as published on Hugging Face, or the id of one in the local Hugging
    /// Face cache.
    #[serde(default)]
    pub target: String,
    /// Folder of the draft, or its id. Omit it for the MTP layer of the target's own checkpoint
    /// (NEXTN, EAGLE) and for drafts from texts (NGRAM, PROMPT_LOOKUP, SUFFIX).
    #[serde(default)]
    pub draft: String,
    /// Random weights of a published shape (such as llama-3.1-8b with its EAGLE-3 head) instead of
    /// target and draft, for timing. Acceptance is then simulated as `acceptance` specifies.
    pub model_shape: Option<String>,
    /// Keep only the first N layers of that shape, if all of them do not fit into memory. Times are
    /// those of the smaller model.
    pub num_layers: Option<usize>,
    /// A JSON file with accept lengths by tree shape, measured elsewhere: imported instead of a
    /// replay, and labelled as imported.
    pub acceptance: Option<Acceptance>,
    /// EAGLE, EAGLE3, NEXTN, DFLASH, DSPARK, STANDALONE, NGRAM, PROMPT_LOOKUP or SUFFIX; checked
    /// against the draft's tensors. Needed unless `[[drafts]]` lists the drafts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub algorithm: String,
    /// What is looked up in addition to the head's drafts, and joined with its trees:
    /// PROMPT_LOOKUP, SUFFIX, or omitted for nothing. For spectune's own engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_source: Option<String>,
    /// Dtype of weights and activations: auto, float32, bfloat16, float16. The CPU computes in
    /// float32.
    #[serde(default = "auto")]
    pub dtype: String,
    /// Quantisation of 16-bit weights of target and draft at load time: fp8, or omitted for none.
    /// Outputs then match the quantised target.
    pub quantization: Option<String>,
    /// How layers with weights in FP8 multiply: weights (dequantised, in 16 bits) or products (in 8
    /// bits, activations rounded to FP8 too). Outputs then match the target in this mode. For
    /// spectune's own engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8_compute: Option<String>,
    /// Dtype of the KV cache of target and draft: fp8_e4m3, or omitted (or auto) for that of
    /// activations. Outputs then match the target with this cache. A system that is a server may
    /// know more words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_dtype: Option<String>,
}

/// An acceptance table that was measured elsewhere. Shapes without a row stay unpredicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acceptance {
    /// The file: `{"source": …, "rows": [{"num_steps", "topk", "num_draft_tokens", "accept_length",
    /// …}]}`.
    pub file: String,
    /// Only rows of this target. Needed if there are several, unless the end of one's name is that
    /// of `models.target`.
    pub target: Option<String>,
    /// Only rows of this draft. Needed if there are several, unless the end of one's name is that
    /// of `models.draft`. Rows of a draft that has an accept length of 1 throughout are left out as
    /// no speculation.
    pub draft: Option<String>,
    /// Only rows of this task; several rows of a shape are averaged.
    pub task: Option<String>,
}

/// Engine settings, the same for all configurations except where `[knobs]` varies them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSettings {
    /// Device to run on: auto, cpu, cuda or cuda:N. `--device` on the command line overrides it.
    pub device: String,
    /// Number of GPUs over which the models are split (tensor parallelism), starting at the device.
    /// `--tp-size` on the command line overrides it.
    #[serde(skip_serializing_if = "is_one")]
    pub tp_size: usize,
    /// Maximum sequence length (default: the target's).
    pub context_length: Option<usize>,
    /// Maximum number of running requests; others wait. Default: the largest batch of `[batch]` and
    /// of the tables, and at least 48 with `[arrivals]`. No batch of `[batch]` may be larger.
    pub max_running_requests: Option<usize>,
    /// Tokens per KV page.
    pub page_size: usize,
    /// Fraction of the device's memory for weights and KV cache.
    pub mem_fraction_static: f64,
    /// Maximum number of prompt tokens per prefill pass.
    pub chunked_prefill_size: usize,
    /// Batch sizes for which CUDA graphs are captured; no effect on the CPU.
    pub capture_sizes: Vec<usize>,
}

impl SweepModels {
    /// Whether no draft has to be given: the target's own MTP layer drafts, as in SGLang, or drafts
    /// are looked up in texts.
    pub fn needs_no_draft(&self) -> bool {
        let mtp = ["NEXTN", "EAGLE"].iter().any(|name| self.algorithm.eq_ignore_ascii_case(name));
        mtp || matches!(NodeSource::named(&self.algorithm), NodeSource::Text(_))
    }

    pub(super) fn check(&self) -> Result<(), FieldError> {
        match (&self.model_shape, self.target.is_empty(), self.draft.is_empty()) {
            (None, true, _) => return Err(FieldError::at(&["models"], "the key `target` is missing")),
            (None, _, true) if !self.needs_no_draft() => {
                return Err(FieldError::at(
                    &["models"],
                    "the key `draft` is missing: only NEXTN and EAGLE draft with the target's own MTP layer, and NGRAM, \
                     PROMPT_LOOKUP and SUFFIX without a model",
                ));
            }
            (Some(_), false, _) | (Some(_), _, false) => {
                return Err(FieldError::at(
                    &["models", "model_shape"],
                    "random weights replace target and draft: remove target and draft",
                ));
            }
            (Some(_), true, true) if self.acceptance.is_none() => {
                let reason = "random weights accept nothing: give models.acceptance, a table measured elsewhere";
                return Err(FieldError::at(&["models", "model_shape"], reason));
            }
            _ => {}
        }
        check_second_source(self.second_source.as_deref(), &self.algorithm)?;
        match (self.num_layers, &self.model_shape) {
            (Some(_), None) => {
                let reason =
                    "num_layers has no effect without models.model_shape: a checkpoint runs with all of its layers";
                return Err(FieldError::at(&["models", "num_layers"], reason));
            }
            (Some(layers), Some(_)) => within(&["models", "num_layers"], layers)?,
            (None, _) => {}
        }
        // SGLang's words, with its aliases.
        const DTYPES: [&str; 6] = ["auto", "half", "float16", "bfloat16", "float", "float32"];
        if !DTYPES.contains(&self.dtype.as_str()) {
            return Err(FieldError::word(&["models", "dtype"], &self.dtype, &DTYPES));
        }
        match &self.quantization {
            Some(name) if name != "fp8" => {
                return Err(FieldError::word(&["models", "quantization"], name, &["fp8"]));
            }
            _ => {}
        }
        const MODES: [&str; 2] = ["weights", "products"];
        match &self.fp8_compute {
            Some(name) if !MODES.contains(&name.as_str()) => {
                Err(FieldError::word(&["models", "fp8_compute"], name, &MODES))
            }
            _ => Ok(()),
        }
    }
}

impl EngineSettings {
    pub(crate) fn check(&self) -> Result<(), FieldError> {
        let number = self.device.strip_prefix("cuda:").is_some_and(|number| number.parse::<usize>().is_ok());
        if !number && !["auto", "cpu", "cuda"].contains(&self.device.as_str()) {
            let wrong = FieldError::word(&["engine", "device"], &self.device, &["auto", "cpu", "cuda", "cuda:N"]);
            return Err(match cuda_name(&self.device) {
                Some(name) => wrong.help(format!("did you mean \"{name}\"?")),
                None => wrong,
            });
        }
        if !(1..=MOST_GPUS).contains(&self.tp_size) {
            return Err(FieldError::at(&["engine", "tp_size"], format!("expected 1 to {MOST_GPUS}")));
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
            return Err(FieldError::at(&["engine", "mem_fraction_static"], "expected a number above 0 and at most 1"));
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

/// Maximum number of GPUs over which a model is split.
const MOST_GPUS: usize = 8;

/// The name of the CUDA device that other programs call by this name, such as "gpu:1".
pub fn cuda_name(device: &str) -> Option<String> {
    let lower = device.to_ascii_lowercase();
    let (kind, number) = lower.split_once(':').map_or((lower.as_str(), None), |(kind, number)| (kind, Some(number)));
    if !["gpu", "cuda", "nvidia"].contains(&kind) || number.is_some_and(|number| number.parse::<usize>().is_err()) {
        return None;
    }
    Some(number.map_or("cuda".into(), |number| format!("cuda:{number}")))
}

/// A `tp_size` of 1 is omitted, which keeps the ids of trials that finished before the field
/// existed.
fn is_one(count: &usize) -> bool {
    *count == 1
}

fn auto() -> String {
    "auto".into()
}
