//! Fixes a file: shows the changes as a diff, or writes them.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use schemas::text::Source;
use similar::{ChangeTag, TextDiff};

use crate::terminal;

/// Context lines around a change.
const AROUND: usize = 3;

/// The unified diff from a text to the fixed one; empty if they are equal.
pub(super) fn diff(source: &Source, fixed: &str) -> String {
    if fixed == source.text() {
        return String::new();
    }
    let difference = TextDiff::from_lines(source.text(), fixed);
    let mut unified = difference.unified_diff();
    let unified = unified.context_radius(AROUND).header(source.name(), source.name());
    if !terminal::stdout_is_coloured() {
        return unified.to_string();
    }
    let mut text = format!("\u{1b}[1m--- {0}\n+++ {0}\u{1b}[0m\n", source.name());
    for hunk in unified.iter_hunks() {
        text.push_str(&format!("\u{1b}[36m{}\u{1b}[0m\n", hunk.header()));
        for change in hunk.iter_changes() {
            let (colour, sign) = match change.tag() {
                ChangeTag::Delete => ("\u{1b}[31m", '-'),
                ChangeTag::Insert => ("\u{1b}[32m", '+'),
                ChangeTag::Equal => ("", ' '),
            };
            let end = if colour.is_empty() { "" } else { "\u{1b}[0m" };
            text.push_str(&format!("{colour}{sign}{}{end}\n", change.value().trim_end_matches('\n')));
        }
    }
    text
}

/// Writes the fixed text to the file, or to standard output for standard input.
pub(super) fn write(fixed: &str, file: &Path, source: &Source) -> anyhow::Result<()> {
    if file.as_os_str() == "-" {
        return terminal::print(fixed);
    }
    if fixed == source.text() {
        return Ok(());
    }
    // For a symbolic link, the file that it points to is replaced.
    let place = file.canonicalize().with_context(|| format!("cannot write {}", file.display()))?;
    let present = fs::read(&place).with_context(|| format!("cannot read {}", file.display()))?;
    if present != source.text().as_bytes() {
        bail!("{} changed while it was being checked, so it was not written; run the command again", file.display());
    }
    replace(&place, fixed).with_context(|| format!("cannot write {}", file.display()))
}

/// Replaces a file by renaming a new one, so that either the complete old or the complete new text
/// exists at any time.
fn replace(place: &Path, text: &str) -> std::io::Result<()> {
    let folder = place.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
    let mut new = tempfile::Builder::new().prefix(".spectune-").tempfile_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().set_permissions(fs::metadata(place)?.permissions())?;
    new.as_file().sync_all()?;
    new.persist(place).map_err(|error| error.error)?;
    Ok(())
}
