//! Engine flags, spelled as SGLang spells them.

mod block;
mod text;

use std::{fs::File, io::Read};

use launch::{Launch, Setting};
use schemas::{
    drafting::OWN_FLAGS,
    flags::{Key, SGLANG_ATTENTION_BACKENDS},
    tree::{NodeSource, RowBudget, ShapeError, TreeShape},
};

use self::block::{block, block_shape, block_size};
use super::{
    ATTENTION_BACKENDS, EngineOptions, Fp8Compute, LoadFormat, Quantization, ShapePolicy, default_shape,
    default_shape_of, kv_cache,
};
use crate::{error::EngineError, played::Simulated};

/// Maximum size of an adaptive file, in bytes.
const LARGEST_ADAPTIVE: u64 = 1 << 20;

/// Options, overridden by the given engine flags.
///
/// # Errors
/// When no model is given, a value is invalid, or a flag is given that this engine does not
/// support.
pub fn with_launch(mut options: EngineOptions, launch: &Launch) -> Result<EngineOptions, EngineError> {
    models(launch, &mut options)?;
    formats(launch, &mut options)?;
    limits(launch, &mut options)?;
    rounds(launch, &mut options)?;
    drafts(launch, &mut options)?;
    // A triple on the command line replaces the whole table of a tuned file.
    const SHAPE: [Key; 6] = [
        Key::SpeculativeAlgorithm,
        Key::SpeculativeDraftModelPath,
        Key::SpeculativeEagleTopk,
        Key::SpeculativeNumDraftTokens,
        Key::SpeculativeNumSteps,
        Key::SpeculativeRowBudget,
    ];
    if SHAPE.into_iter().chain(OWN_FLAGS.map(|own| own.key)).any(|key| launch.has(key)) {
        let shape = shape(launch, &options)?;
        warn_of_no_drafts(launch, shape);
        options.policy = ShapePolicy::fixed(shape);
    }
    if let Some(policy) = adaptive(launch)? {
        options.policy = policy;
    }
    check_simulated(&options)?;
    Ok(options)
}

/// Warns where an algorithm is named and the numbers of its tree leave no room for a draft.
fn warn_of_no_drafts(launch: &Launch, shape: TreeShape) {
    let numbers = [Key::SpeculativeNumSteps, Key::SpeculativeNumDraftTokens];
    let number = numbers.into_iter().find_map(|key| launch.setting(key));
    if let (true, true, Some(number)) = (shape.is_off(), launch.has(Key::SpeculativeAlgorithm), number) {
        tracing::warn!(
            "{} leaves no room for a draft, so nothing is speculated: remove --speculative-algorithm, or give a larger \
             number",
            number.spelling
        );
    }
}

/// Refuses a simulated accept length that no tree of the policy reaches, and warns about trees that
/// do not reach it in a policy with others.
fn check_simulated(options: &EngineOptions) -> Result<(), EngineError> {
    let Some(length) = options.simulated.as_ref().and_then(Simulated::length) else { return Ok(()) };
    let trees = options.policy.shapes().filter(|shape| !shape.is_off());
    let (within, beyond): (Vec<TreeShape>, Vec<TreeShape>) = trees.partition(|shape| shape.reaches(f64::from(length)));
    let words = |shape: &TreeShape| format!("{shape} yields at most {}", shape.max_tokens_per_round());
    let beyond = beyond.iter().map(words).collect::<Vec<_>>().join(", ");
    if beyond.is_empty() {
        return Ok(());
    }
    if within.is_empty() {
        return Err(EngineError::Configuration(format!(
            "--simulate-accept-length {length}: a round of {beyond} tokens: give a smaller length, or a deeper tree"
        )));
    }
    tracing::warn!("--simulate-accept-length {length}: a round of {beyond} tokens, which is accepted there");
    Ok(())
}

/// The text of a flag, if it is given.
fn text_of(launch: &Launch, key: Key) -> Option<String> {
    launch.text(key).map(|word| word.value.to_owned())
}

