//! The result of a sweep: the tuned file.

mod borders;
mod contexts;
#[cfg(test)]
mod tests;
mod warnings;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use engine::checkpoint::Folder;
use schemas::{
    model::ModelConfig,
    sweep::SweepFile,
    text::Source,
    tree::TreeShape,
    tuned::{
        FORMAT, IntervalKind, PolicyRow, Provenance, TunedEngine, TunedFile, TunedModels, TunedServer, TunedVerdict,
    },
};

use crate::{
    TunerError,
    files::{atomic_file, date},
    prediction::guide::Guide,
    results::selection::{self, LoadRanking, Ranked, SpeculationVerdict},
    space::settings::max_running_requests,
    trials::{
        configuration::{Configuration, ContextRange, Knobs, TableRow},
        record::{Fingerprint, Record},
    },
    workload,
};

/// The file's name in the folder of a sweep.
pub const FILE_NAME: &str = "tuned.toml";
/// Gains below this are negligible, in logarithms.
const FELT: f64 = 0.01;
/// Largest tuned file in bytes.
const LARGEST: u64 = 1 << 20;

/// The tuned file of a ranking; `None` if no load has a winner, or if random weights ran, which are
/// not worth serving. Paths become absolute, since the file is in another folder than the sweep
/// file.
pub fn tuned(
    file: &SweepFile,
    folder: &Path,
    context_length: usize,
    fingerprint: &Fingerprint,
    ranking: &[LoadRanking],
    guide: Option<&Guide>,
) -> Option<TunedFile> {
    // A synthetic model has no checkpoint that an engine could be started with.
    if file.models.model_shape.is_some() {
        return None;
    }
    let start = settings(ranking)?;
    let winners: Vec<(&LoadRanking, &Ranked)> =
        ranking.iter().filter_map(|ranking| Some((ranking, best_with(ranking, &start)?))).collect();
    // An engine has one draft; without speculation everywhere, the first one is as good as any.
    let (whole, file) = (file, &file.for_draft(&start.draft));
    let guide = guide.and_then(|guide| guide.for_draft(&start.draft));
    let policy = policy(file, &start, &winners, guide);
    let knobs = &start.knobs;
    let largest = policy.last()?.max_running_batch;
    let absolute = |path: &str| {
        let path = folder.join(path);
        // The file may be moved away from the sweep's folder.
        path.canonicalize().unwrap_or(path).display().to_string()
    };
    let dtype = |path: &str| config(folder, path).and_then(|config| config.weights_dtype());
    let draft = Some(&file.models.draft).filter(|draft| !draft.is_empty());
    let draft = draft.and_then(|draft| config(folder, draft)).filter(|config| config.states_context_length());
    Some(TunedFile {
        format: FORMAT,
        written_by: fingerprint.engine.clone(),
        warnings: (workload::warning(file, folder).into_iter())
            .chain(warnings::warning_of_models(&file.models))
            .chain(warnings::warnings_of_loads(ranking))
            .chain(warnings::warnings_of_other_drafts(&winners))
            .collect(),
        models: TunedModels {
            target: absolute(&file.models.target),
            draft: if file.models.draft.is_empty() { String::new() } else { absolute(&file.models.draft) },
            algorithm: file.models.algorithm.clone(),
            second_source: file.models.second_source.clone(),
            // Other engines need this explicitly: with `auto` they would load target and draft each
            // in its own dtype.
            dtype: file.models.dtype.clone(),
            quantization: file.models.quantization.clone(),
            fp8_compute: file.models.fp8_compute.clone(),
            kv_cache_dtype: file.models.kv_cache_dtype.clone().filter(|name| name != "auto"),
            target_dtype: dtype(&file.models.target).map(ToOwned::to_owned),
            draft_context_length: draft.map(|config| config.derived_context_length()),
        },
        engine: TunedEngine {
            // For a tensor-parallel group, the device of its first rank.
            device: fingerprint.device.split('+').next().unwrap_or_default().to_owned(),
            tp_size: Some(file.engine.tp_size).filter(|size| *size > 1),
            context_length,
            page_size: knobs.page_size.unwrap_or(file.engine.page_size),
            mem_fraction_static: knobs.mem_fraction_static.map_or(file.engine.mem_fraction_static, |share| share.0),
            attention_backend: knobs.attention_backend.clone(),
            chunked_prefill_size: knobs.chunked_prefill_size,
            max_running_requests: largest,
            capture_sizes: knobs.capture_sizes.clone().unwrap_or_else(|| file.engine.capture_sizes.clone()),
        },
        server: TunedServer::from_system(&file.system),
        policy,
        measured: Provenance {
            loads: ranking.iter().map(|ranking| ranking.load.to_string()).collect(),
            device_name: fingerprint.device_name.clone(),
            driver: fingerprint.driver.clone(),
            engine: fingerprint.engine.clone(),
            target_hash: fingerprint.target.clone(),
            draft_hash: draft_hash(whole, fingerprint, &start.draft),
            workload_hash: fingerprint.workload.clone(),
            objective: file.objective.metric.name().into(),
            // Filled in by the caller, which knows the records and why the search ended.
            ..Provenance::default()
        },
    })
}

