//! Loads models onto a device according to the options.

mod fp8;

use std::path::Path;

use kernels::device::{Device, DeviceError, Element};
use schemas::{sweep::LARGEST, tree::NodeSource};

use self::fp8::{Fp8Models, check_products, check_quantization, default_mode};
use crate::{
    backend::{
        Backend, cpu,
        cuda::{self, AttentionKernels, CudaOptions, RankGroup, SharedModels},
        state_places::StateOptions,
    },
    checkpoint::{Folder, GenerationConfig, Tensors, read_token_map},
    description::{Described, cached, describe, windowed},
    drafts::{DraftFrom, no_token_map, restricted},
    error::EngineError,
    families::read_target,
    identity::Identity,
    options::{DeviceChoice, EngineOptions, LoadFormat},
    quantization::{Fp8Compute, Quantization, StoredIn, computed, described, quantised_draft, quantised_target},
    spec::{DraftSpec, PromptLookup, PublishedModel, StateLayout, TargetSpec, TextSpec, published},
    text::Text,
};

/// Maximum number of GPUs that share a model.
const MOST_RANKS: usize = 8;

/// Models on a device, with the text side of their checkpoint.
pub struct Loaded {
    /// The device with the models.
    pub backend: Box<dyn Backend>,
    /// Name and hashes of the models.
    pub identity: Identity,
    /// The algorithm of the draft; `None` without one.
    pub draft_algorithm: Option<&'static str>,
    /// Maximum sequence length.
    pub context_length: usize,
    /// Tokenizer and chat template, if the target has a tokenizer.
    pub text: Option<Text>,
    /// The sampling parameters that the model recommends.
    pub generation: GenerationConfig,
    /// Tokens that end an output.
    pub end_tokens: Vec<u32>,
}

/// Loads the models that the options name. Tree shapes are not prepared yet.
///
/// # Errors
/// When an option is invalid, files are missing or malformed, target and draft do not match, the
/// device does not exist, or memory is insufficient.
pub fn load(options: &EngineOptions) -> Result<Loaded, EngineError> {
    check(options)?;
    let devices = devices(options.device, options.tp_size)?;
    match options.load_format {
        LoadFormat::Auto => checkpoint(options, devices),
        LoadFormat::Dummy => random(options, devices),
    }
}

/// The maximum sequence length of the options' target, from the headers of its files.
///
/// # Errors
/// When an option is invalid, the target is not a supported checkpoint, or it was trained for
/// shorter sequences.
pub fn target_context_length(options: &EngineOptions) -> Result<usize, EngineError> {
    check(options)?;
    let folder = Folder::open(&options.model_path)?;
    let weights = folder.weights()?;
    let stored = StoredIn::Checkpoint(Tensors::new(&weights));
    quantised_target(read_target(&folder, &weights)?, stored, options.quantization, options.fp8_compute())?;
    let made_for = folder.config.plain_context_length();
    context_length(&options.model_path.display().to_string(), made_for, options.context_length)
}

/// The algorithm that the options' draft is for (EAGLE, EAGLE3, NEXTN, DFLASH, DSPARK or
/// STANDALONE), judging by the headers of its files, or the rule for texts; `None` without a draft.
///
/// # Errors
/// When target or draft are not supported checkpoints, or do not fit together or to the options'
/// algorithm.
pub fn draft_algorithm(options: &EngineOptions) -> Result<Option<&'static str>, EngineError> {
    Ok(describe(options)?.draft.map(|(spec, _)| spec.algorithm()))
}

/// The hashes of target and draft that identify the options' checkpoints.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn hashes(options: &EngineOptions) -> Result<(String, Option<String>), EngineError> {
    let target = Folder::open(&options.model_path)?.hash()?;
    let draft = match DraftFrom::options(options)? {
        None => None,
        Some(DraftFrom::Folder(folder)) => Some(folder.hash()?),
        Some(DraftFrom::Target) => Some(target.clone()),
        Some(DraftFrom::Texts(rule)) => return Ok((target_hash(target, options), Some(texts(rule)))),
    };
    let draft = draft.map(|hash| drafting_hash(quantised_hash(hash, options.draft_quantization, options), options));
    Ok((target_hash(target, options), draft))
}

