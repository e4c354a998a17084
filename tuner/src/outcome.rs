//! What a sweep leaves behind: the tuned file.

use std::path::{Path, PathBuf};

use engine::Engine;
use schemas::{
    sweep::SweepFile,
    tuned::{FORMAT, PolicyRow, Provenance, TunedEngine, TunedFile, TunedModels},
};

use crate::{TunerError, record::Fingerprint, selection::LoadRanking, whole_file};

/// The file's name in the folder of a sweep.
pub const FILE_NAME: &str = "tuned.toml";

/// The tuned file of a ranking; `None` when no batch size has a winner. Paths become absolute, since the file lies in
/// another folder than the sweep file.
pub fn tuned(
    file: &SweepFile,
    folder: &Path,
    engine: &Engine,
    fingerprint: &Fingerprint,
    ranking: &[LoadRanking],
) -> Option<TunedFile> {
    let policy: Vec<PolicyRow> = ranking.iter().filter_map(row).collect();
    let largest = policy.last()?.max_running_batch;
    let absolute = |path: &str| {
        let path = folder.join(path);
        path.canonicalize().unwrap_or(path).display().to_string()
    };
    let config = |path: &str| Some(engine::checkpoint::Folder::open(&folder.join(path)).ok()?.config);
    let dtype = |path: &str| config(path).and_then(|config| config.weights_dtype());
    let draft = config(&file.models.draft).filter(|config| config.states_context_length());
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
            context_length: engine.capacity().context_length,
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
