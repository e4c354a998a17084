//! Options of an engine, and their defaults.

mod flags;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use schemas::{
    defaults::default_capture_sizes,
    tree::{NodeSource, TreeShape},
    tuned::TunedFile,
};

pub use self::flags::with_launch;
pub use crate::quantization::{Fp8Compute, Quantization};
use crate::{
    checkpoint::Folder,
    error::EngineError,
    played::Simulated,
    spec::{CacheFormat, TextSpec, published},
    verify_plan::VerifyPlan,
};

/// The device to run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU if a working one exists, else the CPU.
    #[default]
    Auto,
    /// The CPU reference.
    Cpu,
    /// This CUDA device.
    Cuda(usize),
    /// The GPU's kernels on the CPU, for tests; slow.
    Emulator,
}

/// Which tree shape runs at which batch size and context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapePolicy {
    /// Ascending by batch, then by context. Never empty.
    rows: Vec<ShapeRow>,
}

/// A row of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeRow {
    /// Largest running batch; the last one also holds for all larger batches.
    pub batch: usize,
    /// Largest mean context of the running requests in tokens; the last one of a batch also holds
    /// for longer contexts.
    pub context: usize,
    /// What runs.
    pub shape: TreeShape,
}

/// Source of the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadFormat {
    /// The safetensors files of the model's folder.
    #[default]
    Auto,
    /// Random values, to measure speed without a checkpoint.
    Dummy,
}

/// The options of an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    /// The target's folder.
    pub model_path: PathBuf,
    /// The draft's folder; `None` for no speculation.
    pub draft_model_path: Option<PathBuf>,
    /// The algorithm's name as in SGLang (`EAGLE`, `EAGLE3`, `NEXTN`); checked against the draft's
    /// tensors.
    pub algorithm: Option<String>,
    /// Tree shape by running batch.
    pub policy: ShapePolicy,
    /// The device to run on.
    pub device: DeviceChoice,
    /// Dtype of weights and activations (`auto`, `float32`, …); the CPU computes in float32
    /// regardless.
    pub dtype: String,
    /// Quantisation of the target's weights at load time; `None` keeps the stored format.
    pub quantization: Option<Quantization>,
    /// Quantisation of the draft's weights at load time, likewise.
    pub draft_quantization: Option<Quantization>,
    /// How layers whose weights are in FP8 multiply, in target and draft; `None` for the default
    /// ([`fp8_compute`](Self::fp8_compute)).
    pub fp8_compute: Option<Fp8Compute>,
    /// Format of the caches of the target and of its draft.
    pub kv_cache: CacheFormat,
    /// Maximum sequence length; `None` takes the model's.
    pub context_length: Option<usize>,
    /// Maximum number of running requests.
    pub max_running_requests: usize,
    /// Tokens per KV page.
    pub page_size: usize,
    /// Share of the device's memory for weights and KV cache.
    pub mem_fraction_static: f64,
    /// Maximum number of tokens in the KV cache; `None` for as many as the memory share allows.
    pub max_total_tokens: Option<usize>,
    /// Memory for states of linear attention, as a share of the memory for KV pages. Ignored for
    /// models without them.
    pub state_memory_ratio: f64,
    /// Maximum number of such states, of running requests and kept ones together; `None` for as
    /// many as the memory holds.
    pub max_states: Option<usize>,
    /// Maximum number of prompt tokens per step.
    pub chunked_prefill_size: usize,
    /// Whether every prompt is prefilled from its start, even if the KV cache holds a prefix of it.
    pub disable_radix_cache: bool,
    /// Batch sizes for which graphs are captured; empty for the default of [`Self::graph_sizes`].
    /// Ignored by the CPU.
    pub capture_sizes: Vec<usize>,
    /// Largest batch size of the default capture sizes.
    pub cuda_graph_max_bs: Option<usize>,
    /// Whether rounds run without graphs: slower, with the same results.
    pub disable_cuda_graph: bool,
    /// Whether every sum uses an order that depends neither on the batch nor on the number of rows.
    /// On the CPU this is always the case.
    pub batch_invariant: bool,
    /// Attention kernels of a GPU, one of [`ATTENTION_BACKENDS`]; `None` for the engine's choice.
    /// Ignored by the CPU.
    pub attention_backend: Option<String>,
    /// Rows of a block head's block, as `--speculative-dflash-block-size` counts them; `None` if
    /// the shape decides ([`Block`](schemas::tree::Block)).
    pub draft_block_size: Option<usize>,
    /// Number of tokens before its own that a row of the draft sees; `None` for all, or as its
    /// layers say.
    pub draft_window: Option<usize>,
    /// Numbers of the rule by which drafts are looked up in texts; `None` for the algorithm's
    /// defaults.
    pub text_rule: Option<TextSpec>,
    /// What is looked up beside a head, and joined with its trees; `None` for nothing.
    pub second_source: Option<TextSpec>,
    /// Whether a GPU looks up drafts in a request's own tokens by itself, in place of the host;
    /// `None` for where it is faster, next to a head.
    pub device_look_ups: Option<bool>,
    /// FR-Spec: a file that lists the tokens of the target's vocabulary that an EAGLE-1/2 head may
    /// propose.
    pub token_map: Option<PathBuf>,
    /// How rounds accept without regard to the target, for timing rounds. The output is then
    /// meaningless, and everything derived from it is marked as simulated.
    pub simulated: Option<Simulated>,
    /// Which tree nodes the target runs over on a GPU; `None` for the fastest choice. No flag sets
    /// it.
    pub verify_plan: Option<VerifyPlan>,
    /// Number of GPUs of this host that share the model, starting at [`device`](Self::device).
    pub tp_size: usize,
    /// Whether ranks split the draft's layer too; `None` for the faster choice. No flag sets it.
    pub split_draft: Option<bool>,
    /// Source of the weights.
    pub load_format: LoadFormat,
    /// The published model shape for random weights, such as `llama-3.1-8b`.
    pub model_shape: Option<String>,
    /// Number of layers of a model with random weights, for shapes that do not fit in memory;
    /// `None` for all.
    pub num_layers: Option<usize>,
    /// Whether routers choose experts by a hash of the logits, all equally often; for random
    /// weights only.
    pub uniform_router: bool,
}

