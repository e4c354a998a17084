//! Rewrites error messages of the TOML and JSON parsers for authors of such files, without Rust
//! types.

use crate::text::{nearest, shortened};

/// An error message in parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct QuotedWords {
    /// What is wrong, in one sentence.
    pub message: String,
    /// A few words that are printed at the marked place.
    pub label: String,
    /// Additional information.
    pub notes: Vec<String>,
    /// What to do.
    pub help: Option<String>,
}

/// The language of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSyntax {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

impl FileSyntax {
    /// The name of a value that contains keys.
    fn table(self) -> &'static str {
        match self {
            Self::Toml => "a table",
            Self::Json => "an object in braces",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Toml => "TOML",
            Self::Json => "JSON",
        }
    }
}

/// Descriptions of types, by the names in serde's "expected" messages.
const TYPES: &[(&[&str], &str)] = &[
    (&["usize", "u64", "u32", "u16", "u8"], "a whole number of at least 0"),
    (&["i64", "i32", "i16", "i8", "isize"], "a whole number"),
    (&["f64", "f32"], "a number"),
    (&["a string", "string"], "a text in quotes"),
    (&["a boolean"], "true or false"),
    (&["a sequence"], "a list in brackets, such as [1, 2]"),
];

/// Rewrites the first line of an error of `toml` or `serde_json` (without its position); `text` is
/// the marked text.
pub fn quoted_words(line: &str, text: &str, syntax: FileSyntax) -> QuotedWords {
    unknown(line)
        .or_else(|| too_large(line, text))
        .or_else(|| wrong_type(line, syntax))
        .or_else(|| missing(line))
        .or_else(|| unquoted(line, text))
        .unwrap_or_else(|| QuotedWords {
            message: format!("this is not valid {}: {line}", syntax.name()),
            label: "here".into(),
            ..QuotedWords::default()
        })
}

/// An unknown key or word.
fn unknown(line: &str) -> Option<QuotedWords> {
    let (kind, rest) = line.strip_prefix("unknown ")?.split_once(" `")?;
    let (word, rest) = rest.split_once('`')?;
    // The backticks after it contain the known words.
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let list = known.join(", ");
    let help = nearest(word, &known).map(|near| format!("did you mean `{near}`?"));
    Some(match kind {
        "field" => QuotedWords {
            message: format!("unknown key `{word}`"),
            label: "no such key".into(),
            notes: if known.is_empty() { Vec::new() } else { vec![format!("known here: {list}")] },
            help,
        },
        _ => QuotedWords {
            message: format!("`{word}` is not one of {list}"),
            label: "no such word".into(),
            help,
            ..QuotedWords::default()
        },
    })
}

/// A whole number beyond what its key, or any key, can hold.
fn too_large(line: &str, text: &str) -> Option<QuotedWords> {
    let found = line.strip_prefix("invalid type: integer `").or_else(|| line.strip_prefix("invalid value: integer `"));
    let number = match found {
        Some(rest) => rest.split_once('`')?.0,
        None if line.contains("number overflowed") => text.trim(),
        None => return None,
    };
    let expected = line.rsplit_once(", expected ").map(|(_, name)| name);
    let is_expected = expected.is_none_or(|name| TYPES[..2].iter().any(|(names, _)| names.contains(&name)));
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    (is_number && is_expected).then(|| QuotedWords {
        message: format!("{} is too large", shortened(number)),
        label: "too large a number".into(),
        ..QuotedWords::default()
    })
}

/// A value of a wrong type.
fn wrong_type(line: &str, syntax: FileSyntax) -> Option<QuotedWords> {
    let rest = line.strip_prefix("invalid type: ").or_else(|| line.strip_prefix("invalid value: "))?;
    let (found, expected) = rest.split_once(", expected ")?;
    let expected = type_words(expected, syntax);
    Some(QuotedWords {
        message: format!("expected {expected}, found {}", found_words(found, syntax)),
        label: format!("expected {expected}"),
        ..QuotedWords::default()
    })
}

fn missing(line: &str) -> Option<QuotedWords> {
    let word = line.strip_prefix("missing field `")?.strip_suffix('`')?;
    Some(QuotedWords {
        message: format!("the key `{word}` is missing"),
        label: format!("`{word}` belongs here"),
        ..QuotedWords::default()
    })
}