fn checkpoint(options: &EngineOptions, devices: Vec<(Device, String)>) -> Result<Loaded, EngineError> {
    let mut models = describe(options)?;
    let element = match devices.is_empty() {
        true => None,
        false => Some(element(&options.dtype, models.folder.config.weights_dtype())?),
    };
    let compute = default_mode(Fp8Models::described(&mut models, options), options, &devices, element);
    let options = &EngineOptions { fp8_compute: Some(compute), ..options.clone() };
    let Described { folder, weights, spec, draft: own_draft } = models;
    let made_for = folder.config.plain_context_length();
    let context_length = context_length(&options.model_path.display().to_string(), made_for, options.context_length)?;
    check_second_source(options, own_draft.is_some())?;
    let (hash, draft_hash) = hashes(options)?;
    let (quantised, fp8_compute) = (described(&spec.layers), computed(&spec.layers));
    let draft_algorithm = own_draft.as_ref().map(|(spec, _)| spec.algorithm());
    let backend: Box<dyn Backend> = match element {
        None => {
            let draft = own_draft.as_ref().map(|(spec, own)| (spec.clone(), own.as_ref().unwrap_or(&weights)));
            Box::new(cpu::load((spec, &weights), draft, options, context_length)?)
        }
        Some(element) => {
            check_quantization(options, element)?;
            check_products(&spec, own_draft.as_ref().map(|(spec, _)| spec), element)?;
            // If the kernels compute in float32, FP8 weights are dequantised to float32 at load
            // time.
            let plain = element == Element::F32;
            let draft = own_draft.map(|(spec, own)| (if plain { spec.in_plain() } else { spec }, own));
            let spec = if plain { spec.in_plain() } else { spec };
            let models = SharedModels { target: (spec, Some(weights)), draft };
            on_devices(devices, models, cuda_options(options, element, context_length)?)?
        }
    };
    let generation = folder.generation_config()?;
    let mut end_tokens = generation.eos_token_id.clone();
    // Checkpoints keep end tokens in up to three files, which often disagree. All of them end a
    // text.
    end_tokens.extend(&folder.config.eos_token_id);
    let text = Text::open(&folder)?;
    end_tokens.extend(text.as_ref().and_then(Text::end_token));
    Ok(Loaded {
        backend,
        identity: Identity {
            name: name(&options.model_path),
            target: hash,
            draft: draft_hash,
            quantised,
            fp8_compute,
            kv_cache: options.kv_cache.word(),
        },
        draft_algorithm,
        context_length,
        text,
        generation,
        end_tokens,
    })
}

/// The hash of files, extended if their weights are quantised at load time, and if activations are
/// quantised.
fn quantised_hash(hash: String, by: Option<Quantization>, options: &EngineOptions) -> String {
    let quantised = by.map_or_else(String::new, |by| format!(" as {}", by.name()));
    let products = match options.fp8_compute() {
        Fp8Compute::Weights => "",
        Fp8Compute::Products => " with fp8 products",
    };
    format!("{hash}{quantised}{products}")
}

/// The hash of a target's files, extended by what changes its output: quantisation at load time,
/// and a cache in FP8.
fn target_hash(hash: String, options: &EngineOptions) -> String {
    let hash = quantised_hash(hash, options.quantization, options);
    match options.kv_cache.word() {
        None => hash,
        Some(word) => format!("{hash} with a KV cache in {word}"),
    }
}

/// A draft's hash, extended by its window and by what is looked up beside it, which change what is
/// drafted.
fn drafting_hash(hash: String, options: &EngineOptions) -> String {
    let hash = options.draft_window.map_or(hash.clone(), |window| format!("{hash} with a window of {window}"));
    let second = options.second_source;
    second.map_or(hash.clone(), |rule| format!("{hash} beside {}", texts(rule)))
}

