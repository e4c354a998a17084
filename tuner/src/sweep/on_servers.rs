//! A sweep over servers of another engine.
//!
//! For a guided search spectune's own engine replays acceptance, and frees its memory before the
//! first server starts. All times are measured on the servers.

use std::{
    collections::HashSet,
    fs,
    path::PathBuf,
    sync::{OnceLock, atomic::AtomicBool},
    time::Instant,
};

use engine::{EngineOptions, load};
use external::{ServerError, api::ServerInfo};
use schemas::sweep::{StrategyName, SweepFile};

use super::{
    SweepInputs, SweepProgress, SweepRequest, SweepSummary, check_continues, finish, header, open, planned,
    system_bench::{BenchControl, SweepField, SystemBench},
};
use crate::{
    TunerError, guidance,
    prediction::{
        acceptance,
        guide::{self, AcceptanceTable, FittedParameter, Guide, GuideCost, GuideErrors, RoundTimeSummary, TimedPoint},
        latency::additive::{AdditiveModel, Observation},
    },
    preparation::{self, Ready, context::SweepContext},
    space::{Candidate, Expanded, settings},
    strategy::{self, Experiment, Planned, SearchFindings},
    system::{
        System, SystemError,
        server::{
            FileLookup, Host, LaunchPlan, LookupState, Servers,
            fresh::{self, FreshPrompts},
            look_up, words,
        },
        time_limit::TimeLimit,
    },
    trials::{
        configuration::Configuration,
        journal::JournalHeader,
        record::{Fingerprint, Record, Trial},
    },
    workload::ModelText,
};

/// Runs the sweep. Its time counts from the first server that is ready: how long a first start
/// takes says nothing about how long the user wants to measure, and it has a limit of its own.
pub fn run(request: &SweepRequest<'_>, progress: &mut dyn SweepProgress) -> Result<SweepSummary, TunerError> {
    let begun = OnceLock::new();
    let limit = TimeLimit::new(request.inputs.file.search.seconds, request.interrupted, &begun);
    limit.bound(|stop| run_within(request, stop, limit, progress))
}

