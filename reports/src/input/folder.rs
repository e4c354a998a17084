//! Reads the folder of a sweep.

use std::path::Path;

use tuner::{TunerError, guide, journal, outcome};

use super::Sweep;

/// Maximum number of journal lines that a notice lists.
const NAMED_LINES: usize = 20;

/// The notice about damaged lines of a journal.
fn damaged(lines: &[usize]) -> String {
    let file = journal::FILE_NAME;
    if let [line] = lines {
        return format!("line {line} of {file} cannot be read and is skipped");
    }
    let named: Vec<String> = lines.iter().take(NAMED_LINES).map(usize::to_string).collect();
    let more = if lines.len() > NAMED_LINES { ", …" } else { "" };
    format!("{} lines of {file} cannot be read and are skipped: {}{more}", lines.len(), named.join(", "))
}

impl Sweep {
    /// Reads journal and tuned file of a sweep's folder. Damaged lines in the journal, and a
    /// missing or broken tuned file, result in notices; the sweep may still be running.
    ///
    /// # Errors
    /// When the journal is missing or cannot be read.
    pub fn read(folder: &Path) -> Result<Self, TunerError> {
        let contents = journal::read(folder)?;
        let mut notices = Vec::new();
        if !contents.damaged.is_empty() {
            notices.push(damaged(&contents.damaged));
        }
        let tuned = outcome::read(folder).unwrap_or_else(|reason| {
            notices.push(format!("{} cannot be used: {reason}", outcome::FILE_NAME));
            None
        });
        let guide = guide::read(folder).unwrap_or_else(|reason| {
            notices.push(format!("{} cannot be used, so no predictions are shown: {reason}", guide::FILE_NAME));
            None
        });
        Ok(Self {
            name: folder.display().to_string(),
            records: contents.records,
            header: Some(contents.header),
            tuned,
            guide,
            notices,
        })
    }
}
