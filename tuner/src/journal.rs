//! The journal: append-only, a record a line, each line fsynced before the next trial begins.
//!
//! The first line is the header. Every line carries a checksum of its content, so a line that a kill or a full disk
//! tore is recognised: at the end of the file it is cut off and its trial runs again; in the middle it is reported.
//! A lock keeps two processes from writing one journal.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{
    TunerError,
    record::{Fingerprint, Record},
};

/// The version of the format that this program writes and reads.
pub const FORMAT: u32 = 1;
/// The file's name in the folder of a sweep.
pub const FILE_NAME: &str = "journal.jsonl";
/// Largest journal that is read, in bytes: a million trials.
const LARGEST: u64 = 4 << 30;

/// What all records of a journal share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    pub format: u32,
    /// Hash of what the sweep measures; budgets may change between runs.
    pub sweep: String,
    /// Where it runs and on what.
    pub fingerprint: Fingerprint,
    /// The sweep file, for readers.
    pub file: schemas::sweep::SweepFile,
    /// Trials of the whole plan.
    pub planned: usize,
}

/// What a journal holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// Its first line.
    pub header: Header,
    /// Its whole records, in the order in which they were written.
    pub records: Vec<Record>,
    /// Lines (from one) that are damaged, the torn last one not included.
    pub damaged: Vec<usize>,
    /// Bytes up to the end of the last whole line.
    whole: u64,
}

/// A journal that is open for writing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    checksum: String,
    #[serde(borrow)]
    content: &'a RawValue,
}

impl Journal {
    /// Starts a journal in a folder, which is made where it is missing.
    ///
    /// # Errors
    /// When there is one already, or the folder cannot be written.
    pub fn create(folder: &Path, header: &Header) -> Result<Self, TunerError> {
        let path = folder.join(FILE_NAME);
        let write = |source| TunerError::Write { path: path.clone(), source };
        std::fs::create_dir_all(folder).map_err(|source| TunerError::Write { path: folder.to_owned(), source })?;
        if path.exists() {
            return Err(TunerError::Journal {
                reason: "a sweep was started in this folder; go on with --resume, or choose another --out".into(),
                path,
            });
        }
        // The header is there whole or not at all.
        let temporary = folder.join(".journal.jsonl.new");
        let mut file = File::create(&temporary).map_err(write)?;
        file.write_all(line(header)?.as_bytes()).and_then(|()| file.sync_all()).map_err(write)?;
        std::fs::rename(&temporary, &path).map_err(write)?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(write)?;
        Self::open(path)
    }

    /// Goes on with the journal of a folder: the torn last line, if any, is cut off.
    ///
    /// # Errors
    /// When there is none, it belongs to another sweep or machine, another process writes it, or it cannot be written.
    pub fn resume(folder: &Path, header: &Header) -> Result<(Self, Contents), TunerError> {
        let journal = Self::open(folder.join(FILE_NAME))?;
        let contents = read(folder)?;
        let path = journal.path.clone();
        let refuse = |reason: String| Err(TunerError::Journal { path: path.clone(), reason });
        if contents.header.sweep != header.sweep {
            return refuse(
                "it belongs to another sweep: models, workload, space or batch sizes have changed; choose \
                           another --out"
                    .into(),
            );
        }
        if contents.header.fingerprint != header.fingerprint {
            return refuse(format!(
                "it was measured elsewhere ({}): trials of two machines or checkpoints are not ranked together; choose \
                 another --out",
                difference(&contents.header.fingerprint, &header.fingerprint)
            ));
        }
        let write = |source| TunerError::Write { path: path.clone(), source };
        let mut journal = journal;
        journal.file.set_len(contents.whole).and_then(|()| journal.file.sync_all()).map_err(write)?;
        journal.length = contents.whole;
        Ok((journal, contents))
    }

