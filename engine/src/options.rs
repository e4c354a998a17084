//! How an engine is set up.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use schemas::{
    flags::Key,
    launch::{Launch, Setting},
    tree::TreeShape,
};

use crate::{checkpoint::Folder, error::EngineError};

/// Where to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU if there is one that works, else the CPU.
    #[default]
    Auto,
    /// The CPU reference.
    Cpu,
    /// This CUDA device.
    Cuda(usize),
}

/// Which tree shape runs at which batch size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapePolicy {
    /// `(largest running batch, shape)`, ascending; the last one also holds for all larger batches. Never empty.
    steps: Vec<(usize, TreeShape)>,
}

/// All that an engine is told.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineOptions {
    /// The target's folder.
    pub model_path: PathBuf,
    /// The draft's folder; `None` for no speculation.
    pub draft_model_path: Option<PathBuf>,
    /// The algorithm's name as in SGLang (`EAGLE`, `EAGLE3`, `NEXTN`); checked against the draft's tensors.
    pub algorithm: Option<String>,
    /// Which tree at which batch.
    pub policy: ShapePolicy,
    /// Where.
    pub device: DeviceChoice,
    /// Dtype of weights and activations (`auto`, `float32`, …); the CPU computes in float32 whatever is stored.
    pub dtype: String,
    /// Longest sequence; `None` takes the model's.
    pub context_length: Option<usize>,
    /// Most requests running together.
    pub max_running_requests: usize,
    /// Tokens a KV page.
    pub page_size: usize,
    /// Share of the device's memory for weights and KV cache.
    pub mem_fraction_static: f64,
    /// Most prompt tokens a step.
    pub chunked_prefill_size: usize,
    /// Batch sizes for which graphs are captured; ignored by the CPU.
    pub capture_sizes: Vec<usize>,
}

impl ShapePolicy {
    /// The same shape at every batch size.
    pub fn fixed(shape: TreeShape) -> Self {
        Self { steps: vec![(usize::MAX, shape)] }
    }

    /// A table of `(largest running batch, shape)`; `None` if it is empty.
    pub fn table(mut steps: Vec<(usize, TreeShape)>) -> Option<Self> {
        steps.sort_by_key(|(batch, _)| *batch);
        (!steps.is_empty()).then_some(Self { steps })
    }

    /// The shape for a running batch.
    pub fn shape(&self, batch: usize) -> TreeShape {
        let at = self.steps.partition_point(|(largest, _)| *largest < batch).min(self.steps.len() - 1);
        self.steps[at].1
    }

    /// All shapes that can come up.
    pub fn shapes(&self) -> impl Iterator<Item = TreeShape> + '_ {
        self.steps.iter().map(|(_, shape)| *shape)
    }

    /// Whether any of them speculates.
    pub fn speculates(&self) -> bool {
        self.shapes().any(|shape| !shape.is_off())
    }
}

impl Default for EngineOptions {
    /// No speculation, on whatever device there is.
    fn default() -> Self {
        Self {
            model_path: PathBuf::new(),
            draft_model_path: None,
            algorithm: None,
            policy: ShapePolicy::fixed(TreeShape::OFF),
            device: DeviceChoice::Auto,
            dtype: "auto".into(),
            context_length: None,
            max_running_requests: MAX_RUNNING_REQUESTS,
            page_size: 1,
            mem_fraction_static: 0.8,
            chunked_prefill_size: 2048,
            capture_sizes: Vec::new(),
        }
    }
}

/// Requests that run together unless told otherwise: SGLang's number for speculation, with or without it here.
const MAX_RUNNING_REQUESTS: usize = 48;

impl FromStr for DeviceChoice {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, EngineError> {
        let number = |text: &str| text.parse().ok();
        match text.split_once(':') {
            None if text == "auto" => Some(Self::Auto),
            None if text == "cpu" => Some(Self::Cpu),
            None if text == "cuda" => Some(Self::Cuda(0)),
            Some(("cuda", at)) => number(at).map(Self::Cuda),
            _ => None,
        }
        .ok_or_else(|| EngineError::Configuration(format!("--device {text}: expected auto, cpu, cuda or cuda:N")))
    }
}