/// Refuses a second source where nothing joins what it finds.
fn check_second_source(options: &EngineOptions, has_draft: bool) -> Result<(), EngineError> {
    let reason = match options.second_source {
        None => return Ok(()),
        Some(_) if options.text_draft().is_some() || !has_draft => {
            "joins look-ups with the trees of a head: give one with --speculative-draft-model-path, or look up alone with \
             --speculative-algorithm PROMPT_LOOKUP or SUFFIX"
        }
        Some(rule) if rule.can_be_second() => return rule.check(),
        Some(_) => "joins chains, and this rule finds trees or fills its chains: use PROMPT_LOOKUP or SUFFIX",
    };
    Err(EngineError::Configuration(format!("--speculative-second-source {reason}")))
}

/// What identifies a draft from texts: its rule, with all numbers.
fn texts(rule: TextSpec) -> String {
    serde_json::to_string(&rule).unwrap_or_else(|_| rule.algorithm().to_owned())
}

/// Random weights of a published shape: the time of a round hardly depends on their values, as long
/// as they differ. (Multiplying zeros takes less power, and 5% less time at the power limit.)
fn random(options: &EngineOptions, devices: Vec<(Device, String)>) -> Result<Loaded, EngineError> {
    let Some(name) = options.model_shape.as_deref() else {
        return Err(EngineError::Configuration("--load-format dummy needs a model shape: give --model-shape".into()));
    };
    let shape = published(name)?;
    if devices.is_empty() {
        return Err(EngineError::Configuration(
            "--load-format dummy makes weights on a CUDA device; on the CPU give a checkpoint with --model-path".into(),
        ));
    }
    check_second_source(options, true)?;
    let rule = options.text_draft();
    rule.as_ref().map_or(Ok(()), TextSpec::check)?;
    let context_length = context_length(name, shape.context_length, options.context_length)?;
    let (nowhere, compute) = (StoredIn::Nowhere, options.fp8_compute());
    let target = quantised_target(
        routed(name, shape.target(options.num_layers)?, options)?,
        nowhere,
        options.quantization,
        compute,
    )?;
    let mut target = cached("target", options.kv_cache, |format| target.with_cache(format))?;
    let mut draft = match rule {
        Some(rule) => windowed(DraftSpec::Text(rule), options.draft_window)?,
        None => {
            let draft = random_draft(shape, &target, options)?;
            let draft = if options.uniform_router { draft.with_uniform_router() } else { draft };
            let draft = quantised_draft(draft, nowhere, options.draft_quantization, compute)?;
            let draft = windowed(draft, options.draft_window)?;
            cached("draft", options.kv_cache, |format| draft.with_cache(format))?
        }
    };
    let element = element(&options.dtype, Some("bfloat16"))?;
    let compute = default_mode(Fp8Models::random(&mut target, &mut draft), options, &devices, Some(element));
    let options = &EngineOptions { fp8_compute: Some(compute), ..options.clone() };
    // As for checkpoints: float32 kernels have no FP8 weights.
    let plain = element == Element::F32;
    let (target, draft) = if plain { (target.in_plain(), draft.in_plain()) } else { (target, draft) };
    let of_layers = options.num_layers.map_or_else(String::new, |layers| format!(" of {layers} layers"));
    let name = format!("{name}{of_layers}{}", if options.uniform_router { " with a uniform router" } else { "" });
    let algorithm = draft.algorithm();
    let (quantised, fp8_compute) = (described(&target.layers), computed(&target.layers));
    // Figures of shapes that are released in a quantised format are not those of 16 bits.
    let released = quantised.as_ref().filter(|_| options.quantization.is_none());
    let made = format!("random {name}{}", released.map_or_else(String::new, |format| format!(" with {format}")));
    check_quantization(options, element)?;
    check_products(&target, Some(&draft), element)?;
    let models = SharedModels { target: (target, None), draft: Some((draft, None)) };
    let backend = on_devices(devices, models, cuda_options(options, element, context_length)?)?;
    Ok(Loaded {
        backend,
        identity: Identity {
            name: format!("random {name}"),
            target: target_hash(made, options),
            draft: Some(match rule {
                Some(rule) => texts(rule),
                None => {
                    let own = options.draft_model_path.as_ref().map(|own| format!(" {}", own.display()));
                    let made = format!("random {name} {algorithm}{}", own.unwrap_or_default());
                    drafting_hash(quantised_hash(made, options.draft_quantization, options), options)
                }
            }),
            quantised,
            fp8_compute,
            kv_cache: options.kv_cache.word(),
        },
        draft_algorithm: Some(algorithm),
        context_length,
        text: None,
        generation: GenerationConfig::default(),
        end_tokens: Vec::new(),
    })
}

