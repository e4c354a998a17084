//! How an engine is set up.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use schemas::{
    flags::Key,
    launch::{Launch, Setting},
    tree::TreeShape,
    tuned::TunedFile,
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

/// The options of a tuned file. Its relative paths start at `folder`.
pub fn from_tuned(tuned: &TunedFile, folder: &Path) -> Result<EngineOptions, EngineError> {
    let TunedFile { models, engine, .. } = tuned;
    let policy = ShapePolicy::table(tuned.shapes());
    Ok(EngineOptions {
        model_path: folder.join(&models.target),
        draft_model_path: Some(folder.join(&models.draft)),
        algorithm: Some(models.algorithm.clone()),
        policy: policy.unwrap_or_else(|| ShapePolicy::fixed(TreeShape::OFF)),
        device: engine.device.parse()?,
        dtype: models.dtype.clone(),
        context_length: Some(engine.context_length),
        max_running_requests: engine.max_running_requests,
        page_size: engine.page_size,
        mem_fraction_static: engine.mem_fraction_static,
        capture_sizes: engine.capture_sizes.clone(),
        ..EngineOptions::default()
    })
}

/// Options with what engine flags ask for on top.
///
/// # Errors
/// When no model is named, a value has no sense, or a flag is given that this engine cannot honour.
pub fn with_launch(mut options: EngineOptions, launch: &Launch) -> Result<EngineOptions, EngineError> {
    refuse(launch)?;
    let text = |key: Key| launch.text(key).map(|word| word.value.to_owned());
    if let Some(path) = text(Key::ModelPath) {
        options.model_path = path.into();
    }
    if options.model_path.as_os_str().is_empty() {
        return Err(EngineError::Configuration("no model is named: give --model-path".into()));
    }
    if let Some(path) = text(Key::SpeculativeDraftModelPath) {
        options.draft_model_path = Some(path.into());
    }
    if let Some(algorithm) = text(Key::SpeculativeAlgorithm) {
        options.algorithm = Some(algorithm);
    }
    if let Some(device) = text(Key::Device) {
        options.device = device.parse()?;
    }
    if let Some(dtype) = text(Key::Dtype) {
        options.dtype = dtype;
    }
    options.context_length = count(launch, Key::ContextLength)?.or(options.context_length);
    options.page_size = count(launch, Key::PageSize)?.unwrap_or(options.page_size);
    options.max_running_requests = count(launch, Key::MaxRunningRequests)?.unwrap_or(options.max_running_requests);
    if let Some(setting) = launch.setting(Key::MemFractionStatic) {
        let number = launch.number(Key::MemFractionStatic).map(|number| number.value);
        options.mem_fraction_static = number.ok_or_else(|| no_sense(setting, "a number above 0 and at most 1"))?;
    }
    if let Some(sizes) = capture_sizes(launch)? {
        options.capture_sizes = sizes;
    }
    // A triple on the command line replaces the whole table of a tuned file.
    const SHAPE: [Key; 5] = [
        Key::SpeculativeAlgorithm,
        Key::SpeculativeDraftModelPath,
        Key::SpeculativeEagleTopk,
        Key::SpeculativeNumDraftTokens,
        Key::SpeculativeNumSteps,
    ];
    if SHAPE.iter().any(|key| launch.has(*key)) {
        options.policy = ShapePolicy::fixed(shape(launch, &options)?);
    }
    Ok(options)
}

/// The triple of the flags; what is left open is what SGLang would choose.
fn shape(launch: &Launch, options: &EngineOptions) -> Result<TreeShape, EngineError> {
    let steps = count(launch, Key::SpeculativeNumSteps)?;
    let topk = count(launch, Key::SpeculativeEagleTopk)?;
    let drafts = count(launch, Key::SpeculativeNumDraftTokens)?;
    let shape = match (steps, topk, drafts) {
        // No speculation may be written out.
        (Some(0), _, _) => return Ok(TreeShape::OFF),
        _ if options.draft_model_path.is_none() => {
            return Err(EngineError::Configuration(
                "speculation was asked for without a draft: give --speculative-draft-model-path".into(),
            ));
        }
        (None, None, None) => return default_shape(&options.model_path),
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

fn capture_sizes(launch: &Launch) -> Result<Option<Vec<usize>>, EngineError> {
    let Some(setting) = launch.setting(Key::CudaGraphBs) else { return Ok(None) };
    let sizes = launch.integers(Key::CudaGraphBs).unwrap_or_default();
    let sizes: Option<Vec<usize>> =
        sizes.into_iter().map(|size| usize::try_from(size.value).ok().filter(|size| *size > 0)).collect();
    let sizes = sizes.filter(|sizes| !sizes.is_empty());
    sizes.map(Some).ok_or_else(|| no_sense(setting, "batch sizes of at least 1"))
}

fn count(launch: &Launch, key: Key) -> Result<Option<usize>, EngineError> {
    let Some(setting) = launch.setting(key) else { return Ok(None) };
    launch.count(key).map(|count| Some(count.value)).ok_or_else(|| no_sense(setting, "an integer of at least 0"))
}

fn no_sense(setting: &Setting, expected: &str) -> EngineError {
    let found: Vec<&str> = setting.values.iter().map(|word| word.value.written()).collect();
    EngineError::Configuration(format!("{} {}: expected {expected}", setting.spelling, found.join(" ")))
}
