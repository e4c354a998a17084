//! Runs a sweep from start to end: sweep file → plan → trials → journal → ranking → tuned file.

pub mod jobs;
pub mod merge;
mod on_servers;
mod preflight;
mod system_bench;

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use schemas::{
    sweep::{Search, StrategyName},
    tuned::TunedFile,
};

pub use self::preflight::{SweepRefusal, refusals};
use self::system_bench::{BenchControl, MeasuredTrials, SweepField, SystemBench};
pub use crate::preparation::{
    inputs::SweepInputs,
    request::{SweepProgress, SweepRequest},
};
pub use crate::strategy::StopReason;
use crate::{
    TunerError, guidance,
    prediction::guide::Guide,
    preparation::{Ready, context::SweepContext, prepare},
    results::{
        outcome,
        selection::{Comparison, LoadRanking, Looks, rank},
    },
    runner::estimate::Estimate,
    space::Expanded,
    strategy::{self, Experiment, Planned, SearchStop},
    system::{InProcess, server::FileLookup, time_limit::TimeLimit},
    trials::{
        configuration::TrialLoad,
        journal::{self, Journal, JournalHeader},
        record::{Fingerprint, Record, Trial},
    },
};

/// What a sweep would do.
#[derive(Clone, Debug)]
pub struct SweepPlan {
    /// Number of trials.
    pub planned: Planned,
    /// Trials in their order, if the strategy knows them in advance; else the baselines under every
    /// load, which are always measured.
    pub trials: Vec<Trial>,
    /// Number of trials that the folder's journal already contains, if the sweep is resumed.
    pub done: usize,
    /// The configurations, and the dropped ones.
    pub space: Expanded,
    /// The requests of a trial under each load.
    pub requested: Vec<LoadSize>,
    /// Estimated duration of the remaining trials.
    pub estimate: Estimate,
    /// Where and with what it runs.
    pub fingerprint: Fingerprint,
}

/// The requests of a trial under a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadSize {
    /// How requests arrive.
    pub load: TrialLoad,
    /// Number of requests.
    pub requests: usize,
    /// Maximum number of generated tokens.
    pub tokens: u64,
}

/// The result of a sweep.
#[derive(Debug)]
pub struct SweepSummary {
    /// All finished trials of the journal.
    pub records: Vec<Record>,
    /// Number of trials that ran now.
    pub ran: usize,
    /// Number of trials that already existed.
    pub kept: usize,
    /// One ranking per load, best configuration first.
    pub ranking: Vec<LoadRanking>,
    /// The tuned file, if a load has a winner.
    pub tuned: Option<PathBuf>,
    /// Why it ended.
    pub stopped: StopReason,
    /// What the end of the time cut off.
    pub cut: Option<String>,
}

/// The parts of a plan that are known before anything is loaded.
#[derive(Clone, Debug)]
pub struct Outline {
    /// Number of trials.
    pub planned: Planned,
    /// As [`SweepPlan::trials`].
    pub trials: Vec<Trial>,
    /// The configurations, and the dropped ones.
    pub space: Expanded,
    /// How requests arrive.
    pub loads: Vec<TrialLoad>,
    /// The command line of every configuration's server, or why it cannot be started, if servers
    /// are measured.
    pub starts: Vec<Result<String, String>>,
    /// The most starts of servers, without those that confirm a verdict.
    pub most_starts: usize,
    /// Whether what a verdict is about is measured in one more start.
    pub confirms: bool,
    /// What is known of the models and the program or image that servers need.
    pub lookups: Vec<FileLookup>,
    /// Why a guided search on servers does not replay acceptance; `None` if it does.
    pub not_replayed: Option<String>,
}

