//! The format of a file of prompts, by its content, and its entries as JSON: JSON Lines, a JSON
//! list, plain text with one prompt per line, or CSV with a header.

use std::{borrow::Cow, path::Path};

use schemas::quoting::quoted;
use serde_json::{Map, Value};

use super::entry::{EntryError, MOST, WorkloadEntry};
use crate::files::date;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptFormat {
    /// One JSON value per line, or one list of them.
    Json,
    /// One prompt per line.
    Text,
    /// A header, and one record per row, separated by this byte.
    Csv(u8),
}

/// Columns of CSV files whose numbers are read: name in lower case, and the field that it becomes.
const NUMBERS: [(&str, &str); 10] = [
    ("timestamp", "timestamp"),
    ("arrival_s", "arrival_s"),
    ("arrival_ms", "arrival_ms"),
    ("input_length", "input_length"),
    ("output_length", "output_length"),
    // slime
    ("response_length", "output_length"),
    // BurstGPT
    ("request tokens", "input_length"),
    ("response tokens", "output_length"),
    // Azure's traces of language models
    ("contexttokens", "input_length"),
    ("generatedtokens", "output_length"),
];
/// Columns of CSV files whose texts are read.
const TEXTS: [&str; 5] = ["prompt", "text", "instruction", "input", "question"];

/// Why bytes are not a text format, if their first ones say so, and what to do.
pub fn refusal(path: &Path, bytes: &[u8]) -> Option<String> {
    let name = path.display().to_string();
    let stem = path.file_stem().map_or_else(|| "prompts".into(), |stem| stem.to_string_lossy().into_owned());
    if bytes.starts_with(b"PAR1") {
        let code = format!(
            "import pandas; pandas.read_parquet({}).to_json({}, orient='records', lines=True, force_ascii=False)",
            python(&name),
            python(&format!("{stem}.jsonl")),
        );
        return Some(format!(
            "a Parquet file: convert it to {stem}.jsonl with python3 -c {} (needs pandas and pyarrow)",
            quoted(&code)
        ));
    }
    let unpack = match bytes {
        [0x1f, 0x8b, ..] => "gzip -d",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd -d",
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => "xz -d",
        [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', ..] => "bzip2 -d",
        [0x04, 0x22, 0x4d, 0x18, ..] => "lz4 -d",
        [b'P', b'K', 3, 4, ..] => "unzip",
        _ => return None,
    };
    Some(match (name.as_str(), unpack) {
        ("-", "unzip") => "a zip archive: unpack it and give the file in it".to_owned(),
        ("-", _) => format!("compressed: unpack it on its way, with `{unpack}c |`"),
        (_, "unzip") => format!("a compressed file: unpack it with unzip {}", quoted(&name)),
        // The packed file is kept.
        _ => format!("a compressed file: unpack it with {unpack}k {}", quoted(&name)),
    })
}

impl PromptFormat {
    /// The format of a text. The first characters decide, or the header; the ending of the name
    /// where they may mean both.
    pub fn from_path(path: &Path, content: &str) -> Self {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        match ending.as_deref() {
            Some("txt" | "text") => return Self::Text,
            Some("json" | "jsonl" | "ndjson") => return Self::Json,
            Some("csv") => return Self::Csv(b','),
            Some("tsv") => return Self::Csv(b'\t'),
            _ => {}
        }
        let start = content.trim_start();
        let second = start.get(1..).and_then(|rest| rest.trim_start().chars().next());
        match start.chars().next() {
            // "{name}, …" and "[INST] …" are texts.
            None => Self::Json,
            Some('{') if second.is_none_or(|next| matches!(next, '"' | '}')) => Self::Json,
            Some('[') if second.is_none_or(|next| matches!(next, '{' | '[' | '"' | ']')) => Self::Json,
            Some(_) => {
                let header = start.lines().next().unwrap_or_default();
                let separators = [b',', b'\t'];
                separators.into_iter().find(|by| is_header(header, *by)).map_or(Self::Text, Self::Csv)
            }
        }
    }
}

/// Whether a line is the header of a table that is understood: two columns or more, one of them
/// known.
fn is_header(line: &str, separator: u8) -> bool {
    let names: Vec<String> = line.split(char::from(separator)).map(column).collect();
    let known = |name: &String| TEXTS.contains(&name.as_str()) || NUMBERS.iter().any(|(known, _)| known == name);
    names.len() > 1 && names.iter().all(|name| name.len() < 40) && names.iter().any(known)
}

/// The name of a column as it is compared.
fn column(name: &str) -> String {
    name.trim().trim_matches('"').trim_start_matches('\u{feff}').to_ascii_lowercase()
}

/// The lines of a plain text that are not blank.
pub fn lines(content: &str) -> Vec<WorkloadEntry<'static>> {
    let lines = content.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).take(MOST + 1);
    lines
        .map(|(at, line)| WorkloadEntry { line: at + 1, json: Cow::Owned(object([("prompt", Value::from(line))])) })
        .collect()
}

