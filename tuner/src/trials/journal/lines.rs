//! A file of lines with checksums: a header, then one record per line, each fsynced before the next
//! one is made.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{TunerError, files::atomic_file};

/// The file's name in its folder.
const FILE_NAME: &str = "journal.jsonl";
/// The file that is locked while a process writes. It is separate because the journal does not
/// exist from the start.
const LOCK_NAME: &str = ".journal.lock";
/// Maximum number of damaged lines that are listed.
const NAMED_LINES: usize = 20;
/// How often a taken lock is tried again, and after what time.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Largest journal that is read, in bytes: a million trials.
const LARGEST: u64 = 4 << 30;

/// Such a file, open for writing.
#[derive(Debug)]
pub(crate) struct Lines {
    path: PathBuf,
    pub(super) file: File,
    length: u64,
    /// Released by the system when the process ends, in any way.
    _lock: File,
}

#[derive(Serialize, Deserialize)]
struct JournalLine<'a> {
    checksum: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

impl Lines {
    /// Starts the file of a folder, which is created if missing.
    ///
    /// # Errors
    /// When there is one already, or the folder cannot be written.
    pub fn create(folder: &Path, header: &impl Serialize) -> Result<Self, TunerError> {
        let path = folder.join(FILE_NAME);
        let write = |source| TunerError::Write { path: path.clone(), source };
        std::fs::create_dir_all(folder).map_err(|source| TunerError::Write { path: folder.to_owned(), source })?;
        let lock = lock(folder)?;
        if path.exists() {
            return Err(super::already_there(folder));
        }
        // The header is written atomically.
        let text = line(header)?;
        atomic_file::write(folder, FILE_NAME, text.as_bytes())?;
        let file = OpenOptions::new().write(true).open(&path).map_err(write)?;
        Ok(Self { path, file, length: text.len() as u64, _lock: lock })
    }

    /// Continues the file of a folder after this many bytes; what follows is cut off.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn resume(folder: &Path, whole: u64, lock: File) -> Result<Self, TunerError> {
        let path = folder.join(FILE_NAME);
        let write = |source| TunerError::Write { path: path.clone(), source };
        let file = OpenOptions::new().write(true).open(&path).map_err(write)?;
        file.set_len(whole).and_then(|()| file.sync_all()).map_err(write)?;
        Ok(Self { path, file, length: whole, _lock: lock })
    }

    /// The bytes up to the end of its last line.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Appends a record and waits until it is on disk.
    ///
    /// # Errors
    /// When it cannot be written; the file then ends with the previous record.
    pub fn append(&mut self, record: &impl Serialize) -> Result<(), TunerError> {
        let line = line(record)?;
        let written = self
            .file
            .seek(SeekFrom::Start(self.length))
            .and_then(|_| self.file.write_all(line.as_bytes()))
            .and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => {
                self.length += line.len() as u64;
                Ok(())
            }
            Err(source) => {
                // The next resume would cut off a half-written line anyway; cutting it now is a
                // courtesy.
                let _ = self.file.set_len(self.length);
                Err(TunerError::Write { path: self.path.clone(), source })
            }
        }
    }
}

/// Says which damaged lines (numbered from one) are left out; `None` if none are.
pub(crate) fn left_out(damaged: &[usize]) -> Option<String> {
    let named: Vec<String> = damaged.iter().take(NAMED_LINES).map(usize::to_string).collect();
    let more = if damaged.len() > NAMED_LINES { ", …" } else { "" };
    match named.as_slice() {
        [] => None,
        [line] => Some(format!("line {line} of {FILE_NAME} cannot be read and is skipped")),
        named => Some(format!(
            "{} lines of {FILE_NAME} cannot be read and are skipped: {}{more}",
            damaged.len(),
            named.join(", ")
        )),
    }
}

/// The bytes of the file of a folder.
///
/// # Errors
/// When it cannot be read, or is too large.
pub(crate) fn read(folder: &Path) -> Result<Vec<u8>, TunerError> {
    let path = folder.join(FILE_NAME);
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
        .map_err(|source| TunerError::Read { path: path.clone(), source })?;
    if bytes.len() as u64 > LARGEST {
        let reason = format!("larger than {} GiB, the limit for journals", LARGEST >> 30);
        return Err(TunerError::Journal { path, reason });
    }
    Ok(bytes)
}

/// The complete lines of a file, each with its end in bytes; a last line without a newline was cut
/// by a kill.
pub(crate) fn complete(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.scan(0, |end, line| {
        *end += line.len() as u64;
        Some((*end, line))
    })
}

/// A line's content, if its checksum matches.
pub(crate) fn content<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let line: JournalLine<'_> = serde_json::from_slice(line).ok()?;
    let text = line.content.get();
    (line.checksum == checksum(text)).then(|| serde_json::from_str(text).ok()).flatten()
}

/// A line with a content and its checksum.
pub(crate) fn line(content: &impl Serialize) -> Result<String, TunerError> {
    let unwritable =
        |error: serde_json::Error| TunerError::Configuration(format!("a record cannot be written: {error}"));
    let content = serde_json::value::to_raw_value(content).map_err(unwritable)?;
    let line = JournalLine { checksum: checksum(content.get()), content: &content };
    serde_json::to_string(&line).map(|line| line + "\n").map_err(unwritable)
}

/// Replaces the header atomically, and returns the new end of the last complete line, in bytes.
pub(crate) fn exchange_header(folder: &Path, header: &impl Serialize, whole: u64) -> Result<u64, TunerError> {
    let path = folder.join(FILE_NAME);
    let bytes = std::fs::read(&path).map_err(|source| TunerError::Read { path: path.clone(), source })?;
    let bytes = bytes.get(..usize::try_from(whole).unwrap_or(usize::MAX)).unwrap_or(&bytes);
    let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
    let text = [line(header)?.as_bytes(), &bytes[end..]].concat();
    atomic_file::write(folder, FILE_NAME, &text)?;
    Ok(text.len() as u64)
}

/// Locks the file of a folder against other processes, until the returned file is dropped.
pub(crate) fn lock(folder: &Path) -> Result<File, TunerError> {
    let path = folder.join(LOCK_NAME);
    let write = |source| TunerError::Write { path: path.clone(), source };
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(write)?;
    match try_for_a_while(&file) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let reason = "another process is writing it; wait for it, or choose another --out".into();
            return Err(TunerError::Journal { path: folder.join(FILE_NAME), reason });
        }
        // A file system without locks (some network file systems) does not prevent measuring.
        Err(TryLockError::Error(error)) => tracing::warn!("cannot lock {}: {error}", path.display()),
    }
    Ok(file)
}

/// A process that this one has just started holds a copy of the lock until it executes its program,
/// so the lock becomes free within moments.
fn try_for_a_while(file: &File) -> Result<(), TryLockError> {
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            other => return other,
        }
    }
    file.try_lock()
}

fn checksum(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..8].to_owned()
}