/// A published shape's target, with the router that the options want.
fn routed(name: &str, target: TargetSpec, options: &EngineOptions) -> Result<TargetSpec, EngineError> {
    if !options.uniform_router {
        return Ok(target);
    }
    target.with_uniform_router().ok_or_else(|| {
        EngineError::Configuration(format!("--uniform-router: {name} has no layers of experts: remove it"))
    })
}

/// The draft of a published shape: a block head if the options name its algorithm, else the
/// published draft.
fn random_draft(
    shape: &PublishedModel,
    target: &TargetSpec,
    options: &EngineOptions,
) -> Result<DraftSpec, EngineError> {
    let source = options.algorithm.as_deref().map(NodeSource::named).unwrap_or_default();
    if let NodeSource::Block(block) = source {
        if options.token_map.is_some() {
            return Err(no_token_map());
        }
        return Ok(DraftSpec::Block(shape.block_head(target, block.sized_by_drafts, options.draft_block_size)?));
    }
    if options.algorithm.as_deref().is_some_and(|name| name.eq_ignore_ascii_case("STANDALONE")) {
        return random_model(target, options).map(DraftSpec::Model);
    }
    let draft = shape.draft(target);
    Ok(DraftSpec::Recurrent(match &options.token_map {
        Some(path) => restricted(draft, read_token_map(path, target.vocabulary)?)?,
        None => draft,
    }))
}

/// A whole model of a published shape that drafts for another.
fn random_model(target: &TargetSpec, options: &EngineOptions) -> Result<TargetSpec, EngineError> {
    let wrong = |reason: String| EngineError::Configuration(format!("--speculative-algorithm STANDALONE: {reason}"));
    let name = options.draft_model_path.as_deref().and_then(Path::to_str).ok_or_else(|| {
        wrong("with random weights, --speculative-draft-model-path names the shape of the draft: give it".into())
    })?;
    if options.token_map.is_some() {
        return Err(no_token_map());
    }
    let draft = published(name)?.target(None)?;
    if draft.vocabulary != target.vocabulary {
        let (own, of_target) = (draft.vocabulary, target.vocabulary);
        return Err(wrong(format!(
            "{name} has {own} tokens and the target {of_target}: give a shape of the same family"
        )));
    }
    if draft.state() != StateLayout::default() {
        return Err(wrong(format!("{name} has linear attention, which runs in targets only so far")));
    }
    Ok(draft)
}

/// Loads models onto one device, or splits them over several.
fn on_devices(
    mut devices: Vec<(Device, String)>,
    models: SharedModels,
    options: CudaOptions,
) -> Result<Box<dyn Backend>, EngineError> {
    if devices.len() > 1 {
        return Ok(Box::new(RankGroup::load(devices, models, options)?));
    }
    let (device, name) = devices.swap_remove(0);
    Ok(Box::new(cuda::load(device, name, models.borrowed(), options, None)?))
}

