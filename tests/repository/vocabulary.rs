//! Phrases that `docs/style.md` rules out.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

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

/// Names with several definitions, on purpose.
const SHARED_NAMES: &[Phrase] = &[
    ("Arguments", "of each command"),
    ("DeltaWeights", "of a layer on a device, and the kernels' operands of all layers"),
];

#[test]
fn a_type_name_means_one_thing() {
    let mut places: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    let is_test = |path: &PathBuf| {
        path.components().any(|part| ["tests", "tests.rs", "examples"].iter().any(|name| part.as_os_str() == *name))
    };
    for path in sources().filter(|path| !is_test(path)) {
        let text = read(&path);
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        for name in code.lines().filter_map(defined_type) {
            places.entry(name.to_owned()).or_default().insert(path.clone());
        }
    }
    let shared = |name: &String| SHARED_NAMES.iter().any(|(shared, _)| shared == name);
    let wrong: Vec<String> = places
        .into_iter()
        .filter(|(name, files)| files.len() > 1 && !shared(name))
        .map(|(name, files)| format!("`{name}` is defined in {files:?}: say in each name what it is"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The name of the type that an unindented line of code defines.
fn defined_type(line: &str) -> Option<&str> {
    let line = line
        .strip_prefix("pub(crate) ")
        .or(line.strip_prefix("pub(super) "))
        .or(line.strip_prefix("pub "))
        .unwrap_or(line);
    let mut words = line.split(' ');
    ["struct", "enum", "trait", "type", "union"].contains(&words.next()?).then_some(())?;
    let name = words.next()?;
    Some(&name[..name.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(name.len())])
}

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
