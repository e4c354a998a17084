//! What a sweep leaves behind: the tuned file.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use engine::checkpoint::Folder;
use schemas::{
    model::ModelConfig,
    sweep::{Metric, SweepFile},
    text::Source,
    tree::TreeShape,
    tuned::{FORMAT, PolicyRow, Provenance, TunedEngine, TunedFile, TunedModels},
};

use crate::{
    TunerError,
    configuration::{Knobs, TableRow},
    guide::Guide,
    record::Fingerprint,
    selection::{LoadRanking, Ranked},
    settings::max_running_requests,
    whole_file,
};

/// The file's name in the folder of a sweep.
pub const FILE_NAME: &str = "tuned.toml";
/// Gains that nobody feels, in logarithms.
const FELT: f64 = 0.01;
/// Largest tuned file in bytes: a few rows of text.
const LARGEST: u64 = 1 << 20;

/// The tuned file of a ranking; `None` when no load has a winner, or random weights ran, which nobody wants to serve. Paths become absolute, since the file lies in
/// another folder than the sweep file.
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
    let knobs = settings(ranking, file.objective.metric)?;
    let winners: Vec<(&LoadRanking, &Ranked)> =
        ranking.iter().filter_map(|ranking| Some((ranking, best_with(ranking, &knobs)?))).collect();
    let policy = policy(file, &knobs, &winners, guide, file.objective.metric);
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
            page_size: knobs.page_size.unwrap_or(file.engine.page_size),
            mem_fraction_static: knobs.mem_fraction_static.map_or(file.engine.mem_fraction_static, |share| share.0),
            attention_backend: knobs.attention_backend.clone(),
            chunked_prefill_size: knobs.chunked_prefill_size,
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
            search: String::new(),
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
    let text = whole_file::read_if_there(&folder.join(FILE_NAME), LARGEST).map_err(|error| error.to_string())?;
    let Some(text) = text else { return Ok(None) };
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

/// The settings to run with: one engine has one, so of those that were measured the one that is best over all loads
/// together, and the sweep file's own where others gain nothing that anybody feels. `None` without a winner.
fn settings(ranking: &[LoadRanking], metric: Metric) -> Option<Knobs> {
    let score = |knobs: &Knobs| -> Option<f64> {
        let logarithm = |ranking: &LoadRanking| Some(best_with(ranking, knobs)?.score(metric).ln());
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

/// The choice of a load if it has these settings, else the best that has them.
fn best_with<'a>(ranking: &'a LoadRanking, knobs: &Knobs) -> Option<&'a Ranked> {
    let has = |entry: &&Ranked| entry.configuration.knobs == *knobs && entry.may_be_chosen();
    ranking.winner().filter(has).or_else(|| ranking.entries.iter().find(has))
}

/// Which tree runs at which batch. Closed loops say it for their batch sizes, and a guide for those between; where there
/// are none, the winner of the highest load says it, be it a tree or a table.
fn policy(
    file: &SweepFile,
    knobs: &Knobs,
    winners: &[(&LoadRanking, &Ranked)],
    guide: Option<&Guide>,
    metric: Metric,
) -> Vec<PolicyRow> {
    let closed: Vec<PolicyRow> = winners
        .iter()
        .filter_map(|(ranking, winner)| row(ranking, winner, ranking.load.batch_size()?, winner.configuration.shape))
        .collect();
    if !closed.is_empty() {
        let score = |batch: usize, shape: TreeShape| {
            let ranking = winners.iter().find(|(ranking, _)| ranking.load.batch_size() == Some(batch))?.0;
            let plain = |entry: &&Ranked| entry.configuration.shape == shape && entry.configuration.knobs == *knobs;
            ranking.entries.iter().find(plain).map(|entry| entry.score(metric)).filter(|score| *score > 0.0)
        };
        return guide.and_then(|guide| between(&closed, guide, &score)).unwrap_or(closed);
    }
    let Some((ranking, winner)) = winners.last() else { return closed };
    let largest = knobs.max_running_requests.unwrap_or_else(|| max_running_requests(file, &[]));
    if winner.configuration.table.is_empty() {
        return row(ranking, winner, largest, winner.configuration.shape).into_iter().collect();
    }
    let of_table = |one: &TableRow| row(ranking, winner, one.max_running_batch, one.shape);
    winner.configuration.table.iter().filter_map(of_table).collect()
}