/// The GPUs to use: one per rank, starting at the chosen one; none for the CPU.
pub(crate) fn devices(choice: DeviceChoice, ranks: usize) -> Result<Vec<(Device, String)>, EngineError> {
    let Some(first) = device(choice)? else {
        return match ranks {
            1 => Ok(Vec::new()),
            _ => Err(EngineError::Configuration(format!(
                "--tp-size {ranks} splits a model over GPUs, but this runs on the CPU: remove it, or give --device cuda"
            ))),
        };
    };
    let mut devices = vec![first];
    for rank in 1..ranks {
        // Ranks take consecutive GPUs from the first one; emulated devices are all alike.
        let next = match choice {
            DeviceChoice::Cuda(number) => DeviceChoice::Cuda(number + rank),
            DeviceChoice::Auto | DeviceChoice::Cpu => DeviceChoice::Cuda(rank),
            DeviceChoice::Emulator => DeviceChoice::Emulator,
        };
        let next = device(next).map_err(|error| match error {
            EngineError::Device(reason) => EngineError::Device(format!("--tp-size {ranks}: {reason}")),
            other => other,
        })?;
        devices.extend(next);
    }
    Ok(devices)
}

/// The GPU to use, with its name in this tool; `None` for the CPU.
pub(crate) fn device(choice: DeviceChoice) -> Result<Option<(Device, String)>, EngineError> {
    let number = match choice {
        DeviceChoice::Cpu => return Ok(None),
        DeviceChoice::Emulator => return Ok(Some((Device::emulated()?, "emulator".into()))),
        DeviceChoice::Auto if Device::cuda_count() == 0 => return Ok(None),
        DeviceChoice::Auto => 0,
        DeviceChoice::Cuda(number) => number,
    };
    let name = format!("cuda:{number}");
    let hint = |error: DeviceError| EngineError::Device(format!("{name}: {error}; --device cpu runs without a GPU"));
    Ok(Some((Device::cuda(number).map_err(hint)?, name)))
}

/// To measure: 1, the host looks up all drafts; 0, a GPU those of its look-ups in prompts.
const HOST_LOOK_UPS: &str = "SPECTUNE_HOST_LOOK_UPS";

/// The rule of look-ups in the own tokens of a request, if a GPU looks them up by itself.
fn looked_up_on_device(options: &EngineOptions) -> Result<Option<PromptLookup>, EngineError> {
    let given = variable(HOST_LOOK_UPS)?.map(|number| number == 0).or(options.device_look_ups);
    // Alone, a round in which the host finds nothing runs the graph of no speculation, which gains
    // more than its look-ups cost. Next to a head every round has the rows of the shape.
    let by_device = given.unwrap_or(options.second_source.is_some());
    Ok(match options.text_draft().or(options.second_source) {
        Some(TextSpec::PromptLookup(rule)) if by_device => Some(rule),
        _ => None,
    })
}

/// The number in an environment variable; `None` if it is not set.
fn variable(name: &str) -> Result<Option<usize>, EngineError> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.trim().parse().ok());
    let Some(number) = number else {
        return Err(EngineError::Configuration(format!("{name}={}: expected a whole number", text.display())));
    };
    tracing::warn!("{name}={number} chooses kernels, for measurements");
    Ok(Some(number))
}

fn cuda_options(options: &EngineOptions, element: Element, context_length: usize) -> Result<CudaOptions, EngineError> {
    Ok(CudaOptions {
        element,
        slots: options.max_running_requests,
        page_size: options.page_size,
        context_length,
        mem_fraction_static: options.mem_fraction_static,
        max_pages: options.max_pages(),
        prefill_chunk: options.chunked_prefill_size.min(context_length).max(1),
        shapes: options.policy.shapes().collect(),
        disable_cuda_graph: options.disable_cuda_graph,
        batch_invariant: options.batch_invariant,
        attention: match options.attention_backend.as_deref() {
            Some("rows") => Some(AttentionKernels::Rows),
            Some("tiles") => Some(AttentionKernels::Tiles),
            _ => None,
        },
        verify_plan: options.verify_plan,
        joins_chains: options.second_source.is_some(),
        looks_up: looked_up_on_device(options)?,
        split_draft: options.split_draft,
        states: StateOptions::from_engine(options),
    })
}

