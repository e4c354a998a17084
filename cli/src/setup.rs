//! What several commands need before they start: files with limits, and engine options from a tuned file and flags.

use std::{fs::File, io::Read, path::Path};

use anyhow::{Context, bail};
use engine::EngineOptions;

use crate::engine_flags::EngineFlags;

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

/// The engine's options: those of the tuned file, then the flags, which win.
///
/// # Errors
/// When the tuned file is broken, a flag has no sense, or no model is named.
pub fn engine_options(tuned: Option<&Path>, flags: &EngineFlags) -> anyhow::Result<EngineOptions> {
    let mut words = Vec::new();
    let mut policy = None;
    if let Some(path) = tuned {
        let tuned = read_tuned(path)?;
        words = tuned.engine_flags();
        policy = tuned.policy();
    }
    words.extend(flags.words.iter().cloned());
    let (_source, launch) = schemas::launch::from_arguments(&words);
    let mut options = engine::options::from_launch(&launch)?;
    // A triple on the command line replaces the whole table.
    if let Some(policy) = policy
        && !flags.names_a_shape()
    {
        options.policy = policy;
    }
    Ok(options)
}
