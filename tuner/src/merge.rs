//! One sweep folder from many: shards of a sweep, or the same sweep on several machines of one kind.
//!
//! The journal that comes out is that of the whole sweep, as if one machine had measured it: it can be reported, resumed
//! and merged again. It depends neither on the order of the folders nor on how often they are merged. No model is loaded
//! and no GPU is needed.

pub mod plan;
mod tuned;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    TunerError,
    guidance::texts,
    guide,
    journal::{self, Contents, Header},
    record::{Outcome, Record},
    selection::{LoadRanking, rank},
    strategy::Shard,
    whole_file,
};

/// What a merge did.
#[derive(Clone, Debug)]
pub struct MergeSummary {
    /// Trials of the merged journal.
    pub trials: usize,
    /// Records that were left out because another one of the same trial is kept: baselines run in every shard.
    pub repeated: usize,
    /// Trials of the whole plan; at least so many where shards are missing.
    pub planned: usize,
    /// Shards that no folder holds.
    pub missing: Vec<Shard>,
    /// Best first, a load each.
    pub ranking: Vec<LoadRanking>,
    /// The tuned file, where a load has a winner and the models are known.
    pub tuned: Option<PathBuf>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A folder with the journal that it holds.
struct Source {
    folder: PathBuf,
    contents: Contents,
}

/// Merges the journals of folders into one in `out`. What `out` holds of the same sweep already is merged too, so that
/// nothing there is lost.
///
/// Of several records of one trial the measured goes before the failed, and then the first that was finished is kept. The
/// records come in the order in which they were finished. `tuned.toml` is made anew, `guide.json` copied from the first
/// folder that has one, and `texts.jsonl` if it is the same in all that have one. `states.bin` stays where it is: it is
/// large, and made again where it is missed.
///
/// # Errors
/// When there is no folder, one has no journal, the journals are not of one sweep and one fingerprint, `out` holds a shard
/// or is being written, or a file cannot be written. The journal in `out` is then as it was.
pub fn run(folders: &[PathBuf], out: &Path) -> Result<MergeSummary, TunerError> {
    let mut sources = folders.iter().map(|folder| read(folder)).collect::<Result<Vec<_>, _>>()?;
    agree(&sources)?;
    std::fs::create_dir_all(out).map_err(|source| TunerError::Write { path: out.to_owned(), source })?;
    let _lock = journal::lock(out)?;
    if journal::exists(out) {
        sources.retain(|source| !is_same(&source.folder, out));
        sources.insert(0, target(out)?);
        agree(&sources)?;
    }
    let Some(first) = sources.iter().map(|source| &source.contents.header).min_by_key(|header| rank_of(header)) else {
        return Err(TunerError::Configuration("no folder to merge".into()));
    };
    let (records, repeated) = union(&sources);
    let headers: Vec<&Header> = sources.iter().map(|source| &source.contents.header).collect();
    let planned = match plan::whole(&headers) {
        0 => 0,
        whole => whole.max(records.len()),
    };
    let header = Header { shard: None, planned, ..first.clone() };
    journal::replace(out, &header, &records)?;

    let mut notes: Vec<String> = sources.iter().filter_map(damage).collect();
    copy_guide(&sources, &header, out)?;
    copy_texts(&sources, &header, out, &mut notes)?;
    let ranking = rank(&records, header.file.objective.metric);
    let tuned = tuned::write(&sources, &header, &ranking, out, &mut notes)?;
    let missing = plan::missing(&headers);
    Ok(MergeSummary { trials: records.len(), repeated, planned, missing, ranking, tuned, notes })
}

fn read(folder: &Path) -> Result<Source, TunerError> {
    let source = Source { folder: folder.to_owned(), contents: journal::read(folder)? };
    let header = &source.contents.header;
    if let Some(record) = source.contents.records.iter().find(|record| record.fingerprint != header.fingerprint) {
        let reason = format!("trial {} has another fingerprint than the journal: it is not one of a sweep", record.id);
        return Err(TunerError::Journal { path: folder.join(journal::FILE_NAME), reason });
    }
    Ok(source)
}

fn target(out: &Path) -> Result<Source, TunerError> {
    let target = read(out)?;
    match target.contents.header.shard {
        None => Ok(target),
        Some(shard) => Err(TunerError::Journal {
            path: out.join(journal::FILE_NAME),
            reason: format!("it holds shard {shard} of the sweep, which could not be resumed; choose another --out"),
        }),
    }
}

/// Whether all folders hold the same sweep under one fingerprint.
fn agree(sources: &[Source]) -> Result<(), TunerError> {
    let Some((first, rest)) = sources.split_first() else { return Ok(()) };
    for source in rest {
        let (this, that) = (&first.contents.header, &source.contents.header);
        let (here, there) = (first.folder.display(), source.folder.display());
        let reason = if this.format != that.format {
            format!(
                "it has format {}, and {here} format {}: what an earlier version of spectune measured is not ranked with what \
                 this one does; `spectune report` with both folders shows them side by side",
                that.format, this.format
            )
        } else if this.sweep != that.sweep {
            let changed = this.changed(that);
            format!("it belongs to another sweep than {here}: {changed}; merge only folders of one sweep")
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

/// The whole sweep before its shards; then by content, so that the order of the folders does not matter.
fn rank_of(header: &Header) -> (Option<(usize, usize)>, String) {
    let shard = header.shard.map(|shard| (shard.count, shard.index));
    (shard, serde_json::to_string(header).unwrap_or_default())
}

/// Every trial once, in the order of time, and how many records are left out.
fn union(sources: &[Source]) -> (Vec<Record>, usize) {
    let mut kept: BTreeMap<&str, &Record> = BTreeMap::new();
    let mut repeated = 0;
    for record in sources.iter().flat_map(|source| &source.contents.records) {
        match kept.get_mut(record.id.as_str()) {
            None => {
                kept.insert(&record.id, record);
            }
            Some(other) => {
                repeated += 1;
                if goes_before(record, other) {
                    *other = record;
                }
            }
        }
    }
    let mut records: Vec<Record> = kept.into_values().cloned().collect();
    // Stable: trials of one second stay in the order of their ids.
    records.sort_by_key(|record| record.finished_at);
    (records, repeated)
}

/// Whether one record of a trial is kept rather than another: the measured goes before the failed, then the first that was
/// finished. Equal ones are told apart by their content, so that the order in which they are found does not matter.
pub fn goes_before(record: &Record, other: &Record) -> bool {
    preference(record) < preference(other)
}

fn preference(record: &Record) -> (bool, u64, String) {
    let failed = matches!(record.outcome, Outcome::Failed { .. });
    (failed, record.finished_at, serde_json::to_string(record).unwrap_or_default())
}

fn copy_guide(sources: &[Source], header: &Header, out: &Path) -> Result<(), TunerError> {
    let texts = sources.iter().filter_map(|source| guide::text(&source.folder).ok().flatten());
    let fits = |text: &String| guide::parse(text).is_ok_and(|guide| guide.fingerprint == header.fingerprint);
    let text = texts.into_iter().find(fits);
    text.map_or(Ok(()), |text| whole_file::write(out, guide::FILE_NAME, text.as_bytes()))
}

fn copy_texts(sources: &[Source], header: &Header, out: &Path, notes: &mut Vec<String>) -> Result<(), TunerError> {
    let usable = |source: &Source| Some((source.folder.clone(), texts::usable(&source.folder, &header.fingerprint)?));
    let mut found = sources.iter().filter_map(usable);
    let Some((folder, text)) = found.next() else { return Ok(()) };
    if let Some((other, _)) = found.find(|(_, other)| !texts::same(&text, other)) {
        let [here, there] = [&folder, &other].map(|folder| folder.join(texts::FILE_NAME));
        notes.push(format!("{} holds other texts than {}: neither is copied", there.display(), here.display()));
        return Ok(());
    }
    whole_file::write(out, texts::FILE_NAME, text.as_bytes())
}

fn damage(source: &Source) -> Option<String> {
    let lines: Vec<String> = source.contents.damaged.iter().map(ToString::to_string).collect();
    let path = source.folder.join(journal::FILE_NAME);
    (!lines.is_empty())
        .then(|| format!("{}: line {} cannot be read; the trial is left out", path.display(), lines.join(", ")))
}

fn is_same(this: &Path, that: &Path) -> bool {
    matches!((this.canonicalize(), that.canonicalize()), (Ok(this), Ok(that)) if this == that)
}
