//! Files that are either whole or not there.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use crate::TunerError;

/// Writes a file of a folder: beside its place first, and moved there once it is on the disk, so that a reader never sees
/// half of it and an older one survives a failure.
///
/// # Errors
/// When it cannot be written; what was written so far is removed.
pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), TunerError> {
    let (path, unfinished) = (folder.join(name), folder.join(format!(".{name}.new")));
    let written = write_through(&unfinished, bytes)
        .and_then(|()| fs::rename(&unfinished, &path))
        .and_then(|()| File::open(folder)?.sync_all());
    written.map_err(|source| {
        // The first error is the one to report; a leftover that cannot be removed either adds nothing to it.
        let _ = fs::remove_file(&unfinished);
        TunerError::Write { path, source }
    })
}

fn write_through(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
