//! The whole way: sweep file → plan → trials → journal → ranking → tuned file.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use engine::{DeviceChoice, Engine, EngineError, EngineOptions, ShapePolicy, options::default_shape};
use schemas::sweep::SweepFile;

use crate::{
    TunerError,
    configuration::Load,
    estimate::Estimate,
    journal::{self, Header, Journal},
    outcome,
    record::{Fingerprint, Outcome, Record, Trial},
    runner::{self, Ended, Terms},
    selection::{LoadRanking, rank},
    space::{Expanded, expand},
    strategy::{Race, Shard, strategy},
    workload::Workload,
};

/// What to sweep, and how.
#[derive(Debug)]
pub struct SweepRequest<'a> {
    /// The sweep file.
    pub file: SweepFile,
    /// The folder from which its relative paths start.
    pub folder: PathBuf,
    /// Where journal and tuned file go.
    pub out: PathBuf,
    /// Whether to go on with what is there.
    pub resume: bool,
    /// The part for this machine.
    pub shard: Option<Shard>,
    /// Where to run, over what the file says.
    pub device: Option<DeviceChoice>,
    /// Set from elsewhere when the user wants to stop; finished trials are kept.
    pub interrupted: &'a AtomicBool,
}

/// What a sweep is going to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Trials in their order.
    pub trials: Vec<Trial>,
    /// How many of them the journal of the folder holds already, when the sweep is to be resumed.
    pub done: usize,
    /// The configurations, and what was dropped.
    pub space: Expanded,
    /// Requests of a trial at a batch size that does not exceed them.
    pub requests: usize,
    /// Most tokens that such a trial generates.
    pub tokens_a_trial: u64,
    /// How long the trials take that are not done.
    pub estimate: Estimate,
    /// Where it runs and on what.
    pub fingerprint: Fingerprint,
}

/// Why a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The strategy has nothing left to measure.
    SpaceExhausted,
    /// As many trials as asked for.
    TrialBudget,
    /// As much time as asked for.
    TimeBudget,
    /// The user wanted to stop.
    Interrupted,
}

/// What a sweep did.
#[derive(Debug)]
pub struct SweepSummary {
    /// All finished trials of the journal.
    pub records: Vec<Record>,
    /// Trials that ran now.
    pub ran: usize,
    /// Trials that were there already.
    pub kept: usize,
    /// Best first, a batch size each.
    pub ranking: Vec<LoadRanking>,
    /// The tuned file, where a batch size has a winner.
    pub tuned: Option<PathBuf>,
    /// Why it ended.
    pub stopped: StopReason,
}

/// What the caller shows while a sweep runs.
pub trait Progress {
    /// The plan is made: so many trials, so many of them done already.
    fn planned(&mut self, _trials: usize, _done: usize) {}
    /// A trial begins.
    fn started(&mut self, _trial: &Trial) {}
    /// A trial is in the journal.
    fn finished(&mut self, _record: &Record) {}
    /// Something the user should know.
    fn note(&mut self, _text: &str) {}
}

/// The parts of a sweep that is ready to run.
struct Ready {
    engine: Engine,
    options: EngineOptions,
    workload: Workload,
    space: Expanded,
    race: Race,
    fingerprint: Fingerprint,
}

/// Says what a sweep would do, and measures what its estimate of time rests on. Writes nothing.
///
/// # Errors
/// When the models or the workload cannot be loaded, or the sweep cannot go on with the folder's journal.
pub fn plan(request: &SweepRequest<'_>) -> Result<Plan, TunerError> {
    let mut ready = prepare(request)?;
    let mut strategy = strategy(&request.file.search, &ready.race);
    let trials: Vec<Trial> = std::iter::from_fn(|| strategy.next(&[])).collect();
    let mut left = trials.clone();
    if request.resume && journal::exists(&request.out) {
        let contents = journal::read(&request.out)?;
        let header = header(request, &ready, trials.len());
        if let Some(reason) = contents.header.refusal(&header) {
            return Err(TunerError::Journal { path: request.out.join(journal::FILE_NAME), reason });
        }
        let done: HashSet<&str> = contents.records.iter().map(|record| record.id.as_str()).collect();
        left.retain(|trial| !done.contains(trial.id(&ready.fingerprint).as_str()));
    }
    let estimate = Estimate::measure(&mut ready.engine, &ready.workload, &left)?;
    let tokens = |request: &engine::Request| request.stop.max_new_tokens.unwrap_or_default() as u64;
    Ok(Plan {
        done: trials.len() - left.len(),
        trials,
        space: ready.space,
        requests: ready.workload.requests.len(),
        tokens_a_trial: ready.workload.requests.iter().map(tokens).sum(),
        estimate,
        fingerprint: ready.fingerprint,
    })
}

