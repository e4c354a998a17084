//! Reads the folder that a sweep has written.

use std::path::Path;

use tuner::{TunerError, guide, journal, outcome};

use super::Sweep;

impl Sweep {
    /// Reads journal and tuned file of a sweep's folder. A journal with damaged lines, and a tuned file that is missing
    /// or broken, leave a notice; the sweep may still be running.
    ///
    /// # Errors
    /// When the journal is missing or cannot be read.
    pub fn read(folder: &Path) -> Result<Self, TunerError> {
        let contents = journal::read(folder)?;
        let mut notices = Vec::new();
        if !contents.damaged.is_empty() {
            let lines: Vec<String> = contents.damaged.iter().take(20).map(usize::to_string).collect();
            notices.push(format!(
                "{} of {} cannot be read and {} left out (line {}{})",
                if lines.len() == 1 { "a line" } else { "some lines" },
                journal::FILE_NAME,
                if lines.len() == 1 { "is" } else { "are" },
                lines.join(", "),
                if contents.damaged.len() > lines.len() { ", …" } else { "" }
            ));
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