/// Lists what a sweep would measure. Loads no weights and is quick.
///
/// # Errors
/// When the target's configuration cannot be read, a table cannot be read, or the search cannot
/// cover the space.
pub fn outline(inputs: &SweepInputs) -> Result<Outline, TunerError> {
    let imported = inputs.imported()?;
    let mut space = inputs.space(imported.as_ref())?;
    let experiment = inputs.experiment(&mut space)?;
    let search = &inputs.file.search;
    let trials = strategy::list(search, &experiment).unwrap_or_else(|| experiment.baseline_trials());
    let starts = on_servers::starts(inputs, &space, imported)?;
    let lookups = on_servers::lookups(inputs, &space);
    let planned = planned(search, &experiment);
    let confirms = search.confirm && experiment.looks == Looks::PlannedStarts;
    let is_guided = search.strategy == StrategyName::Guided && experiment.restarts;
    let not_replayed = match is_guided {
        true => on_servers::not_replayed(&inputs.file, &inputs.options(&space)?),
        false => None,
    };
    let most_starts = match is_guided {
        true => strategy::most_starts(search, &experiment, not_replayed.is_none()),
        false => starts.len(),
    };
    let loads = experiment.loads;
    Ok(Outline { planned, trials, space, loads, starts, most_starts, confirms, lookups, not_replayed })
}

/// Reports what a sweep would do, with a duration estimated from short measurements. Writes
/// nothing.
///
/// # Errors
/// When the models or the workload cannot be loaded, or the folder's journal cannot be continued.
pub fn plan(request: &SweepRequest<'_>) -> Result<SweepPlan, TunerError> {
    let mut ready = prepare(&request.inputs)?;
    let search = &request.inputs.file.search;
    let planned = strategy::planned(search, &ready.experiment);
    let trials = strategy::list(search, &ready.experiment).unwrap_or_else(|| ready.experiment.baseline_trials());
    let mut left = trials.clone();
    if request.resume && journal::exists(&request.out) {
        let contents = journal::read(&request.out)?;
        if let Some(reason) = contents.header.refusal(&header(&ready, &request.out, planned)) {
            return Err(TunerError::Journal { path: request.out.join(journal::FILE_NAME), reason });
        }
        let done = |trial: &Trial| {
            let id = trial.id(&ready.fingerprint);
            contents.records.iter().any(|record| record.id == id)
        };
        left.retain(|trial| !done(trial));
    }
    let estimate = {
        let loaded = ready.draft.clone();
        let (engine, workload) = ready.parts()?;
        Estimate::measure(engine, workload, &left, &loaded)?
    };
    let workload = &ready.workload;
    let requested = |load: &TrialLoad| LoadSize {
        load: *load,
        requests: workload.requests_under(*load),
        tokens: workload.tokens_under(*load),
    };
    Ok(SweepPlan {
        planned,
        done: trials.len() - left.len(),
        trials,
        space: ready.space,
        requested: ready.experiment.loads.iter().map(requested).collect(),
        estimate,
        fingerprint: ready.fingerprint,
    })
}

/// Runs a sweep.
///
/// # Errors
/// When the models, the workload or the journal cannot be used, or the engine fails beyond one
/// trial.
pub fn run(request: &SweepRequest<'_>, progress: &mut dyn SweepProgress) -> Result<SweepSummary, TunerError> {
    // Checked first, so that the error does not come after a minute of loading.
    if !request.resume && journal::exists(&request.out) {
        return Err(journal::already_there(&request.out));
    }
    if !request.inputs.file.system.is_in_process() {
        return on_servers::run(request, progress);
    }
    let search = &request.inputs.file.search;
    let mut context = SweepContext::new(request, prepare(&request.inputs)?, request.interrupted, progress);
    let planned = strategy::planned(search, &context.ready.experiment);
    // Before the guide is made: a journal that cannot be continued must not cost minutes of replay.
    let (journal, records) = open(&mut context, planned)?;
    context.ready.notes().iter().for_each(|note| context.progress.note(note));

    let guide = match search.strategy {
        StrategyName::Guided => guidance::find(&mut context)?,
        StrategyName::Grid | StrategyName::Random | StrategyName::Anneal => None,
    };
    context.progress.planned(planned, records.len());
    let predictions = guide.as_ref().map_or(&[][..], |guide| &guide.predictions);
    let SweepContext { mut ready, out, interrupted, progress, .. } = context;
    let field = SweepField::from(&ready);
    let mut system = InProcess::new(&mut ready);
    let begun = OnceLock::new();
    // The time of a search is that of its trials; loading and replay come before.
    let limit = TimeLimit::new(search.seconds, interrupted, &begun).begin();
    let control = BenchControl { progress, interrupted, limit };
    let mut bench = SystemBench::new(field, &mut system, journal, records, control);
    let searched = strategy::search(search, &bench.experiment(), predictions, &mut bench);
    // Before the result of the search is looked at: measured trials count, however it ended.
    let measured = bench.end()?;
    let context_length = ready.engine()?.capacity().context_length;
    finish(&ready, out, searched, measured, context_length, guide.as_ref())
}

