//! The journal: append-only, one record per line, each line fsynced before the next trial starts.
//!
//! The first line is the header. Every line carries a checksum of its content. A last line without
//! a newline was truncated by a kill or a full disk: it is cut off and its trial runs again. Any
//! other damaged line is reported and kept, and its trial runs again too. A lock keeps two
//! processes from writing the same journal.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use schemas::sweep::SweepFile;
use serde::{Deserialize, Serialize};

use crate::{
    TunerError,
    files::atomic_file::{self, FormatVersion},
    host::machine,
    trials::{
        record::{Fingerprint, Record, TrialOrigin},
        shard::Shard,
    },
};

pub(crate) mod lines;
mod meaning;

pub(crate) use self::lines::lock;
use self::lines::{Lines, content, line};
pub use self::meaning::hash as meaning_hash;

/// The version of the format that this program writes.
pub const FORMAT: u32 = 3;
/// The oldest version that it reads: its records contain neither stalls nor their origin.
const OLDEST: u32 = 2;
/// The file's name in the folder of a sweep.
pub const FILE_NAME: &str = "journal.jsonl";

/// What a journal holds, if it is not a sweep.
#[derive(Deserialize)]
struct JournalKind {
    #[serde(default)]
    kind: String,
}

/// The kind of a journal with measurements of running servers.
pub(crate) const RUNNING: &str = "running";

/// What all records of a journal have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalHeader {
    /// Version of the format.
    pub format: u32,
    /// A name unique to this journal; empty in format 2.
    #[serde(default)]
    pub journal: String,
    /// Hash of the settings that define what finished trials mean: models, engine, workload and
    /// limits. Space, loads, repeats and budgets may change between runs.
    pub sweep: String,
    /// Where and on what it runs.
    pub fingerprint: Fingerprint,
    /// The part of the sweep that is measured here; `None` for the whole sweep.
    pub shard: Option<Shard>,
    /// The sweep file, for readers.
    pub file: SweepFile,
    /// The folder that the file's relative paths refer to, absolute; `None` if its name is not
    /// UTF-8.
    #[serde(default)]
    pub folder: Option<String>,
    /// Trials of the whole plan; 0 if the strategy decides as it goes.
    pub planned: usize,
    /// What the end of the time cut off; `None` if nothing was, or it was measured later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
}

/// The contents of a journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// Its first line.
    pub header: JournalHeader,
    /// Its complete records, in the order in which they were written.
    pub records: Vec<Record>,
    /// Numbers (from one) of damaged lines, not counting a truncated last one.
    pub damaged: Vec<usize>,
    /// Bytes up to the end of the last complete line.
    whole: u64,
}

/// A journal that is open for writing.
#[derive(Debug)]
pub struct Journal {
    lines: Lines,
    header: JournalHeader,
    folder: PathBuf,
    origin: TrialOrigin,
}

impl Journal {
    /// Starts a journal in a folder, which is created if missing.
    ///
    /// # Errors
    /// When it already has a journal, or the folder cannot be written.
    pub fn create(folder: &Path, header: &JournalHeader) -> Result<Self, TunerError> {
        let lines = Lines::create(folder, header)?;
        Ok(Self { lines, header: header.clone(), folder: folder.to_owned(), origin: origin(header) })
    }

    /// Continues the journal of a folder. A truncated last line is cut off. If the sweep has grown,
    /// the header is replaced.
    ///
    /// # Errors
    /// When it does not exist, belongs to another sweep or machine, is being written by another
    /// process, or cannot be written.
    pub fn resume(folder: &Path, header: &JournalHeader) -> Result<(Self, Contents), TunerError> {
        // Before it is read, so that no other process appends a line in between.
        let lock = lock(folder)?;
        let mut contents = read(folder)?;
        let path = folder.join(FILE_NAME);
        if let Some(reason) = contents.header.refusal(header) {
            return Err(TunerError::Journal { path, reason });
        }
        // Records name their journal as their origin, so it keeps its name.
        let header = JournalHeader { journal: contents.header.journal.clone(), ..header.clone() };
        if contents.header != header {
            contents.whole = lines::exchange_header(folder, &header, contents.whole)?;
            contents.header = header;
        }
        let (header, origin) = (contents.header.clone(), origin(&contents.header));
        let lines = Lines::resume(folder, contents.whole, lock)?;
        Ok((Self { lines, header, folder: folder.to_owned(), origin }, contents))
    }

