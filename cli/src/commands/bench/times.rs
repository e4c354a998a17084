//! `spectune bench --times-out`: times rounds, and writes the models with which `spectune simulate`
//! predicts loads on this machine.

use std::{fs, path::Path};

use anyhow::{Context, bail};
use engine::Engine;
use schemas::tree::TreeShape;
use tuner::{forecast::times::TimedPlaces, policies::fit_times, prediction::latency::CrossValidation};

use super::Arguments;
use crate::{progress, terminal};

/// Times rounds of the shapes at the batches and contexts, and writes the fitted models.
///
/// # Errors
/// When no context is given, a point does not fit, the device fails, or the file cannot be written.
pub fn run(engine: &mut Engine, arguments: &Arguments, shapes: Vec<TreeShape>, path: &Path) -> anyhow::Result<()> {
    let timed = TimedPlaces { shapes, batches: arguments.batch_size.clone(), contexts: arguments.contexts.clone() };
    if timed.batches.is_empty() || timed.contexts.is_empty() {
        bail!("--times-out needs --batch-size and --contexts");
    }
    let times = progress::waiting("timing rounds", |bar| {
        fit_times::run(engine, timed, arguments.points, &mut |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        })
    })?;
    fs::write(path, serde_json::to_string_pretty(&times)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let validated = times.model().and_then(|model| model.cross_validation());
    let errors = validated.map_or_else(String::new, |CrossValidation { median, p90, .. }| {
        format!("; left out points are predicted within {:.1}% (median), {:.1}% (90%)", 100.0 * median, 100.0 * p90)
    });
    terminal::note(&format!("written: {} ({}{errors})", path.display(), times.source));
    Ok(())
}
