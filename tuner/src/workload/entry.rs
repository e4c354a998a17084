//! An entry of a file of prompts or requests, and an error in one.

use std::{borrow::Cow, path::Path};

use schemas::words::FileSyntax;
use serde::de::DeserializeOwned;

use crate::TunerError;

/// Maximum number of entries.
pub const MOST: usize = 1 << 22;

/// An entry of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadEntry<'a> {
    /// The line on which it starts, from one.
    pub line: usize,
    /// Its JSON text; converted from other formats.
    pub json: Cow<'a, str>,
}

/// An error in a file, with its line.
#[derive(Debug, PartialEq, Eq)]
pub struct EntryError {
    /// The line, from one.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

impl EntryError {
    /// Converts to the error that ends the sweep.
    pub fn in_file(self, path: &Path) -> TunerError {
        TunerError::Prompt { path: path.to_owned(), line: self.line, reason: self.reason }
    }
}

impl WorkloadEntry<'_> {
    /// Parses it as JSON.
    ///
    /// # Errors
    /// When it is not valid JSON, or not of the expected form; with line and column.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, EntryError> {
        serde_json::from_str(&self.json).map_err(|error| {
            let line = self.line + error.line().saturating_sub(1);
            EntryError { line, reason: format!("column {}: {}", error.column(), words(&error)) }
        })
    }

    /// An error of this entry.
    pub fn wrong(&self, reason: impl Into<String>) -> EntryError {
        EntryError { line: self.line, reason: reason.into() }
    }
}

/// The message without the position in the JSON text, which is not the position in the file.
pub fn words(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let said = said.strip_suffix(&place).unwrap_or(&said);
    if error.is_data() {
        return schemas::words::quoted_words(said, "", FileSyntax::Json).message;
    }
    let end = match said {
        _ if error.is_eof() => "it ends too early",
        "expected ident" | "expected value" => "this is not allowed here",
        other => other,
    };
    format!(
        "not JSON, {end}: a file of prompts has an object such as {{\"prompt\": \"…\"}} on each line, or one list of \
         them"
    )
}
