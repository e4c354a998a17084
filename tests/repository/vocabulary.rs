//! Phrases that `docs/style.md` rules out.

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
