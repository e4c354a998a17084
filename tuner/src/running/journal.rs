//! The journal of a measurement of running servers.

use std::path::Path;

use super::record::{FORMAT, RunningHeader, RunningRecord};
use crate::{
    TunerError,
    trials::journal::{
        FILE_NAME, RUNNING,
        lines::{self, Lines, complete, content},
    },
};

/// The contents of a journal.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningContents {
    /// Its first line.
    pub header: RunningHeader,
    /// Its complete records, in the order in which they were written.
    pub records: Vec<RunningRecord>,
    /// Numbers (from one) of damaged lines.
    pub damaged: Vec<usize>,
    /// Bytes up to the end of the last complete line.
    whole: u64,
}

impl RunningContents {
    /// That lines of the journal are left out, and where; `None` if none are.
    pub fn left_out(&self) -> Option<String> {
        lines::left_out(&self.damaged)
    }
}

/// Whether the journal of a folder holds measurements of running servers.
pub fn is_running(folder: &Path) -> bool {
    #[derive(serde::Deserialize)]
    struct RunningJournalKind {
        kind: String,
    }
    // Whoever reads the journal afterwards reports why it cannot be read.
    let bytes = lines::read(folder).unwrap_or_default();
    let first = complete(&bytes).next().and_then(|(_, line)| content::<RunningJournalKind>(line));
    first.is_some_and(|header| header.kind == RUNNING)
}

/// Reads the journal of a folder.
///
/// # Errors
/// When it is missing or damaged, or is of another kind or format.
pub fn read(folder: &Path) -> Result<RunningContents, TunerError> {
    let bytes = lines::read(folder)?;
    let wrong = |reason: String| TunerError::Journal { path: folder.join(FILE_NAME), reason };
    let mut all = complete(&bytes);
    let not_this = || wrong("the first line is damaged, or it does not hold measurements of running servers".into());
    let (mut whole, first) = all.next().ok_or_else(not_this)?;
    let header: RunningHeader = content(first).ok_or_else(not_this)?;
    if header.format != FORMAT {
        return Err(wrong(format!(
            "format {}, but this program reads {FORMAT}: it was written by another version of spectune",
            header.format
        )));
    }
    let (mut records, mut damaged) = (Vec::new(), Vec::new());
    for (at, (end, line)) in all.enumerate() {
        whole = end;
        match content(line) {
            Some(record) => records.push(record),
            // Lines count from one, and the first is the header.
            None => damaged.push(at + 2),
        }
    }
    Ok(RunningContents { header, records, damaged, whole })
}

/// Refuses to continue the journal of a folder with another header.
///
/// # Errors
/// When something has changed that gives its trials another meaning, or it cannot be read.
pub(super) fn check(folder: &Path, header: &RunningHeader) -> Result<(), TunerError> {
    match refusal(&read(folder)?.header, header) {
        Some(reason) => Err(TunerError::Journal { path: folder.join(FILE_NAME), reason }),
        None => Ok(()),
    }
}

/// Starts a journal in a folder.
///
/// # Errors
/// When it already has one, or cannot be written.
pub(super) fn create(folder: &Path, header: &RunningHeader) -> Result<Lines, TunerError> {
    Lines::create(folder, header)
}

/// Continues the journal of a folder. Repeats and the time may change; everything else must be as
/// before.
///
/// # Errors
/// When something else has changed, the folder is written by another process, or it cannot be
/// written.
pub(super) fn resume(folder: &Path, header: &RunningHeader) -> Result<(Lines, RunningContents), TunerError> {
    // Before it is read, so that no other process appends a line in between.
    let lock = lines::lock(folder)?;
    let mut contents = read(folder)?;
    if let Some(reason) = refusal(&contents.header, header) {
        return Err(TunerError::Journal { path: folder.join(FILE_NAME), reason });
    }
    let header = RunningHeader { starts: contents.header.starts + 1, ..header.clone() };
    contents.whole = lines::exchange_header(folder, &header, contents.whole)?;
    contents.header = header;
    Ok((Lines::resume(folder, contents.whole, lock)?, contents))
}

/// Why a measurement cannot continue a journal.
fn refusal(before: &RunningHeader, now: &RunningHeader) -> Option<String> {
    let (one, other) = (&before.requested, &now.requested);
    let changed = [
        ("the URLs", one.urls != other.urls),
        ("the workload", one.workload != other.workload || one.folder != other.folder),
        ("the loads", one.loads != other.loads),
        ("--flush", one.flush != other.flush),
        ("what throughput counts (since another version of spectune)", before.full_loops != now.full_loops),
    ];
    let mut changed: Vec<String> =
        changed.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.to_owned()).collect();
    for (then, now) in before.servers.iter().zip(&now.servers) {
        if (&then.engine, &then.version, &then.models) != (&now.engine, &now.version, &now.models) {
            let reported =
                |one: &super::record::RunningServer| format!("{} with {}", one.name(), one.models.join(", "));
            changed.push(format!("the server at {} ({}, now {})", now.url, reported(then), reported(now)));
        }
        let settings = then.settings.iter().filter(|one| now.setting(&one.name) != one.value.as_deref());
        changed.extend(settings.map(|one| {
            let word = |value: Option<&str>| value.unwrap_or("not told").to_owned();
            format!(
                "{} of {} ({}, now {})",
                one.name,
                now.url,
                word(one.value.as_deref()),
                word(now.setting(&one.name))
            )
        }));
    }
    let what = changed.join(", ");
    (!changed.is_empty()).then(|| {
        format!("what it holds was measured otherwise: {what} changed; choose another --out, or undo the change")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_journal_of_whole_trials_is_read_and_not_continued() {
        let requested = json!({
            "urls": ["http://127.0.0.1:1"], "folder": "", "loads": [{"batch_size": 2}], "repeats": 6, "seconds": null,
            "flush": false, "workload": {"prompts": "prompts.jsonl"},
        });
        let line = json!({
            "kind": RUNNING, "format": FORMAT, "asked": requested, "servers": [], "starts": 0, "prompts": 9,
        });
        let old: RunningHeader = serde_json::from_value(line).expect("a header of an earlier version");
        assert_eq!(refusal(&old, &old), None);
        let now = RunningHeader { full_loops: true, ..old.clone() };
        let reason = refusal(&old, &now).expect("both kinds of trials do not compare");
        assert!(reason.contains("what throughput counts"), "{reason}");
    }
}
