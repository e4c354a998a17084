//! Reads the folder that a sweep has written.

use std::{fs::File, io::Read, path::Path};

use schemas::{text::Source, tuned::TunedFile};
use tuner::{TunerError, journal, outcome};

use super::Sweep;

/// Largest tuned file in bytes: a few rows of text.
const LARGEST_TUNED: u64 = 1 << 20;

impl Sweep {
    /// Reads journal and tuned file of a sweep's folder. A journal with damaged lines, and a tuned file that is missing
    /// or broken, leave a notice; the sweep may still be running.
    ///
    /// # Errors
    /// When there is no journal, or it cannot be read.
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
        let tuned = tuned(folder).unwrap_or_else(|reason| {
            notices.push(format!("{} cannot be used: {reason}", outcome::FILE_NAME));
            None
        });
        Ok(Self {
            name: folder.display().to_string(),
            records: contents.records,
            planned: Some(contents.header.planned),
            file: Some(contents.header.file),
            tuned,
            notices,
        })
    }
}

fn tuned(folder: &Path) -> Result<Option<TunedFile>, String> {
    let mut text = String::new();
    match File::open(folder.join(outcome::FILE_NAME)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened
            .and_then(|file| file.take(LARGEST_TUNED).read_to_string(&mut text))
            .map_err(|error| error.to_string())?,
    };
    TunedFile::read(&Source::new(outcome::FILE_NAME, text)).map(Some).map_err(|diagnostic| diagnostic.message)
}