/// The number of a flag, if it is given, which must be at least 1.
fn positive(launch: &Launch, key: Key, unit: &str) -> Result<Option<usize>, EngineError> {
    let Some(setting) = launch.setting(key) else { return Ok(None) };
    let number = count(launch, key)?.filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| no_sense(setting, &format!("a {unit} of at least 1")))
}

/// Which target and draft run, and where.
fn models(launch: &Launch, options: &mut EngineOptions) -> Result<(), EngineError> {
    if let Some(path) = text_of(launch, Key::ModelPath) {
        options.model_path = path.into();
    }
    if let Some(shape) = text_of(launch, Key::ModelShape) {
        options.model_shape = Some(shape);
    }
    options.num_layers = count(launch, Key::NumLayers)?.or(options.num_layers);
    if let Some(format) = text_of(launch, Key::LoadFormat) {
        options.load_format = load_format(&format)?;
    }
    check_source(options)?;
    if let Some(path) = text_of(launch, Key::SpeculativeDraftModelPath) {
        options.draft_model_path = Some(path.into());
    }
    if let Some(algorithm) = text_of(launch, Key::SpeculativeAlgorithm) {
        options.algorithm = Some(algorithm);
    }
    if let Some(device) = text_of(launch, Key::Device) {
        options.device = device.parse()?;
    }
    options.tp_size = positive(launch, Key::TpSize, "number of GPUs")?.unwrap_or(options.tp_size);
    Ok(())
}

/// Types of weights, products and caches.
fn formats(launch: &Launch, options: &mut EngineOptions) -> Result<(), EngineError> {
    if let Some(dtype) = text_of(launch, Key::Dtype) {
        options.dtype = dtype;
    }
    // By default the draft's weights are quantised like the target's, as in SGLang.
    if let Some(name) = text_of(launch, Key::Quantization) {
        options.quantization = Quantization::parse("--quantization", &name)?;
        options.draft_quantization = options.quantization;
    }
    if let Some(name) = text_of(launch, Key::SpeculativeDraftModelQuantization) {
        options.draft_quantization = Quantization::parse("--speculative-draft-model-quantization", &name)?;
    }
    if let Some(name) = text_of(launch, Key::Fp8Compute) {
        options.fp8_compute = Some(Fp8Compute::parse("--fp8-compute", &name)?);
    }
    if let Some(name) = text_of(launch, Key::KvCacheDtype) {
        options.kv_cache = kv_cache("--kv-cache-dtype", Some(&name))?;
    }
    Ok(())
}

/// Contexts, requests and memory.
fn limits(launch: &Launch, options: &mut EngineOptions) -> Result<(), EngineError> {
    options.context_length = count(launch, Key::ContextLength)?.or(options.context_length);
    options.page_size = count(launch, Key::PageSize)?.unwrap_or(options.page_size);
    options.max_running_requests = count(launch, Key::MaxRunningRequests)?.unwrap_or(options.max_running_requests);
    if let Some(setting) = launch.setting(Key::MemFractionStatic) {
        let number = launch.number(Key::MemFractionStatic).map(|number| number.value);
        options.mem_fraction_static = number.ok_or_else(|| no_sense(setting, "a number above 0 and at most 1"))?;
    }
    options.max_total_tokens = count(launch, Key::MaxTotalTokens)?;
    states(launch, options)?;
    if let Some(setting) = launch.setting(Key::ChunkedPrefillSize) {
        options.chunked_prefill_size = match launch.integer(Key::ChunkedPrefillSize).map(|size| size.value) {
            Some(-1) => usize::MAX,
            Some(size @ 1..) => usize::try_from(size).unwrap_or(usize::MAX),
            _ => return Err(no_sense(setting, "a number of tokens of at least 1, or -1")),
        };
    }
    options.disable_radix_cache |= launch.has(Key::DisableRadixCache);
    Ok(())
}

/// Graphs and kernels of rounds.
fn rounds(launch: &Launch, options: &mut EngineOptions) -> Result<(), EngineError> {
    if let Some(sizes) = capture_sizes(launch)? {
        options.capture_sizes = sizes;
    }
    options.cuda_graph_max_bs = positive(launch, Key::CudaGraphMaxBs, "batch size")?.or(options.cuda_graph_max_bs);
    options.disable_cuda_graph |= launch.has(Key::DisableCudaGraph);
    options.batch_invariant |= launch.has(Key::BatchInvariant);
    if let Some(name) = text_of(launch, Key::AttentionBackend) {
        options.attention_backend = attention_backend(&name)?;
    }
    Ok(())
}