/// The table with its borders where the predictions see them: at a measured batch the winner holds, and between two of
/// them those two winners have one border, from where on the second is faster. `None` where the guide lacks one of them.
///
/// Rounds are predicted, and what else weighs (prompts, ends of requests) is not; so what the second gains over the first
/// is corrected by what `score` says of both (of a batch and a shape, more is better) at the measured batches, where they
/// were measured. Nothing else enters between the two: where both have the same winner, a prediction that says otherwise has
/// just been refuted on either side.
fn between(
    measured: &[PolicyRow],
    guide: &Guide,
    score: &dyn Fn(usize, TreeShape) -> Option<f64>,
) -> Option<Vec<PolicyRow>> {
    let shape = |row: &PolicyRow| TreeShape {
        num_steps: row.num_steps,
        topk: row.topk,
        num_draft_tokens: row.num_draft_tokens,
    };
    // The logarithm of the tokens a second of one request.
    let predicted = |row: &PolicyRow, batch: usize| {
        let of = guide.rounds_by_batch.iter().find(|one| one.shape == shape(row))?;
        Some((of.accept_length / of.round_ms.get(batch.checked_sub(1)?)?).ln())
    };
    // Logarithms of what the second of two rows gains.
    let gain = |first: &PolicyRow, second: &PolicyRow, batch: usize| {
        let error = |at: &PolicyRow| {
            let batch = at.max_running_batch;
            let measured = (score(batch, shape(second))? / score(batch, shape(first))?).ln();
            Some(measured - (predicted(second, batch)? - predicted(first, batch)?))
        };
        let place = |batch: usize| (batch as f64).ln();
        let (from, to) = (place(first.max_running_batch), place(second.max_running_batch));
        let share = if to > from { (place(batch) - from) / (to - from) } else { 0.0 };
        let error = match (error(first), error(second)) {
            (Some(low), Some(high)) => low + share * (high - low),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => 0.0,
        };
        Some(predicted(second, batch)? - predicted(first, batch)? + error)
    };
    let mut rows: Vec<PolicyRow> = Vec::new();
    let largest = measured.last()?.max_running_batch;
    for batch in 1..=largest {
        let above = measured.iter().find(|row| row.max_running_batch >= batch)?;
        let below = measured.iter().rev().find(|row| row.max_running_batch <= batch).unwrap_or(above);
        // What runs already goes on unless the other is felt to be faster; behind the border it does not come back.
        let crossed = rows.last().is_some_and(|last| shape(last) == shape(above));
        let holds = batch == below.max_running_batch || !crossed && gain(below, above, batch)? <= FELT;
        let best = if holds { below } else { above };
        match rows.last_mut().filter(|last| shape(last) == shape(best)) {
            Some(last) => last.max_running_batch = batch,
            None => rows.push(PolicyRow { max_running_batch: batch, ..best.clone() }),
        }
        // Of a row that holds several measured batches the figures are those of the largest.
        if let (Some(last), true) = (rows.last_mut(), best.max_running_batch == batch) {
            *last = best.clone();
        }
    }
    Some(rows)
}