/// Runs a sweep.
///
/// # Errors
/// When the models, the workload or the journal cannot be used, or the engine fails beyond one trial.
pub fn run(request: &SweepRequest<'_>, progress: &mut dyn Progress) -> Result<SweepSummary, TunerError> {
    // Known at once, and not after a minute of loading.
    if !request.resume && journal::exists(&request.out) {
        return Err(journal::already_there(&request.out));
    }
    let ready = prepare(request)?;
    let mut plan = strategy(&request.file.search, &ready.race);
    let planned = plan.planned();
    let header = header(request, &ready, planned.unwrap_or_default());
    let (mut journal, mut records) = open(request, &header, progress)?;
    notes(request, &ready).iter().for_each(|note| progress.note(note));
    let Ready { mut engine, options, workload, race, fingerprint, .. } = ready;
    let mut done: HashSet<String> = records.iter().map(|record| record.id.clone()).collect();
    let kept = records.len();
    progress.planned(planned.unwrap_or(kept), kept);

    let begin = Instant::now();
    let mut ran = 0;
    let stopped = loop {
        if request.interrupted.load(Ordering::Relaxed) {
            break StopReason::Interrupted;
        }
        if request.file.search.seconds.is_some_and(|seconds| begin.elapsed().as_secs_f64() >= seconds) {
            break StopReason::TimeBudget;
        }
        let Some(trial) = plan.next(&records) else {
            let bounded = request.file.search.trials.is_some_and(|trials| trials < full_size(&race));
            break if bounded { StopReason::TrialBudget } else { StopReason::SpaceExhausted };
        };
        let id = trial.id(&fingerprint);
        if !done.insert(id.clone()) {
            continue;
        }
        progress.started(&trial);
        let mut broken = false;
        let terms = Terms {
            workload: &workload,
            objective: request.file.objective,
            simulate_accept_length: None,
            interrupted: request.interrupted,
        };
        let outcome = match runner::run(&mut engine, &trial, &terms) {
            Ok(Ended::Measured(figures)) => Outcome::Measured(figures),
            Ok(Ended::Interrupted) => break StopReason::Interrupted,
            Err(error) => {
                broken = matches!(error, EngineError::Device(_)) || !engine.is_idle();
                Outcome::Failed { reason: error.to_string() }
            }
        };
        let record = Record {
            id,
            role: role(&race, &trial),
            trial,
            fingerprint: fingerprint.clone(),
            finished_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs(),
            outcome,
        };
        journal.append(&record)?;
        progress.finished(&record);
        records.push(record);
        ran += 1;
        if broken {
            // A device that failed is not to be trusted: start afresh, and give its memory back first.
            drop(engine);
            engine = Engine::load(options.clone())?;
        }
    };
    let ranking = rank(&records, request.file.objective.metric);
    let tuned = outcome::tuned(&request.file, &request.folder, &engine, &fingerprint, &ranking);
    let tuned = tuned.map(|tuned| outcome::write(&tuned, &request.out)).transpose()?;
    Ok(SweepSummary { records, ran, kept, ranking, tuned, stopped })
}

fn prepare(request: &SweepRequest<'_>) -> Result<Ready, TunerError> {
    let file = &request.file;
    let mut space = expand(&file.space, &file.knobs, &[], default_shape(&request.folder.join(&file.models.target))?);
    // From the whole space, so that the shards of a sweep have one setting.
    let options = options(request, &space)?;
    let engine = Engine::load(options.clone())?;
    let workload = Workload::load(&file.workload, &request.folder, &engine)?;
    if let Some(shard) = request.shard {
        space.entrants = shard.of(&space.entrants);
    }
    let loads = file.batch_sizes().into_iter().map(Load::BatchSize).collect();
    let device = engine.device();
    let fingerprint = Fingerprint {
        device: device.device,
        device_name: device.name,
        driver: device.driver,
        units: device.units,
        engine: concat!("spectune ", env!("CARGO_PKG_VERSION")).into(),
        target: engine.identity().target.clone(),
        draft: engine.identity().draft.clone().unwrap_or_default(),
        workload: workload.hash.clone(),
        settings: settings(&engine),
    };
    let race = Race { entrants: space.entrants.clone(), loads, repeats: file.search.repeats };
    Ok(Ready { engine, options, workload, space, race, fingerprint })
}

