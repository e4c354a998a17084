//! Reads files of prompts and requests: their limits, and their entries with line numbers.

use std::{fmt, fs::File, io::Read, marker::PhantomData, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    entry::{EntryError, MOST, WorkloadEntry, words},
    formats::{self, PromptFormat},
};
use crate::TunerError;

/// Largest file in bytes.
const LARGEST: u64 = 1 << 30;
/// Longest entry in bytes: a text of a few million tokens.
const LONGEST: usize = 16 << 20;

/// A JSON list of at most [`MOST`] elements.
pub struct Bounded<T>(pub Vec<T>);

/// The text of a file.
///
/// # Errors
/// When it cannot be read, is too large, or is not UTF-8.
pub fn read(path: &Path) -> Result<String, TunerError> {
    let unreadable = |source| TunerError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let stated = file.metadata().map_err(unreadable)?.len();
    let mut bytes = Vec::new();
    // Also limits files that grow while they are read, or that report no size.
    if stated <= LARGEST {
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    if stated > LARGEST || bytes.len() as u64 > LARGEST {
        let reason = format!("larger than {} MiB, the limit for such files: split it", LARGEST >> 20);
        return Err(TunerError::Malformed { path: path.to_owned(), reason });
    }
    if let Some(reason) = formats::refusal(path, &bytes) {
        return Err(TunerError::Malformed { path: path.to_owned(), reason });
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        EntryError { line, reason: "not UTF-8: save the file in this encoding".into() }.in_file(path)
    })
}

/// The entries of a file's text, in the format that its content shows. Blank lines are skipped.
///
/// # Errors
/// When the list is not JSON, a table is not CSV, or an entry or the number of entries exceeds the
/// limit.
pub fn entries<'a>(path: &Path, content: &'a str) -> Result<Vec<WorkloadEntry<'a>>, EntryError> {
    let content = content.trim_start_matches('\u{feff}');
    let entries = match PromptFormat::from_path(path, content) {
        PromptFormat::Json if content.trim_start().starts_with('[') => listed(content)?,
        PromptFormat::Json => {
            let lines = content.lines().enumerate().map(|(at, json)| WorkloadEntry { line: at + 1, json: json.into() });
            lines.filter(|entry| !entry.json.trim().is_empty()).take(MOST + 1).collect()
        }
        PromptFormat::Text => formats::lines(content),
        PromptFormat::Csv(separator) => formats::rows(content, separator)?,
    };
    if let Some(entry) = entries.get(MOST) {
        return Err(entry.wrong(format!("more than {MOST} entries: split the file")));
    }
    match entries.iter().find(|entry| entry.json.len() > LONGEST) {
        Some(entry) => Err(entry.wrong(format!("an entry of more than {} MiB", LONGEST >> 20))),
        None => Ok(entries),
    }
}

fn listed(content: &str) -> Result<Vec<WorkloadEntry<'_>>, EntryError> {
    let list: Bounded<&RawValue> = serde_json::from_str(content).map_err(|error| EntryError {
        line: error.line(),
        reason: format!("column {}, in the list of prompts: {}", error.column(), words(&error)),
    })?;
    let (mut line, mut at) = (1, 0);
    let place = |entry: &'_ RawValue| {
        // The entries are slices of the content, in order.
        let start = (entry.get().as_ptr() as usize).saturating_sub(content.as_ptr() as usize);
        line += content.get(at..start).map_or(0, |between| between.matches('\n').count());
        at = start;
        line
    };
    let lines: Vec<usize> = list.0.iter().copied().map(place).collect();
    Ok(lines.into_iter().zip(list.0).map(|(line, entry)| WorkloadEntry { line, json: entry.get().into() }).collect())
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(JsonElements(PhantomData))
    }
}

struct JsonElements<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for JsonElements<T> {
    type Value = Bounded<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Bounded<T>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            if elements.len() == MOST {
                return Err(A::Error::custom(format!("more than {MOST} entries: split the file")));
            }
            elements.push(element);
        }
        Ok(Bounded(elements))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Checks the entries of a text: the line on which each starts, and its content.
    fn check(content: &str, expected: &[(usize, &str)]) {
        let found = entries(Path::new("p.jsonl"), content).unwrap_or_else(|wrong| panic!("{content:?}: {wrong:?}"));
        let found: Vec<(usize, &str)> = found.iter().map(|entry| (entry.line, entry.json.trim_end())).collect();
        assert_eq!(found, expected, "{content:?}");
    }

    #[test]
    fn lines_and_lists_are_distinguished_and_keep_their_places() {
        check("{\"a\":1}\r\n\n{\"b\":2}", &[(1, "{\"a\":1}"), (3, "{\"b\":2}")]);
        check("\u{feff}[\n  {\"a\":\n 1}, {\"b\":2},\n\n{}]\n", &[(2, "{\"a\":\n 1}"), (3, "{\"b\":2}"), (5, "{}")]);
        check("", &[]);
        check("[]", &[]);
    }

    #[test]
    fn an_error_has_the_place_in_the_file() {
        let entries = |content| entries(Path::new("p.jsonl"), content);
        let broken = entries("[\n{},\n{").map(|_| ()).expect_err("a list that does not end");
        assert_eq!(broken.line, 3);
        let two = entries("[{},\n{\"a\":\n  b}]").map(|_| ()).expect_err("a word that is none");
        assert_eq!(
            (two.line, two.reason.split(',').take(2).collect::<Vec<_>>().join(",").as_str()),
            (3, "column 3, in the list of prompts: not JSON")
        );
        let lines = entries("{}\n{\"a\": 1,}").expect("two lines");
        let wrong = lines[1].read::<Value>().expect_err("a comma too many");
        assert_eq!((wrong.line, wrong.reason.split(',').next()), (2, Some("column 9: not JSON")));
    }

    #[test]
    fn a_file_has_limits_and_an_encoding() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("prompts.jsonl");
        std::fs::write(&path, b"{}\n{}\n{\"a\": \"\xff\"}").expect("a file");
        let words = read(&path).expect_err("no UTF-8").to_string();
        assert!(words.contains("prompts.jsonl, line 3: not UTF-8"), "{words}");
        std::fs::File::create(&path).and_then(|file| file.set_len(LARGEST + 1)).expect("a file of nothing");
        let words = read(&path).expect_err("too large").to_string();
        assert!(words.contains("larger than 1024 MiB"), "{words}");
        let entries = |content| entries(Path::new("p.jsonl"), content);
        let long = format!("{{}}\n\"{}\"", "a".repeat(LONGEST));
        assert_eq!(entries(long.as_str()).expect_err("a line too long").line, 2);
        let many = "0\n".repeat(MOST + 1);
        assert_eq!(entries(many.as_str()).expect_err("too many").line, MOST + 1);
    }
}
