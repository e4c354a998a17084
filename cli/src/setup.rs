//! Setup common to several commands: reading files with limits, and engine options from a tuned file and flags.

use std::{fs::File, io::Read, path::Path, time::Duration};

use anyhow::{Context, bail};
use engine::{Engine, EngineOptions, ShapePolicy};
use external::http::Key;
use indicatif::ProgressBar;
use schemas::{kind::FileKind, text::Source, tuned::TunedFile};
use tuner::sweep::folder_of;

use crate::{checkpoint, engine_flags::EngineFlags, terminal, wrong_file::WrongFile};

/// Largest configuration file (launch, sweep, tuned) in bytes.
pub const LARGEST_CONFIGURATION: u64 = 16 << 20;

/// Reads a text file of at most `limit` bytes; `-` is standard input.
///
/// # Errors
/// When it cannot be read, is larger than the limit, or is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> anyhow::Result<String> {
    let name = path.display();
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(limit + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > limit {
        bail!("{name} is larger than {} MiB, the limit for this kind of file", limit >> 20);
    }
    String::from_utf8(bytes).map_err(|error| {
        anyhow::anyhow!("{name} is not UTF-8 text (first bad byte at offset {})", error.utf8_error().valid_up_to())
    })
}

/// Reads a configuration file, with its name for diagnostics.
///
/// # Errors
/// As [`read_text`].
pub fn read_source(path: &Path) -> anyhow::Result<Source> {
    let name = if path.as_os_str() == "-" { "<stdin>".to_owned() } else { path.display().to_string() };
    Ok(Source::new(name, read_text(path, LARGEST_CONFIGURATION)?))
}

/// Reads a tuned file, and prints its warnings.
///
/// # Errors
/// When it cannot be read, or is not a tuned file.
pub fn read_tuned(path: &Path) -> anyhow::Result<TunedFile> {
    let source = read_source(path)?;
    if FileKind::of(source.text()) == Some(FileKind::Sweep) {
        bail!(
            "{0} is a sweep file, not a tuned file: `spectune sweep {0}` produces a tuned file from it",
            path.display()
        );
    }
    let tuned = TunedFile::read(&source).map_err(|finding| WrongFile::new(source, finding))?;
    for caveat in tuned.caveats() {
        terminal::note(&format!("warning: {}: {caveat}", path.display()));
    }
    Ok(tuned)
}

/// The engine's options: the tuned file's, overridden by flags.
///
/// # Errors
/// When the tuned file is malformed, a flag is invalid, or no model is given.
pub fn engine_options(tuned: Option<&Path>, flags: &EngineFlags) -> anyhow::Result<EngineOptions> {
    let base = match tuned {
        None => EngineOptions::default(),
        Some(path) => engine::options::from_tuned(&read_tuned(path)?, &folder_of(path))?,
    };
    let words = with_folders(&flags.words)?;
    let (_source, launch) = schemas::launch::from_arguments(&words);
    let options = engine::options::with_launch(base, &launch)?;
    if options.simulate_accept_length.is_some() && !options.policy.speculates() {
        bail!(
            "--simulate-accept-length has no effect without speculation: give a draft and a tree shape, or remove it"
        );
    }
    Ok(options)
}

/// Replaces checkpoint names in engine flags by their folders.
fn with_folders(words: &[String]) -> anyhow::Result<Vec<String>> {
    let names_checkpoint = |flag: &str| matches!(flag, "--model-path" | "--speculative-draft-model-path");
    let mut words = words.to_vec();
    for at in 1..words.len() {
        if names_checkpoint(&words[at - 1]) {
            words[at] = checkpoint::folder(Path::new(""), &words[at])?;
        }
    }
    Ok(words)
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
    if let Some(quantised) = &engine.identity().quantised {
        terminal::note(&format!(
            "note: the target has {quantised}; activations are not quantised. Speculation is lossless against the \
             quantised target"
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

/// The API key in an environment variable; `None` without a name.
///
/// # Errors
/// When the variable is not set, or cannot be sent in a header.
pub fn api_key(variable: Option<&str>) -> anyhow::Result<Option<Key>> {
    let Some(name) = variable else { return Ok(None) };
    let value = std::env::var(name).unwrap_or_default();
    let value = value.trim();
    if value.is_empty() {
        // A value given in place of the name is not repeated.
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let shown = if is_name && !name.starts_with("sk") { name } else { "this variable" };
        bail!("--api-key-env takes the name of an environment variable that holds the key, but {shown} is not set");
    }
    if !value.bytes().all(|byte| (0x21..0x7f).contains(&byte)) {
        bail!("the API key in {name} contains characters that cannot be sent in a header");
    }
    Ok(Some(Key::new(value)))
}

/// Runs slow work with a progress bar on a terminal.
///
/// # Errors
/// The error of the work.
pub fn waiting<R, E>(what: &str, work: impl FnOnce(&ProgressBar) -> Result<R, E>) -> Result<R, E> {
    let bar = terminal::bar(1, "{bar:32}  {elapsed} elapsed  {wide_msg}").unwrap_or_else(ProgressBar::hidden);
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    let done = work(&bar);
    bar.finish_and_clear();
    done
}

fn show_graphs(bar: &ProgressBar, ready: usize, all: usize) {
    bar.set_length(all as u64);
    bar.set_position(ready as u64);
    bar.set_message(format!("capturing graph {} of {all}", ready + 1));
}
