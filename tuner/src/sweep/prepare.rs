//! Prepares a sweep: the engine, the workload, the experiment.

use std::{path::Path, sync::Arc};

use engine::{
    Engine, EngineError, EngineOptions, ShapePolicy,
    checkpoint::Folder,
    options::{default_shape, default_shape_of, nodes_of, quantization},
    spec::TextSpec,
};
use schemas::{
    drafting::vllm_method,
    sweep::{SweepFile, SystemKind},
    tree::{NodeSource, TreeShape},
};

use super::SweepRequest;
use crate::{
    TunerError, acceptance,
    configuration::TableRow,
    guide::AcceptanceTable,
    outcome,
    record::{Fingerprint, Role},
    selection::Comparison,
    settings,
    space::{Expanded, expand},
    strategy::{self, Experiment},
    workload::{ModelText, Workload},
};

/// A sweep that is ready to run.
pub struct Ready {
    /// `None` only if an engine could not be restarted, or is not loaded.
    engine: Option<Engine>,
    /// The engine's options without the overrides of configurations.
    pub options: EngineOptions,
    pub workload: Arc<Workload>,
    pub space: Expanded,
    pub experiment: Experiment,
    pub fingerprint: Fingerprint,
    /// Imported accept lengths, if acceptance is simulated.
    pub imported: Option<AcceptanceTable>,
    /// The sweep file's maximum number of running requests, in the words of the fingerprint; empty if not set.
    limit: String,
}

/// Loads the models and the workload, and defines the experiment.
///
/// # Errors
/// When something cannot be loaded, or the sweep file requests something impossible.
pub fn prepare(request: &SweepRequest<'_>) -> Result<Ready, TunerError> {
    let file = &request.file;
    let imported = imported(request)?;
    let mut space = space(request, imported.as_ref())?;
    // From the whole space, so that all shards of a sweep have the same settings.
    let options = options(request, &space)?;
    let engine = Engine::load(options.clone())?;
    let workload = Workload::load(&file.workload, &request.folder, &ModelText::of(&engine))?;
    let experiment = experiment(request, &mut space)?;
    refuse_impossible_batches(&experiment, &workload, &engine)?;
    let limit = settings::limit_in_words(file);
    let fingerprint = fingerprint(&engine, &workload, imported.as_ref(), &limit);
    let workload = Arc::new(workload);
    Ok(Ready { engine: Some(engine), options, workload, space, experiment, fingerprint, imported, limit })
}

/// As [`prepare`], for a sweep over servers: no weights are loaded.
///
/// # Errors
/// As [`prepare`].
pub fn without_engine(request: &SweepRequest<'_>) -> Result<(Ready, ModelText), TunerError> {
    let file = &request.file;
    let imported = imported(request)?;
    let mut space = space(request, imported.as_ref())?;
    let options = options(request, &space)?;
    let model = ModelText::open(&options.model_path, file.engine.context_length)?;
    let workload = Arc::new(Workload::load(&file.workload, &request.folder, &model)?);
    let experiment = experiment(request, &mut space)?;
    let fingerprint = Fingerprint::default();
    Ok((
        Ready {
            engine: None,
            options,
            workload,
            space,
            experiment,
            fingerprint,
            imported,
            limit: settings::limit_in_words(file),
        },
        model,
    ))
}

/// Hash of a model's files, or its name if it is not a folder.
pub fn model_hash(folder: &Path, name: &str) -> String {
    if name.is_empty() {
        return String::new();
    }
    let hash = Folder::open(&folder.join(name)).and_then(|folder| folder.hash());
    hash.unwrap_or_else(|_| name.to_owned())
}

/// The acceptance table that the sweep file imports, if any.
///
/// # Errors
/// As [`acceptance::import`].
pub fn imported(request: &SweepRequest<'_>) -> Result<Option<AcceptanceTable>, TunerError> {
    request.file.models.acceptance.as_ref().map(|from| acceptance::import(&request.folder, from)).transpose()
}

