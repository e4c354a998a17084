//! A sweep over servers of another engine.
//!
//! For a guided search spectune's own engine replays acceptance, and frees its memory before the
//! first server starts. All times are measured on the servers.

use std::{
    collections::HashSet,
    fs,
    path::PathBuf,
    sync::{OnceLock, atomic::Ordering},
    time::Instant,
};

use engine::{EngineOptions, load};
use external::{ServerError, api::ServerInfo};
use schemas::sweep::StrategyName;

use super::{
    Progress, SweepRequest, SweepSummary, check_continues, finish, header, open, planned,
    system_bench::{SweepField, SystemBench},
};
use crate::{
    TunerError, guidance,
    prediction::{
        acceptance,
        guide::{self, AcceptanceTable, Guide, GuideCost, GuideErrors, Parameter, RoundTimeSummary, TimedPoint},
        latency::additive::{AdditiveModel, Observation},
    },
    preparation::{self, Ready},
    space::{Candidate, Expanded, settings},
    strategy::{self, Experiment, Planned, SearchFindings},
    system::{
        System, SystemError,
        server::{FileLookup, Host, LaunchPlan, LookupState, Servers, look_up, words},
        time_limit::TimeLimit,
    },
    trials::{
        configuration::Configuration,
        journal::JournalHeader,
        record::{Fingerprint, Record, Trial},
    },
};

/// Runs the sweep. Its time counts from the first server that is ready: how long a first start
/// takes says nothing about how long the user wants to measure, and it has a limit of its own.
pub fn run(request: &SweepRequest<'_>, progress: &mut dyn Progress) -> Result<SweepSummary, TunerError> {
    let begun = OnceLock::new();
    let limit = TimeLimit::new(request.file.search.seconds, request.interrupted, &begun);
    limit.bound(|stop| run_within(&SweepRequest { interrupted: stop, ..request.clone() }, limit, progress))
}

fn run_within(
    request: &SweepRequest<'_>,
    limit: TimeLimit<'_>,
    progress: &mut dyn Progress,
) -> Result<SweepSummary, TunerError> {
    let file = &request.file;
    // Before anything slow.
    let expanded = preparation::space(request, preparation::imported(request)?.as_ref())?;
    check_files(&plan_of(request, &expanded), request, progress)?;
    let (mut ready, model) = preparation::without_engine(request)?;
    let planned = planned(request, &ready.experiment);
    let print = fingerprint(request, &ready);
    check_continues(request, &JournalHeader { fingerprint: print.clone(), ..header(request, &ready, planned) })?;
    ready.notes(request).iter().for_each(|note| progress.note(note));
    fs::create_dir_all(&request.out).map_err(|source| TunerError::Write { path: request.out.clone(), source })?;
    let is_guided = file.search.strategy == StrategyName::Guided;
    let begin = Instant::now();
    let acceptance = if is_guided { acceptance(request, &mut ready, progress)? } else { None };
    let replay_s = begin.elapsed().as_secs_f64();
    ready.unload();

    let plan = LaunchPlan { acceptance: ready.imported.clone(), ..plan_of(request, &expanded) };
    if request.interrupted.load(Ordering::Relaxed) {
        return Err(SystemError::Server(ServerError::Interrupted).into());
    }
    let mut system =
        Servers::new(plan, &file.system, request.out.clone(), request.supervisor.as_ref(), request.interrupted)?;
    // Engine and version are known only once a server runs. No speculation is always measured
    // first.
    let first = ready
        .experiment
        .entrants
        .first()
        .map(|one| one.configuration.clone())
        .ok_or_else(|| TunerError::Configuration("there is no configuration to measure".into()))?;
    progress.preparing("the first server", 1);
    let info = system.info(&first).map_err(|error| error.hiding(&file.system.secrets()))?;
    progress.prepared(1);
    let version = info.version.as_deref().and_then(|version| version.parse().ok());
    if let Err(error) = progress.engine_known(version.filter(|_| !info.is_spectune())) {
        system.stop()?;
        return Err(error);
    }
    ready.fingerprint = Fingerprint { engine: engine_of(request, &info), ..print };

    let (journal, mut records) = open(request, &header(request, &ready, planned), progress)?;
    // A configuration that failed in an earlier run is tried once more: flags, images or drivers
    // may have changed.
    records.retain(|record| record.measurement().is_some());
    progress.planned(planned, records.len());
    progress.starts_left(starts_left(request, &ready, planned, &records));
    system.start_seconds().into_iter().for_each(|seconds| progress.server_started(seconds));
    let mut found = SearchFindings::default();
    let tables = acceptance.as_ref().map_or_else(Vec::new, |table| tables(&ready.experiment, table, &system, progress));
    let mut bench =
        SystemBench::new(request, SweepField::from(&ready), &mut system, journal, records, (progress, limit.begin()));
    let search = &file.search;
    let searched = if is_guided {
        strategy::few_starts(search, &ready.experiment, acceptance.as_ref(), &tables, &mut found, &mut bench)
    } else {
        strategy::search(search, &ready.experiment, &[], &mut bench)
    };
    let measured = bench.end();
    // Stops the servers in any case.
    let stopped = system.stop();
    system.notes().iter().for_each(|note| progress.note(note));
    let measured = measured?;
    let guide = acceptance.and_then(|acceptance| guide_of(&ready.fingerprint, acceptance, found, replay_s));
    if let Some(guide) = &guide {
        guide::write(guide, &request.out)?;
    }
    let summary = finish(request, searched, measured, model.context_length, &ready.fingerprint, guide.as_ref());
    stopped?;
    summary
}

