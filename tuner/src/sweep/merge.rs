//! Merges sweep folders: shards of a sweep, or the same sweep on several machines of one kind.
//!
//! The result is the journal of the whole sweep, as if one machine had measured it: it can be
//! reported, resumed and merged again. It depends neither on the order of the folders nor on the
//! number of merges. No model is loaded and no GPU is needed.

pub mod plan;
mod tuned;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    TunerError,
    files::atomic_file,
    guidance::texts,
    prediction::guide,
    results::selection::{Comparison, LoadRanking, rank},
    trials::{
        journal::{self, Contents, JournalHeader},
        record::{Outcome, Record, TrialOrigin},
        shard::Shard,
    },
};

/// The result of a merge.
#[derive(Clone, Debug)]
pub struct MergeSummary {
    /// Trials of the merged journal, each counted once.
    pub trials: usize,
    /// Further measurements of these trials by other journals, which count as repeats: baselines
    /// run in every shard.
    pub pooled: usize,
    /// Records that were skipped: duplicates, and failures of trials that were measured elsewhere.
    pub repeated: usize,
    /// Trials of the whole plan; a lower bound if shards are missing.
    pub planned: usize,
    /// Shards without a folder.
    pub missing: Vec<Shard>,
    /// One ranking per load, best configuration first.
    pub ranking: Vec<LoadRanking>,
    /// The tuned file, if a load has a winner and the models are known.
    pub tuned: Option<PathBuf>,
    /// Messages for the user.
    pub notes: Vec<String>,
}

/// A folder and the contents of its journal.
struct MergeSource {
    folder: PathBuf,
    contents: Contents,
}

/// Merges the journals of folders into one in `out`. If `out` already contains a journal of the
/// same sweep, it is merged too, so that nothing is lost.
///
/// All measurements of a trial by several journals are kept: each shape is compared with the
/// baselines of its own journal. A trial that failed in one journal and was measured in another
/// counts as measured. The records are in the order in which they were finished. `tuned.toml` is
/// rewritten, `guide.json` is copied from the first folder that has one, and `texts.jsonl` if it is
/// the same in all folders that have one. `states.bin` is not copied: it is large, and recomputed
/// where it is needed.
///
/// # Errors
/// When there is no folder, one has no journal, the journals are not of one sweep and one
/// fingerprint, `out` holds a shard or is being written, or a file cannot be written. The journal
/// in `out` is then unchanged.
pub fn run(folders: &[PathBuf], out: &Path) -> Result<MergeSummary, TunerError> {
    let mut sources = folders.iter().map(|folder| read(folder)).collect::<Result<Vec<_>, _>>()?;
    agree(&sources)?;
    std::fs::create_dir_all(out).map_err(|source| TunerError::Write { path: out.to_owned(), source })?;
    // A sweep may be running in the target folder; its journal must not be replaced under it.
    let _lock = journal::lock(out)?;
    if journal::exists(out) {
        sources.retain(|source| !is_same(&source.folder, out));
        // What is already merged is a source like the others, so that folders can arrive one by
        // one.
        sources.insert(0, target(out)?);
        agree(&sources)?;
    }
    let Some(first) = sources.iter().map(|source| &source.contents.header).min_by_key(|header| rank_of(header)) else {
        return Err(TunerError::Configuration("no folder to merge".into()));
    };
    let (records, repeated) = union(&sources);
    let trials = records.iter().map(|record| record.id.as_str()).collect::<BTreeSet<_>>().len();
    let headers: Vec<&JournalHeader> = sources.iter().map(|source| &source.contents.header).collect();
    let planned = match plan::whole(&headers) {
        0 => 0,
        whole => whole.max(trials),
    };
    let names = sources.iter().map(|source| source.contents.header.journal.as_str()).collect::<BTreeSet<_>>();
    // Derived from what is merged, so that merging again results in the same journal.
    let own = records.iter().map(|record| record.origin.journal.as_str()).collect::<BTreeSet<_>>();
    let journal =
        if own.len() > 1 { merged_name(&own) } else { names.first().map_or(String::new(), |name| (*name).to_owned()) };
    let cut = headers.iter().find_map(|header| header.cut.clone());
    let header = JournalHeader { journal, shard: None, planned, cut, ..first.clone() };
    journal::replace(out, &header, &records)?;

    let mut notes: Vec<String> = sources.iter().filter_map(damage).collect();
    copy_guide(&sources, &header, out)?;
    copy_texts(&sources, &header, out, &mut notes)?;
    let ranking = rank(&records, Comparison::from_sweep(&header.file));
    let tuned = tuned::write(&sources, &header, &ranking, out, &mut notes)?;
    let missing = plan::missing(&headers);
    Ok(MergeSummary { trials, pooled: records.len() - trials, repeated, planned, missing, ranking, tuned, notes })
}

