//! Writes files atomically.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::error::ReportError;

/// Creates the folder and its parents.
///
/// # Errors
/// When that fails.
pub fn folder(path: &Path) -> Result<(), ReportError> {
    fs::create_dir_all(path).map_err(|source| ReportError::Folder { path: path.to_owned(), source })
}

/// Writes a temporary file and renames it once it is on disk, so that a reader never sees a partial
/// file and an older one survives a failure.
///
/// # Errors
/// When it cannot be written; the temporary file is then removed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<PathBuf, ReportError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let written = write_through(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, path));
    written.map(|()| path.to_owned()).map_err(|source| {
        // The first error is the one to report, not that the temporary file could not be removed
        // either.
        let _ = fs::remove_file(&unfinished);
        ReportError::Write { path: path.to_owned(), source }
    })
}

fn write_through(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