    /// Notes what the end of the time cut off, and closes the journal.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn cut(self, what: &str) -> Result<(), TunerError> {
        let header = JournalHeader { cut: Some(what.to_owned()), ..self.header };
        lines::exchange_header(&self.folder, &header, self.lines.length()).map(|_| ())
    }

    /// The origin of the records that are appended.
    pub fn origin(&self) -> &TrialOrigin {
        &self.origin
    }

    /// Appends a record and waits until it is on disk.
    ///
    /// # Errors
    /// When it cannot be written; the journal then ends with the previous record.
    pub fn append(&mut self, record: &Record) -> Result<(), TunerError> {
        self.lines.append(record)
    }
}

impl JournalHeader {
    /// Why a sweep cannot continue the journal with this header.
    pub(crate) fn refusal(&self, now: &Self) -> Option<String> {
        if self.format != now.format {
            return Some(format!(
                "it was written by an earlier version of spectune (format {}), whose trials do not separate stalls from work: `spectune \
                 report` and `spectune merge` can still read it; to continue measuring, choose another --out",
                self.format
            ));
        }
        if self.shard != now.shard {
            let name = |shard: Option<Shard>| shard.map_or("the whole sweep".into(), |shard| format!("shard {shard}"));
            let (there, here) = (name(self.shard), name(now.shard));
            return Some(format!(
                "it contains {there}, but {here} was requested; change --shard, or choose another --out"
            ));
        }
        if self.sweep != now.sweep {
            return Some(format!(
                "its trials would no longer be comparable: {}. Undo the change, or choose another --out; repeats, space, loads, search and \
                 budgets may change",
                self.changed(now)
            ));
        }
        if self.fingerprint != now.fingerprint {
            return Some(format!(
                "it was measured elsewhere, or by a version of spectune that measures otherwise ({}): trials of two \
                 machines, checkpoints, workloads or ways of measuring are not ranked together; choose another --out",
                self.fingerprint.difference(&now.fingerprint)
            ));
        }
        None
    }

    /// The settings of another header's sweep file that give trials another meaning: each key with
    /// both values.
    pub(crate) fn changed(&self, other: &Self) -> String {
        let changes = meaning::changes(&self.file, &other.file);
        if changes.is_empty() { "the sweep files differ".into() } else { changes.join(", ") }
    }
}

/// A name for a new journal: a hash of the time, the process, the host and the folder.
pub fn new_name(folder: &Path) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let of = format!("{} {} {} {}", now.as_nanos(), std::process::id(), machine::host(), folder.display());
    blake3::hash(of.as_bytes()).to_hex()[..12].to_owned()
}

fn origin(header: &JournalHeader) -> TrialOrigin {
    TrialOrigin { journal: header.journal.clone(), host: machine::host(), shard: header.shard }
}

/// Replaces a whole journal atomically. The caller holds the [`lock`].
pub(crate) fn replace(folder: &Path, header: &JournalHeader, records: &[Record]) -> Result<(), TunerError> {
    let mut text = line(header)?;
    for record in records {
        text += &line(record)?;
    }
    atomic_file::write(folder, FILE_NAME, text.as_bytes())
}

/// The error of a new sweep in a folder that already has a journal.
pub fn already_there(folder: &Path) -> TunerError {
    TunerError::Journal {
        path: folder.join(FILE_NAME),
        reason: "a sweep was started in this folder; continue with --resume, or choose another --out".into(),
    }
}

/// Whether a folder contains a journal.
pub fn exists(folder: &Path) -> bool {
    folder.join(FILE_NAME).exists()
}

/// Reads the journal of a folder.
///
/// # Errors
/// When it does not exist, its header is damaged, or it has another format.
pub fn read(folder: &Path) -> Result<Contents, TunerError> {
    let bytes = lines::read(folder)?;
    parse(&bytes).map_err(|reason| TunerError::Journal { path: folder.join(FILE_NAME), reason })
}

