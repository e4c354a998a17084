//! Setup common to several commands: reading files with limits, and API keys.

use std::{fs::File, io::Read, path::Path};

use anyhow::{Context, bail};
use external::http::ApiKey;
use schemas::{
    kind::FileKind,
    text::{Source, is_variable_name},
    tuned::TunedFile,
};

use crate::{terminal, wrong_file::WrongFile};

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

/// Endings of texts that contain launches and are not TOML.
const OF_LAUNCHES: [&str; 8] = ["bash", "py", "sbatch", "service", "sh", "slurm", "yaml", "yml"];

/// Refuses a file of another kind than a command takes: they are all TOML and lie in the same
/// folders, so they are easily mixed up. A launch is not TOML, and another command tunes it.
///
/// # Errors
/// When it is of another kind.
pub fn expect_kind(source: &Source, expected: FileKind) -> anyhow::Result<()> {
    match FileKind::from_text(source.text()) {
        Some(kind) if kind != expected => bail!(
            "{0} is a {1}, not a {2}: run it with `spectune {3} {0}`",
            source.name(),
            kind.name(),
            expected.name(),
            kind.command()
        ),
        None if is_of_launches(source) => bail!(
            "{0} is not a {1}, which is TOML: to find a faster speculation for the launch in it, run `spectune tune {0}`",
            source.name(),
            expected.name()
        ),
        _ => Ok(()),
    }
}

/// Whether a text is one of those that contain launches, by its name or its first line.
fn is_of_launches(source: &Source) -> bool {
    let ending = source.name().rsplit_once('.').map(|(_, ending)| ending);
    source.text().starts_with("#!") || ending.is_some_and(|ending| OF_LAUNCHES.contains(&ending))
}

/// Reads a tuned file, and prints its warnings.
///
/// # Errors
/// When it cannot be read, or is not a tuned file.
pub fn read_tuned(path: &Path) -> anyhow::Result<TunedFile> {
    let source = read_source(path)?;
    if FileKind::from_text(source.text()) == Some(FileKind::Sweep) {
        bail!(
            "{0} is a sweep file, not a tuned file: `spectune sweep {0}` produces a tuned file from it",
            path.display()
        );
    }
    expect_kind(&source, FileKind::Tuned)?;
    let tuned = TunedFile::read(&source).map_err(|finding| WrongFile::new(source, finding))?;
    for caveat in tuned.caveats() {
        terminal::note(&format!("warning: {}: {caveat}", path.display()));
    }
    Ok(tuned)
}

/// As [`read_tuned`], for an export: with the rows for a mean context, if one is given.
///
/// # Errors
/// As [`read_tuned`], and for a context where no row has one.
pub fn read_exported(path: &Path, context: Option<usize>) -> anyhow::Result<TunedFile> {
    let tuned = read_tuned(path)?;
    if let Some(context) = context {
        if tuned.policy.iter().all(|row| row.max_context.is_none()) {
            bail!(
                "--context has no effect: no row of {} has a max_context, so its trees hold for all contexts; remove it",
                path.display()
            );
        }
        return Ok(tuned.at_context(context));
    }
    if let Some(caveat) = tuned.export_caveat() {
        terminal::note(&format!("warning: {}: {caveat}", path.display()));
    }
    Ok(tuned)
}

/// The API key in an environment variable; `None` without a name.
///
/// # Errors
/// When the variable is not set, or cannot be sent in a header.
pub fn api_key(variable: Option<&str>) -> anyhow::Result<Option<ApiKey>> {
    let Some(name) = variable else { return Ok(None) };
    let value = std::env::var(name).unwrap_or_default();
    let value = value.trim();
    if value.is_empty() {
        // A value given in place of the name is not repeated.
        let shown = if is_variable_name(name) && !name.starts_with("sk") { name } else { "this variable" };
        bail!("--api-key-env takes the name of an environment variable that holds the key, but {shown} is not set");
    }
    if !value.bytes().all(|byte| (0x21..0x7f).contains(&byte)) {
        bail!("the API key in {name} contains characters that cannot be sent in a header");
    }
    Ok(Some(ApiKey::new(value)))
}
