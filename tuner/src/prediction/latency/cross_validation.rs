//! Cross-validation: how well the model predicts points that it was not fitted to.

use serde::{Deserialize, Serialize};

use super::{
    LatencyError,
    fit::Physical,
    residual::{ResidualPlace, Residuals},
    sample::SampleSummary,
};

/// Minimum number of points for cross-validation.
const FEWEST: usize = 3;

/// Relative errors |predicted / measured − 1| of the points, each predicted by a model that was
/// fitted to the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossValidation {
    /// Number of points.
    pub points: usize,
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The largest.
    pub max: f64,
    /// The median error of the physical model alone, without the interpolated residuals.
    pub physical_median: f64,
    /// The prediction of each point by the model of the others, in ms, in the order of the points.
    pub left_out_ms: Vec<f64>,
}

/// The physical models fitted without each point in turn; empty for too few points.
pub fn refits(physical: &Physical, measured: &[SampleSummary]) -> Result<Vec<Physical>, LatencyError> {
    if measured.len() < FEWEST {
        return Ok(Vec::new());
    }
    (0..measured.len()).map(|at| physical.refit(&without(measured, at))).collect()
}

/// Predicts each point from the others, and inflates the process's deviations if they are too
/// small.
pub fn validate(
    measured: &[SampleSummary],
    refits: &[Physical],
    residuals: &mut Residuals,
) -> Result<Option<CrossValidation>, LatencyError> {
    if refits.is_empty() {
        return Ok(None);
    }
    let (mut errors, mut physical_errors, mut scores) = (Vec::new(), Vec::new(), Vec::new());
    let mut left_out_ms = Vec::new();
    for (at, (one, refit)) in measured.iter().zip(refits).enumerate() {
        // The strength is not fitted again: it has few parameters, and each fit tries a hundred of
        // them.
        let process = Residuals::new(refit, &without(measured, at), residuals.strength())?;
        let (mean, deviation) = process.at(&ResidualPlace::new(refit, &one.point));
        let physical = refit.log_ms(&one.point) - one.log_ms;
        errors.push(((physical + mean).exp() - 1.0).abs());
        left_out_ms.push((one.log_ms + physical + mean).exp());
        physical_errors.push((physical.exp() - 1.0).abs());
        scores.push((physical + mean).abs() / deviation);
    }
    for values in [&mut errors, &mut physical_errors, &mut scores] {
        values.sort_by(f64::total_cmp);
    }
    // Nine of ten points must lie within the 90% interval.
    residuals.inflation = (at_share(&scores, 0.9) / super::NINETY_PERCENT).max(1.0);
    Ok(Some(CrossValidation {
        points: measured.len(),
        median: at_share(&errors, 0.5),
        p90: at_share(&errors, 0.9),
        max: at_share(&errors, 1.0),
        physical_median: at_share(&physical_errors, 0.5),
        left_out_ms,
    }))
}

fn without(measured: &[SampleSummary], left_out: usize) -> Vec<SampleSummary> {
    measured.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, one)| *one).collect()
}

/// Nearest rank in sorted values; 0 without any.
fn at_share(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}
