//! Phrases that `docs/style.md` rules out.

use std::path::PathBuf;

use super::{files, read};

/// A phrase that no Rust source and no page may contain, and its replacement.
type Phrase = (&'static str, &'static str);

const PHRASES: &[Phrase] = &[
    ("nobody", "no one; better the actor: \"no request\""),
    ("somebody", "someone; better the actor"),
    ("that which", "what"),
    ("so many", "N, this many, that many"),
    ("so much", "this much, that much"),
    ("is no format", "is not a format"),
    ("is no toml", "is not TOML"),
    ("has no sense", "is invalid"),
    ("without sense", "invalid"),
    ("the begin", "the start, the beginning"),
    ("comes by", "visits"),
    ("is asked for", "is requested; `--flag` is given"),
    ("are asked for", "are requested"),
];

#[test]
fn phrases_that_are_out_occur_nowhere() {
    let texts: Vec<(String, String)> = [files("", ".rs"), files("", ".md")]
        .concat()
        .into_iter()
        .filter(|path| !["tests/data", "tests/repository", "fuzz/corpus"].iter().any(|folder| path.starts_with(folder)))
        .filter(|path| path.as_os_str() != "docs/style.md")
        .map(|path| (path.display().to_string(), read(&path).to_lowercase()))
        .collect();
    let mut wrong = Vec::new();
    for (phrase, instead) in PHRASES {
        let places: Vec<&str> =
            texts.iter().flat_map(|(path, text)| std::iter::repeat_n(path.as_str(), count(text, phrase))).collect();
        if !places.is_empty() {
            let shown = places.iter().take(20).copied().collect::<Vec<_>>().join(", ");
            wrong.push(format!("'{phrase}' occurs {} times: write {instead}. In {shown}", places.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Words that no identifier contains, split at `_` and at capitals.
const WORDS: &[Phrase] = &[
    ("asked", "requested, given"),
    ("beside", "next to, with"),
    ("mended", "fixed"),
    ("nobody", "no one, unused"),
    ("somebody", "someone"),
    ("told", "stated, detected, given"),
    ("untold", "unknown"),
];

/// Names that say nothing of what a type holds.
const TYPES: &[Phrase] = &[
    ("Asked", "ExportRequest, Request"),
    ("Found", "what was found, such as PythonCommand"),
    ("Gone", "Removed"),
    ("Look", "what is looked at, such as NodeContent"),
    ("Told", "Certainty, EngineMatch"),
    ("Wanted", "Expected"),
    ("Way", "Branch, Path"),
    ("Whose", "Owner, Scope"),
    ("Wrong", "FieldError"),
];

#[test]
fn identifiers_are_made_of_plain_words() {
    let mut wrong = Vec::new();
    for path in sources() {
        let text = read(&path);
        for identifier in identifiers(&text) {
            let parts = parts(identifier);
            let out = WORDS.iter().find(|(word, _)| parts.iter().any(|part| part == word));
            let out = out.or_else(|| TYPES.iter().find(|(name, _)| *name == identifier));
            wrong.extend(out.map(|(_, instead)| format!("{}: `{identifier}`: write {instead}", path.display())));
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The sources whose identifiers are checked: all but this file, which names the words.
fn sources() -> impl Iterator<Item = PathBuf> {
    files("", ".rs").into_iter().filter(|path| path.as_os_str() != "tests/repository/vocabulary.rs")
}

/// The identifiers of a source, without comments and strings.
fn identifiers(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            'r' if rest.starts_with("r#\"") => rest.find("\"#").map_or(rest.len(), |end| end + 2),
            '"' => {
                let mut escaped = true;
                let end = rest.bytes().position(|byte| {
                    let ends = byte == b'"' && !escaped;
                    escaped = byte == b'\\' && !escaped;
                    ends
                });
                end.map_or(rest.len(), |end| end + 1)
            }
            // A quote as a character is not the start of a string.
            '\'' if rest.starts_with("'\"'") => 3,
            '\'' if rest.starts_with("'\\''") => 4,
            _ if first.is_alphabetic() || first == '_' => {
                let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
                found.push(&rest[..end]);
                end
            }
            _ => first.len_utf8(),
        };
        rest = &rest[skipped..];
    }
    found
}

/// The words of an identifier, in lower case.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for letter in identifier.chars() {
        if letter == '_' || letter.is_uppercase() {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| letter != '_') {
            part.extend(letter.to_lowercase());
        }
    }
    parts
}

#[test]
fn identifiers_are_split_into_words() {
    assert_eq!(identifiers("let a_b = \"told\"; // told\nf('\"', Told)"), ["let", "a_b", "f", "Told"]);
    assert_eq!(parts("isToldOf_it").join(" "), "is told of it");
}

/// Number of occurrences of a phrase as whole words.
fn count(text: &str, phrase: &str) -> usize {
    let is_word = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(phrase)
        .filter(|(at, _)| {
            let (before, after) = (&text[..*at], &text[at + phrase.len()..]);
            !is_word(before.chars().next_back()) && !is_word(after.chars().next())
        })
        .count()
}

#[test]
fn whole_words_are_counted() {
    assert_eq!(count("so many trees, so manyfold; also many", "so many"), 1);
    assert_eq!(count("nobody's, nobody_else, nobody", "nobody"), 2);
}