    /// Writes a record and waits until it is on the disk.
    ///
    /// # Errors
    /// When it cannot be written; the journal then ends with the record before.
    pub fn append(&mut self, record: &Record) -> Result<(), TunerError> {
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
                // A half-written line would be cut off by the next resume anyway; cutting it now is a courtesy.
                let _ = self.file.set_len(self.length);
                Err(TunerError::Write { path: self.path.clone(), source })
            }
        }
    }

    fn open(path: PathBuf) -> Result<Self, TunerError> {
        let write = |source| TunerError::Write { path: path.clone(), source };
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(write)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let reason = "another process is writing it; wait for it, or choose another --out".into();
                return Err(TunerError::Journal { path, reason });
            }
            // A file system without locks (some network ones) is no reason not to measure.
            Err(TryLockError::Error(error)) => tracing::warn!("cannot lock {}: {error}", path.display()),
        }
        let length = file.metadata().map_err(write)?.len();
        Ok(Self { path, file, length })
    }
}

/// Whether a folder holds a journal.
pub fn exists(folder: &Path) -> bool {
    folder.join(FILE_NAME).exists()
}

/// Reads the journal of a folder.
///
/// # Errors
/// When there is none, its header is damaged, or it has another format.
pub fn read(folder: &Path) -> Result<Contents, TunerError> {
    let path = folder.join(FILE_NAME);
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(LARGEST).read_to_end(&mut bytes))
        .map_err(|source| TunerError::Read { path: path.clone(), source })?;
    parse(&bytes).map_err(|reason| TunerError::Journal { path, reason })
}

fn parse(bytes: &[u8]) -> Result<Contents, String> {
    let mut contents: Option<Contents> = None;
    let mut end = 0;
    let mut bad: Vec<usize> = Vec::new();
    for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        end += line.len() as u64;
        let complete = line.ends_with(b"\n");
        match &mut contents {
            None => {
                let header: Option<Header> = content(line).filter(|_| complete);
                let header = header.ok_or("the first line is damaged, or this is no journal of spectune")?;
                if header.format != FORMAT {
                    return Err(format!("it has format {}, this program reads {FORMAT}", header.format));
                }
                contents = Some(Contents { header, records: Vec::new(), damaged: Vec::new(), whole: end });
            }
            Some(contents) => match content::<Record>(line).filter(|_| complete) {
                Some(record) => {
                    contents.records.push(record);
                    contents.damaged.append(&mut bad);
                    contents.whole = end;
                }
                // Only a whole line behind it makes a bad line one in the middle.
                None => bad.push(at + 1),
            },
        }
    }
    contents.ok_or_else(|| "it is empty".into())
}

/// A line's content, if the line is whole.
fn content<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let line: Line<'_> = serde_json::from_slice(line).ok()?;
    let text = line.content.get();
    (line.checksum == checksum(text)).then(|| serde_json::from_str(text).ok()).flatten()
}

fn line(content: &impl Serialize) -> Result<String, TunerError> {
    let unwritable =
        |error: serde_json::Error| TunerError::Configuration(format!("a record cannot be written: {error}"));
    let content = serde_json::value::to_raw_value(content).map_err(unwritable)?;
    let line = Line { checksum: checksum(content.get()), content: &content };
    serde_json::to_string(&line).map(|line| line + "\n").map_err(unwritable)
}

fn checksum(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..8].to_owned()
}

