//! Access to the files of a checkpoint, wherever they are stored.

use std::ops::Range;

use crate::Error;

/// A part of a file.
#[derive(Clone, Debug)]
pub struct FilePart {
    /// The bytes; fewer than requested at the end of the file.
    pub bytes: Vec<u8>,
    /// Size of the whole file.
    pub size: u64,
}

/// Read access to the files of one checkpoint. A missing file is `None`, not an error.
pub trait Files {
    /// The location of a file, for messages.
    fn place(&self, name: &str) -> String;

    /// A whole file of at most `limit` bytes.
    ///
    /// # Errors
    /// When the file exists but cannot be read, or is larger.
    fn whole(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, Error>;

    /// The bytes of a range of a file.
    ///
    /// # Errors
    /// When the file exists but cannot be read.
    fn part(&self, name: &str, range: Range<u64>) -> Result<Option<FilePart>, Error>;

    /// The sorted names of the files that end in `.safetensors`.
    ///
    /// # Errors
    /// When the files cannot be listed.
    fn safetensors(&self) -> Result<Vec<String>, Error>;

    /// Maximum number of files whose headers may be read: for remote files each costs a request.
    fn most_headers(&self) -> usize;
}
