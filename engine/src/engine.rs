//! The engine that callers see: a scheduler over a backend, and the text side of a model.

use std::path::Path;

use schemas::tree::TreeShape;

use crate::{
    backend::{Backend, Capacity, DeviceInfo, cpu::CpuBackend},
    checkpoint::{Folder, GenerationConfig},
    error::EngineError,
    memory,
    model::{Draft, Llama, load_draft},
    options::{DeviceChoice, EngineOptions, LoadFormat, ShapePolicy},
    request::{Completion, Event, Request, RequestId},
    scheduler::{ModelEnds, Scheduler, Statistics},
    text::Text,
};

/// A loaded target with its draft, ready for requests. Owned by one thread.
pub struct Engine {
    options: EngineOptions,
    identity: Identity,
    scheduler: Scheduler,
    text: Option<Text>,
    generation: GenerationConfig,
}

/// What identifies the models of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name under which the target is served: the last part of its path.
    pub name: String,
    /// Hash of the target's files.
    pub target: String,
    /// Hash of the draft's files, where there is a draft.
    pub draft: Option<String>,
}

impl Engine {
    /// Loads the models and takes the memory that the options ask for.
    ///
    /// # Errors
    /// When files are missing or malformed, target and draft do not fit, or memory does not suffice.
    pub fn load(mut options: EngineOptions) -> Result<Self, EngineError> {
        check_device(options.device)?;
        check_dtype(&options.dtype)?;
        if options.load_format == LoadFormat::Dummy {
            return Err(EngineError::Configuration(
                "--load-format dummy makes weights on a CUDA device; on the CPU give --model-path a checkpoint".into(),
            ));
        }
        if options.token_map.is_some() || options.simulate_accept_length.is_some() {
            return Err(EngineError::Configuration(
                "--speculative-token-map and --simulate-accept-length are not implemented yet".into(),
            ));
        }
        let folder = Folder::open(&options.model_path)?;
        let draft_folder = options.draft_model_path.as_deref().map(Folder::open).transpose()?;
        if draft_folder.is_none() && options.policy.speculates() {
            return Err(EngineError::Configuration(
                "speculation needs a draft: give --speculative-draft-model-path, or leave the tree shape out".into(),
            ));
        }
        let context_length = context_length(&folder, options.context_length)?;
        check_memory(&folder, draft_folder.as_ref())?;

        let target = Llama::load(&folder)?;
        let draft = draft_folder.as_ref().map(|draft| load_draft(draft, &target, options.algorithm.as_deref()));
        let draft = draft.transpose()?;
        let capacity = capacity(&options, &target, draft.as_deref(), context_length)?;
        let mut backend = CpuBackend::new(target, draft, capacity);
        let shapes: Vec<TreeShape> = options.policy.shapes().collect();
        backend.prepare(&shapes, &options.capture_sizes)?;

        let text = Text::open(&folder)?;
        let generation = folder.generation_config()?;
        let mut end_tokens = generation.eos_token_id.clone();
        end_tokens.extend(&folder.config.eos_token_id);
        options.context_length = Some(context_length);
        Ok(Self {
            identity: Identity {
                name: name(&options.model_path),
                target: folder.hash()?,
                draft: draft_folder.as_ref().map(Folder::hash).transpose()?,
            },
            scheduler: Scheduler::new(
                Box::new(backend),
                ModelEnds { end_tokens, text: text.clone() },
                options.policy.clone(),
                options.max_running_requests,
                options.chunked_prefill_size,
            ),
            options,
            text,
            generation,
        })
    }

    /// Checks a request and puts it in the queue.
    ///
    /// # Errors
    /// When it can never run: an empty prompt, tokens outside the vocabulary, a prompt longer than the context.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, EngineError> {
        self.scheduler.submit(request)
    }

    /// Ends a request; its [`Event::Finished`] comes with the next step. Unknown numbers are ignored.
    pub fn cancel(&mut self, request: RequestId) {
        self.scheduler.cancel(request);
    }

    /// Admits what fits, takes prompts in, and runs one round for the running batch.
    ///
    /// # Errors
    /// When the device fails; the engine is not usable afterwards.
    pub fn step(&mut self) -> Result<Vec<Event>, EngineError> {
        self.scheduler.step()
    }

    /// Whether nothing is queued or running.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// Runs requests to their end and returns their completions in the given order.
    ///
    /// # Errors
    /// As [`submit`](Self::submit) and [`step`](Self::step). All requests are checked before the first one runs.
    pub fn run(&mut self, requests: Vec<Request>) -> Result<Vec<Completion>, EngineError> {
        let mut ids = Vec::new();
        for request in requests {
            match self.submit(request) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    ids.into_iter().for_each(|id| self.cancel(id));
                    self.step()?;
                    return Err(error);
                }
            }
        }
        let mut completions: Vec<Option<Completion>> = vec![None; ids.len()];
        while !self.is_idle() {
            for event in self.step()? {
                if let Event::Finished { request, completion } = event
                    && let Some(at) = ids.iter().position(|id| *id == request)
                {
                    completions[at] = Some(*completion);
                }
            }
        }
        Ok(completions.into_iter().flatten().collect())
    }

    /// Changes which tree runs at which batch, without reloading weights. Only while idle.
    ///
    /// # Errors
    /// When a shape cannot run, or needs a draft that is not loaded.
    pub fn set_policy(&mut self, policy: ShapePolicy) -> Result<(), EngineError> {
        self.scheduler.set_policy(policy.clone(), &self.options.capture_sizes)?;
        self.options.policy = policy;
        Ok(())
    }

    /// What it runs on.
    pub fn device(&self) -> DeviceInfo {
        self.scheduler.backend().device()
    }

    /// What it has room for.
    pub fn capacity(&self) -> Capacity {
        self.scheduler.backend().capacity()
    }

    /// Most requests that run together.
    pub fn max_running_requests(&self) -> usize {
        self.scheduler.largest_batch()
    }

    /// The options, with what was left open filled in.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// What identifies the models.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Tokenizer and chat template, where the target has a tokenizer.
    pub fn text(&self) -> Option<&Text> {
        self.text.as_ref()
    }

    /// How the model wants to be sampled.
    pub fn generation_config(&self) -> &GenerationConfig {
        &self.generation
    }

    /// What has happened so far, and what runs now.
    pub fn statistics(&self) -> &Statistics {
        self.scheduler.statistics()
    }
}

