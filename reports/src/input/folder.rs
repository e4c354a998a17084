//! Reads the folder that a sweep has written.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
};

use schemas::{text::Source, tuned::TunedFile};
use serde::Deserialize;
use tuner::{
    TunerError,
    guide::{self, Guide},
    journal, outcome,
};

use super::Sweep;

/// Largest tuned file in bytes: a few rows of text.
const LARGEST_TUNED: u64 = 1 << 20;
/// Largest guide in bytes: some hundred bytes for each configuration and load.
const LARGEST_GUIDE: u64 = 1 << 28;

/// What a guide of every version has.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

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
        let guide = guide(folder).unwrap_or_else(|reason| {
            notices
                .push(format!("{} cannot be used, so nothing that was predicted is shown: {reason}", guide::FILE_NAME));
            None
        });
        Ok(Self {
            name: folder.display().to_string(),
            records: contents.records,
            planned: Some(contents.header.planned).filter(|planned| *planned > 0),
            file: Some(contents.header.file),
            tuned,
            guide,
            notices,
        })
    }
}

fn tuned(folder: &Path) -> Result<Option<TunedFile>, String> {
    let Some(text) = text(&folder.join(outcome::FILE_NAME), LARGEST_TUNED)? else { return Ok(None) };
    TunedFile::read(&Source::new(outcome::FILE_NAME, text)).map(Some).map_err(|diagnostic| diagnostic.message)
}

fn guide(folder: &Path) -> Result<Option<Guide>, String> {
    let Some(text) = text(&folder.join(guide::FILE_NAME), LARGEST_GUIDE)? else { return Ok(None) };
    let Version { format } = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if format != guide::FORMAT {
        return Err(format!("it has format {format}, and this program reads {}", guide::FORMAT));
    }
    serde_json::from_str(&text).map(Some).map_err(|error| error.to_string())
}

/// The text of a file of at most `largest` bytes; none where there is no such file.
fn text(path: &Path, largest: u64) -> Result<Option<String>, String> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| error.to_string())?,
    };
    let mut text = String::new();
    let length = file.take(largest + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if length as u64 > largest {
        return Err(format!("it is larger than {largest} bytes"));
    }
    Ok(Some(text))
}
