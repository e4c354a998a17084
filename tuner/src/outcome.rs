//! What a sweep leaves behind: the tuned file.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use engine::checkpoint::Folder;
use schemas::{
    model::ModelConfig,
    sweep::SweepFile,
    text::Source,
    tuned::{FORMAT, PolicyRow, Provenance, TunedEngine, TunedFile, TunedModels},
};

use crate::{TunerError, record::Fingerprint, selection::LoadRanking, whole_file};

/// The file's name in the folder of a sweep.
pub const FILE_NAME: &str = "tuned.toml";
/// Largest tuned file in bytes: a few rows of text.
const LARGEST: u64 = 1 << 20;

/// The tuned file of a ranking; `None` when no batch size has a winner. Paths become absolute, since the file lies in
/// another folder than the sweep file.
pub fn tuned(
    file: &SweepFile,
    folder: &Path,
    context_length: usize,
    fingerprint: &Fingerprint,
    ranking: &[LoadRanking],
) -> Option<TunedFile> {
    let policy: Vec<PolicyRow> = ranking.iter().filter_map(row).collect();
    let largest = policy.last()?.max_running_batch;
    let absolute = |path: &str| {
        let path = folder.join(path);
        path.canonicalize().unwrap_or(path).display().to_string()
    };
    let dtype = |path: &str| config(folder, path).and_then(|config| config.weights_dtype());
    let draft = config(folder, &file.models.draft).filter(|config| config.states_context_length());
    Some(TunedFile {
        format: FORMAT,
        written_by: fingerprint.engine.clone(),
        models: TunedModels {
            target: absolute(&file.models.target),
            draft: absolute(&file.models.draft),
            algorithm: file.models.algorithm.clone(),
            // What another engine must be told: with `auto` it would load target and draft each in its own type.
            dtype: file.models.dtype.clone(),
            target_dtype: dtype(&file.models.target).map(ToOwned::to_owned),
            draft_context_length: draft.map(|config| config.derived_context_length()),
        },
        engine: TunedEngine {
            device: fingerprint.device.clone(),
            context_length,
            page_size: file.engine.page_size,
            mem_fraction_static: file.engine.mem_fraction_static,
            max_running_requests: largest,
            capture_sizes: file.engine.capture_sizes.clone(),
        },
        policy,
        measured: Provenance {
            device_name: fingerprint.device_name.clone(),
            driver: fingerprint.driver.clone(),
            engine: fingerprint.engine.clone(),
            target_hash: fingerprint.target.clone(),
            draft_hash: fingerprint.draft.clone(),
            workload_hash: fingerprint.workload.clone(),
            objective: file.objective.metric.name().into(),
        },
    })
}

/// The longest sequence of the engine that a sweep file asks for, in tokens, without loading it; `None` where the target is
/// not on this machine.
pub fn context_length(file: &SweepFile, folder: &Path) -> Option<usize> {
    let made_for = config(folder, &file.models.target)?.derived_context_length();
    Some(file.engine.context_length.unwrap_or(made_for))
}

/// Reads the tuned file of a folder; `None` where there is none.
///
/// # Errors
/// In words, when it cannot be read or is no tuned file.
pub fn read(folder: &Path) -> Result<Option<TunedFile>, String> {
    let mut text = String::new();
    match File::open(folder.join(FILE_NAME)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => {
            opened.and_then(|file| file.take(LARGEST).read_to_string(&mut text)).map_err(|error| error.to_string())?
        }
    };
    TunedFile::read(&Source::new(FILE_NAME, text)).map(Some).map_err(|finding| finding.message)
}

/// Writes the file into a folder, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write(file: &TunedFile, folder: &Path) -> Result<PathBuf, TunerError> {
    let path = folder.join(FILE_NAME);
    let text = file.text().map_err(|error| TunerError::Malformed { path: path.clone(), reason: error.to_string() })?;
    whole_file::write(folder, FILE_NAME, text.as_bytes())?;
    Ok(path)
}

fn config(folder: &Path, path: &str) -> Option<ModelConfig> {
    Some(Folder::open(&folder.join(path)).ok()?.config)
}

fn row(ranking: &LoadRanking) -> Option<PolicyRow> {
    let winner = ranking.winner()?;
    let speedup = winner.speedup?;
    Some(PolicyRow {
        max_running_batch: ranking.load.batch_size()?,
        num_steps: winner.configuration.shape.num_steps,
        topk: winner.configuration.shape.topk,
        num_draft_tokens: winner.configuration.shape.num_draft_tokens,
        output_tokens_per_s: round(winner.output_tokens_per_s?.median),
        speedup: round(speedup.median),
        speedup_interval: [round(speedup.low), round(speedup.high)],
        accept_length: round(winner.accept_length?),
        verdict: ranking.verdict().words().into(),
    })
}

/// Four digits behind the point say more than any measurement.
fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