/// The configurations of the whole sweep, regardless of the shard; with imported acceptance, only the ones that it
/// covers.
///
/// # Errors
/// When a table cannot be read, or the target's configuration cannot.
pub fn space(request: &SweepRequest<'_>, imported: Option<&AcceptanceTable>) -> Result<Expanded, TunerError> {
    let file = &request.file;
    let tables = file.space.tables.iter().map(|path| table(request, path)).collect::<Result<Vec<_>, _>>()?;
    let nodes = nodes(request);
    let mut space = expand(&file.space, &file.knobs, &tables, nodes, default(request, nodes)?);
    if matches!(nodes, NodeSource::Block(_)) && file.system.kind != SystemKind::Spectune {
        // Other engines verify a block as a chain, whatever the number of branches.
        space.entrants.retain(|one| one.configuration.shape.topk <= 1);
    }
    if file.system.kind == SystemKind::Vllm {
        only_chains(&mut space, &file.models.algorithm);
    }
    if let Some(table) = imported {
        space.retain_covered(|one| acceptance::length_of(table, one).is_ok());
    }
    Ok(space)
}

/// Keeps what vLLM can run: it drafts only chains, and has a default number of tokens for some methods only.
fn only_chains(space: &mut Expanded, algorithm: &str) {
    space.entrants.retain(|one| one.configuration.shape.topk <= 1);
    if vllm_method(algorithm).is_none_or(|method| !method.has_default) {
        let defaults = space.entrants.iter_mut().filter(|one| one.role == Role::EngineDefault);
        defaults.for_each(|one| one.role = Role::Candidate);
    }
}

/// Defines the experiment. The space is reduced to the part of the shard.
///
/// # Errors
/// When the search cannot cover it.
pub fn experiment(request: &SweepRequest<'_>, space: &mut Expanded) -> Result<Experiment, TunerError> {
    let file = &request.file;
    if let Some(shard) = request.shard {
        space.entrants = shard.of(&space.entrants);
    }
    let experiment = Experiment {
        entrants: space.entrants.clone(),
        loads: settings::loads(file),
        repeats: file.search.repeats,
        metric: file.objective.metric,
        looks: Comparison::of(file).looks,
        restarts: !file.system.is_in_process(),
    };
    strategy::check(&file.search, &experiment)?;
    Ok(experiment)
}

/// Refuses batches that can never run together: they would only be measured as failures after minutes, one for each
/// configuration. The check uses the minimum that a batch needs: prompts and generated tokens, without the tree.
fn refuse_impossible_batches(experiment: &Experiment, workload: &Workload, engine: &Engine) -> Result<(), TunerError> {
    let capacity = engine.capacity();
    for load in &experiment.loads {
        let Some(batch) = load.batch_size().map(|batch| batch.min(engine.max_running_requests())) else { continue };
        let tokens = workload
            .requests
            .iter()
            .cycle()
            .take(batch)
            .map(|request| request.input_ids.len().saturating_add(request.stop.max_new_tokens.unwrap_or_default()));
        let pages = tokens.fold(0_usize, |sum, tokens| sum.saturating_add(tokens.div_ceil(capacity.page_size)));
        // Prompts with a common prefix share pages only with a prefix cache; a sweep has none.
        if pages > capacity.pages {
            return Err(TunerError::BatchTooLarge {
                batch,
                needed: pages.saturating_mul(capacity.page_size),
                room: capacity.pages.saturating_mul(capacity.page_size),
            });
        }
    }
    Ok(())
}

impl Ready {
    /// The engine.
    ///
    /// # Errors
    /// When it could not be restarted after a failure.
    pub fn engine(&mut self) -> Result<&mut Engine, EngineError> {
        self.engine.as_mut().ok_or_else(gone)
    }

    /// The engine and its workload.
    ///
    /// # Errors
    /// As [`engine`](Self::engine).
    pub fn parts(&mut self) -> Result<(&mut Engine, &Workload), EngineError> {
        Ok((self.engine.as_mut().ok_or_else(gone)?, &self.workload))
    }