fn check(options: &EngineOptions) -> Result<(), EngineError> {
    const DTYPES: [&str; 6] = ["auto", "half", "float16", "bfloat16", "float", "float32"];
    let wrong = |reason: String| Err(EngineError::Configuration(reason));
    if !DTYPES.contains(&options.dtype.as_str()) {
        return wrong(format!("--dtype {} is unknown; expected one of {}", options.dtype, DTYPES.join(", ")));
    }
    for (flag, value) in [("--page-size", options.page_size), ("--max-running-requests", options.max_running_requests)]
    {
        if !(1..=LARGEST).contains(&value) {
            return wrong(format!("{flag} {value} is out of range, expected 1 to {LARGEST}"));
        }
    }
    if !(1..=MOST_RANKS).contains(&options.tp_size) {
        return wrong(format!("--tp-size {} is out of range, expected 1 to {MOST_RANKS}", options.tp_size));
    }
    if options.uniform_router && options.load_format != LoadFormat::Dummy {
        return wrong("--uniform-router is for random weights: give --load-format dummy, or remove it".into());
    }
    let share = options.mem_fraction_static;
    if !(share > 0.0 && share <= 1.0) {
        return wrong(format!("--mem-fraction-static {share} is not above 0 and at most 1"));
    }
    Ok(())
}

/// The dtype on a GPU: the requested one, else the checkpoint's.
fn element(requested: &str, stored: Option<&str>) -> Result<Element, EngineError> {
    let dtype = if requested == "auto" { stored.unwrap_or("float32") } else { requested };
    match dtype {
        "half" | "float16" => Ok(Element::F16),
        "bfloat16" => Ok(Element::BF16),
        "float" | "float32" => Ok(Element::F32),
        other => Err(EngineError::Configuration(format!(
            "the checkpoint is stored as {other}, which the GPU cannot compute in: give --dtype bfloat16 or float16"
        ))),
    }
}

/// The maximum sequence length: the requested one, up to the model's.
fn context_length(model: &str, made_for: usize, requested: Option<usize>) -> Result<usize, EngineError> {
    match requested {
        Some(0) => Err(EngineError::Configuration("--context-length is 0: expected at least 1".into())),
        Some(requested) if requested > made_for => Err(EngineError::Configuration(format!(
            "--context-length {requested} is longer than the {made_for} tokens that {model} was trained for"
        ))),
        Some(requested) => Ok(requested),
        None => Ok(made_for),
    }
}

/// The name of a model: its folder's name, or its id if the folder is in the Hugging Face cache.
fn name(path: &Path) -> String {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let part = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    // A hub's cache has `models--OWNER--NAME/snapshots/REVISION`, whose last part names no model.
    let snapshots = resolved.parent().filter(|folder| folder.ends_with("snapshots"));
    let id = snapshots.and_then(Path::parent).and_then(part);
    let id = id.and_then(|name| Some(name.strip_prefix("models--")?.replacen("--", "/", 1)));
    id.or_else(|| part(&resolved)).unwrap_or_else(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_not_shared_on_the_cpu() {
        let found = devices(DeviceChoice::Cpu, 2).expect_err("there is one CPU").to_string();
        assert!(found.contains("--tp-size 2"), "{found}");
        assert!(devices(DeviceChoice::Cpu, 1).is_ok_and(|devices| devices.is_empty()));
    }

    #[test]
    fn a_model_has_the_name_of_its_folder_or_its_id() {
        let check = |path: &str, expected: &str| assert_eq!(name(Path::new(path)), expected, "{path}");
        check("models/llama", "llama");
        check("hub/models--org--some--name/snapshots/0a1b2c", "org/some--name");
        check("hub/models--gpt2/snapshots/0a1b2c", "gpt2");
        check("hub/snapshots/0a1b2c", "0a1b2c");
    }
}
