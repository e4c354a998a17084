//! Phrases that `docs/style.md` rules out. Many are still there; there can only be fewer.

use super::{files, read};

/// A phrase, what to write instead, and how often it may still occur in Rust sources and pages. Lower the number when you
/// have taken some out.
type Phrase = (&'static str, &'static str, usize);

const PHRASES: &[Phrase] = &[
    ("nobody", "no one; better the actor: \"no request\"", 108),
    ("somebody", "someone; better the actor", 16),
    ("that which", "what", 7),
    ("so many", "N, this many, that many", 124),
    ("so much", "this much, that much", 8),
    ("is no tree", "is not a tree", 9),
    ("is no format", "is not a format", 6),
    ("is no toml", "is not TOML", 13),
    ("has no sense", "is invalid", 9),
    ("without sense", "invalid", 9),
    ("the begin", "the start, the beginning", 6),
    ("comes by", "visits", 7),
    ("is asked for", "is requested; `--flag` is given", 61),
    ("are asked for", "are requested", 27),
];

#[test]
fn phrases_that_are_out_only_become_fewer() {
    let texts: Vec<(String, String)> = [files("", ".rs"), files("", ".md")]
        .concat()
        .into_iter()
        .filter(|path| !["tests/data", "tests/repository", "fuzz/corpus"].iter().any(|folder| path.starts_with(folder)))
        .filter(|path| path.as_os_str() != "docs/style.md")
        .map(|path| (path.display().to_string(), read(&path).to_lowercase()))
        .collect();
    let mut wrong = Vec::new();
    for (phrase, instead, most) in PHRASES {
        let places: Vec<&str> =
            texts.iter().flat_map(|(path, text)| std::iter::repeat_n(path.as_str(), count(text, phrase))).collect();
        if places.len() > *most {
            let shown = places.iter().take(20).copied().collect::<Vec<_>>().join(", ");
            wrong
                .push(format!("'{phrase}' occurs {} times, at most {most}: write {instead}. In {shown}", places.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How often a phrase occurs as whole words.
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