/// What drafts, and which of its drafts are accepted.
fn drafts(launch: &Launch, options: &mut EngineOptions) -> Result<(), EngineError> {
    if let Some(size) = block_size(launch)? {
        options.draft_block_size = Some(size);
    }
    let window = positive(launch, Key::SpeculativeDraftWindowSize, "number of tokens")?;
    options.draft_window = window.or(options.draft_window);
    options.second_source = text::second_source(launch, options)?;
    options.text_rule = text::rule(launch, options)?;
    if let Some(path) = text_of(launch, Key::SpeculativeTokenMap) {
        options.token_map = Some(path.into());
    }
    if let Some(setting) = launch.setting(Key::SimulateAcceptLength) {
        let length = launch.number(Key::SimulateAcceptLength).map(|number| number.value as f32);
        let length = length.filter(|length| *length >= 1.0 && length.is_finite());
        let length = length.ok_or_else(|| no_sense(setting, "a number of at least 1, which is the bonus token"))?;
        options.simulated = Some(Simulated::Length(length));
    }
    Ok(())
}

/// The flags of linear attention's states, by SGLang's names.
fn states(launch: &Launch, options: &mut EngineOptions) -> Result<(), EngineError> {
    if let Some(setting) = launch.setting(Key::MambaFullMemoryRatio) {
        let ratio = launch.number(Key::MambaFullMemoryRatio).map(|number| number.value);
        let ratio = ratio.filter(|ratio| *ratio > 0.0 && ratio.is_finite());
        options.state_memory_ratio = ratio.ok_or_else(|| no_sense(setting, "a number above 0"))?;
    }
    options.max_states = positive(launch, Key::MaxMambaCacheSize, "number of states")?.or(options.max_states);
    match launch.text(Key::MambaSsmDtype).map(|word| word.value) {
        None | Some("float32") => Ok(()),
        Some(other) => Err(EngineError::Configuration(format!(
            "--mamba-ssm-dtype {other}: this engine keeps the states of linear attention in float32: remove it, or give \
             float32"
        ))),
    }
}

/// The tree shape of the flags, with its budget of rows, if one is given.
fn shape(launch: &Launch, options: &EngineOptions) -> Result<TreeShape, EngineError> {
    let tree = tree(launch, options)?;
    let Some(setting) = launch.setting(Key::SpeculativeRowBudget) else { return Ok(tree) };
    let rows = launch.number(Key::SpeculativeRowBudget).map(|number| number.value);
    let wrong = |error: ShapeError| EngineError::Configuration(format!("--speculative-row-budget: {error}"));
    let Some(rows) = rows else { return Err(no_sense(setting, "a number of rows per request")) };
    if tree.is_off() {
        return Err(EngineError::Configuration(
            "--speculative-row-budget limits the rows of drafts, but nothing is drafted: remove it".into(),
        ));
    }
    let row_budget = Some(RowBudget::try_from(rows).map_err(wrong)?);
    let shape = TreeShape { row_budget, ..tree };
    // The source has been checked with the tree.
    NodeSource::check_any(shape).map_err(wrong)?;
    Ok(shape)
}

