//! The files of a checkpoint, wherever they are.

use std::ops::Range;

use crate::Error;

/// A piece of a file.
#[derive(Clone, Debug)]
pub struct Part {
    /// The bytes; fewer than requested at the end of the file.
    pub bytes: Vec<u8>,
    /// How long the whole file is.
    pub size: u64,
}

/// Read access to the files of one checkpoint. A missing file is `None`, not an error.
pub trait Files {
    /// Where a file is, for messages.
    fn place(&self, name: &str) -> String;

    /// The whole of a file of at most `limit` bytes.
    ///
    /// # Errors
    /// When it is there and cannot be read, or is longer.
    fn whole(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, Error>;

    /// The bytes of a range.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    fn part(&self, name: &str, range: Range<u64>) -> Result<Option<Part>, Error>;

    /// The names of the files that end in `.safetensors`, in order.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn safetensors(&self) -> Result<Vec<String>, Error>;

    /// Most files whose headers may be read: each costs a request where files are far away.
    fn most_headers(&self) -> usize;
}
