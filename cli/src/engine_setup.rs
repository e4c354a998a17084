//! Loads an engine with the options of a tuned file and of flags.

use std::path::Path;

use anyhow::bail;
use engine::{Engine, EngineOptions, Identity, ShapePolicy, options::Fp8Compute};
use indicatif::ProgressBar;
use launch::Launch;
use schemas::{
    drafting::{algorithm_named, algorithms},
    flags::Key,
    paths::folder_of,
    text::nearest,
    tuned::Provenance,
};

use crate::{checkpoint, engine_flags::EngineFlags, progress::waiting, setup::read_tuned, terminal};

/// What a tuned file says of the weights that it was measured with.
pub struct MeasuredWeights {
    /// The name of the file.
    file: String,
    measured: Provenance,
}

impl MeasuredWeights {
    /// Warns about an engine with other weights.
    fn compare(&self, identity: &Identity) {
        for difference in self.measured.other_weights(&identity.target, identity.draft.as_deref()) {
            terminal::note(&format!("warning: {}: {difference}", self.file));
        }
    }
}

/// The engine's options: the tuned file's, overridden by flags; and what the file was measured
/// with.
///
/// # Errors
/// As [`engine_options`], and when the tuned file is malformed.
pub fn tuned_options(
    tuned: Option<&Path>,
    flags: &EngineFlags,
) -> anyhow::Result<(EngineOptions, Option<MeasuredWeights>)> {
    let Some(path) = tuned else { return Ok((engine_options(EngineOptions::default(), flags)?, None)) };
    let tuned = read_tuned(path)?;
    let options = engine_options(engine::options::from_tuned(&tuned, &folder_of(path))?, flags)?;
    Ok((options, Some(MeasuredWeights { file: path.display().to_string(), measured: tuned.measured })))
}

/// The engine's options: given ones, overridden by flags.
///
/// # Errors
/// When a flag is invalid, or no model is given.
pub fn engine_options(base: EngineOptions, flags: &EngineFlags) -> anyhow::Result<EngineOptions> {
    let words = with_folders(&flags.words)?;
    let (_source, launch) = launch::from_arguments(&words);
    check_algorithm(&launch)?;
    let options = engine::options::with_launch(base, &launch)?;
    if options.simulated.is_some() && !options.policy.speculates() {
        bail!(
            "--simulate-accept-length has no effect without speculation: give a draft and a tree shape, or remove it"
        );
    }
    Ok(options)
}

/// Refuses a name that no algorithm has, of which a missing draft would be said otherwise.
fn check_algorithm(launch: &Launch) -> anyhow::Result<()> {
    let Some(given) = launch.text(Key::SpeculativeAlgorithm) else { return Ok(()) };
    if algorithm_named(given.value).is_some() {
        return Ok(());
    }
    let known: Vec<&str> = algorithms().collect();
    let near = nearest(given.value, &known).map_or_else(String::new, |near| format!("; did you mean {near}?"));
    bail!("--speculative-algorithm {}: expected one of {}{near}", given.value, known.join(", "))
}

/// Replaces checkpoint names in engine flags by their folders. With random weights they name
/// shapes, which have none.
fn with_folders(words: &[String]) -> anyhow::Result<Vec<String>> {
    let names_checkpoint = |flag: &str| matches!(flag, "--model-path" | "--speculative-draft-model-path");
    if words.windows(2).any(|pair| pair[0] == "--load-format" && pair[1] == "dummy") {
        return Ok(words.to_vec());
    }
    let mut words = words.to_vec();
    for at in 1..words.len() {
        if names_checkpoint(&words[at - 1]) {
            words[at] = checkpoint::folder(Path::new(""), &words[at])?;
        }
    }
    Ok(words)
}

/// Loads an engine, with a progress bar on a terminal, and warns about weights that a tuned file
/// was not measured with.
///
/// # Errors
/// As [`Engine::load`].
pub fn load_tuned(options: EngineOptions, measured: Option<&MeasuredWeights>) -> anyhow::Result<Engine> {
    let engine = load(options)?;
    if let Some(measured) = measured {
        measured.compare(engine.identity());
    }
    Ok(engine)
}

/// Loads an engine, with a progress bar on a terminal.
///
/// # Errors
/// As [`Engine::load`].
pub fn load(options: EngineOptions) -> anyhow::Result<Engine> {
    if options.makes_up_acceptance() {
        terminal::note("note: acceptance is simulated: round times are real, the generated text is meaningless");
    }
    let load = |bar: &ProgressBar| Engine::load_watched(options, &mut |ready, all| show_graphs(bar, ready, all));
    let engine = waiting("loading models", load)?;
    let Identity { quantised, fp8_compute, .. } = engine.identity();
    let products = *fp8_compute == Some(Fp8Compute::Products);
    if let Some(quantised) = quantised {
        terminal::note(&format!(
            "note: the target has {quantised}{}. Speculation is lossless against the quantised target",
            if products { "" } else { "; activations are not quantised" }
        ));
    }
    if let Some(cache) = engine.identity().kv_cache {
        terminal::note(&format!(
            "note: the KV cache is kept as {cache}. Speculation is lossless against the target with this cache"
        ));
    }
    Ok(engine)
}

/// Changes the policy of a loaded engine, with a progress bar on a terminal.
///
/// # Errors
/// As [`Engine::set_policy`].
pub fn set_policy(engine: &mut Engine, policy: ShapePolicy) -> anyhow::Result<()> {
    let set = |bar: &ProgressBar| engine.set_policy_watched(policy, &mut |ready, all| show_graphs(bar, ready, all));
    Ok(waiting("getting ready", set)?)
}

fn show_graphs(bar: &ProgressBar, ready: usize, all: usize) {
    bar.set_length(all as u64);
    bar.set_position(ready as u64);
    bar.set_message(format!("capturing graph {} of {all}", ready + 1));
}
