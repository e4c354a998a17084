//! All errors of a file at once: after each error the text is changed so that the next one shows,
//! on a copy that knows where each of its bytes comes from.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use toml_edit::{Document, Item, TableLike, Value};

use super::finding;
use crate::{diagnostic::Diagnostic, text::Source};

/// Longest text in which more than the first error is searched for; configurations are a few KiB.
const LONGEST: usize = 256 << 10;
/// Maximum number of errors that are reported.
const MOST: usize = 20;

/// A file of which all that could be read was read.
pub struct Collected<T> {
    /// The file, with changes that removed the errors; `None` if they could not be removed.
    pub file: Option<T>,
    /// The errors, in the order in which they were found.
    pub findings: Vec<Diagnostic>,
    /// The tables (first keys) that contain errors. Their values are not the user's.
    pub spoiled: BTreeSet<String>,
}

/// A copy of the text, in which errors are replaced.
struct FieldDraft {
    text: String,
    /// For each byte, its place in the user's text, and at last the text's length.
    origin: Vec<usize>,
}

/// A key and its value in a text.
struct KeyPair {
    /// The first key of the path.
    table: String,
    /// The first byte of the key.
    start: usize,
    /// The value.
    value: std::ops::Range<usize>,
}

/// Reads a file, and collects its errors.
pub fn read<T: DeserializeOwned>(source: &Source) -> Collected<T> {
    let mut draft = FieldDraft { text: source.text().to_owned(), origin: (0..=source.text().len()).collect() };
    let mut collected = Collected { file: None, findings: Vec::new(), spoiled: BTreeSet::new() };
    while collected.findings.len() < MOST {
        let error = match toml::from_str(&draft.text) {
            Ok(file) => {
                collected.file = Some(file);
                break;
            }
            Err(error) => error,
        };
        let range = error.span().unwrap_or(0..0);
        let place = |at: usize| draft.origin.get(at).copied().unwrap_or(source.text().len());
        collected.findings.push(finding(source, place(range.start)..place(range.end), error.message()));
        if draft.text.len() > LONGEST || !draft.remove::<T>(range, error.message(), &mut collected.spoiled) {
            break;
        }
    }
    collected
}

impl FieldDraft {
    /// Changes the text so that the error at a range is gone; `false` if that is not possible.
    fn remove<T: DeserializeOwned>(
        &mut self,
        range: std::ops::Range<usize>,
        message: &str,
        spoiled: &mut BTreeSet<String>,
    ) -> bool {
        let text = self.text.clone();
        // Where the syntax is wrong, what follows has no certain meaning.
        let Ok(document) = Document::parse(text.as_str()) else { return false };
        let mut pairs = Vec::new();
        collect(document.as_table(), None, &mut pairs);
        let inside = |pair: &&KeyPair| (pair.start..=pair.value.end).contains(&range.start);
        // The innermost pair, which inside an inline table is the one that is wrong.
        if let Some(pair) = pairs.iter().filter(inside).max_by_key(|pair| pair.start) {
            spoiled.insert(pair.table.clone());
            let whole_pair = pair.start..pair.value.end;
            // An unknown key goes, and a value becomes one of the type that its key needs. A known
            // key goes only if none helps: it would be missing once the errors after it are gone.
            let words = ["\"\"", "0", "[]", "false", "{}", "0.5"];
            let mut changes: Vec<_> = words.map(|word| (pair.value.clone(), word)).into();
            let at = if message.starts_with("unknown field") { 0 } else { changes.len() };
            changes.insert(at, (whole_pair, ""));
            return self.first_that_helps::<T>(changes, range.start, message);
        }
        let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        if let Some(missing) = missing {
            // The place of a table that is missing is the beginning of the file.
            let table = format!("\n[{missing}]\n");
            if self.first_that_helps::<T>([(text.len()..text.len(), table.as_str())], range.start, message) {
                spoiled.insert(missing.to_owned());
                return true;
            }
        }
        let Some(header) = header_at(&text, range.start) else { return false };
        spoiled.insert(first_key(&text[header.clone()]).to_owned());
        if let Some(missing) = missing {
            let lines = ["\"\"", "0", "[]", "false", "{}"].map(|word| format!("\n{missing} = {word}"));
            let changes = lines.iter().map(|line| (header.end..header.end, line.as_str()));
            return self.first_that_helps::<T>(changes, range.start, message);
        }
        // An unknown table goes, with all of its lines.
        let end = (text[header.end..].match_indices('\n').map(|(at, _)| header.end + at + 1))
            .find(|at| text[*at..].trim_start_matches([' ', '\t']).starts_with('['));
        self.first_that_helps::<T>([(header.start..end.unwrap_or(text.len()), "")], range.start, message)
    }

    /// Makes the first change after which this error is gone.
    fn first_that_helps<'a, T: DeserializeOwned>(
        &mut self,
        changes: impl IntoIterator<Item = (std::ops::Range<usize>, &'a str)>,
        at: usize,
        message: &str,
    ) -> bool {
        for (range, word) in changes {
            let mut text = self.text.clone();
            text.replace_range(range.clone(), word);
            let helps = match toml::from_str::<T>(&text) {
                Ok(_) => true,
                Err(error) => {
                    let same = error.message() == message && error.span().is_some_and(|span| span.start == at);
                    // A required key must not get lost, and another value of a wrong type does not
                    // help.
                    let at_the_change = error.span().is_some_and(|span| {
                        (range.start..=range.start + word.len()).contains(&span.start) && !word.is_empty()
                    });
                    let lost = word.is_empty() && error.message().starts_with("missing field");
                    let broken = Document::parse(text.as_str()).is_err();
                    !(same || at_the_change || lost || broken)
                }
            };
            if helps {
                let place = self.origin.get(range.start).copied().unwrap_or_default();
                self.origin.splice(range, std::iter::repeat_n(place, word.len()));
                self.text = text;
                return true;
            }
        }
        false
    }
}

/// All pairs of a table and of the tables inside it.
fn collect(table: &dyn TableLike, first: Option<&str>, pairs: &mut Vec<KeyPair>) {
    for (name, item) in table.iter() {
        let key = table.get_key_value(name).and_then(|(key, _)| key.span());
        let first = first.unwrap_or(name);
        if let Some((key, value)) = key.zip(item.as_value().and_then(Value::span)) {
            pairs.push(KeyPair { table: first.to_owned(), start: key.start, value });
        }
        match item {
            Item::ArrayOfTables(tables) => tables.iter().for_each(|table| collect(table, Some(first), pairs)),
            item => {
                if let Some(table) = item.as_table_like() {
                    collect(table, Some(first), pairs);
                }
            }
        }
    }
}

/// The header of a table at a place: its line from the bracket on.
fn header_at(text: &str, at: usize) -> Option<std::ops::Range<usize>> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let end = text[start..].find('\n').map_or(text.len(), |end| start + end);
    let start = start + (text[start..end].len() - text[start..end].trim_start().len());
    text[start..end].starts_with('[').then_some(start..end)
}

fn first_key(header: &str) -> &str {
    header.trim_start_matches('[').split([']', '.']).next().unwrap_or_default().trim()
}