/// The hash of a draft: of several, the fingerprint has each after its name.
fn draft_hash(file: &SweepFile, fingerprint: &Fingerprint, draft: &str) -> String {
    if !file.has_several_drafts() {
        return fingerprint.draft.clone();
    }
    let name = if draft.is_empty() { file.each_draft().swap_remove(0).name } else { draft.to_owned() };
    let mut each = fingerprint.draft.split(", ").filter_map(|one| one.split_once(' '));
    each.find(|(of, _)| *of == name).map_or_else(String::new, |(_, hash)| hash.to_owned())
}

/// Adds the hosts and dates of the trials that the file is based on.
pub fn dated<'a>(mut tuned: TunedFile, records: impl IntoIterator<Item = &'a Record>) -> TunedFile {
    let (mut times, mut hosts) = (Vec::new(), BTreeSet::new());
    for record in records {
        times.push(record.finished_at);
        hosts.insert(record.origin.host.as_str());
    }
    tuned.measured.hosts = hosts.into_iter().filter(|host| !host.is_empty()).map(ToOwned::to_owned).collect();
    let utc = |seconds: Option<&u64>| seconds.map_or_else(String::new, |seconds| date::utc(*seconds));
    tuned.measured.first_trial = utc(times.iter().min());
    tuned.measured.last_trial = utc(times.iter().max());
    tuned
}

/// The longest sequence of the engine of a sweep file, in tokens, without loading it; `None` if the
/// target is not on this machine.
pub fn context_length(file: &SweepFile, folder: &Path) -> Option<usize> {
    let made_for = config(folder, &file.models.target)?.plain_context_length();
    Some(file.engine.context_length.unwrap_or(made_for))
}

/// Reads the tuned file of a folder, if it exists.
///
/// # Errors
/// A message, when it cannot be read or is not a tuned file.
pub fn read(folder: &Path) -> Result<Option<TunedFile>, String> {
    let text = atomic_file::read_if_there(&folder.join(FILE_NAME), LARGEST).map_err(|error| error.to_string())?;
    text.map(|text| parse(FILE_NAME, text)).transpose()
}

/// Reads a tuned file from any path.
///
/// # Errors
/// When it cannot be read or is not a tuned file.
pub fn read_file(path: &Path) -> Result<TunedFile, TunerError> {
    let text = atomic_file::read(path, LARGEST);
    let text = text.map_err(|source| TunerError::Read { path: path.to_owned(), source })?;
    let name = path.display().to_string();
    parse(&name, text).map_err(|reason| TunerError::Malformed { path: path.to_owned(), reason })
}

fn parse(name: &str, text: String) -> Result<TunedFile, String> {
    let source = Source::new(name, text);
    TunedFile::read(&source).map_err(|finding| {
        let place = source.position(finding.span.start);
        format!("line {}, column {}: {}", place.line, place.column, finding.message)
    })
}

