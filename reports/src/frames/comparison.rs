//! The comparison of two runs, one row per configuration and load that both measured.

use polars_core::prelude::*;

use super::{batch_size, frame, request_rate};
use crate::{
    comparison::{ComparisonRow, RunComparison},
    error::ReportError,
};

/// The frame.
///
/// # Errors
/// When it cannot be built.
pub fn comparison(comparison: &RunComparison<'_>) -> Result<DataFrame, ReportError> {
    let rows = &comparison.rows;
    let text = |name: &str, of: fn(&ComparisonRow) -> String| {
        Column::new(name.into(), rows.iter().map(of).collect::<Vec<_>>())
    };
    let figure = |name: &str, of: fn(&ComparisonRow) -> Option<f64>| {
        Column::new(name.into(), rows.iter().map(of).collect::<Vec<_>>())
    };
    let columns = vec![
        text("load", |row| row.load.to_string()),
        Column::new("batch_size".into(), rows.iter().map(|row| batch_size(row.load)).collect::<Vec<_>>()),
        figure("request_rate", |row| request_rate(row.load)),
        text("configuration", |row| row.configuration.to_string()),
        figure("first_output_tokens_per_s", |row| row.throughput[0].map(|figure| figure.median)),
        figure("second_output_tokens_per_s", |row| row.throughput[1].map(|figure| figure.median)),
        figure("ratio", |row| Some(row.ratio.median)),
        figure("ratio_low", |row| Some(row.ratio.low)),
        figure("ratio_high", |row| Some(row.ratio.high)),
        Column::new("repeats".into(), rows.iter().map(|row| row.repeats as u64).collect::<Vec<_>>()),
        text("verdict", |row| row.verdict().to_owned()),
    ];
    frame("comparison", columns)
}