/// The rows of a table as objects with the known columns.
///
/// # Errors
/// When the header has no known column, or a row is malformed.
pub fn rows(content: &str, separator: u8) -> Result<Vec<WorkloadEntry<'static>>, EntryError> {
    let mut reader = csv::ReaderBuilder::new().delimiter(separator).from_reader(content.as_bytes());
    let wrong = |error: &csv::Error| {
        let line = error.position().map_or(1, |place| usize::try_from(place.line()).unwrap_or(usize::MAX));
        let reason = match error.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!("a row of {len} columns, where the header has {expected_len}")
            }
            _ => "not a row of CSV".into(),
        };
        EntryError { line, reason }
    };
    let header: Vec<String> = reader.headers().map_err(|error| wrong(&error))?.iter().map(column).collect();
    let field = |name: &str| NUMBERS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field);
    if !header.iter().any(|name| TEXTS.contains(&name.as_str()) || field(name).is_some()) {
        let reason = format!(
            "no known column in the header: expected one of {}, or the columns of a trace, such as BurstGPT's Timestamp, \
             Request tokens and Response tokens, or Azure's TIMESTAMP, ContextTokens and GeneratedTokens",
            TEXTS.join(", ")
        );
        return Err(EntryError { line: 1, reason });
    }
    // BurstGPT's times are seconds; in the same column of another table they may be milliseconds.
    let has = |column: &str| header.iter().any(|name| name == column);
    let seconds = has("request tokens");
    let counts_failed = seconds || has("generatedtokens");
    let mut entries = Vec::new();
    for row in reader.records().take(MOST + 1) {
        let row = row.map_err(|error| wrong(&error))?;
        let line = row.position().map_or(1, |place| usize::try_from(place.line()).unwrap_or(usize::MAX));
        let mut fields = Vec::new();
        for (name, value) in header.iter().zip(&row) {
            match field(name) {
                Some("timestamp") if seconds => fields.push(("arrival_s", number(value, name, line)?)),
                Some(_) if value.trim().is_empty() => {}
                // A date has a unit of its own, which the trace knows.
                Some("timestamp") if date::seconds(value).is_some() => fields.push(("timestamp", value.into())),
                Some(field) => fields.push((field, number(value, name, line)?)),
                None => fields.extend(TEXTS.iter().find(|known| *known == name).map(|known| (*known, value.into()))),
            }
        }
        // BurstGPT and Azure record requests that failed as ones without a response.
        let failed =
            counts_failed && fields.iter().any(|(name, value)| *name == "output_length" && value == &Value::from(0));
        if failed {
            fields.push(("failed", true.into()));
        }
        entries.push(WorkloadEntry { line, json: Cow::Owned(object(fields)) });
    }
    Ok(entries)
}

fn number(value: &str, name: &str, line: usize) -> Result<Value, EntryError> {
    let text = value.trim();
    let whole = text.parse::<u64>().map(Value::from).ok();
    let number = whole.or_else(|| {
        let real = text.parse::<f64>().ok().filter(|real| real.is_finite())?;
        // Exports of data frames write whole numbers as 12.0.
        let whole = real >= 0.0 && real.fract() == 0.0 && real < 1e15;
        Some(if whole { Value::from(real as u64) } else { Value::from(real) })
    });
    number.ok_or_else(|| EntryError { line, reason: format!("column {name:?}: expected a number, found {text:?}") })
}

fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> String {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
    Value::Object(fields.collect::<Map<String, Value>>()).to_string()
}