/// A text without quotes, or text after a value.
fn unquoted(line: &str, text: &str) -> Option<QuotedWords> {
    line.starts_with("string values must be quoted").then(|| QuotedWords {
        message: match text.trim() {
            "" => "a value is missing or is not a TOML value".into(),
            text => format!("`{}` is not a TOML value", shortened(text)),
        },
        label: "here".into(),
        help: Some("write texts in quotes, several numbers as a list in brackets, and one value a key".into()),
        ..QuotedWords::default()
    })
}

fn type_words(expected: &str, syntax: FileSyntax) -> String {
    let known = TYPES.iter().find(|(names, _)| names.contains(&expected)).map(|(_, words)| *words);
    match known {
        Some(words) => words.to_owned(),
        // The name of a Rust type means nothing to the user.
        None if expected.starts_with("struct ") || expected == "a map" => syntax.table().into(),
        None if expected.starts_with("enum ") => "one of a few words".into(),
        None => expected.to_owned(),
    }
}

fn found_words(found: &str, syntax: FileSyntax) -> String {
    let inner = |prefix: &str, mark: char| found.strip_prefix(prefix)?.strip_prefix(mark)?.strip_suffix(mark);
    if let Some(text) = inner("string ", '"') {
        return format!("the text \"{text}\"");
    }
    for kind in ["integer ", "floating point ", "boolean "] {
        // The type follows a number of more than 64 bits.
        let wide = || Some(found.strip_prefix(kind)?.strip_prefix('`')?.split_once("` as ")?.0);
        if let Some(value) = inner(kind, '`').or_else(wide) {
            return value.to_owned();
        }
    }
    match found {
        "sequence" => "a list".into(),
        "map" => syntax.table().into(),
        "null" | "unit value" => "nothing".into(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, text: &str, message: &str, help: Option<&str>) {
        let words = quoted_words(line, text, FileSyntax::Toml);
        assert_eq!((words.message.as_str(), words.help.as_deref()), (message, help), "{line}");
    }

    #[test]
    fn errors_are_stated_in_the_words_of_a_file() {
        check(
            "unknown field `num_step`, expected one of `num_steps`, `topk`, `num_draft_tokens`",
            "num_step",
            "unknown key `num_step`",
            Some("did you mean `num_steps`?"),
        );
        check("unknown field `x`, there are no fields", "x", "unknown key `x`", None);
        check(
            "unknown variant `gird`, expected one of `grid`, `random`, `anneal`, `guided`",
            "\"gird\"",
            "`gird` is not one of grid, random, anneal, guided",
            Some("did you mean `grid`?"),
        );
        check(
            "invalid type: string \"3\", expected usize",
            "\"3\"",
            "expected a whole number of at least 0, found the text \"3\"",
            None,
        );
        check(
            "invalid value: integer `-3`, expected usize",
            "-3",
            "expected a whole number of at least 0, found -3",
            None,
        );
        check(
            "invalid type: integer `99999999999999999999` as i128, expected usize",
            "99999999999999999999",
            "99999999999999999999 is too large",
            None,
        );
        check("invalid value: integer `300`, expected u8", "300", "300 is too large", None);
        check("integer number overflowed", "9_9", "9_9 is too large", None);
        check("invalid type: integer `3`, expected a string", "3", "expected a text in quotes, found 3", None);
        check(
            "invalid type: integer `-99999999999999999999` as i128, expected usize",
            "-99999999999999999999",
            "expected a whole number of at least 0, found -99999999999999999999",
            None,
        );
        check("invalid type: sequence, expected struct Models", "[1]", "expected a table, found a list", None);
        check("missing field `algorithm`", "", "the key `algorithm` is missing", None);
        check(
            "string values must be quoted, expected literal string",
            "3 3",
            "`3 3` is not a TOML value",
            Some("write texts in quotes, several numbers as a list in brackets, and one value a key"),
        );
        let json = quoted_words("invalid type: map, expected a sequence", "", FileSyntax::Json);
        assert_eq!(json.message, "expected a list in brackets, such as [1, 2], found an object in braces");
        check("unclosed array, expected `]`", "[1", "this is not valid TOML: unclosed array, expected `]`", None);
    }
}