/// Attention kernels by the names of `--attention-backend`: the engine's choice, one warp per query
/// row, and tiles of rows on tensor cores.
pub const ATTENTION_BACKENDS: [&str; 3] = ["auto", "rows", "tiles"];

impl ShapePolicy {
    /// The same shape at every batch size.
    pub fn fixed(shape: TreeShape) -> Self {
        Self { rows: vec![ShapeRow { batch: usize::MAX, context: usize::MAX, shape }] }
    }

    /// A table of `(largest running batch, shape)`; `None` if it is empty.
    pub fn table(steps: Vec<(usize, TreeShape)>) -> Option<Self> {
        Self::by_context(steps.into_iter().map(|(batch, shape)| (batch, usize::MAX, shape)).collect())
    }

    /// A table of `(largest running batch, largest mean context, shape)`; `None` if it is empty.
    pub fn by_context(rows: Vec<(usize, usize, TreeShape)>) -> Option<Self> {
        let row = |(batch, context, shape)| ShapeRow { batch, context, shape };
        let mut rows: Vec<ShapeRow> = rows.into_iter().map(row).collect();
        rows.sort_by_key(|row| (row.batch, row.context));
        (!rows.is_empty()).then_some(Self { rows })
    }

    /// The table, ascending by batch, then by context. Never empty.
    pub fn rows(&self) -> &[ShapeRow] {
        &self.rows
    }

    /// The shape for a running batch with the shortest contexts.
    pub fn shape(&self, batch: usize) -> TreeShape {
        self.shape_at(batch, 0)
    }

    /// The shape for a running batch with this mean context in tokens.
    pub fn shape_at(&self, batch: usize, context: usize) -> TreeShape {
        let last = self.rows.len() - 1;
        // Larger batches than the table has run like its last.
        let bound = self.rows[self.rows.partition_point(|row| row.batch < batch).min(last)].batch;
        let after = self.rows.partition_point(|row| (row.batch, row.context) < (bound, context));
        // Beyond the last row of the batch, that row holds.
        let within = after < self.rows.len() && self.rows[after].batch == bound;
        self.rows[if within { after } else { after.saturating_sub(1) }].shape
    }

    /// What runs instead of a shape for a request that limits its drafts: the policy's largest tree
    /// within both, or no speculation.
    pub fn within(&self, shape: TreeShape, most_drafts: Option<usize>) -> TreeShape {
        let drafts = |shape: &TreeShape| shape.drafts();
        // A request's own limit chooses among the shapes of the policy, since graphs exist for
        // these only.
        let Some(most) = most_drafts.filter(|most| *most < drafts(&shape)) else { return shape };
        let fitting = self.shapes().filter(|shape| drafts(shape) <= most);
        fitting.max_by_key(|shape| (shape.num_draft_tokens, shape.num_steps)).unwrap_or(TreeShape::OFF)
    }

    /// Whether the shape depends on the context.
    pub fn has_contexts(&self) -> bool {
        self.rows.iter().any(|row| row.context != usize::MAX)
    }

    /// All shapes of the table.
    pub fn shapes(&self) -> impl Iterator<Item = TreeShape> + '_ {
        self.rows.iter().map(|row| row.shape)
    }

    /// Whether any of them speculates.
    pub fn speculates(&self) -> bool {
        self.shapes().any(|shape| !shape.is_off())
    }
}