fn run_within(
    request: &SweepRequest<'_>,
    stop: &AtomicBool,
    limit: TimeLimit<'_>,
    progress: &mut dyn SweepProgress,
) -> Result<SweepSummary, TunerError> {
    let SweepInputs { file, .. } = &request.inputs;
    // Before anything slow.
    let expanded = request.inputs.space(request.inputs.imported()?.as_ref())?;
    check_files(&plan_of(&request.inputs, &expanded), file, progress)?;
    let (ready, model) = preparation::without_engine(&request.inputs)?;
    let fresh = fresh_prompts(&ready, &model, &plan_of(&request.inputs, &expanded))?;
    let mut context = SweepContext::new(request, ready, stop, progress);
    let planned = planned(&file.search, &context.ready.experiment);
    let print = fingerprint(&context.ready, fresh.is_some());
    let known = |fingerprint| JournalHeader { fingerprint, ..header(&context.ready, context.out, planned) };
    check_continues(&context, &known(print)).or_else(|error| {
        // Only a running server shows whether it flushes its cache.
        let may_not_flush = fresh.is_none() && file.system.keep_prefix_cache;
        let without = || check_continues(&context, &known(fingerprint(&context.ready, true)));
        if may_not_flush { without().map_err(|_| error) } else { Err(error) }
    })?;
    context.ready.notes().iter().for_each(|note| context.progress.note(note));
    fs::create_dir_all(context.out).map_err(|source| TunerError::Write { path: context.out.to_owned(), source })?;
    let is_guided = file.search.strategy == StrategyName::Guided;
    let begin = Instant::now();
    let acceptance = if is_guided { acceptance(&mut context)? } else { None };
    let replay_s = begin.elapsed().as_secs_f64();
    // Servers need the memory that spectune's own engine used for the replay.
    context.ready.unload();

    let plan = LaunchPlan { acceptance: context.ready.imported.clone(), ..plan_of(&request.inputs, &expanded) };
    if context.is_interrupted() {
        return Err(SystemError::Server(ServerError::Interrupted).into());
    }
    let mut system = Servers::new(plan, &file.system, request.out.clone(), request.supervisor.as_ref(), stop)?;
    // Engine and version are known only once a server runs. No speculation is always measured
    // first.
    let first = context
        .ready
        .experiment
        .entrants
        .first()
        .map(|one| one.configuration.clone())
        .ok_or_else(|| TunerError::Configuration("there is no configuration to measure".into()))?;
    context.progress.preparing("the first server", 1);
    let info = system.info(&first).map_err(|error| error.hiding(&file.system.secrets()))?;
    context.progress.prepared(1);
    let fresh = match fresh {
        None if !system.flushes()? => without_flush(&mut system, &mut context, &model)?,
        other => other,
    };
    let print = fingerprint(&context.ready, fresh.is_some());
    if let Some(prompts) = fresh {
        system.send_fresh(prompts);
    }
    let version = info.version.as_deref().and_then(|version| version.parse().ok());
    if let Err(error) = context.progress.engine_known(version.filter(|_| !info.is_spectune())) {
        system.stop()?;
        return Err(error);
    }
    context.ready.fingerprint = Fingerprint { engine: engine_of(file, &info), ..print };

    let (journal, mut records) = open(&mut context, planned)?;
    // A configuration that failed in an earlier run is tried once more: flags, images or drivers
    // may have changed.
    records.retain(|record| record.measurement().is_some());
    let SweepContext { ready, out, progress, .. } = context;
    progress.planned(planned, records.len());
    progress.starts_left(starts_left(&ready, planned, &records));
    system.start_seconds().into_iter().for_each(|seconds| progress.server_started(seconds));
    let mut found = SearchFindings::default();
    let tables = acceptance.as_ref().map_or_else(Vec::new, |table| tables(&ready.experiment, table, &system, progress));
    let control = BenchControl { progress: &mut *progress, interrupted: stop, limit: limit.begin() };
    let mut bench = SystemBench::new(SweepField::from(&ready), &mut system, journal, records, control);
    let search = &file.search;
    let searched = if is_guided {
        strategy::few_starts(search, &ready.experiment, acceptance.as_ref(), &tables, &mut found, &mut bench)
    } else {
        strategy::search(search, &ready.experiment, &[], &mut bench)
    };
    // Errors are returned only after the servers are stopped: they would hold the GPUs.
    let measured = bench.end();
    // Stops the servers in any case.
    let stopped = system.stop();
    system.notes().iter().for_each(|note| progress.note(note));
    let measured = measured?;
    let guide = acceptance.and_then(|acceptance| guide_of(&ready.fingerprint, acceptance, found, replay_s));
    if let Some(guide) = &guide {
        guide::write(guide, out)?;
    }
    let summary = finish(&ready, out, searched, measured, model.context_length, guide.as_ref());
    stopped?;
    summary
}

/// The prompts of each repeat, if a server of the sweep keeps what it generated whatever is
/// flushed.
///
/// # Errors
/// When there are too few.
fn fresh_prompts(ready: &Ready, model: &ModelText, plan: &LaunchPlan) -> Result<Option<FreshPrompts>, TunerError> {
    let configurations: Vec<&Configuration> = ready.experiment.entrants.iter().map(|one| &one.configuration).collect();
    let why = fresh::needed(plan, &ready.inputs.file.system, &configurations);
    why.map(|why| fresh_for(ready, model, &why)).transpose()
}

fn fresh_for(ready: &Ready, model: &ModelText, why: &str) -> Result<FreshPrompts, TunerError> {
    let (inputs, experiment) = (&ready.inputs, &ready.experiment);
    FreshPrompts::load(&inputs.file, &inputs.folder, model.clone(), &experiment.loads, experiment.repeats, why)
}

/// As [`fresh_prompts`] for a server that does not flush its prefix cache.
///
/// # Errors
/// As there; the server is then stopped.
fn without_flush(
    system: &mut Servers<'_>,
    context: &mut SweepContext<'_>,
    model: &ModelText,
) -> Result<Option<FreshPrompts>, TunerError> {
    let why = "the server has a prefix cache (system.keep_prefix_cache) and does not flush it (vLLM in a container: \
               VLLM_SERVER_DEV_MODE=1 inside of it)";
    match fresh_for(&context.ready, model, why) {
        Ok(prompts) => {
            context.progress.note(&format!("{why}, so each repeat sends prompts that were not sent before"));
            Ok(Some(prompts))
        }
        Err(error) => {
            system.stop()?;
            Err(error)
        }
    }
}