/// The name of a journal merged from several: new measurements in it belong to none of them.
fn merged_name(names: &BTreeSet<&str>) -> String {
    let all = names.iter().copied().collect::<Vec<_>>().join(" ");
    blake3::hash(all.as_bytes()).to_hex()[..12].to_owned()
}

fn read(folder: &Path) -> Result<MergeSource, TunerError> {
    let source = MergeSource { folder: folder.to_owned(), contents: journal::read(folder)? };
    let header = &source.contents.header;
    if let Some(record) = source.contents.records.iter().find(|record| record.fingerprint != header.fingerprint) {
        let reason =
            format!("trial {} has another fingerprint than its journal, so it does not belong to the sweep", record.id);
        return Err(TunerError::Journal { path: folder.join(journal::FILE_NAME), reason });
    }
    Ok(source)
}

fn target(out: &Path) -> Result<MergeSource, TunerError> {
    let target = read(out)?;
    match target.contents.header.shard {
        None => Ok(target),
        Some(shard) => Err(TunerError::Journal {
            path: out.join(journal::FILE_NAME),
            reason: format!(
                "it holds shard {shard} of the sweep, which could not be resumed afterwards; choose another --out"
            ),
        }),
    }
}

/// Checks that all folders hold the same sweep under one fingerprint.
fn agree(sources: &[MergeSource]) -> Result<(), TunerError> {
    let Some((first, rest)) = sources.split_first() else { return Ok(()) };
    for source in rest {
        let (this, that) = (&first.contents.header, &source.contents.header);
        let (here, there) = (first.folder.display(), source.folder.display());
        let reason = if this.format != that.format {
            format!(
                "it has format {}, and {here} format {}: trials of an earlier version of spectune are not ranked \
                 with those of this one; `spectune report` with both folders shows them side by side",
                that.format, this.format
            )
        } else if this.sweep != that.sweep {
            let changed = this.changed(that);
            format!("it belongs to a different sweep than {here}: {changed}; merge only folders of one sweep")
        } else if this.fingerprint != that.fingerprint {
            let word = |(what, a, b)| format!("{what} {a} in {here}, {b} in {there}");
            let words: Vec<String> = this.fingerprint.differences(&that.fingerprint).into_iter().map(word).collect();
            format!(
                "it was measured elsewhere ({}): such trials are not ranked together, and `spectune report` with both \
                 folders shows them side by side",
                words.join("; ")
            )
        } else {
            continue;
        };
        return Err(TunerError::Journal { path: source.folder.join(journal::FILE_NAME), reason });
    }
    Ok(())
}

/// Sort key: the whole sweep before its shards, then by content, so that the order of the folders
/// does not matter.
fn rank_of(header: &JournalHeader) -> (Option<(usize, usize)>, String) {
    let shard = header.shard.map(|shard| (shard.count, shard.index));
    (shard, serde_json::to_string(header).unwrap_or_default())
}