/// The tree of the flags; unset flags take the values that SGLang would choose.
fn tree(launch: &Launch, options: &EngineOptions) -> Result<TreeShape, EngineError> {
    let steps = count(launch, Key::SpeculativeNumSteps)?;
    let topk = count(launch, Key::SpeculativeEagleTopk)?;
    let drafts = count(launch, Key::SpeculativeNumDraftTokens)?;
    if steps == Some(0) {
        // An explicit 0 means no speculation.
        return Ok(TreeShape::OFF);
    }
    if let Some(rule) = options.text_draft() {
        return text::shape(rule, launch, [steps, topk, drafts]);
    }
    if let Some(block) = block(options)? {
        return block_shape(block, steps, topk, drafts);
    }
    let shape = match (steps, topk, drafts) {
        (None, None, None) => {
            let algorithm = options.algorithm.as_deref().unwrap_or_default();
            return match &options.model_shape {
                Some(shape) => default_shape_of(shape, algorithm),
                None => default_shape(&options.model_path, algorithm),
            };
        }
        (Some(steps), None | Some(1), None) => TreeShape::new(steps, 1, steps.saturating_add(1)),
        (Some(steps), topk, Some(drafts)) => TreeShape::new(steps, topk.unwrap_or(1), drafts),
        _ => {
            return Err(EngineError::Configuration(
                "the tree shape is incomplete: give --speculative-num-steps, --speculative-eagle-topk and \
                 --speculative-num-draft-tokens, or none of them"
                    .into(),
            ));
        }
    };
    shape.map_err(|error| EngineError::Configuration(format!("tree shape: {error}")))
}

/// The table of SGLang's adaptive file: chains by running batch, which this engine uses as written.
fn adaptive(launch: &Launch) -> Result<Option<ShapePolicy>, EngineError> {
    let wrong = |words: String| Err(EngineError::Configuration(words));
    let path = launch.text(Key::SpeculativeAdaptiveConfig).map(|word| word.value);
    if !launch.has(Key::SpeculativeAdaptive) {
        return match path {
            Some(_) => wrong("--speculative-adaptive-config has no effect without --speculative-adaptive".into()),
            None => Ok(None),
        };
    }
    let Some(path) = path else {
        return wrong(
            "--speculative-adaptive: this engine follows a table of chains by running batch and does not adapt the chain by \
             itself: give the table with --speculative-adaptive-config, one candidate per slot"
                .into(),
        );
    };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST_ADAPTIVE).read_to_string(&mut text));
    read.map_err(|error| EngineError::Configuration(format!("--speculative-adaptive-config {path}: {error}")))?;
    match schemas::adaptive::read(&text) {
        Ok(table) => Ok(ShapePolicy::table(table)),
        Err(error) => wrong(format!("--speculative-adaptive-config {path}: {error}")),
    }
}

/// A model must come from exactly one source.
fn check_source(options: &EngineOptions) -> Result<(), EngineError> {
    let wrong = |reason: &str| Err(EngineError::Configuration(reason.into()));
    if options.num_layers.is_some() && options.model_shape.is_none() {
        return wrong("--num-layers limits the layers of random weights: give --model-shape, or remove it");
    }
    match (&options.model_shape, options.load_format, options.model_path.as_os_str().is_empty()) {
        (None, _, true) => wrong("no model is given: add --model-path"),
        (Some(_), LoadFormat::Auto, _) => {
            wrong("--model-shape is the shape of random weights: add --load-format dummy")
        }
        (Some(_), LoadFormat::Dummy, false) => {
            wrong("--model-shape and --model-path are mutually exclusive: give one of them")
        }
        _ => Ok(()),
    }
}

fn load_format(name: &str) -> Result<LoadFormat, EngineError> {
    match name {
        "auto" | "safetensors" => Ok(LoadFormat::Auto),
        "dummy" => Ok(LoadFormat::Dummy),
        _ => Err(EngineError::Configuration(format!(
            "--load-format {name}: this engine reads safetensors only; expected auto, safetensors or dummy"
        ))),
    }
}

/// SGLang's names are accepted, so that its launch lines work unchanged; they mean this engine's
/// choice.
fn attention_backend(name: &str) -> Result<Option<String>, EngineError> {
    if name == "auto" {
        return Ok(None);
    }
    if ATTENTION_BACKENDS.contains(&name) {
        return Ok(Some(name.to_owned()));
    }
    if SGLANG_ATTENTION_BACKENDS.contains(&name) {
        tracing::warn!("--attention-backend {name} is SGLang's: this engine chooses among its own kernels (auto)");
        return Ok(None);
    }
    Err(EngineError::Configuration(format!(
        "--attention-backend {name} is unknown; expected one of {} (SGLang's names mean auto)",
        ATTENTION_BACKENDS.join(", ")
    )))
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