    /// Whether an engine is loaded and idle.
    pub fn is_idle(&self) -> bool {
        self.engine.as_ref().is_some_and(Engine::is_idle)
    }

    /// Reloads the engine. The old one frees its memory first.
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub fn restart(&mut self, options: EngineOptions) -> Result<(), EngineError> {
        self.engine = None;
        self.engine = Some(Engine::load(options)?);
        Ok(())
    }

    /// Loads the engine if it is not loaded, for results that only it can compute.
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub fn load(&mut self) -> Result<(), TunerError> {
        if self.engine.is_none() {
            let engine = Engine::load(self.options.clone())?;
            self.fingerprint = fingerprint(&engine, &self.workload, self.imported.as_ref(), &self.limit);
            self.engine = Some(engine);
        }
        Ok(())
    }

    /// Frees the engine's memory.
    pub fn unload(&mut self) {
        self.engine = None;
    }

    /// Messages for the user before the first trial.
    pub fn notes(&self, request: &SweepRequest<'_>) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.space.skipped());
        if self.workload.left_out > 0 {
            notes.push(format!("{} prompts are skipped (too long, or without a user message)", self.workload.left_out));
        }
        let largest = self.experiment.loads.iter().filter_map(|load| load.batch_size()).max().unwrap_or_default();
        if let Some(fewest) = request.file.knobs.max_running_requests.iter().min().filter(|fewest| **fewest < largest) {
            notes.push(format!(
                "with max_running_requests = {fewest}, a batch of {largest} runs {fewest} requests at a time and the \
                 rest wait"
            ));
        }
        let most =
            self.experiment.loads.iter().map(|load| self.workload.requests_under(*load)).max().unwrap_or_default();
        if self.workload.prompts < most {
            let prompts = self.workload.prompts;
            notes.push(format!(
                "a trial has up to {most} requests but the workload has {prompts} prompts: prompts are repeated"
            ));
        }
        let are_set = !request.file.engine.capture_sizes.is_empty() || !request.file.knobs.capture_sizes.is_empty();
        if are_set && self.fingerprint.device == "cpu" {
            notes.push("capture_sizes are recorded but have no effect: the CPU captures no graphs".into());
        }
        if self.experiment.repeats == 1 {
            notes.push(
                "search.repeats is 1: the noise is unknown, so real differences cannot be distinguished from it".into(),
            );
        }
        if self.imported.is_some() {
            notes.push(
                "acceptance is imported and simulated in every trial: times are measured, the generated text is \
                 meaningless"
                    .into(),
            );
        }
        notes
    }
}

fn gone() -> EngineError {
    EngineError::Device("the engine could not be started again after a failure".into())
}

/// What the draft makes of a shape.
fn nodes(request: &SweepRequest<'_>) -> NodeSource {
    let models = &request.file.models;
    match NodeSource::named(&models.algorithm) {
        NodeSource::Beams => NodeSource::Beams,
        texts @ NodeSource::Text(_) => texts,
        // A server may load the draft from elsewhere.
        unknown => nodes_of(&request.folder.join(&models.draft)).unwrap_or(unknown),
    }
}

/// The engine's default shape; our own engine uses SGLang's.
fn default(request: &SweepRequest<'_>, nodes: NodeSource) -> Result<TreeShape, TunerError> {
    if let NodeSource::Block(block) = nodes {
        return Ok(block.chain());
    }
    let models = &request.file.models;
    // Our defaults of look-ups are those of the engine that has them.
    if let Some(rule) = TextSpec::named(&models.algorithm) {
        return Ok(rule.default_shape());
    }
    if request.file.system.kind == SystemKind::Vllm {
        // One token per MTP layer. For a head there is no default; three is the number in vLLM's documentation.
        return Ok(TreeShape::chain(if models.algorithm.eq_ignore_ascii_case("NEXTN") { 1 } else { 3 }));
    }
    Ok(match &models.model_shape {
        Some(shape) => default_shape_of(shape)?,
        None => default_shape(&request.folder.join(&models.target))?,
    })
}