/// Ranks the records, and writes the tuned file.
fn finish(
    ready: &Ready,
    out: &Path,
    searched: Result<StopReason, SearchStop>,
    MeasuredTrials { records, ran, kept, cut }: MeasuredTrials,
    context_length: usize,
    guide: Option<&Guide>,
) -> Result<SweepSummary, TunerError> {
    let SweepInputs { file, folder, .. } = &ready.inputs;
    let stopped = match searched {
        Ok(reason) | Err(SearchStop::Stop(reason)) => reason,
        Err(SearchStop::Failed(error)) => return Err(error),
    };
    let ranking = rank(&records, Comparison::from_sweep(file));
    let tuned = outcome::tuned(file, folder, context_length, &ready.fingerprint, &ranking, guide);
    let ended = |mut tuned: TunedFile| {
        tuned.measured.search = format!("{}: {}", file.search.strategy.name(), stopped.words());
        outcome::dated(tuned, &records)
    };
    let tuned = tuned.map(|tuned| outcome::write(&ended(tuned), out)).transpose()?;
    Ok(SweepSummary { records, ran, kept, ranking, tuned, stopped, cut })
}

/// Number of trials that the search will request.
fn planned(search: &Search, experiment: &Experiment) -> Planned {
    match (search.strategy, experiment.restarts) {
        (StrategyName::Guided, true) => {
            Planned { trials: strategy::few_starts_trials(search, experiment), exact: false }
        }
        _ => strategy::planned(search, experiment),
    }
}

fn header(ready: &Ready, out: &Path, planned: Planned) -> JournalHeader {
    let SweepInputs { file, folder, shard, .. } = &ready.inputs;
    JournalHeader {
        format: journal::FORMAT,
        journal: journal::new_name(out),
        sweep: journal::meaning_hash(file),
        shard: *shard,
        fingerprint: ready.fingerprint.clone(),
        file: file.masked(),
        folder: folder.canonicalize().ok().and_then(|folder| Some(folder.to_str()?.to_owned())),
        // A merge adds up plans, and must not add up guesses.
        planned: if planned.exact { planned.trials } else { 0 },
        cut: None,
    }
}

/// Refuses a folder whose journal cannot be continued with this header, before anything is written
/// into it.
fn check_continues(context: &SweepContext<'_>, header: &JournalHeader) -> Result<(), TunerError> {
    let out = context.out;
    if !(context.resume && journal::exists(out)) {
        return Ok(());
    }
    // Released again: what comes first takes long, and another process finds the same state.
    drop(journal::lock(out)?);
    let before = journal::read(out)?.header;
    let engine = before.fingerprint.engine.clone();
    // Which engine it is shows only once a server runs.
    let header = JournalHeader { fingerprint: Fingerprint { engine, ..header.fingerprint.clone() }, ..header.clone() };
    match before.refusal(&header) {
        Some(reason) => Err(TunerError::Journal { path: out.join(journal::FILE_NAME), reason }),
        None => Ok(()),
    }
}

/// The journal, new or continued, with the records that it contains.
fn open(context: &mut SweepContext<'_>, planned: Planned) -> Result<(Journal, Vec<Record>), TunerError> {
    let SweepContext { ready, out, resume, progress, .. } = context;
    let header = header(ready, out, planned);
    if !(*resume && journal::exists(out)) {
        return Ok((Journal::create(out, &header)?, Vec::new()));
    }
    let (journal, contents) = Journal::resume(out, &header)?;
    for line in &contents.damaged {
        progress.note(&format!("line {line} of the journal is damaged; its trial runs again"));
    }
    Ok((journal, contents.records))
}
