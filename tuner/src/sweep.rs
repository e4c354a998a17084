//! The whole way: sweep file → plan → trials → journal → ranking → tuned file.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use engine::{DeviceChoice, Engine, EngineError, EngineOptions, ShapePolicy, options::default_shape};
use schemas::sweep::SweepFile;

use crate::{
    TunerError,
    journal::{self, Header, Journal},
    outcome,
    record::{Fingerprint, Outcome, Record, Trial},
    runner::{self, Ended},
    selection::{BatchRanking, rank},
    space::{Configuration, expand},
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
    /// The configurations, baselines first.
    pub configurations: Vec<Configuration>,
    /// Combinations of the file's lists that are no tree.
    pub dropped: usize,
    /// Requests of a trial at a batch size that does not exceed them.
    pub requests: usize,
    /// Most tokens that a trial generates.
    pub tokens_a_trial: u64,
    /// Output tokens a second of one request without speculation, measured just now.
    pub rate: f64,
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
    pub ranking: Vec<BatchRanking>,
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
    workload: Workload,
    race: Race,
    dropped: usize,
    fingerprint: Fingerprint,
}

/// Says what a sweep would do, and measures the rate that its estimate of time rests on.
///
/// # Errors
/// When the models or the workload cannot be loaded.
pub fn plan(request: &SweepRequest<'_>) -> Result<Plan, TunerError> {
    let mut ready = prepare(request)?;
    let mut strategy = strategy(&request.file.search, &ready.race);
    let trials: Vec<Trial> = std::iter::from_fn(|| strategy.next(&[])).collect();
    let rate = rate(&mut ready)?;
    let tokens = |workload: &Workload| workload.requests.len() as u64 * request.file.workload.output_length as u64;
    Ok(Plan {
        trials,
        configurations: ready.race.configurations,
        dropped: ready.dropped,
        requests: ready.workload.requests.len(),
        tokens_a_trial: tokens(&ready.workload),
        rate,
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
        return Err(TunerError::Journal {
            path: request.out.join(journal::FILE_NAME),
            reason: "a sweep was started in this folder; go on with --resume, or choose another --out".into(),
        });
    }
    let mut ready = prepare(request)?;
    if ready.dropped > 0 {
        progress.note(&format!("{} combinations of the space are no tree and are left out", ready.dropped));
    }
    let mut plan = strategy(&request.file.search, &ready.race);
    let planned = plan.planned();
    let header = Header {
        format: journal::FORMAT,
        sweep: sweep_hash(&request.file),
        fingerprint: ready.fingerprint.clone(),
        file: request.file.clone(),
        planned: planned.unwrap_or_default(),
    };
    let (mut journal, mut records) = open(request, &header, progress)?;
    let kept = records.len();
    progress.planned(planned.unwrap_or(kept), kept);

    let begin = Instant::now();
    let mut ran = 0;
    let stopped = loop {
        if request.interrupted.load(Ordering::Relaxed) {
            break StopReason::Interrupted;
        }
        if request.file.search.seconds.is_some_and(|seconds| begin.elapsed().as_secs_f64() > seconds) {
            break StopReason::TimeBudget;
        }
        let Some(trial) = plan.next(&records) else {
            let bounded = request.file.search.trials.is_some_and(|trials| trials < full_size(&ready.race));
            break if bounded { StopReason::TrialBudget } else { StopReason::SpaceExhausted };
        };
        let id = trial.id(&ready.fingerprint);
        if records.iter().any(|record| record.id == id) {
            continue;
        }
        progress.started(&trial);
        let outcome = match measure(&mut ready, &trial, request)? {
            Some(outcome) => outcome,
            None => break StopReason::Interrupted,
        };
        let record = Record {
            id,
            trial,
            role: role(&ready.race, &trial),
            fingerprint: ready.fingerprint.clone(),
            finished_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs(),
            outcome,
        };
        journal.append(&record)?;
        progress.finished(&record);
        records.push(record);
        ran += 1;
    };
    let ranking = rank(&records, request.file.objective.metric);
    let tuned = outcome::tuned(&request.file, &request.folder, &ready.engine, &ready.fingerprint, &ranking);
    let tuned = tuned.map(|tuned| outcome::write(&tuned, &request.out)).transpose()?;
    Ok(SweepSummary { records, ran, kept, ranking, tuned, stopped })
}

fn prepare(request: &SweepRequest<'_>) -> Result<Ready, TunerError> {
    let file = &request.file;
    let engine = Engine::load(options(request)?)?;
    let workload = Workload::load(&file.workload, &request.folder, &engine)?;
    let expanded = expand(&file.space, default_shape(&request.folder.join(&file.models.target))?);
    let configurations = match request.shard {
        Some(shard) => shard.of(&expanded.configurations),
        None => expanded.configurations,
    };
    let mut batch_sizes = file.batch.sizes.clone();
    batch_sizes.sort_unstable();
    batch_sizes.dedup();
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
    };
    let race = Race { configurations, batch_sizes, repeats: file.search.repeats };
    Ok(Ready { engine, workload, race, dropped: expanded.dropped, fingerprint })
}