/// The first field in which two fingerprints differ, in words.
fn difference(there: &Fingerprint, here: &Fingerprint) -> String {
    let fields = |one: &Fingerprint| {
        let Fingerprint { device, device_name, driver, units, engine, target, draft, workload } = one.clone();
        [
            ("device", device),
            ("processor or GPU", device_name),
            ("driver", driver),
            ("threads or multiprocessors", units.to_string()),
            ("engine", engine),
            ("target", target),
            ("draft", draft),
            ("workload", workload),
        ]
    };
    let pairs = fields(there).into_iter().zip(fields(here));
    let differing = pairs.filter(|(there, here)| there != here);
    let words: Vec<String> =
        differing.map(|((name, there), (_, here))| format!("{name} {there}, now {here}")).collect();
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use schemas::{sweep::SweepFile, text::Source, tree::TreeShape};

    use super::*;
    use crate::record::{Outcome, Role, Trial};

    fn header() -> Header {
        let text = "[models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE'\n[workload]\nprompts = 'p'\n[space]\n";
        Header {
            format: FORMAT,
            sweep: "a".into(),
            fingerprint: Fingerprint {
                device: "cpu".into(),
                device_name: "x".into(),
                driver: String::new(),
                units: 2,
                engine: "spectune".into(),
                target: "t".into(),
                draft: "d".into(),
                workload: "w".into(),
            },
            file: SweepFile::read(&Source::new("sweep.toml", text)).expect("a sweep"),
            planned: 4,
        }
    }

    fn record(repeat: usize) -> Record {
        let trial = Trial { shape: TreeShape::chain(3), batch_size: 1, repeat };
        Record {
            id: trial.id(&header().fingerprint),
            trial,
            role: Role::Candidate,
            fingerprint: header().fingerprint,
            finished_at: 7,
            outcome: Outcome::Failed { reason: "a \"reason\"\nof two lines".into() },
        }
    }

    /// A folder with a journal of some records.
    fn written(records: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let mut journal = Journal::create(folder.path(), &header()).expect("a journal");
        (0..records).for_each(|at| journal.append(&record(at)).expect("it is written"));
        folder
    }

    #[test]
    fn a_journal_cut_at_any_byte_loses_only_the_torn_record() {
        let folder = written(3);
        let path = folder.path().join(FILE_NAME);
        let bytes = std::fs::read(&path).expect("the journal");
        let ends: Vec<usize> =
            bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
        for cut in ends[0]..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).expect("a cut journal");
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            let (mut journal, contents) = Journal::resume(folder.path(), &header()).expect("it resumes");
            assert_eq!(contents.records, (0..whole).map(record).collect::<Vec<_>>(), "cut at {cut}");
            assert!(contents.damaged.is_empty());
            journal.append(&record(9)).expect("it is written");
            drop(journal);
            assert_eq!(read(folder.path()).expect("the journal").records.len(), whole + 1, "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_line_in_the_middle_is_reported_and_the_rest_is_kept() {
        let folder = written(3);
        let path = folder.path().join(FILE_NAME);
        let text = std::fs::read_to_string(&path).expect("the journal");
        // One digit of the second record's content.
        std::fs::write(&path, text.replacen("\"repeat\":1", "\"repeat\":8", 1)).expect("a damaged journal");
        let contents = read(folder.path()).expect("the journal");
        assert_eq!((contents.records, contents.damaged), (vec![record(0), record(2)], vec![3]));
    }

    #[test]
    fn a_journal_is_not_started_twice_nor_written_by_two_nor_continued_elsewhere() {
        let folder = written(1);
        let reason = |error: TunerError| error.to_string();
        let twice = Journal::create(folder.path(), &header()).map(|_| ()).map_err(reason);
        assert!(twice.expect_err("twice").contains("--resume"));
        let held = Journal::resume(folder.path(), &header()).expect("it resumes");
        let two = Journal::resume(folder.path(), &header()).map(|_| ()).map_err(reason);
        assert!(two.expect_err("two writers").contains("another process"));
        drop(held);
        let mut other = header();
        other.fingerprint.device_name = "y".into();
        let elsewhere = Journal::resume(folder.path(), &other).map(|_| ()).map_err(reason).expect_err("elsewhere");
        assert!(elsewhere.contains("processor or GPU x, now y"), "{elsewhere}");
        let mut other = header();
        other.sweep = "b".into();
        assert!(Journal::resume(folder.path(), &other).map(|_| ()).map_err(reason).is_err());
    }

    #[test]
    fn what_is_no_journal_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for bytes in [&b""[..], b"{}\n", b"\xff\xfe\n", b"{\"checksum\":\"0\",\"content\":{}}\n"] {
            std::fs::write(folder.path().join(FILE_NAME), bytes).expect("a file");
            assert!(read(folder.path()).is_err());
        }
    }
}