/// The kept records in chronological order, and the number of dropped ones.
///
/// Trials that ended in the same second keep the order of the journal that they were first written
/// to, as [`crate::results::selection`] reads it: which of them ran next to each other tells the
/// starts of a server apart.
fn union(sources: &[MergeSource]) -> (Vec<Record>, usize) {
    let all: Vec<&Record> = sources.iter().flat_map(|source| &source.contents.records).collect();
    let mut records: Vec<Record> = pooled(&all).into_iter().map(|at| all[at].clone()).collect();
    records.sort_by(|a, b| (a.finished_at, &a.origin).cmp(&(b.finished_at, &b.origin)));
    let left_out = all.len() - records.len();
    (records, left_out)
}

/// Indices of the records that count: each trial once per journal that measured it, since another
/// journal's measurement is a separate repeat. A failure counts only if the trial was never
/// measured.
pub fn pooled(records: &[&Record]) -> Vec<usize> {
    let mut kept: BTreeMap<(&str, &TrialOrigin), usize> = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        // The same trial of the same journal is a copy; of another journal, it is a further
        // measurement.
        let slot = kept.entry((&record.id, &record.origin)).or_insert(at);
        if goes_before(record, records[*slot]) {
            *slot = at;
        }
    }
    let measured: BTreeSet<&str> =
        kept.values().filter(|at| records[**at].measurement().is_some()).map(|at| records[*at].id.as_str()).collect();
    let mut failed = BTreeSet::new();
    let counts = |at: &usize| {
        let record = records[*at];
        record.measurement().is_some() || (!measured.contains(record.id.as_str()) && failed.insert(record.id.as_str()))
    };
    let mut places: Vec<usize> = kept.into_values().filter(counts).collect();
    places.sort_unstable();
    places
}

/// Whether one record of a trial is preferred to another: measured before failed, then the one that
/// was finished first. Ties are broken by content, so the order in which they are found does not
/// matter.
fn goes_before(record: &Record, other: &Record) -> bool {
    preference(record) < preference(other)
}

fn preference(record: &Record) -> (bool, u64, String) {
    let failed = matches!(record.outcome, Outcome::Failed { .. });
    // The text last, so that the choice does not depend on the order of the folders.
    (failed, record.finished_at, serde_json::to_string(record).unwrap_or_default())
}

fn copy_guide(sources: &[MergeSource], header: &JournalHeader, out: &Path) -> Result<(), TunerError> {
    let texts = sources.iter().filter_map(|source| guide::text(&source.folder).ok().flatten());
    // Shards of one sweep find the same guide, so any of them will do.
    let fits = |text: &String| guide::parse(text).is_ok_and(|guide| guide.fingerprint == header.fingerprint);
    let text = texts.into_iter().find(fits);
    text.map_or(Ok(()), |text| atomic_file::write(out, guide::FILE_NAME, text.as_bytes()))
}

fn copy_texts(
    sources: &[MergeSource],
    header: &JournalHeader,
    out: &Path,
    notes: &mut Vec<String>,
) -> Result<(), TunerError> {
    let usable =
        |source: &MergeSource| Some((source.folder.clone(), texts::usable(&source.folder, &header.fingerprint)?));
    let mut found = sources.iter().filter_map(usable);
    let Some((folder, text)) = found.next() else { return Ok(()) };
    if let Some((other, _)) = found.find(|(_, other)| !texts::same(&text, other)) {
        let [here, there] = [&folder, &other].map(|folder| folder.join(texts::FILE_NAME));
        notes.push(format!("{} and {} contain different texts: neither is copied", there.display(), here.display()));
        return Ok(());
    }
    atomic_file::write(out, texts::FILE_NAME, text.as_bytes())
}

fn damage(source: &MergeSource) -> Option<String> {
    let lines: Vec<String> = source.contents.damaged.iter().map(ToString::to_string).collect();
    let path = source.folder.join(journal::FILE_NAME);
    (!lines.is_empty())
        .then(|| format!("{}: line {} cannot be read; the trial is skipped", path.display(), lines.join(", ")))
}

fn is_same(this: &Path, that: &Path) -> bool {
    matches!((this.canonicalize(), that.canonicalize()), (Ok(this), Ok(that)) if this == that)
}
