//! Writes files atomically.

use std::{
    fs,
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

/// Writes a file atomically, and returns its path.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<PathBuf, ReportError> {
    tuner::files::replace(path, bytes).map_err(|source| ReportError::Write { path: path.to_owned(), source })?;
    Ok(path.to_owned())
}