fn row(ranking: &LoadRanking, winner: &Ranked, max_running_batch: usize, shape: TreeShape) -> Option<PolicyRow> {
    let speedup = winner.speedup?;
    Some(PolicyRow {
        max_running_batch,
        measured_batch: ranking.load.batch_size().unwrap_or(max_running_batch),
        num_steps: shape.num_steps,
        topk: shape.topk,
        num_draft_tokens: shape.num_draft_tokens,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guide::{AcceptanceSource, AcceptanceTable, Cost, CrossValidation, RoundTimeSummary, RoundsByBatch};

    fn row(batch: usize, shape: &str) -> PolicyRow {
        let shape: TreeShape = shape.parse().expect("a shape");
        PolicyRow {
            max_running_batch: batch,
            measured_batch: batch,
            num_steps: shape.num_steps,
            topk: shape.topk,
            num_draft_tokens: shape.num_draft_tokens,
            output_tokens_per_s: batch as f64,
            speedup: 1.0,
            speedup_interval: [1.0, 1.0],
            accept_length: 1.0,
            verdict: String::new(),
        }
    }

    fn guide(rounds: &[(&str, &dyn Fn(usize) -> f64)]) -> Guide {
        let of = |(shape, ms): &(&str, &dyn Fn(usize) -> f64)| RoundsByBatch {
            shape: shape.parse().expect("a shape"),
            accept_length: 1.0,
            round_ms: (1..=32).map(ms).collect(),
        };
        Guide {
            format: crate::guide::FORMAT,
            fingerprint: Fingerprint::default(),
            acceptance: AcceptanceTable {
                source: AcceptanceSource::Imported { source: String::new() },
                rows: Vec::new(),
            },
            round_times: RoundTimeSummary {
                parameters: Vec::new(),
                error: CrossValidation::default(),
                points: Vec::new(),
            },
            predictions: Vec::new(),
            rounds_by_batch: rounds.iter().map(of).collect(),
            captures: Vec::new(),
            cost: Cost::default(),
        }
    }

    #[test]
    fn borders_between_measured_batches_lie_where_the_predictions_cross() {
        // The tree is faster for few requests and for many, as where another kernel takes over.
        let guide = guide(&[
            ("0,1,1", &|batch| if batch > 16 { 3.0 } else { 1.0 }),
            ("1,4,4", &|batch| if batch < 5 { 0.8 } else { 1.5 }),
        ]);
        let measured = [row(1, "1,4,4"), row(8, "0,1,1"), row(32, "1,4,4")];
        let rows: Vec<(usize, usize, usize)> = between(&measured, &guide, &|_, _| None)
            .expect("all are predicted")
            .iter()
            .map(|row| (row.max_running_batch, row.num_steps, row.measured_batch))
            .collect();
        assert_eq!(rows, [(4, 1, 1), (16, 0, 8), (32, 1, 32)]);
        assert_eq!(between(&[row(1, "1,4,4"), row(8, "2,1,3")], &guide, &|_, _| None), None, "one is not predicted");
    }

    #[test]
    fn a_border_moves_by_what_predictions_miss_at_measured_batches() {
        // The second is predicted to be a fifth slower, and from 16 on a quarter faster.
        let guide = guide(&[("0,1,1", &|_| 1.0), ("1,4,4", &|batch| if batch < 16 { 1.25 } else { 0.8 })]);
        let measured = [row(1, "0,1,1"), row(32, "1,4,4")];
        let last_of_first = |ratios: [f64; 2]| {
            let score = move |batch: usize, shape: TreeShape| {
                Some(if shape.num_steps == 0 { 1.0 } else { ratios[usize::from(batch == 32)] })
            };
            between(&measured, &guide, &score).expect("all are predicted")[0].max_running_batch
        };
        assert_eq!(last_of_first([0.8, 1.25]), 15, "as predicted");
        assert_eq!(last_of_first([1.2, 1.25]), 1, "the second is faster from the beginning");
        assert_eq!(last_of_first([0.8, 0.9]), 31, "the second is slower to the end");
    }

    #[test]
    fn nothing_enters_between_two_batches_with_the_same_winner() {
        // A tree is predicted to be the fastest everywhere, and measured to be so at one request only.
        let guide = guide(&[("0,1,1", &|_| 1.0), ("1,4,4", &|_| 0.8)]);
        let measured = [row(1, "1,4,4"), row(8, "0,1,1"), row(32, "0,1,1")];
        let rows = between(&measured, &guide, &|_, _| None).expect("all are predicted");
        assert_eq!(rows.iter().map(|row| row.max_running_batch).collect::<Vec<_>>(), [7, 32]);
    }

    #[test]
    fn a_measured_winner_holds_whatever_is_predicted() {
        let guide = guide(&[("0,1,1", &|_| 1.0), ("1,4,4", &|_| 2.0)]);
        let rows = between(&[row(1, "1,4,4"), row(3, "0,1,1")], &guide, &|_, _| None).expect("all are predicted");
        assert_eq!(rows.iter().map(|row| row.max_running_batch).collect::<Vec<_>>(), [1, 3]);
    }
}