/// Writes the file into a folder atomically.
///
/// # Errors
/// When it cannot be written.
pub fn write(file: &TunedFile, folder: &Path) -> Result<PathBuf, TunerError> {
    let path = folder.join(FILE_NAME);
    let text = file.text().map_err(|error| TunerError::Malformed { path: path.clone(), reason: error.to_string() })?;
    atomic_file::write(folder, FILE_NAME, text.as_bytes())?;
    Ok(path)
}

fn config(folder: &Path, path: &str) -> Option<ModelConfig> {
    Some(Folder::open(&folder.join(path)).ok()?.config)
}

/// What an engine has one of for all loads.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct OutcomeStart {
    knobs: Knobs,
    /// As [`Configuration::draft`].
    draft: String,
}

/// The settings and the draft to run with. An engine has one of each, so the best measured ones
/// over all loads are chosen: of the drafts, one that was chosen under a load, and of the settings,
/// the sweep file's own if others gain nothing noticeable. `None` without a winner.
fn settings(ranking: &[LoadRanking]) -> Option<OutcomeStart> {
    let score = |start: &OutcomeStart| -> Option<f64> {
        // Logarithms: loads count by their ratios, however fast each of them is.
        let logarithm = |ranking: &LoadRanking| Some(ranking.score(&best_with(ranking, start)?.configuration)?.ln());
        ranking.iter().filter(|ranking| ranking.chosen.is_some()).map(logarithm).sum()
    };
    let mut drafts: BTreeSet<&str> =
        ranking.iter().filter_map(|ranking| ranking.chosen.as_ref()).map(|chosen| chosen.draft.as_str()).collect();
    if drafts.len() > 1 {
        // No speculation runs with any of the others.
        drafts.remove("");
    }
    let entries = || ranking.iter().flat_map(|ranking| &ranking.entries).map(|entry| &entry.configuration.knobs);
    let knobs: BTreeSet<&Knobs> = entries().filter(|knobs| !knobs.are_default()).collect();
    let with = |knobs: &Knobs| {
        let starts = drafts.iter().map(|draft| OutcomeStart { knobs: knobs.clone(), draft: (*draft).to_owned() });
        let scored = starts.map(|start| (score(&start), start));
        scored.reduce(|best, next| if next.0 > best.0 { next } else { best })
    };
    let mut best = with(&Knobs::default())?;
    for (score, start) in knobs.into_iter().filter_map(with) {
        // Scores are sums over loads. Other settings than those of the file must gain noticeably.
        let gain = FELT * ranking.len() as f64;
        if score.is_some_and(|score| best.0.is_none_or(|known| score > known + gain)) {
            best = (score, start);
        }
    }
    Some(best.1)
}

/// The choice of a load if it has these settings and this draft, or none; else the best
/// configuration that has them.
fn best_with<'a>(ranking: &'a LoadRanking, start: &OutcomeStart) -> Option<&'a Ranked> {
    let has = |entry: &&Ranked| entry.configuration.runs_with(&start.knobs, &start.draft) && entry.may_be_chosen();
    // Entries are sorted, so the first that has these settings is the best with them.
    ranking.winner().filter(has).or_else(|| ranking.entries.iter().find(has))
}

/// The tree for each batch, and each context bucket if the sweep has any. Closed loops determine it
/// for their batch sizes, and a guide for the sizes between them. Without closed loops, the winner
/// of the highest load is used, whether a tree or a table.
fn policy(
    file: &SweepFile,
    start: &OutcomeStart,
    winners: &[(&LoadRanking, &Ranked)],
    guide: Option<&Guide>,
) -> Vec<PolicyRow> {
    let buckets = ContextRange::between(&file.batch.contexts);
    let buckets: Vec<Option<ContextRange>> =
        if buckets.is_empty() { vec![None] } else { buckets.into_iter().map(Some).collect() };
    let of_bucket = |contexts: &Option<ContextRange>| by_batch(start, winners, guide, *contexts);
    let closed = contexts::joined(&buckets.iter().map(of_bucket).collect::<Vec<_>>());
    if !closed.is_empty() {
        return closed;
    }
    let Some((ranking, winner)) = winners.last() else { return closed };
    // Only open loops were measured, whose batches vary, so one row covers all.
    let largest = start.knobs.max_running_requests.unwrap_or_else(|| max_running_requests(file, &[]));
    if winner.configuration.table.is_empty() {
        let whole = TableRow::for_any_context(largest, winner.configuration.shape);
        return row(ranking, winner, &whole).into_iter().collect();
    }
    winner.configuration.table.iter().filter_map(|one| row(ranking, winner, one)).collect()
}