/// A text as a literal of Python.
fn python(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_format_is_known_by_the_content() {
        let check = |name: &str, content: &str, expected: PromptFormat| {
            assert_eq!(PromptFormat::from_path(Path::new(name), content), expected, "{name}: {content}");
        };
        check("p", "{\"prompt\": \"a\"}", PromptFormat::Json);
        check("p", "\n [\n{\"prompt\": \"a\"}]", PromptFormat::Json);
        check("p", "[\"a\", \"b\"]", PromptFormat::Json);
        check("p.jsonl", "def a", PromptFormat::Json);
        check("p", "def a\ndef b", PromptFormat::Text);
        check("p", "[INST] a [/INST]", PromptFormat::Text);
        check("p", "{name}, hello", PromptFormat::Text);
        check("p.txt", "{\"prompt\": \"a\"}", PromptFormat::Text);
        check("p", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n", PromptFormat::Csv(b','));
        check("p", "instruction\tinput\toutput\n", PromptFormat::Csv(b'\t'));
        check("p", "Write a prompt, please.\n", PromptFormat::Text);
        check("p.csv", "question,answer\n", PromptFormat::Csv(b','));
    }

    fn table(content: &str) -> Vec<(usize, String)> {
        let rows = rows(content, b',').unwrap_or_else(|wrong| panic!("{content}: {wrong:?}"));
        rows.into_iter().map(|entry| (entry.line, entry.json.into_owned())).collect()
    }

    #[test]
    fn burstgpt_has_seconds_and_lengths() {
        let content = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
                       5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087.0,230,1317,API log\n\
                       46,GPT-4,9,0,9,API log\n";
        assert_eq!(
            table(content),
            [
                (2, r#"{"arrival_s":5,"input_length":472,"output_length":18}"#.to_owned()),
                (3, r#"{"arrival_s":45.5,"input_length":1087,"output_length":230}"#.to_owned()),
                (4, r#"{"arrival_s":46,"input_length":9,"output_length":0,"failed":true}"#.to_owned()),
            ]
        );
    }

    #[test]
    fn azure_has_dates_and_lengths() {
        let content = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,4808,10\n\
                       2023-11-16 18:15:47.6805900,110,0\n";
        assert_eq!(
            table(content),
            [
                (2, r#"{"timestamp":"2023-11-16 18:15:46.6805900","input_length":4808,"output_length":10}"#.to_owned()),
                (
                    3,
                    r#"{"timestamp":"2023-11-16 18:15:47.6805900","input_length":110,"output_length":0,"failed":true}"#
                        .to_owned()
                ),
            ]
        );
    }

    #[test]
    fn quoted_fields_may_have_line_ends() {
        let content = "instruction,input,output\n\"a\nb\",,x\n\"say \"\"c\"\"\",\"d, e\",y\n";
        assert_eq!(
            table(content),
            [
                (2, r#"{"instruction":"a\nb","input":""}"#.to_owned()),
                (4, r#"{"instruction":"say \"c\"","input":"d, e"}"#.to_owned()),
            ]
        );
    }

    #[test]
    fn a_bad_row_is_named_with_its_line() {
        for (content, line, reason) in [
            ("a,b\n1,2\n", 1, "no known column in the header"),
            ("prompt,x\na,1\nb\n", 3, "a row of 1 columns, where the header has 2"),
            ("Timestamp,Request tokens\nsoon,4\n", 2, "column \"timestamp\": expected a number, found \"soon\""),
        ] {
            let wrong = rows(content, b',').map(|_| ()).expect_err(content);
            assert_eq!(wrong.line, line, "{content}");
            assert!(wrong.reason.contains(reason), "{content}: {}", wrong.reason);
        }
    }

    #[test]
    fn binary_formats_are_refused_with_the_line_that_converts_them() {
        let words = refusal(Path::new("data/train 0.parquet"), b"PAR1....").expect("refused");
        assert!(
            words.contains(
                "python3 -c 'import pandas; pandas.read_parquet(\"data/train 0.parquet\").to_json(\"train 0.jsonl\""
            ),
            "{words}"
        );
        assert!(
            refusal(Path::new("p.jsonl.gz"), &[0x1f, 0x8b, 8])
                .is_some_and(|words| words.contains("gzip -dk p.jsonl.gz"))
        );
        assert_eq!(refusal(Path::new("p"), b"{}"), None);
    }

    proptest! {
        #[test]
        fn no_table_panics(content in "[a-b,\"\n\r tmorp;0-9]{0,60}") {
            let _ = rows(&format!("prompt,timestamp\n{content}"), b',');
            let _ = rows(&content, b'\t');
            let _ = PromptFormat::from_path(Path::new("p"), &content);
        }
    }
}