/// The acceptance of every tree of the space, imported or replayed. `None` if it has to be read
/// from the counters of servers, or the user stopped the sweep.
///
/// # Errors
/// When a replay that has begun fails.
fn acceptance(
    request: &SweepRequest<'_>,
    ready: &mut Ready,
    progress: &mut dyn Progress,
) -> Result<Option<AcceptanceTable>, TunerError> {
    let reason = match not_replayed(request, &ready.options) {
        Some(reason) => reason,
        None => match ready.imported.is_none().then(|| ready.load(request)).transpose() {
            Ok(_) => return guidance::acceptance(request, ready, progress),
            Err(error) => format!("spectune's own engine does not run the models: {error}"),
        },
    };
    progress.note(&format!(
        "acceptance is estimated from the servers' counters, with more starts, instead of replayed: {reason}"
    ));
    Ok(None)
}

/// Why acceptance is not replayed, as far as it shows before the models are loaded; `None` if it
/// is, or is imported.
pub fn not_replayed(request: &SweepRequest<'_>, options: &EngineOptions) -> Option<String> {
    let file = &request.file;
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
fn plan_of(request: &SweepRequest<'_>, space: &Expanded) -> LaunchPlan {
    let most = settings::max_running_requests(&request.file, &space.entrants);
    LaunchPlan::from_file(&request.file, &request.folder, most)
}

/// Looks up models and image, and reports what the first start has to fetch.
///
/// # Errors
/// When a start would fail.
fn check_files(plan: &LaunchPlan, request: &SweepRequest<'_>, progress: &mut dyn Progress) -> Result<(), TunerError> {
    for FileLookup { what, words, state } in look_up(plan, &request.file.system) {
        match state {
            LookupState::Here => {}
            LookupState::Later => progress.note(&format!("{what}: {words}")),
            LookupState::Missing => {
                return Err(TunerError::Configuration(format!("the {what} is incomplete: {words}")));
            }
        }
    }
    Ok(())
}

/// Maximum number of starts of the trials that are not measured yet, the first server's included.
fn starts_left(request: &SweepRequest<'_>, ready: &Ready, planned: Planned, records: &[Record]) -> usize {
    let experiment = &ready.experiment;
    let Some(trials) = strategy::list(&request.file.search, experiment) else {
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
    progress: &mut dyn Progress,
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

/// What a dry run finds out about models and image; empty if no servers are started.
pub fn lookups(request: &SweepRequest<'_>, space: &Expanded) -> Vec<FileLookup> {
    let system = &request.file.system;
    if system.is_in_process() { Vec::new() } else { look_up(&plan_of(request, space), system) }
}

/// The command line of every configuration's server; empty if no servers are started. Name and port
/// are examples.
pub fn starts(
    request: &SweepRequest<'_>,
    space: &Expanded,
    acceptance: Option<AcceptanceTable>,
) -> Result<Vec<String>, TunerError> {
    let system = &request.file.system;
    if system.is_in_process() {
        return Ok(Vec::new());
    }
    let plan = LaunchPlan { acceptance, ..plan_of(request, space) };
    let line = |one: &Candidate| {
        let launch = plan.launch(system, &one.configuration, "NAME", 0, PathBuf::new());
        launch.map_or_else(|error| format!("cannot start: {error}"), |launch| words(&launch))
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
    let parameter = |(name, value)| Parameter { name: format!("cost of {name}"), value, unit: "ms".into() };
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
fn engine_of(request: &SweepRequest<'_>, info: &ServerInfo) -> String {
    let version = info.version.as_deref().unwrap_or("of unknown version");
    // Our own server has SGLang's interface, and reports that it is not SGLang.
    match info.resolved.as_ref().and_then(|answer| answer["engine"].as_str()) {
        Some(name) => format!("{name} {version}, served"),
        None => format!("{} {version}", request.file.system.kind.name()),
    }
}

/// Where and with what the sweep runs, without the engine, which is known once a server runs.
fn fingerprint(request: &SweepRequest<'_>, ready: &Ready) -> Fingerprint {
    // A key that changes does not change what is measured.
    let system = &request.file.system.masked();
    let host = Host::this().used_by(system);
    let start = [system.command.as_slice(), system.extra_args.as_slice()].concat().join(" ");
    let env: String = system.env.iter().map(|(name, value)| format!(", {name}={value}")).collect();
    let models = &request.file.models;
    let quantised = models.quantization.as_ref().map_or_else(String::new, |name| format!(" as {name}"));
    let rows = models.kv_cache_dtype.as_ref().map_or_else(String::new, |name| format!(", KV cache {name}"));
    let running = settings::limit_in_words(&request.file);
    let made_up = ready
        .imported
        .as_ref()
        .map_or_else(String::new, |table| format!(", acceptance imported ({})", acceptance::hash(table)));
    let cache = if system.keep_prefix_cache { ", prefix cache on" } else { "" };
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
        target: preparation::model_hash(&request.folder, &models.target),
        draft: preparation::draft_hashes(&request.file, &request.folder),
        workload: ready.workload.hash.clone(),
        settings: format!(
            "{}, dtype {}{quantised}{rows}{running}{made_up}{cache}{keys}, started by {start}{env}",
            preparation::algorithms(&request.file),
            models.dtype
        ),
    }
}
