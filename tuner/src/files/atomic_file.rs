//! Files of a sweep's folder: written atomically, and read up to a size limit.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    path::Path,
};

use serde::Deserialize;

use crate::TunerError;

/// The format version of a file. It is parsed first, because the other fields may differ in another
/// format.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct FormatVersion {
    pub format: u32,
}

impl FormatVersion {
    /// Checks that the version is the supported one.
    ///
    /// # Errors
    /// A message, if it is another.
    pub fn expect(self, read: u32) -> Result<(), String> {
        self.expect_within(read, read)
    }

    /// Checks that the version is between the oldest and the newest supported one.
    ///
    /// # Errors
    /// A message, if it is not.
    pub fn expect_within(self, oldest: u32, newest: u32) -> Result<(), String> {
        let found = self.format;
        if (oldest..=newest).contains(&found) {
            return Ok(());
        }
        let read = if oldest == newest { newest.to_string() } else { format!("{oldest} to {newest}") };
        Err(format!(
            "it has format {found}, but this program reads {read}: it was written by another version of spectune"
        ))
    }
}

/// Writes a file of a folder under a temporary name, and renames it once it is on disk. So a reader
/// never sees a partial file, and an older one survives a failure.
///
/// # Errors
/// When it cannot be written; the temporary file is then removed.
pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), TunerError> {
    let (path, unfinished) = (folder.join(name), folder.join(format!(".{name}.new")));
    let written = write_through(&unfinished, bytes)
        .and_then(|()| fs::rename(&unfinished, &path))
        .and_then(|()| File::open(folder)?.sync_all());
    written.map_err(|source| {
        // The first error is the one to report, not that the temporary file could not be removed
        // either.
        let _ = fs::remove_file(&unfinished);
        TunerError::Write { path, source }
    })
}

/// Checks that [`write`] can write a file of a folder, without touching an older one.
///
/// # Errors
/// When it cannot.
pub(crate) fn check_place(folder: &Path, name: &str) -> Result<(), TunerError> {
    let (path, unfinished) = (folder.join(name), folder.join(format!(".{name}.new")));
    let possible = match path.is_dir() {
        true => Err(ErrorKind::IsADirectory.into()),
        false => File::create(&unfinished).and_then(|_| fs::remove_file(&unfinished)),
    };
    possible.map_err(|source| TunerError::Write { path, source })
}

/// The text of a file.
///
/// # Errors
/// When it cannot be read, is not UTF-8, or is larger than `largest` bytes.
pub(crate) fn read(path: &Path, largest: u64) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(largest + 1).read_to_string(&mut text)?;
    if length as u64 > largest {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is larger than {largest} bytes")));
    }
    Ok(text)
}

/// Like [`read`], but `None` if the file does not exist.
pub(crate) fn read_if_there(path: &Path, largest: u64) -> io::Result<Option<String>> {
    match read(path, largest) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn write_through(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_checked_without_touching_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "a", b"abc").expect("it is written");
        fs::create_dir(folder.path().join("b")).expect("a folder");
        check_place(folder.path(), "a").expect("it can be replaced");
        check_place(folder.path(), "c").expect("it can be written");
        assert!(check_place(folder.path(), "b").is_err() && check_place(&folder.path().join("none"), "a").is_err());
        assert_eq!(fs::read(folder.path().join("a")).expect("it is there"), b"abc");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing else is left");
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_and_not_beyond() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        assert!(read_if_there(&path, 3).expect("no error").is_none());
        write(folder.path(), "a", b"abc").expect("it is written");
        assert_eq!(read_if_there(&path, 3).expect("no error").as_deref(), Some("abc"));
        let error = read_if_there(&path, 2).expect_err("too large").to_string();
        assert_eq!(error, "it is larger than 2 bytes");
    }
}