/// The options that engine flags ask for.
///
/// # Errors
/// When no model is named, a value has no sense, or a flag is given that this engine cannot honour.
pub fn from_launch(launch: &Launch) -> Result<EngineOptions, EngineError> {
    let mut options = EngineOptions::default();
    let text = |key: Key| launch.text(key).map(|word| word.value.to_owned());
    let Some(model_path) = text(Key::ModelPath) else {
        return Err(EngineError::Configuration("no model is named: give --model-path".into()));
    };
    options.model_path = model_path.into();
    options.draft_model_path = text(Key::SpeculativeDraftModelPath).map(PathBuf::from);
    options.algorithm = text(Key::SpeculativeAlgorithm);
    refuse(launch)?;
    if let Some(device) = text(Key::Device) {
        options.device = device.parse()?;
    }
    options.dtype = text(Key::Dtype).unwrap_or(options.dtype);
    options.context_length = count(launch, Key::ContextLength)?;
    options.page_size = count(launch, Key::PageSize)?.unwrap_or(options.page_size);
    options.max_running_requests = count(launch, Key::MaxRunningRequests)?.unwrap_or(options.max_running_requests);
    if let Some(setting) = launch.setting(Key::MemFractionStatic) {
        let number = launch.number(Key::MemFractionStatic).map(|number| number.value);
        options.mem_fraction_static = number.ok_or_else(|| no_sense(setting, "a number above 0 and at most 1"))?;
    }
    options.capture_sizes = capture_sizes(launch)?;
    options.policy = ShapePolicy::fixed(shape(launch, &options)?);
    Ok(options)
}

/// The triple of the flags; what is left open is what SGLang would choose.
fn shape(launch: &Launch, options: &EngineOptions) -> Result<TreeShape, EngineError> {
    let steps = count(launch, Key::SpeculativeNumSteps)?;
    let topk = count(launch, Key::SpeculativeEagleTopk)?;
    let drafts = count(launch, Key::SpeculativeNumDraftTokens)?;
    let asked = steps.is_some() || topk.is_some() || drafts.is_some();
    if options.draft_model_path.is_none() {
        return match (steps, options.algorithm.is_some()) {
            // The shape of no speculation may be written out.
            (Some(0), false) | (None, false) if !asked || steps == Some(0) => Ok(TreeShape::OFF),
            _ => Err(EngineError::Configuration(
                "speculation was asked for without a draft: give --speculative-draft-model-path".into(),
            )),
        };
    }
    let shape = match (steps, topk, drafts) {
        (None, None, None) => return default_shape(&options.model_path),
        (Some(0), _, _) => Ok(TreeShape::OFF),
        (Some(steps), None | Some(1), None) => Ok(TreeShape::chain(steps)),
        (Some(steps), topk, Some(drafts)) => TreeShape::new(steps, topk.unwrap_or(1), drafts),
        _ => {
            return Err(EngineError::Configuration(
                "the tree shape is given in part: give --speculative-num-steps, --speculative-eagle-topk and \
                 --speculative-num-draft-tokens, or none of them"
                    .into(),
            ));
        }
    };
    shape.map_err(|error| EngineError::Configuration(format!("tree shape: {error}")))
}

/// What SGLang chooses for the target's architecture.
///
/// # Errors
/// When the target has no readable config.json.
pub fn default_shape(model_path: &Path) -> Result<TreeShape, EngineError> {
    let folder = Folder::open(model_path)?;
    Ok(schemas::resolve::default_shape(folder.config.architecture().unwrap_or_default()))
}

/// Flags of the table whose meaning this engine does not have yet: refused, not ignored.
fn refuse(launch: &Launch) -> Result<(), EngineError> {
    if let Some(setting) = launch.setting(Key::SpeculativeTokenMap) {
        return Err(unsupported(setting, "a token map (FR-Spec)", "leave it out"));
    }
    if let Some(setting) = launch.setting(Key::TpSize)
        && launch.integer(Key::TpSize).map(|size| size.value) != Some(1)
    {
        return Err(unsupported(setting, "tensor parallelism", "use --tp-size 1"));
    }
    Ok(())
}

fn unsupported(setting: &Setting, what: &str, hint: &str) -> EngineError {
    EngineError::Configuration(format!("{}: {what} is not implemented by this engine; {hint}", setting.spelling))
}

fn capture_sizes(launch: &Launch) -> Result<Vec<usize>, EngineError> {
    let Some(setting) = launch.setting(Key::CudaGraphBs) else { return Ok(Vec::new()) };
    let sizes = launch.integers(Key::CudaGraphBs).unwrap_or_default();
    let sizes: Option<Vec<usize>> =
        sizes.into_iter().map(|size| usize::try_from(size.value).ok().filter(|size| *size > 0)).collect();
    sizes.filter(|sizes| !sizes.is_empty()).ok_or_else(|| no_sense(setting, "batch sizes of at least 1"))
}

fn count(launch: &Launch, key: Key) -> Result<Option<usize>, EngineError> {
    let Some(setting) = launch.setting(key) else { return Ok(None) };
    launch.count(key).map(|count| Some(count.value)).ok_or_else(|| no_sense(setting, "an integer of at least 0"))
}

fn no_sense(setting: &Setting, expected: &str) -> EngineError {
    let found: Vec<&str> = setting.values.iter().map(|word| word.value.written()).collect();
    EngineError::Configuration(format!("{} {}: expected {expected}", setting.spelling, found.join(" ")))
}
