//! Reads files of a checkpoint, with size limits.

use std::{fs::File, io::Read, path::Path};

use crate::error::EngineError;

/// Maximum size of a JSON file in bytes; published tokenizers reach tens of MiB.
const LARGEST_JSON: u64 = 256 << 20;

/// Opens a regular file. The error names dangling links and pipes (which would block).
pub(super) fn open(path: &Path) -> Result<File, EngineError> {
    let read = |source| EngineError::Read { path: path.to_owned(), source };
    let malformed = |reason: String| EngineError::Malformed { path: path.to_owned(), reason };
    match path.metadata() {
        Ok(found) if !found.is_file() => Err(malformed("it is not a regular file".into())),
        Ok(_) => File::open(path).map_err(read),
        Err(error) => match path.read_link() {
            Ok(aim) => Err(malformed(format!("it is a link to {}, which does not exist", aim.display()))),
            Err(_) => Err(read(error)),
        },
    }
}

/// Reads a text file up to the size limit.
pub(super) fn read_text(path: &Path) -> Result<String, EngineError> {
    let read = |source| EngineError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = open(path)?;
    let size = file.take(LARGEST_JSON + 1).read_to_string(&mut text).map_err(read)?;
    if size as u64 > LARGEST_JSON {
        return Err(EngineError::Malformed {
            path: path.to_owned(),
            reason: format!("larger than {} MiB, the limit for this kind of file", LARGEST_JSON >> 20),
        });
    }
    Ok(text)
}
