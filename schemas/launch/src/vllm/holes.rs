//! JSON with values that are set elsewhere.

use serde_json::{Map, Value as Json};

use crate::{Value, placeholder::has_ellipsis};

/// Represents a value that is set elsewhere.
const HOLE: char = '\u{fffc}';

/// ShellQuotes of a shell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShellQuotes {
    None,
    Single,
    Double,
}

/// The JSON object of a word; unknown values contain [`HOLE`].
pub(super) fn object(word: &Value) -> Option<Map<String, Json>> {
    match word {
        Value::Known(text) => serde_json::from_str(text).ok(),
        Value::Unknown(text) => {
            let text = if text.trim_start().starts_with('{') { text.clone() } else { without_quotes(text)? };
            serde_json::from_str(&marked(&text)?).ok()
        }
    }
}

/// Whether a part of a text is unknown.
pub(super) fn has_hole(text: &str) -> bool {
    text.contains(HOLE) || has_ellipsis(text)
}

/// A shell word without its quotes; expansions stay.
fn without_quotes(word: &str) -> Option<String> {
    let mut text = String::with_capacity(word.len());
    let mut quotes = ShellQuotes::None;
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quotes, letter) {
            (ShellQuotes::None, '\'') => quotes = ShellQuotes::Single,
            (ShellQuotes::None, '"') => quotes = ShellQuotes::Double,
            (ShellQuotes::Single, '\'') | (ShellQuotes::Double, '"') => quotes = ShellQuotes::None,
            (ShellQuotes::Single, '$') => return None,
            (ShellQuotes::None, '\\') => text.extend(letters.next()),
            (ShellQuotes::Double, '\\') => match letters.peek() {
                Some('"' | '\\' | '$' | '`') => text.extend(letters.next()),
                _ => text.push('\\'),
            },
            _ => text.push(letter),
        }
    }
    (quotes == ShellQuotes::None).then_some(text)
}

/// JSON with a [`HOLE`] for each expansion of the shell, quoted unless it is inside a string.
/// `None` if the extent of an expansion is unclear.
fn marked(text: &str) -> Option<String> {
    let mut json = String::with_capacity(text.len());
    let (mut in_text, mut rest) = (false, text);
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        match letter {
            '`' => return None,
            '\\' if in_text => {
                json.push(letter);
                let next = rest.chars().next()?;
                json.push(next);
                rest = &rest[next.len_utf8()..];
            }
            '$' => {
                rest = behind_name(rest)?;
                if in_text {
                    json.push(HOLE);
                } else {
                    json.extend(['"', HOLE, '"']);
                }
            }
            _ => {
                in_text ^= letter == '"';
                json.push(letter);
            }
        }
    }
    Some(json)
}

/// The text after a variable's name, given the text after its `$`.
fn behind_name(text: &str) -> Option<&str> {
    if let Some(inside) = text.strip_prefix('{') {
        let (name, rest) = inside.split_once('}')?;
        return (!name.contains(['"', '{', '\''])).then_some(rest);
    }
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(text.len());
    (end > 0).then(|| &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_elsewhere_hides_its_own_value_alone() {
        for (word, expected) in [
            (
                r#""{\"method\": \"$M\", \"num_speculative_tokens\": 3}""#,
                Some(r#"{"method":"?","num_speculative_tokens":3}"#),
            ),
            (
                r#""{\"method\": \"mtp\", \"num_speculative_tokens\": ${N:-3}}""#,
                Some(r#"{"method":"mtp","num_speculative_tokens":"?"}"#),
            ),
            (r#"'{"model": "'"$DRAFT"'", "method": "eagle3"}'"#, Some(r#"{"model":"?","method":"eagle3"}"#)),
            (r#"'{"model": "'$DRAFT/head'"}'"#, Some(r#"{"model":"?/head"}"#)),
            (r#"{"model": "${DRAFT}"}"#, Some(r#"{"model":"?"}"#)),
            (r#""{\"method\": \"mtp\" $MORE}""#, None),
            (r#""{\"method\": \"mtp\", $MORE}""#, None),
            (r#""{\"method\": \"$(cat m)\"}""#, None),
            (r#"'{"model": "$DRAFT"}'$MORE"#, None),
            ("$SPEC", None),
            ("\"$SPEC\"", None),
            ("\"{", None),
        ] {
            let object = object(&Value::Unknown(word.into())).map(|object| Json::Object(object).to_string());
            assert_eq!(object.map(|json| json.replace(HOLE, "?")).as_deref(), expected, "{word}");
        }
    }
}
