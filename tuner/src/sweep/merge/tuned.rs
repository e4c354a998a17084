//! The tuned file of a merged sweep, written without an engine.

use std::path::{Path, PathBuf};

use schemas::tuned::TunedFile;

use super::MergeSource;
use crate::{
    TunerError,
    prediction::guide,
    results::{outcome, selection::LoadRanking},
    trials::journal::JournalHeader,
};

/// Writes the tuned file; `None` if no load has a winner, or nothing on this machine describes the
/// models. A tuned file of an earlier merge that is no longer supported by the data is removed.
///
/// The models are read from where the sweep file names them, if they are on this machine; else
/// their description is taken from the tuned file of one of the folders.
pub fn write(
    sources: &[MergeSource],
    header: &JournalHeader,
    ranking: &[LoadRanking],
    out: &Path,
    notes: &mut Vec<String>,
) -> Result<Option<PathBuf>, TunerError> {
    match make(sources, header, ranking) {
        Ok(Some(tuned)) => {
            let records = sources.iter().flat_map(|source| &source.contents.records);
            return outcome::write(&outcome::dated(tuned, records), out).map(Some);
        }
        Ok(None) => {}
        Err(reason) => notes.push(reason),
    }
    // An earlier merge may have written a file that no longer agrees with the journal.
    let path = out.join(outcome::FILE_NAME);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(TunerError::Write { path, source: error }),
        _ => Ok(None),
    }
}

fn make(sources: &[MergeSource], header: &JournalHeader, ranking: &[LoadRanking]) -> Result<Option<TunedFile>, String> {
    let JournalHeader { file, fingerprint, .. } = header;
    let folder = header.folder.as_deref().map(Path::new);
    let guide = sources.iter().find_map(|source| guide::read(&source.folder).ok().flatten());
    if let Some((folder, context_length)) =
        folder.and_then(|folder| Some((folder, outcome::context_length(file, folder)?)))
    {
        return Ok(outcome::tuned(file, folder, context_length, fingerprint, ranking, guide.as_ref()));
    }
    let known = sources.iter().filter_map(|source| outcome::read(&source.folder).ok().flatten());
    // The machine that merges may have no model, but a shard's file describes it.
    let known: Vec<TunedFile> = known.filter(|tuned| tuned.measured.target_hash == fingerprint.target).collect();
    let unknown = || {
        format!(
            "{} is not written: this machine has no {}, and no folder contains a tuned file that describes it",
            outcome::FILE_NAME,
            if file.models.target.is_empty() { "target" } else { &file.models.target },
        )
    };
    let context_length = known.first().ok_or_else(unknown)?.engine.context_length;
    let tuned =
        outcome::tuned(file, folder.unwrap_or(Path::new("")), context_length, fingerprint, ranking, guide.as_ref());
    // Of several drafts, a shard's file describes the one that it chose.
    let Some(tuned) = tuned else { return Ok(None) };
    let known = known.into_iter().find(|known| known.measured.draft_hash == tuned.measured.draft_hash);
    let TunedFile { models, .. } = known.ok_or_else(unknown)?;
    Ok(Some(TunedFile { models, ..tuned }))
}