fn parse(bytes: &[u8]) -> Result<Contents, String> {
    let mut contents: Option<Contents> = None;
    let mut end = 0;
    let complete = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    for (at, line) in complete.enumerate() {
        end += line.len() as u64;
        match &mut contents {
            None => {
                let damaged = "the first line is damaged, or this is not a spectune journal";
                if content::<JournalKind>(line).is_some_and(|header| header.kind == RUNNING) {
                    return Err(
                        "it holds measurements of running servers, which are not a sweep: `spectune report` shows them"
                            .into(),
                    );
                }
                // Checked first, because another format may have another header.
                content::<FormatVersion>(line).ok_or(damaged)?.expect_within(OLDEST, FORMAT)?;
                let header: JournalHeader = content(line).ok_or(damaged)?;
                contents = Some(Contents { header, records: Vec::new(), damaged: Vec::new(), whole: end });
            }
            Some(contents) => {
                contents.whole = end;
                match content::<Record>(line) {
                    Some(record) => contents.records.push(record),
                    None => contents.damaged.push(at + 1),
                }
            }
        }
    }
    let mut contents = contents.ok_or("it has no complete line, or is not a spectune journal")?;
    if contents.header.format < FORMAT {
        contents.name_origins();
    }
    contents.drop_replaced();
    Ok(contents)
}

impl Contents {
    /// That lines of the journal are left out, and where; `None` if none are.
    pub fn left_out(&self) -> Option<String> {
        lines::left_out(&self.damaged)
    }

    /// Drops failures of trials that ran again later in the same journal.
    fn drop_replaced(&mut self) {
        let mut last = HashMap::new();
        for (at, record) in self.records.iter().enumerate() {
            last.insert(record.id.clone(), at);
        }
        let mut at = 0;
        self.records.retain(|record| {
            let is_replaced = record.measurement().is_none() && last.get(&record.id).is_some_and(|last| *last > at);
            at += 1;
            !is_replaced
        });
    }