/// The tree for each batch in a context bucket, or for all requests.
fn by_batch(
    start: &OutcomeStart,
    winners: &[(&LoadRanking, &Ranked)],
    guide: Option<&Guide>,
    contexts: Option<ContextRange>,
) -> Vec<PolicyRow> {
    let OutcomeStart { knobs, draft } = start;
    let own = || winners.iter().filter(|(ranking, _)| ranking.load.contexts() == contexts);
    let measured = |(ranking, winner): &(&LoadRanking, &Ranked)| {
        let row_of_load = TableRow {
            max_running_batch: ranking.load.batch_size()?,
            max_context: contexts.and_then(|contexts| contexts.up_to),
            shape: winner.configuration.shape,
        };
        row(ranking, winner, &row_of_load)
    };
    let rows: Vec<PolicyRow> = own().filter_map(measured).collect();
    let score = |batch: usize, shape: TreeShape| {
        let ranking = own().find(|(ranking, _)| ranking.load.batch_size() == Some(batch))?.0;
        let configuration = Configuration {
            knobs: knobs.clone(),
            draft: if shape.is_off() { String::new() } else { draft.clone() },
            ..Configuration::from_shape(shape)
        };
        ranking.score(&configuration)
    };
    // Without predictions between measured batches, each row holds up to its own batch.
    guide.and_then(|guide| borders::between(&rows, guide, contexts, &score)).unwrap_or(rows)
}

fn row(ranking: &LoadRanking, winner: &Ranked, place: &TableRow) -> Option<PolicyRow> {
    let TableRow { max_running_batch, max_context, shape } = *place;
    let speedup = winner.speedup;
    // No speculation relative to itself is 1, without an interval.
    let repeated = speedup.filter(|ends| ends.kind != selection::RangeKind::Single && ends.low < ends.high);
    Some(PolicyRow {
        max_running_batch,
        max_context,
        measured_batch: ranking.load.batch_size().unwrap_or(max_running_batch),
        num_steps: shape.num_steps,
        topk: shape.topk,
        num_draft_tokens: shape.num_draft_tokens,
        row_budget: shape.row_budget,
        output_tokens_per_s: round(winner.output_tokens_per_s?.median),
        repeats: Some(winner.repeats),
        speedup: speedup.map(|speedup| round(speedup.median)),
        speedup_interval: repeated.map(|speedup| [round(speedup.low), round(speedup.high)]),
        interval_kind: repeated.map(|ends| match ends.kind {
            selection::RangeKind::Confidence => IntervalKind::Confidence,
            selection::RangeKind::Range | selection::RangeKind::Single => IntervalKind::Range,
        }),
        interval_level: repeated.map(|ends| round(ends.coverage)),
        accept_length: round(winner.accept_length?),
        verdict: match ranking.verdict {
            SpeculationVerdict::Pays => TunedVerdict::Pays,
            SpeculationVerdict::DoesNotPay => TunedVerdict::DoesNotPay,
            SpeculationVerdict::Tie => TunedVerdict::NoDifference,
            SpeculationVerdict::CannotTell(_) | SpeculationVerdict::AllFailed | SpeculationVerdict::NotCompared => {
                TunedVerdict::NotKnown
            }
        },
        reason: ranking.verdict.words().into(),
    })
}

/// Four decimal places are more than any measurement supports.
fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
