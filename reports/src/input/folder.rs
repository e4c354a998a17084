//! Reads the folder of a sweep.

use std::path::Path;

use tuner::{TunerError, prediction::guide, results::outcome, trials::journal};

use super::Sweep;

impl Sweep {
    /// Reads journal and tuned file of a sweep's folder. Damaged lines in the journal, and a
    /// missing or broken tuned file, result in notices; the sweep may still be running.
    ///
    /// # Errors
    /// When the journal is missing or cannot be read.
    pub fn read(folder: &Path) -> Result<Self, TunerError> {
        let contents = journal::read(folder)?;
        let mut notices: Vec<String> = contents.left_out().into_iter().collect();
        if let Some(cut) = &contents.header.cut {
            notices.push(format!("{cut}; what was not measured is missing from this page"));
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
