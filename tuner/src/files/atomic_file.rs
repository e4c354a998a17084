//! Files that are written atomically, and read up to a size limit.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
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

/// Where the bytes of a path go.
enum Destination {
    /// A file, or nothing yet, whose folder takes a temporary file first.
    File(PathBuf),
    /// A device, a pipe, or a link to what does not exist: these must not be replaced by a file.
    Through(PathBuf),
}

impl Destination {
    /// Links are followed, so that they stay what they are.
    fn from_path(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(there) if there.is_file() => Self::File(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())),
            Ok(there) if there.is_dir() => Self::File(path.to_owned()),
            Err(_) if !path.is_symlink() => Self::File(path.to_owned()),
            Ok(_) | Err(_) => Self::Through(path.to_owned()),
        }
    }
}

/// Writes a file under a temporary name in its folder, and renames it once it is on disk. So a
/// reader never sees a partial file, and an older one survives a failure. A device or a
/// pipe, such as `/dev/stdout`, is written to as it is.
///
/// # Errors
/// When it cannot be written; the temporary file is then removed.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = match Destination::from_path(path) {
        Destination::File(path) => path,
        Destination::Through(path) => return File::create(path)?.write_all(bytes),
    };
    let unfinished = unfinished(&path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = write_through(&unfinished, bytes)
        .and_then(|()| fs::rename(&unfinished, &path))
        .and_then(|()| File::open(folder)?.sync_all());
    written.inspect_err(|_| {
        // The first error is the one to report, not that the temporary file could not be removed
        // either.
        let _ = fs::remove_file(&unfinished);
    })
}

/// Fills a folder under a temporary name next to it, which replaces an existing folder only when it
/// is complete: an older one survives a failure.
///
/// # Errors
/// That of `fill`, or what `wrong` makes of the path that could not be written.
pub fn replace_folder<E>(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<(), E>,
    wrong: impl Fn(&Path, io::Error) -> E,
) -> Result<(), E> {
    let unfinished = unfinished(path);
    let named = |path: &Path| {
        let (path, wrong) = (path.to_owned(), &wrong);
        move |error| wrong(&path, error)
    };
    // An interrupted run may have left one.
    remove_folder(&unfinished).map_err(named(&unfinished))?;
    fs::create_dir_all(&unfinished).map_err(named(&unfinished))?;
    let replaced = fill(&unfinished)
        .and_then(|()| remove_folder(path).map_err(named(path)))
        .and_then(|()| fs::rename(&unfinished, path).map_err(named(path)));
    replaced.inspect_err(|_| {
        // As for a file.
        let _ = remove_folder(&unfinished);
    })
}

/// Removes a folder, if it exists.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The temporary name of a file or a folder.
fn unfinished(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}.new", path.file_name().unwrap_or_default().to_string_lossy()))
}

/// [`replace`] for a file of a folder.
///
/// # Errors
/// As there.
pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), TunerError> {
    let path = folder.join(name);
    replace(&path, bytes).map_err(|source| TunerError::Write { path, source })
}

/// Checks that [`write`] can write a file of a folder, without touching an older one.
///
/// # Errors
/// When it cannot.
pub(crate) fn check_place(folder: &Path, name: &str) -> Result<(), TunerError> {
    let path = folder.join(name);
    let possible = match Destination::from_path(&path) {
        Destination::File(path) if path.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Destination::File(path) => {
            let unfinished = unfinished(&path);
            File::create(&unfinished).and_then(|_| fs::remove_file(&unfinished))
        }
        // A pipe would wait for its reader.
        Destination::Through(_) => Ok(()),
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

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are_when_they_are_written_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        write(folder.path(), "real", b"old").expect("it is written");
        for (link, to) in [("link", at("real")), ("new", at("later")), ("null", "/dev/null".into())] {
            std::os::unix::fs::symlink(to, at(link)).expect("a link");
            check_place(folder.path(), link).expect("it can be written to");
            write(folder.path(), link, b"text").expect("it is written");
            assert!(at(link).is_symlink(), "{link}");
        }
        let text = |name: &str| fs::read_to_string(at(name)).expect("it is there");
        assert_eq!((text("real"), text("later")), ("text".into(), "text".into()));
        assert!(!fs::metadata("/dev/null").expect("it is there").is_file());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 5, "nothing else is left");
    }

    #[test]
    fn a_folder_is_whole_or_the_old_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("head");
        let make = |content: &str, is_whole: bool| {
            let fill = |part: &Path| {
                fs::write(part.join("a"), content)?;
                if is_whole { Ok(()) } else { Err(io::Error::other("stopped")) }
            };
            replace_folder(&path, fill, |_, error| error)
        };
        let text = || fs::read_to_string(path.join("a")).expect("it is there");
        make("old", true).expect("it is made");
        assert!(make("new", false).is_err() && text() == "old");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
        // An interrupted run left a part of one, with a file that the new one does not have.
        fs::create_dir(unfinished(&path)).expect("a folder");
        fs::write(unfinished(&path).join("b"), "").expect("a file");
        make("new", true).expect("it is made");
        assert_eq!((text(), path.join("b").exists()), ("new".into(), false));
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
