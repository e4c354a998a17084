//! The result of a sweep: the tuned file.

mod borders;
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
    tuned::{FORMAT, IntervalKind, PolicyRow, Provenance, TunedEngine, TunedFile, TunedModels, TunedVerdict},
};

use crate::{
    TunerError, atomic_file,
    configuration::{Configuration, Knobs, TableRow},
    date,
    guide::Guide,
    record::{Fingerprint, Record},
    selection::{self, LoadRanking, Ranked, Verdict},
    settings::max_running_requests,
    workload,
};

/// The file's name in the folder of a sweep.
pub const FILE_NAME: &str = "tuned.toml";
/// Gains below this are negligible, in logarithms.
const FELT: f64 = 0.01;
/// Largest tuned file in bytes.
const LARGEST: u64 = 1 << 20;

/// The tuned file of a ranking; `None` if no load has a winner, or if random weights ran, which are not worth serving.
/// Paths become absolute, since the file is in another folder than the sweep file.
pub fn tuned(
    file: &SweepFile,
    folder: &Path,
    context_length: usize,
    fingerprint: &Fingerprint,
    ranking: &[LoadRanking],
    guide: Option<&Guide>,
) -> Option<TunedFile> {
    if file.models.model_shape.is_some() {
        return None;
    }
    let knobs = settings(ranking)?;
    let winners: Vec<(&LoadRanking, &Ranked)> =
        ranking.iter().filter_map(|ranking| Some((ranking, best_with(ranking, &knobs)?))).collect();
    let policy = policy(file, &knobs, &winners, guide);
    let largest = policy.last()?.max_running_batch;
    let absolute = |path: &str| {
        let path = folder.join(path);
        path.canonicalize().unwrap_or(path).display().to_string()
    };
    let dtype = |path: &str| config(folder, path).and_then(|config| config.weights_dtype());
    let draft = Some(&file.models.draft).filter(|draft| !draft.is_empty());
    let draft = draft.and_then(|draft| config(folder, draft)).filter(|config| config.states_context_length());
    Some(TunedFile {
        format: FORMAT,
        written_by: fingerprint.engine.clone(),
        warnings: (workload::warning(file, folder).into_iter())
            .chain(warnings::of_models(&file.models))
            .chain(warnings::of(ranking))
            .collect(),
        models: TunedModels {
            target: absolute(&file.models.target),
            draft: if file.models.draft.is_empty() { String::new() } else { absolute(&file.models.draft) },
            algorithm: file.models.algorithm.clone(),
            // Other engines need this explicitly: with `auto` they would load target and draft each in its own dtype.
            dtype: file.models.dtype.clone(),
            quantization: file.models.quantization.clone(),
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
        policy,
        measured: Provenance {
            loads: ranking.iter().map(|ranking| ranking.load.to_string()).collect(),
            device_name: fingerprint.device_name.clone(),
            driver: fingerprint.driver.clone(),
            engine: fingerprint.engine.clone(),
            target_hash: fingerprint.target.clone(),
            draft_hash: fingerprint.draft.clone(),
            workload_hash: fingerprint.workload.clone(),
            objective: file.objective.metric.name().into(),
            // Filled in by the caller, which knows the records and why the search ended.
            ..Provenance::default()
        },
    })
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

/// The longest sequence of the engine of a sweep file, in tokens, without loading it; `None` if the target is not on
/// this machine.
pub fn context_length(file: &SweepFile, folder: &Path) -> Option<usize> {
    let made_for = config(folder, &file.models.target)?.derived_context_length();
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

/// The settings to run with. An engine has one set of settings, so the best measured one over all loads is chosen, and
/// the sweep file's own if others gain nothing noticeable. `None` without a winner.
fn settings(ranking: &[LoadRanking]) -> Option<Knobs> {
    let score = |knobs: &Knobs| -> Option<f64> {
        let logarithm = |ranking: &LoadRanking| Some(ranking.score(&best_with(ranking, knobs)?.configuration)?.ln());
        ranking.iter().filter(|ranking| ranking.chosen.is_some()).map(logarithm).sum()
    };
    let mut best = (Knobs::default(), score(&Knobs::default()));
    let tried: BTreeSet<&Knobs> =
        ranking.iter().flat_map(|ranking| &ranking.entries).map(|entry| &entry.configuration.knobs).collect();
    for knobs in tried {
        let gain = FELT * ranking.len() as f64;
        let better = score(knobs).filter(|score| best.1.is_none_or(|known| *score > known + gain));
        if better.is_some() {
            best = (knobs.clone(), better);
        }
    }
    ranking.iter().any(|ranking| ranking.chosen.is_some()).then_some(best.0)
}

/// The choice of a load if it has these settings, else the best configuration that has them.
fn best_with<'a>(ranking: &'a LoadRanking, knobs: &Knobs) -> Option<&'a Ranked> {
    let has = |entry: &&Ranked| entry.configuration.knobs == *knobs && entry.may_be_chosen();
    ranking.winner().filter(has).or_else(|| ranking.entries.iter().find(has))
}

/// The tree for each batch. Closed loops determine it for their batch sizes, and a guide for the sizes between them.
/// Without closed loops, the winner of the highest load is used, whether a tree or a table.
fn policy(
    file: &SweepFile,
    knobs: &Knobs,
    winners: &[(&LoadRanking, &Ranked)],
    guide: Option<&Guide>,
) -> Vec<PolicyRow> {
    let closed: Vec<PolicyRow> = winners
        .iter()
        .filter_map(|(ranking, winner)| row(ranking, winner, ranking.load.batch_size()?, winner.configuration.shape))
        .collect();
    if !closed.is_empty() {
        let score = |batch: usize, shape: TreeShape| {
            let ranking = winners.iter().find(|(ranking, _)| ranking.load.batch_size() == Some(batch))?.0;
            let configuration = Configuration { knobs: knobs.clone(), ..Configuration::of(shape) };
            ranking.score(&configuration)
        };
        return guide.and_then(|guide| borders::between(&closed, guide, &score)).unwrap_or(closed);
    }
    let Some((ranking, winner)) = winners.last() else { return closed };
    let largest = knobs.max_running_requests.unwrap_or_else(|| max_running_requests(file, &[]));
    if winner.configuration.table.is_empty() {
        return row(ranking, winner, largest, winner.configuration.shape).into_iter().collect();
    }
    let of_table = |one: &TableRow| row(ranking, winner, one.max_running_batch, one.shape);
    winner.configuration.table.iter().filter_map(of_table).collect()
}

fn row(ranking: &LoadRanking, winner: &Ranked, max_running_batch: usize, shape: TreeShape) -> Option<PolicyRow> {
    let speedup = winner.speedup;
    // No speculation relative to itself is 1, without an interval.
    let repeated = speedup.filter(|ends| ends.kind != selection::IntervalKind::Single && ends.low < ends.high);
    Some(PolicyRow {
        max_running_batch,
        max_context: None,
        measured_batch: ranking.load.batch_size().unwrap_or(max_running_batch),
        num_steps: shape.num_steps,
        topk: shape.topk,
        num_draft_tokens: shape.num_draft_tokens,
        output_tokens_per_s: round(winner.output_tokens_per_s?.median),
        repeats: Some(winner.repeats),
        speedup: speedup.map(|speedup| round(speedup.median)),
        speedup_interval: repeated.map(|speedup| [round(speedup.low), round(speedup.high)]),
        interval_kind: repeated.map(|ends| match ends.kind {
            selection::IntervalKind::Confidence => IntervalKind::Confidence,
            selection::IntervalKind::Range | selection::IntervalKind::Single => IntervalKind::Range,
        }),
        interval_level: repeated.map(|ends| round(ends.coverage)),
        accept_length: round(winner.accept_length?),
        verdict: match ranking.verdict {
            Verdict::Pays => TunedVerdict::Pays,
            Verdict::DoesNotPay => TunedVerdict::DoesNotPay,
            Verdict::Tie => TunedVerdict::NoDifference,
            Verdict::CannotTell(_) | Verdict::AllFailed | Verdict::NotCompared => TunedVerdict::NotKnown,
        },
        reason: ranking.verdict.words().into(),
    })
}

/// Four decimal places are more than any measurement supports.
fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