fn options(request: &SweepRequest<'_>) -> Result<EngineOptions, TunerError> {
    let SweepFile { models, engine, batch, space, .. } = &request.file;
    let target = request.folder.join(&models.target);
    // Pages are reserved for the largest tree of the space, so that every shape has the same cache.
    let largest = expand(space, default_shape(&target)?).configurations.into_iter().map(|one| one.shape);
    let largest = largest.max_by_key(|shape| shape.num_draft_tokens);
    Ok(EngineOptions {
        model_path: target,
        draft_model_path: Some(request.folder.join(&models.draft)),
        algorithm: Some(models.algorithm.clone()),
        policy: largest.map_or_else(|| EngineOptions::default().policy, ShapePolicy::fixed),
        device: match request.device {
            Some(device) => device,
            None => engine.device.parse()?,
        },
        dtype: models.dtype.clone(),
        context_length: engine.context_length,
        max_running_requests: batch.sizes.iter().copied().max().unwrap_or(1),
        page_size: engine.page_size,
        mem_fraction_static: engine.mem_fraction_static,
        chunked_prefill_size: engine.chunked_prefill_size,
        capture_sizes: engine.capture_sizes.clone(),
    })
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

/// Measures a trial. A failure of the trial itself is an outcome; `None` means that the user wants to stop.
fn measure(ready: &mut Ready, trial: &Trial, request: &SweepRequest<'_>) -> Result<Option<Outcome>, TunerError> {
    match runner::run(&mut ready.engine, trial, &ready.workload, request.interrupted) {
        Ok(Ended::Measured(figures)) => Ok(Some(Outcome::Measured(figures))),
        Ok(Ended::Interrupted) => Ok(None),
        Err(error) => {
            // A device that failed is not to be trusted, and requests may be left over: start afresh.
            if matches!(error, EngineError::Device(_)) || !ready.engine.is_idle() {
                ready.engine = Engine::load(options(request)?)?;
            }
            Ok(Some(Outcome::Failed { reason: error.to_string() }))
        }
    }
}

/// Tokens a second of one short request without speculation.
fn rate(ready: &mut Ready) -> Result<f64, TunerError> {
    const TOKENS: usize = 32;
    ready.engine.set_policy(EngineOptions::default().policy)?;
    let Some(mut request) = ready.workload.requests.first().cloned() else { return Ok(f64::NAN) };
    request.stop.max_new_tokens = request.stop.max_new_tokens.map(|tokens| tokens.min(TOKENS));
    let completions = ready.engine.run(vec![request])?;
    let rate = |one: &engine::Completion| one.output_ids.len() as f64 / one.elapsed.as_secs_f64();
    Ok(completions.first().map_or(f64::NAN, rate))
}

fn role(race: &Race, trial: &Trial) -> crate::record::Role {
    let found = race.configurations.iter().find(|one| one.shape == trial.shape);
    found.map_or(crate::record::Role::Candidate, |one| one.role)
}

fn full_size(race: &Race) -> usize {
    race.configurations.len() * race.batch_sizes.len() * race.repeats
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