impl Default for EngineOptions {
    /// No speculation, on any available device.
    fn default() -> Self {
        Self {
            model_path: PathBuf::new(),
            draft_model_path: None,
            algorithm: None,
            policy: ShapePolicy::fixed(TreeShape::OFF),
            device: DeviceChoice::Auto,
            dtype: "auto".into(),
            quantization: None,
            draft_quantization: None,
            fp8_compute: None,
            kv_cache: CacheFormat::Plain,
            context_length: None,
            max_running_requests: MAX_RUNNING_REQUESTS,
            page_size: 1,
            mem_fraction_static: 0.8,
            max_total_tokens: None,
            // SGLang's default.
            state_memory_ratio: 0.9,
            max_states: None,
            chunked_prefill_size: 2048,
            disable_radix_cache: false,
            capture_sizes: Vec::new(),
            cuda_graph_max_bs: None,
            disable_cuda_graph: false,
            batch_invariant: false,
            attention_backend: None,
            draft_block_size: None,
            draft_window: None,
            text_rule: None,
            second_source: None,
            device_look_ups: None,
            token_map: None,
            simulated: None,
            verify_plan: None,
            tp_size: 1,
            split_draft: None,
            load_format: LoadFormat::Auto,
            model_shape: None,
            num_layers: None,
            uniform_router: false,
        }
    }
}

/// The context by which a [`ShapePolicy`] chooses: the mean length of the sequences of the requests
/// that can use a round, in whole tokens. A length is that of the prompt and of the output as far
/// as the host knows it when it launches the round. `None` without a request.
pub fn mean_context(lengths: &[usize]) -> Option<usize> {
    lengths.iter().sum::<usize>().checked_div(lengths.len())
}

/// The padded batch for this many requests: the next of these ascending capture sizes; the batch
/// itself if it exceeds all of them.
pub fn padded(capture_sizes: &[usize], batch: usize) -> usize {
    capture_sizes.get(capture_sizes.partition_point(|size| *size < batch)).copied().unwrap_or(batch)
}

/// The folder of a DSPARK head in its target's folder.
const BUNDLED: &str = "dspark";

impl EngineOptions {
    /// The folder of a draft that is not part of the target's checkpoint: the given one, or that of
    /// a DSPARK head in the target's folder.
    pub fn draft_folder(&self) -> Option<PathBuf> {
        // Checkpoints of this algorithm come with their head in a subfolder.
        let dspark = || self.algorithm.as_deref().is_some_and(|name| name.eq_ignore_ascii_case("DSPARK"));
        let bundled = self.model_path.join(BUNDLED);
        self.draft_model_path.clone().or_else(|| (dspark() && bundled.is_dir()).then_some(bundled))
    }

    /// The rule by which drafts are looked up in texts, if the algorithm is such a rule.
    pub fn text_draft(&self) -> Option<TextSpec> {
        let named = TextSpec::named(self.algorithm.as_deref()?)?;
        Some(self.text_rule.filter(|rule| rule.algorithm() == named.algorithm()).unwrap_or(named))
    }

    /// How layers whose weights are in FP8 multiply: the given mode, else with dequantised weights.
    pub fn fp8_compute(&self) -> Fp8Compute {
        self.fp8_compute.unwrap_or_default()
    }

    /// Maximum number of pages of the KV cache, whatever the memory.
    pub fn max_pages(&self) -> usize {
        self.max_total_tokens.map_or(usize::MAX, |tokens| (tokens / self.page_size).max(1))
    }

    /// Whether acceptance is simulated, so that outputs are meaningless.
    pub fn makes_up_acceptance(&self) -> bool {
        self.simulated.is_some() && self.policy.speculates()
    }