/// The acceptance of every tree of the space, imported or replayed. `None` if it has to be read
/// from the counters of servers, or the user stopped the sweep.
///
/// # Errors
/// When a replay that has begun fails.
fn acceptance(context: &mut SweepContext<'_>) -> Result<Option<AcceptanceTable>, TunerError> {
    let ready = &mut context.ready;
    let reason = match not_replayed(&ready.inputs.file, &ready.options) {
        Some(reason) => reason,
        None => match ready.imported.is_none().then(|| ready.load()).transpose() {
            Ok(_) => return guidance::acceptance(context),
            Err(error) => format!("spectune's own engine does not run the models: {error}"),
        },
    };
    context.progress.note(&format!(
        "acceptance is estimated from the servers' counters, with more starts, instead of replayed: {reason}"
    ));
    Ok(None)
}

/// Why acceptance is not replayed, as far as it shows before the models are loaded; `None` if it
/// is, or is imported.
pub fn not_replayed(file: &SweepFile, options: &EngineOptions) -> Option<String> {
    if file.models.acceptance.is_some() {
        return None;
    }
    if file.system.simulates_acceptance() {
        return Some("the servers simulate it".into());
    }
    if let Some(rule) = options.text_draft() {
        return Some(format!("acceptance of {} depends on the order of requests", rule.algorithm()));
    }
    let error = load::draft_algorithm(options).err()?;
    Some(format!("spectune's own engine does not run the models: {error}"))
}

/// The command lines of a sweep's servers.
fn plan_of(SweepInputs { file, folder, .. }: &SweepInputs, space: &Expanded) -> LaunchPlan {
    let most = settings::max_running_requests(file, &space.entrants);
    LaunchPlan::from_file(file, folder, most)
}

/// Looks up models and program or image, and reports what the first start has to fetch.
///
/// # Errors
/// When a start would fail.
fn check_files(plan: &LaunchPlan, file: &SweepFile, progress: &mut dyn SweepProgress) -> Result<(), TunerError> {
    for lookup in look_up(plan, &file.system) {
        if let Some(reason) = lookup.refusal() {
            return Err(TunerError::Configuration(reason));
        }
        if lookup.state == LookupState::Later {
            progress.note(&format!("{}: {}", lookup.what, lookup.words));
        }
    }
    Ok(())
}

/// Maximum number of starts of the trials that are not measured yet, the first server's included.
fn starts_left(ready: &Ready, planned: Planned, records: &[Record]) -> usize {
    let experiment = &ready.experiment;
    let Some(trials) = strategy::list(&ready.inputs.file.search, experiment) else {
        let each = (experiment.loads.len() * experiment.repeats).max(1);
        return planned.trials.saturating_sub(records.len()).div_ceil(each);
    };
    let done: HashSet<&str> = records.iter().map(|record| record.id.as_str()).collect();
    let left: Vec<Trial> =
        trials.into_iter().filter(|trial| !done.contains(trial.id(&ready.fingerprint).as_str())).collect();
    left.chunk_by(|one, next| one.configuration == next.configuration).count()
}

/// Starts that serve several chains, if the system supports them.
fn tables(
    experiment: &Experiment,
    acceptance: &AcceptanceTable,
    system: &dyn System,
    progress: &mut dyn SweepProgress,
) -> Vec<Configuration> {
    let tables = strategy::rotations(experiment, acceptance);
    match tables.first().map_or(Ok(()), |first| system.supports(first)) {
        Ok(()) => tables,
        Err(reason) => {
            progress.note(&format!("each chain needs a separate start: {reason}"));
            Vec::new()
        }
    }
}

/// What a dry run finds out about models and program or image; empty if no servers are started.
pub fn lookups(inputs: &SweepInputs, space: &Expanded) -> Vec<FileLookup> {
    let system = &inputs.file.system;
    if system.is_in_process() { Vec::new() } else { look_up(&plan_of(inputs, space), system) }
}

/// The command line of every configuration's server, or why it cannot be started; empty if no
/// servers are started. Name and port are examples.
pub fn starts(
    inputs: &SweepInputs,
    space: &Expanded,
    acceptance: Option<AcceptanceTable>,
) -> Result<Vec<Result<String, String>>, TunerError> {
    let system = &inputs.file.system;
    if system.is_in_process() {
        return Ok(Vec::new());
    }
    let plan = LaunchPlan { acceptance, ..plan_of(inputs, space) };
    let line = |one: &Candidate| {
        let launch = plan.launch(system, &one.configuration, "NAME", 0, PathBuf::new());
        launch.map(|launch| words(&launch)).map_err(|error| error.to_string())
    };
    Ok(space.entrants.iter().map(line).collect())
}

