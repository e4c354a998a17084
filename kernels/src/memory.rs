//! Memory-mapped files, so that kernels can read the bytes of a checkpoint.

use std::{fs::File, io, ops::Deref, path::Path};

use memmap2::Mmap;

/// A whole file, mapped read-only. Pages are read when they are first touched.
#[derive(Debug)]
pub struct MappedFile(Mmap);

impl MappedFile {
    /// Maps a file.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped (an empty file cannot).
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the map is read-only and its lifetime is that of `Mmap`. What remains is that
        // another process may shrink the file while it is mapped, which ends this process with
        // SIGBUS, as it does every other loader of safetensors; checkpoints are not changed in
        // place. Bytes that change under us are plain numbers: no value of them is invalid, and
        // everything that is trusted (offsets, shapes) is copied out of the map and checked once.
        unsafe { Mmap::map(&file) }.map(Self)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