    /// The batch sizes for which a GPU captures graphs, ascending, none above the maximum number of
    /// running requests: the given ones, else SGLang's default list for speculation; empty if
    /// graphs are off.
    pub fn graph_sizes(&self) -> Vec<usize> {
        if self.disable_cuda_graph {
            return Vec::new();
        }
        let most = self.max_running_requests;
        let mut sizes = if self.capture_sizes.is_empty() {
            default_capture_sizes(self.cuda_graph_max_bs.unwrap_or(LARGEST_CAPTURE).min(most))
        } else {
            self.capture_sizes.iter().map(|size| (*size).min(most)).collect()
        };
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// Default of the largest capture size: SGLang's value on GPUs of the 80 GB class.
const LARGEST_CAPTURE: usize = 256;

/// Default maximum number of running requests: SGLang's value for speculation, used here with and
/// without it.
const MAX_RUNNING_REQUESTS: usize = 48;

impl FromStr for DeviceChoice {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, EngineError> {
        let number = |text: &str| text.parse().ok();
        match text.split_once(':') {
            None if text == "auto" => Some(Self::Auto),
            None if text == "cpu" => Some(Self::Cpu),
            None if text == "cuda" => Some(Self::Cuda(0)),
            None if text == "emulator" => Some(Self::Emulator),
            Some(("cuda", at)) => number(at).map(Self::Cuda),
            _ => None,
        }
        .ok_or_else(|| {
            let near =
                schemas::sweep::cuda_name(text).map_or_else(String::new, |name| format!("; did you mean {name}?"));
            EngineError::Configuration(format!("--device {text}: expected auto, cpu, cuda or cuda:N{near}"))
        })
    }
}

/// What a file names as the second source: a name that its reader has checked.
pub fn second_source(name: Option<&str>) -> Option<TextSpec> {
    name.and_then(TextSpec::second)
}

/// The options of a tuned file. Its relative paths are relative to `folder`.
pub fn from_tuned(tuned: &TunedFile, folder: &Path) -> Result<EngineOptions, EngineError> {
    let TunedFile { models, engine, .. } = tuned;
    let policy = ShapePolicy::by_context(tuned.shapes_by_context());
    let defaults = EngineOptions::default();
    Ok(EngineOptions {
        model_path: folder.join(&models.target),
        draft_model_path: (!models.draft.is_empty()).then(|| folder.join(&models.draft)),
        algorithm: Some(models.algorithm.clone()),
        second_source: second_source(models.second_source.as_deref()),
        policy: policy.unwrap_or_else(|| ShapePolicy::fixed(TreeShape::OFF)),
        device: engine.device.parse()?,
        dtype: models.dtype.clone(),
        quantization: quantization("models.quantization", models.quantization.as_deref())?,
        draft_quantization: quantization("models.quantization", models.quantization.as_deref())?,
        fp8_compute: fp8_compute("models.fp8_compute", models.fp8_compute.as_deref())?,
        kv_cache: kv_cache("models.kv_cache_dtype", models.kv_cache_dtype.as_deref())?,
        context_length: Some(engine.context_length),
        attention_backend: engine.attention_backend.clone(),
        chunked_prefill_size: engine.chunked_prefill_size.unwrap_or(defaults.chunked_prefill_size),
        max_running_requests: engine.max_running_requests,
        page_size: engine.page_size,
        mem_fraction_static: engine.mem_fraction_static,
        capture_sizes: engine.capture_sizes.clone(),
        tp_size: engine.tp_size.unwrap_or(defaults.tp_size),
        ..defaults
    })
}

/// Parses the quantisation that a key of a file names.
///
/// # Errors
/// When the quantisation is unknown.
pub fn quantization(key: &str, name: Option<&str>) -> Result<Option<Quantization>, EngineError> {
    name.map_or(Ok(None), |name| Quantization::parse(key, name))
}

/// Parses the mode of layers in FP8 that a key of a file names.
///
/// # Errors
/// When the mode is unknown.
pub fn fp8_compute(key: &str, name: Option<&str>) -> Result<Option<Fp8Compute>, EngineError> {
    name.map(|name| Fp8Compute::parse(key, name)).transpose()
}

/// Parses the format of caches that a key of a file or a flag names.
///
/// # Errors
/// When the format is unknown or not supported.
pub fn kv_cache(key: &str, name: Option<&str>) -> Result<CacheFormat, EngineError> {
    match name {
        None | Some("auto") => Ok(CacheFormat::Plain),
        Some(CacheFormat::FP8) => Ok(CacheFormat::Fp8),
        Some(other) => Err(EngineError::Configuration(format!(
            "{key} {other} is not supported by this engine: expected auto (the dtype that it computes in) or {} (one scale \
             per layer for keys and one for values)",
            CacheFormat::FP8
        ))),
    }
}

/// The tree shape that SGLang chooses for an algorithm, empty if it is not given, and a published
/// model shape.
///
/// # Errors
/// When the shape is unknown.
pub fn default_shape_of(model_shape: &str, algorithm: &str) -> Result<TreeShape, EngineError> {
    Ok(schemas::defaults::default_shape(algorithm, published(model_shape)?.architecture))
}

/// What a head in a folder makes of a shape; `None` if the folder has no readable config.json.
pub fn nodes_of(draft: &Path) -> Option<NodeSource> {
    let folder = Folder::open(draft).ok()?;
    Some(folder.config.block().map_or(NodeSource::Beams, NodeSource::Block))
}

/// The tree shape that SGLang chooses for an algorithm, empty if it is not given, and the target's
/// architecture.
///
/// # Errors
/// When the target has no readable config.json.
pub fn default_shape(model_path: &Path, algorithm: &str) -> Result<TreeShape, EngineError> {
    let folder = Folder::open(model_path)?;
    Ok(schemas::defaults::default_shape(algorithm, folder.config.architecture().unwrap_or_default()))
}