/// The predictions made before the finalists were measured, with their basis; `None` if too little
/// was measured to predict.
fn guide_of(
    fingerprint: &Fingerprint,
    acceptance: AcceptanceTable,
    found: SearchFindings,
    replay_s: f64,
) -> Option<Guide> {
    let SearchFindings { predictions, model, points } = found;
    let left_out = AdditiveModel::left_out_ms(&points)?;
    let errors = AdditiveModel::errors(&points);
    let at =
        |share: f64| errors.get(((errors.len() as f64 * share) as usize).min(errors.len().saturating_sub(1))).copied();
    let error = GuideErrors { median: at(0.5)?, p90: at(0.9)?, largest: at(1.0)? };
    let timed = points.iter().zip(left_out).filter_map(|(point, left_out_ms)| {
        let Observation { shape, batch, round_ms: measured_ms, .. } = *point;
        Some(TimedPoint { shape, batch, context: 0, measured_ms, left_out_ms: left_out_ms? })
    });
    let parameters = model?.parameters();
    let parameter = |(name, value)| FittedParameter { name: format!("cost of {name}"), value, unit: "ms".into() };
    Some(Guide {
        format: guide::FORMAT,
        fingerprint: fingerprint.clone(),
        acceptance,
        round_times: RoundTimeSummary {
            parameters: parameters.into_iter().map(parameter).collect(),
            error,
            points: timed.collect(),
        },
        predictions,
        rounds_by_batch: Vec::new(),
        captures: Vec::new(),
        cost: GuideCost { replay_s, ..GuideCost::default() },
        draft: String::new(),
        others: Vec::new(),
    })
}

/// The engine by a server's own description, with its version.
fn engine_of(file: &SweepFile, info: &ServerInfo) -> String {
    let version = info.version.as_deref().unwrap_or("of unknown version");
    // Our own server has SGLang's interface, and reports that it is not SGLang.
    match info.resolved.as_ref().and_then(|answer| answer["engine"].as_str()) {
        Some(name) => format!("{name} {version}, served"),
        None => format!("{} {version}", file.system.kind.name()),
    }
}

/// Where and with what the sweep runs, without the engine, which is known once a server runs.
/// `fresh` says whether each repeat sends other prompts.
fn fingerprint(ready: &Ready, fresh: bool) -> Fingerprint {
    let inputs = &ready.inputs;
    // A key that changes does not change what is measured.
    let system = &inputs.file.system.masked();
    let host = Host::this().used_by(system);
    // Another image or flag may change every figure, so such trials are not ranked together.
    let start = [system.command.as_slice(), system.extra_args.as_slice()].concat().join(" ");
    let env: String = system.env.iter().map(|(name, value)| format!(", {name}={value}")).collect();
    let models = &inputs.file.models;
    let quantised = models.quantization.as_ref().map_or_else(String::new, |name| format!(" as {name}"));
    let rows = models.kv_cache_dtype.as_ref().map_or_else(String::new, |name| format!(", KV cache {name}"));
    let running = settings::limit_in_words(&inputs.file);
    let made_up = ready
        .imported
        .as_ref()
        .map_or_else(String::new, |table| format!(", acceptance imported ({})", acceptance::hash(table)));
    let cache = if system.keep_prefix_cache { ", prefix cache on" } else { "" };
    let fresh = if fresh { ", new prompts in each repeat" } else { "" };
    let keys = match system.speculative_config.is_empty() {
        true => String::new(),
        false => {
            format!(", speculative config {}", serde_json::to_string(&system.speculative_config).unwrap_or_default())
        }
    };
    let names: Vec<&str> = host.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    Fingerprint {
        device: if host.gpus.is_empty() { "cpu".into() } else { "gpu".into() },
        units: host.gpus.len().max(1),
        device_name: if host.gpus.is_empty() { host.processor } else { names.join(" + ") },
        driver: host.driver,
        engine: String::new(),
        target: inputs.target_hash(),
        draft: inputs.draft_hashes(),
        workload: ready.workload.hash.clone(),
        settings: format!(
            "{}, dtype {}{quantised}{rows}{running}{made_up}{cache}{fresh}{keys}, started by {start}{env}",
            inputs.algorithms(),
            models.dtype
        ),
    }
}