/// Reads the table of a tuned file.
///
/// # Errors
/// When it cannot be read.
pub fn table(request: &SweepRequest<'_>, path: &str) -> Result<Vec<TableRow>, TunerError> {
    let path = request.folder.join(path);
    let tuned = outcome::read_file(&path)?;
    let row = |(max_running_batch, shape)| TableRow { max_running_batch, shape };
    Ok(tuned.shapes().into_iter().map(row).collect())
}

/// The options of the engine.
///
/// # Errors
/// When the device or the quantisation is unknown.
pub fn options(request: &SweepRequest<'_>, space: &Expanded) -> Result<EngineOptions, TunerError> {
    let SweepFile { models, engine, .. } = &request.file;
    // Pages are reserved for the largest tree of the space, so that the cache has the same size for every shape.
    let largest = space.entrants.iter().flat_map(|one| one.configuration.shapes());
    let largest = largest.max_by_key(|shape| shape.num_draft_tokens);
    let random = models.model_shape.is_some();
    Ok(EngineOptions {
        model_path: request.folder.join(&models.target),
        draft_model_path: (!models.draft.is_empty()).then(|| request.folder.join(&models.draft)),
        load_format: if random { engine::options::LoadFormat::Dummy } else { engine::options::LoadFormat::Auto },
        model_shape: models.model_shape.clone(),
        num_layers: models.num_layers,
        algorithm: Some(models.algorithm.clone()),
        policy: largest.map_or_else(|| EngineOptions::default().policy, ShapePolicy::fixed),
        device: match request.device {
            Some(device) => device,
            None => engine.device.parse()?,
        },
        tp_size: engine.tp_size,
        dtype: models.dtype.clone(),
        quantization: quantization("models.quantization", models.quantization.as_deref())?,
        draft_quantization: quantization("models.quantization", models.quantization.as_deref())?,
        context_length: engine.context_length,
        max_running_requests: settings::max_running_requests(&request.file, &space.entrants),
        page_size: engine.page_size,
        mem_fraction_static: engine.mem_fraction_static,
        chunked_prefill_size: engine.chunked_prefill_size,
        capture_sizes: engine.capture_sizes.clone(),
        // Otherwise repeats of a workload would find their own prompts in the cache.
        disable_radix_cache: true,
        ..EngineOptions::default()
    })
}

fn fingerprint(engine: &Engine, workload: &Workload, imported: Option<&AcceptanceTable>, limit: &str) -> Fingerprint {
    let device = engine.device();
    Fingerprint {
        device: device.device,
        device_name: device.name,
        driver: device.driver,
        units: device.units,
        engine: engine::NAME_AND_VERSION.into(),
        target: engine.identity().target.clone(),
        draft: engine.identity().draft.clone().unwrap_or_default(),
        workload: workload.hash.clone(),
        settings: in_words(engine, imported, limit),
    }
}

/// The part of a fingerprint in which two sweeps on one machine can differ, the algorithm first.
fn in_words(engine: &Engine, imported: Option<&AcceptanceTable>, limit: &str) -> String {
    let options = engine.options();
    let captured = match options.capture_sizes.as_slice() {
        [] => String::new(),
        sizes => format!(", capture sizes {}", sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")),
    };
    let quantised = options.quantization.map_or_else(String::new, |by| format!(" as {}", by.name()));
    let imported = imported.map_or_else(String::new, |table| format!(", acceptance {}", acceptance::hash(table)));
    format!(
        "{}, dtype {}{quantised}, context {}, page size {}, prefill of {} tokens{limit}{captured}{imported}",
        options.algorithm.as_deref().unwrap_or("no draft"),
        options.dtype,
        engine.capacity().context_length,
        options.page_size,
        options.chunked_prefill_size
    )
}