    /// Gives the records of a journal without a name one that is derived from its first trial, so
    /// that a copy of the journal gets the same name.
    fn name_origins(&mut self) {
        let first = self.records.iter().map(|record| record.finished_at).min().unwrap_or_default();
        let journal = format!("{}-{first}", self.header.sweep);
        let origin = TrialOrigin { journal, host: String::new(), shard: self.header.shard };
        self.records.iter_mut().for_each(|record| record.origin = origin.clone());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use schemas::{text::Source, tree::TreeShape};

    use super::*;
    use crate::trials::configuration::{Configuration, TrialLoad};
    use crate::trials::record::{CandidateRole, Measurement, Outcome, PartsApart, Trial, TrialOrigin, TrialSpread};

    fn header() -> JournalHeader {
        let text = "[models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE'\n[workload]\nprompts = 'p'\n[space]\n";
        JournalHeader {
            format: FORMAT,
            journal: "j".into(),
            sweep: "a".into(),
            shard: None,
            fingerprint: Fingerprint {
                device: "cpu".into(),
                device_name: "x".into(),
                driver: String::new(),
                units: 2,
                engine: "spectune".into(),
                target: "t".into(),
                draft: "d".into(),
                workload: "w".into(),
                settings: "s".into(),
            },
            file: SweepFile::read(&Source::new("sweep.toml", text)).expect("a sweep"),
            folder: None,
            planned: 4,
            cut: None,
        }
    }

    /// Every second record is a failure, with words that JSON must escape.
    fn record(repeat: usize) -> Record {
        let trial = Trial {
            configuration: Configuration::from_shape(TreeShape::chain(3)),
            load: TrialLoad::BatchSize(1),
            repeat,
        };
        let spread = TrialSpread { min: 0.1, median: 1.0 / 3.0, p90: 2.5, p99: 1e300, max: f64::MAX, count: 7 };
        let figures = Measurement {
            requests: 3,
            output_tokens: u64::MAX,
            elapsed_s: 1e-9,
            output_tokens_per_s: 123.456,
            tokens_per_s_per_user: 0.0,
            goodput_tokens_per_s: Some(0.1),
            simulated: true,
            accept_length: 2.25,
            accept_histogram: vec![1, 2, 3],
            rounds: 7,
            round_ms: spread,
            draft_ms: None,
            verify_ms: Some(spread),
            extend_ms: None,
            parts_apart: Some(PartsApart {
                rounds: 15,
                batch: 2,
                context: 1.0 / 3.0,
                round_ms: spread,
                draft_ms: None,
                verify_ms: spread,
                extend_ms: Some(spread),
            }),
            running_batch: vec![0, 7],
            inter_token_ms: None,
            time_to_first_token_ms: spread,
            latency_ms: spread,
            ..Measurement::default()
        };
        Record {
            id: trial.id(&header().fingerprint),
            trial,
            role: CandidateRole::Candidate,
            fingerprint: header().fingerprint,
            origin: TrialOrigin { journal: "j".into(), host: "h".into(), shard: None },
            finished_at: 7,
            outcome: if repeat.is_multiple_of(2) {
                Outcome::Failed { reason: "a \"reason\"\nof two lines, ä\u{0}".into(), failure: None }
            } else {
                Outcome::Measured(Box::new(figures))
            },
        }
    }

    /// A folder with a journal of some records.
    fn written(records: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let mut journal = Journal::create(folder.path(), &header()).expect("a journal");
        (0..records).for_each(|at| journal.append(&record(at)).expect("it is written"));
        folder
    }

    fn bytes(folder: &tempfile::TempDir) -> Vec<u8> {
        std::fs::read(folder.path().join(FILE_NAME)).expect("the journal")
    }

    #[test]
    fn a_journal_cut_at_any_byte_loses_only_the_torn_record() {
        let folder = written(3);
        let bytes = bytes(&folder);
        let path = folder.path().join(FILE_NAME);
        let ends: Vec<usize> =
            bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
        assert_eq!(ends.len(), 4, "a record is a line");
        for cut in ends[0]..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).expect("a cut journal");
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            let (mut journal, contents) = Journal::resume(folder.path(), &header()).expect("it resumes");
            assert_eq!(contents.records, (0..whole).map(record).collect::<Vec<_>>(), "cut at {cut}");
            assert!(contents.damaged.is_empty());
            // What was cut off is measured again; then the journal is the same as before.
            (whole..3).for_each(|at| journal.append(&record(at)).expect("it is written"));
            drop(journal);
            assert!(self::bytes(&folder) == bytes, "cut at {cut}");
        }
        // A header is written atomically: a file without one is not a journal and is not touched.
        for cut in 0..ends[0] {
            std::fs::write(&path, &bytes[..cut]).expect("a cut journal");
            assert!(Journal::resume(folder.path(), &header()).is_err(), "cut at {cut}");
            assert!(self::bytes(&folder) == bytes[..cut], "cut at {cut}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn whatever_is_spoiled_is_reported_and_what_is_whole_is_kept(
            places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), tail in any::<Vec<u8>>(),
        ) {
            let folder = written(4);
            let good = bytes(&folder);
            let header_end = good.iter().position(|byte| *byte == b'\n').expect("a header") + 1;
            let mut bad = good.clone();
            for (place, byte) in places {
                let at = header_end + place.index(good.len() - header_end);
                bad[at] = byte;
            }
            bad.extend(tail);
            std::fs::write(folder.path().join(FILE_NAME), &bad).expect("a spoiled journal");
            let lines = |bytes: &[u8]| bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
            let whole: Vec<Record> = (0..4).filter(|at| lines(&bad).contains(&lines(&good)[at + 1])).map(record).collect();
            let (mut journal, contents) = Journal::resume(folder.path(), &header()).expect("it resumes");
            prop_assert_eq!(&contents.records, &whole);
            let complete = bad.iter().filter(|byte| **byte == b'\n').count() - 1;
            prop_assert_eq!(contents.damaged.len(), complete - whole.len());
            journal.append(&record(9)).expect("it is written");
            drop(journal);
            let again = read(folder.path()).expect("the journal");
            prop_assert_eq!(again.records.len(), whole.len() + 1);
            prop_assert_eq!(again.damaged, contents.damaged);
        }
    }

    #[test]
    fn a_damaged_line_is_reported_by_its_number() {
        let folder = written(3);
        let text = String::from_utf8(bytes(&folder)).expect("text");
        // Changes one digit of the content.
        for (repeat, line) in [(1, 3), (2, 4)] {
            let spoiled = text.replacen(&format!("\"repeat\":{repeat}"), "\"repeat\":8", 1);
            std::fs::write(folder.path().join(FILE_NAME), spoiled).expect("a damaged journal");
            let contents = read(folder.path()).expect("the journal");
            assert_eq!((contents.records.len(), contents.damaged), (2, vec![line]));
        }
    }

    /// Checks the message of a resume with a changed header.
    fn check(change: impl FnOnce(&mut JournalHeader), words: &[&str]) {
        let folder = written(1);
        let before = bytes(&folder);
        let mut header = header();
        change(&mut header);
        let error = Journal::resume(folder.path(), &header).expect_err("a refusal").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(bytes(&folder) == before, "nothing is lost");
    }

    #[test]
    fn a_journal_is_not_continued_by_another_sweep_machine_or_shard() {
        check(|header| header.fingerprint.device_name = "y".into(), &["elsewhere", "processor or GPU x, now y"]);
        check(|header| header.shard = Some(Shard { index: 1, count: 2 }), &["contains the whole sweep", "shard 1/2"]);
        check(
            |header| {
                header.sweep = "b".into();
                header.file.workload.output_length = 7;
                header.file.batch.sizes = Some(vec![2]);
            },
            &["no longer be comparable: workload.output_length was 128 and is 7. Undo", "choose another --out"],
        );
        check(|header| header.format = FORMAT + 1, &["an earlier version", "format 3", "still read it"]);
    }

    #[test]
    fn a_sweep_grows_and_keeps_its_trials() {
        let folder = written(3);
        let mut larger = JournalHeader { planned: 9, journal: "another".into(), ..header() };
        larger.file.search.repeats = 7;
        larger.file.batch.sizes = Some(vec![1, 2]);
        let (mut journal, contents) = Journal::resume(folder.path(), &larger).expect("it grows");
        assert_eq!(contents.records, (0..3).map(record).collect::<Vec<_>>());
        journal.append(&record(3)).expect("it is written");
        let origin = journal.origin().clone();
        drop(journal);
        let contents = read(folder.path()).expect("the journal");
        assert_eq!(contents.header, JournalHeader { journal: "j".into(), ..larger }, "its name stays");
        assert_eq!((contents.records.len(), origin.journal.as_str()), (4, "j"));
    }

    #[test]
    fn an_older_journal_is_read_and_not_written() {
        let folder = written(0);
        let older = JournalHeader { format: OLDEST, journal: String::new(), ..header() };
        let mut old = record(1);
        old.origin = TrialOrigin::default();
        let text = line(&older).expect("a line") + &line(&old).expect("a line");
        std::fs::write(folder.path().join(FILE_NAME), &text).expect("an old journal");
        let contents = read(folder.path()).expect("it is read");
        assert_eq!(contents.records[0].origin.journal, "a-7");
        let refused = Journal::resume(folder.path(), &header()).expect_err("it is not resumed").to_string();
        assert!(refused.contains("format 2") && refused.contains("choose another --out"), "{refused}");
        assert_eq!(std::fs::read_to_string(folder.path().join(FILE_NAME)).expect("text"), text);
    }

    #[test]
    fn a_journal_is_neither_started_nor_written_by_two() {
        let folder = tempfile::tempdir().expect("a folder");
        let started = std::thread::scope(|scope| {
            let start = || Journal::create(folder.path(), &header());
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            threads.into_iter().filter_map(|thread| thread.join().expect("no panic").ok()).collect::<Vec<_>>()
        });
        assert_eq!(started.len(), 1);
        let second = Journal::resume(folder.path(), &header()).expect_err("two writers").to_string();
        assert!(second.contains("another process"), "{second}");
        drop(started);
        assert!(Journal::resume(folder.path(), &header()).is_ok());
        let twice = Journal::create(folder.path(), &header()).expect_err("twice").to_string();
        assert!(twice.contains("--resume"), "{twice}");
    }

    #[test]
    fn what_cannot_be_written_is_an_error_and_loses_nothing() {
        let folder = written(2);
        let before = bytes(&folder);
        let (mut journal, _) = Journal::resume(folder.path(), &header()).expect("it resumes");
        // The file is not open for writing, so the write fails as with a full disk.
        journal.lines.file = std::fs::File::open(folder.path().join(FILE_NAME)).expect("the journal");
        let error = journal.append(&record(2)).expect_err("it cannot be written").to_string();
        assert!(error.contains("cannot write") && error.contains(FILE_NAME), "{error}");
        assert!(bytes(&folder) == before);
    }

    #[test]
    fn what_is_no_journal_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for bytes in [&b""[..], b"{}\n", b"\xff\xfe\n", b"{\"checksum\":\"0\",\"content\":{}}\n"] {
            std::fs::write(folder.path().join(FILE_NAME), bytes).expect("a file");
            assert!(read(folder.path()).is_err());
        }
        let newer = line(&JournalHeader { format: FORMAT + 1, ..header() }).expect("a line");
        std::fs::write(folder.path().join(FILE_NAME), newer).expect("a file");
        let error = read(folder.path()).expect_err("another format").to_string();
        assert!(
            error.contains("format 4, but this program reads 2 to 3: it was written by another version of spectune"),
            "{error}"
        );
    }
}