fn check_device(device: DeviceChoice) -> Result<(), EngineError> {
    match device {
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok(()),
        DeviceChoice::Cuda(number) => Err(EngineError::Device(format!(
            "cuda:{number} was asked for, but this version has no CUDA backend; use --device cpu"
        ))),
    }
}

fn check_dtype(dtype: &str) -> Result<(), EngineError> {
    const KNOWN: [&str; 6] = ["auto", "half", "float16", "bfloat16", "float", "float32"];
    if KNOWN.contains(&dtype) {
        return Ok(());
    }
    Err(EngineError::Configuration(format!("--dtype {dtype} is not known; expected one of {}", KNOWN.join(", "))))
}

/// The longest sequence: what is asked for, at most what the model was made for.
fn context_length(folder: &Folder, asked: Option<usize>) -> Result<usize, EngineError> {
    let own = folder.config.derived_context_length();
    match asked {
        Some(0) => Err(EngineError::Configuration("--context-length is 0: expected at least 1".into())),
        Some(asked) if asked > own => Err(EngineError::Configuration(format!(
            "--context-length {asked} is longer than the {own} tokens that {} is made for",
            folder.path().display()
        ))),
        Some(asked) => Ok(asked),
        None => Ok(own),
    }
}

/// Weights are held as f32: refuse before taking memory that is not there.
fn check_memory(folder: &Folder, draft: Option<&Folder>) -> Result<(), EngineError> {
    let mut needed = 4 * folder.weights()?.values();
    if let Some(draft) = draft {
        needed += 4 * draft.weights()?.values();
    }
    match memory::available() {
        Some(available) if needed > available => Err(EngineError::OutOfMemory {
            what: "weights as float32".into(),
            needed_mib: needed >> 20,
            available_mib: available >> 20,
            hint: "use a smaller model, or a machine with more memory".into(),
        }),
        _ => Ok(()),
    }
}

/// Pages for all requests at full length, or what the memory share allows.
fn capacity(
    options: &EngineOptions,
    target: &Llama,
    draft: Option<&dyn Draft>,
    context_length: usize,
) -> Result<Capacity, EngineError> {
    if options.page_size == 0 || options.max_running_requests == 0 {
        return Err(EngineError::Configuration("--page-size and --max-running-requests must be at least 1".into()));
    }
    if !(options.mem_fraction_static > 0.0 && options.mem_fraction_static <= 1.0) {
        let found = options.mem_fraction_static;
        return Err(EngineError::Configuration(format!("--mem-fraction-static {found} is not above 0 and at most 1")));
    }
    let tree = options.policy.shapes().map(|shape| shape.num_draft_tokens).max().unwrap_or(1);
    let wanted = (context_length + tree).div_ceil(options.page_size).saturating_mul(options.max_running_requests);
    let page = CpuBackend::bytes_a_token(target, draft) * options.page_size as u64;
    let share = memory::available().map(|bytes| (bytes as f64 * options.mem_fraction_static) as u64);
    let affordable = share.map_or(usize::MAX, |bytes| (bytes / page.max(1)) as usize);
    // Rows are numbered in 32 bits.
    let pages = wanted.min(affordable).min(u32::MAX as usize / 2 / options.page_size);
    if pages == 0 {
        return Err(EngineError::OutOfMemory {
            what: "one page of KV cache".into(),
            needed_mib: (page >> 20).max(1),
            available_mib: share.unwrap_or_default() >> 20,
            hint: "raise --mem-fraction-static or lower --page-size".into(),
        });
    }
    Ok(Capacity {
        slots: options.max_running_requests,
        pages,
        page_size: options.page_size,
        context_length,
        vocab_size: target.vocab_size(),
        prefill_chunk: options.chunked_prefill_size.max(1),
        // The CPU runs a round where it is launched: looking ahead would only run rounds for nobody.
        rounds_in_flight: 1,
    })
}

fn name(path: &Path) -> String {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    resolved.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