fn options(request: &SweepRequest<'_>, space: &Expanded) -> Result<EngineOptions, TunerError> {
    let SweepFile { models, engine, .. } = &request.file;
    // Pages are reserved for the largest tree of the space, so that every shape has the same cache.
    let largest =
        space.entrants.iter().flat_map(|one| one.configuration.shapes()).max_by_key(|shape| shape.num_draft_tokens);
    Ok(EngineOptions {
        model_path: request.folder.join(&models.target),
        draft_model_path: Some(request.folder.join(&models.draft)),
        algorithm: Some(models.algorithm.clone()),
        policy: largest.map_or_else(|| EngineOptions::default().policy, ShapePolicy::fixed),
        device: match request.device {
            Some(device) => device,
            None => engine.device.parse()?,
        },
        dtype: models.dtype.clone(),
        context_length: engine.context_length,
        max_running_requests: request.file.batch_sizes().into_iter().max().unwrap_or(1),
        page_size: engine.page_size,
        mem_fraction_static: engine.mem_fraction_static,
        chunked_prefill_size: engine.chunked_prefill_size,
        capture_sizes: engine.capture_sizes.clone(),
        // Repeats of a workload would find their own prompts in the cache.
        disable_radix_cache: true,
        ..EngineOptions::default()
    })
}

/// The part of a fingerprint that two sweeps on one machine can differ in.
fn settings(engine: &Engine) -> String {
    let options = engine.options();
    let captured = match options.capture_sizes.as_slice() {
        [] => String::new(),
        sizes => format!(", capture sizes {}", sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")),
    };
    format!(
        "{}, dtype {}, context {}, page size {}, prefill of {} tokens{captured}",
        options.algorithm.as_deref().unwrap_or("no draft"),
        options.dtype,
        engine.capacity().context_length,
        options.page_size,
        options.chunked_prefill_size
    )
}

fn header(request: &SweepRequest<'_>, ready: &Ready, planned: usize) -> Header {
    Header {
        format: journal::FORMAT,
        sweep: sweep_hash(&request.file),
        shard: request.shard,
        fingerprint: ready.fingerprint.clone(),
        file: request.file.clone(),
        planned,
    }
}

/// What the user should know before the first trial.
fn notes(request: &SweepRequest<'_>, ready: &Ready) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(ready.space.dropped_words());
    if ready.workload.left_out > 0 {
        notes.push(format!("{} prompts are left out (too long, or no user's words)", ready.workload.left_out));
    }
    if !request.file.engine.capture_sizes.is_empty() && ready.fingerprint.device == "cpu" {
        notes.push("engine.capture_sizes is recorded and of no effect: the CPU captures no graphs".into());
    }
    if ready.race.repeats == 1 {
        notes.push(
            "search.repeats is 1: how much the figures scatter stays unknown, and so does which differences are real"
                .into(),
        );
    }
    notes
}

fn open(
    request: &SweepRequest<'_>,
    header: &Header,
    progress: &mut dyn Progress,
) -> Result<(Journal, Vec<Record>), TunerError> {
    if !(request.resume && journal::exists(&request.out)) {
        return Ok((Journal::create(&request.out, header)?, Vec::new()));
    }
    let (journal, contents) = Journal::resume(&request.out, header)?;
    for line in &contents.damaged {
        progress.note(&format!("line {line} of the journal is damaged; its trial runs again"));
    }
    Ok((journal, contents.records))
}

fn role(race: &Race, trial: &Trial) -> crate::record::Role {
    let found = race.entrants.iter().find(|one| one.configuration == trial.configuration);
    found.map_or(crate::record::Role::Candidate, |one| one.role)
}

fn full_size(race: &Race) -> usize {
    race.entrants.len() * race.loads.len() * race.repeats
}

/// What makes a sweep the same sweep: all of the file but its budgets, so that a resumed run may have larger ones.
fn sweep_hash(file: &SweepFile) -> String {
    let mut file = file.clone();
    file.search.trials = None;
    file.search.seconds = None;
    let text = serde_json::to_string(&file).unwrap_or_default();
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

impl StopReason {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::SpaceExhausted => "every trial of the plan is measured",
            Self::TrialBudget => "the budget of trials is used up",
            Self::TimeBudget => "the budget of time is used up",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The folder from which the relative paths of a sweep file start.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
