//! The predictions, one row per configuration and load, with measurements.

use polars_core::prelude::*;
use tuner::prediction::guide::Prediction;

use super::{batch_size, frame, request_rate};
use crate::{agreement::PredictedGain, error::ReportError, section::Section};

/// The frame; `None` without predictions.
///
/// # Errors
/// When it cannot be built.
pub fn predictions(sections: &[Section<'_>]) -> Result<Option<DataFrame>, ReportError> {
    let agreements: Vec<_> = sections
        .iter()
        .enumerate()
        .flat_map(|(number, section)| section.agreements().into_iter().map(move |one| (number + 1, one)))
        .collect();
    let rows: Vec<(usize, &PredictedGain<'_>)> =
        agreements.iter().flat_map(|(number, one)| one.rows.iter().map(|row| (*number, row))).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let number = |name: &str, of: fn(&Prediction) -> Option<u64>| {
        Column::new(name.into(), rows.iter().map(|row| of(row.1.prediction)).collect::<Vec<_>>())
    };
    let figure = |name: &str, of: fn(&PredictedGain<'_>) -> Option<f64>| {
        Column::new(name.into(), rows.iter().map(|row| of(row.1)).collect::<Vec<_>>())
    };
    let text = |name: &str, of: fn(&Prediction) -> Option<String>| {
        Column::new(name.into(), rows.iter().map(|row| of(row.1.prediction)).collect::<Vec<_>>())
    };
    let columns = vec![
        Column::new("section".into(), rows.iter().map(|row| row.0 as u64).collect::<Vec<_>>()),
        text("load", |one| Some(one.load.to_string())),
        number("batch_size", |one| batch_size(one.load)),
        figure("request_rate", |row| request_rate(row.prediction.load)),
        text("configuration", |one| Some(one.configuration.to_string())),
        number("num_steps", |one| Some(one.configuration.shape.num_steps as u64)),
        number("topk", |one| Some(one.configuration.shape.topk as u64)),
        number("num_draft_tokens", |one| Some(one.configuration.shape.num_draft_tokens as u64)),
        figure("predicted_accept_length", |row| Some(row.prediction.accept_length)),
        figure("predicted_round_ms", |row| Some(row.prediction.round_ms)),
        figure("predicted_output_tokens_per_s", |row| Some(row.prediction.output_tokens_per_s)),
        figure("predicted_tokens_per_s_per_user", |row| Some(row.prediction.tokens_per_s_per_user)),
        figure("predicted_latency_ms", |row| Some(row.prediction.latency_ms)),
        figure("predicted_time_to_first_token_ms", |row| Some(row.prediction.time_to_first_token_ms)),
        text("extrapolated", |one| one.extrapolated.clone()),
        figure("measured_objective", |row| row.measured.map(|interval| interval.median)),
        figure("relative_error", |row| row.error()),
    ];
    frame("predictions", columns).map(Some)
}
