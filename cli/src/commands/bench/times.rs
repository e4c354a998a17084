//! `spectune bench --times-out`: times rounds, and writes the models with which `spectune simulate`
//! predicts loads on this machine.

use std::path::Path;

use engine::Engine;
use schemas::tree::TreeShape;
use tuner::{forecast::times::TimedPlaces, policies::fit_times, prediction::latency::CrossValidation};

use super::Arguments;
use crate::{outputs, progress};

/// Points that are timed at most, if no number is given.
const POINTS: usize = 40;

/// Times rounds of the shapes at the batches and contexts, and writes the fitted models.
///
/// # Errors
/// When a point does not fit, the device fails, or the file cannot be written.
pub fn run(engine: &mut Engine, arguments: &Arguments, shapes: Vec<TreeShape>, path: &Path) -> anyhow::Result<()> {
    let timed = TimedPlaces { shapes, batches: arguments.batch_size.clone(), contexts: arguments.contexts.clone() };
    let times = progress::waiting("timing rounds", |bar| {
        fit_times::run(engine, timed, arguments.points.unwrap_or(POINTS), &mut |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        })
    })?;
    let validated = times.model().and_then(|model| model.cross_validation());
    let errors = validated.map_or_else(String::new, |CrossValidation { median, p90, .. }| {
        format!("; left out points are predicted within {:.1}% (median), {:.1}% (90%)", 100.0 * median, 100.0 * p90)
    });
    outputs::write(path, &serde_json::to_string_pretty(&times)?, &format!(" ({}{errors})", times.source))
}
