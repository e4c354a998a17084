//! The width of comments.

use std::path::Path;

use super::{files, read};

/// Columns that a comment may use.
const WIDTH: usize = 100;

#[test]
fn comments_fit_within_a_hundred_columns() {
    let sources = [".rs", ".cu", ".cuh"].map(|ending| files("", ending)).concat();
    let sources = sources.into_iter().filter(|path| !path.starts_with("fuzz/corpus"));
    let wrong: Vec<String> = sources.flat_map(|path| too_wide(&path, &read(&path))).collect();
    assert!(wrong.is_empty(), "wrap these comments at {WIDTH} columns:\n{}", wrong.join("\n"));
}

#[test]
fn no_source_is_empty() {
    let sources = [".rs", ".cu", ".cuh"].map(|ending| files("", ending)).concat();
    let empty: Vec<_> = sources.iter().filter(|path| read(path).trim().is_empty()).collect();
    assert!(empty.is_empty(), "remove these files: {empty:?}");
}

/// The comments of a source that are too wide and can be wrapped: not blocks of code, rows of
/// tables and titles, and not what is too wide by itself.
fn too_wide(path: &Path, text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut wrong = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some(comment) = comment(line) else {
            in_code = false;
            continue;
        };
        let is_fence = comment.trim_start().starts_with("```");
        in_code ^= is_fence;
        let stays = is_fence || in_code || comment.starts_with(['|', '#']);
        let margin = line.chars().count() - comment.chars().count();
        if !stays && line.chars().count() > WIDTH && margin + longest_word(comment) <= WIDTH {
            wrong.push(format!("{}:{}", path.display(), at + 1));
        }
    }
    wrong
}

/// The text of a line that is only a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    let text = text.trim_start_matches(['/', '!']);
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// Length of the longest part that cannot be broken: a word, or code between backticks.
fn longest_word(text: &str) -> usize {
    let (mut longest, mut length, mut in_code) = (0, 0, false);
    for letter in text.chars() {
        in_code ^= letter == '`';
        length = if letter == ' ' && !in_code { 0 } else { length + 1 };
        longest = longest.max(length);
    }
    longest
}

#[test]
fn only_what_cannot_be_wrapped_may_be_wide() {
    let words = "word ".repeat(30);
    let check = |text: &str| too_wide(Path::new("a.rs"), text).len();
    assert_eq!(check(&format!("/// {words}")), 1);
    assert_eq!(check(&format!("let a = 1; // {words}")), 0, "not only a comment");
    assert_eq!(check(&format!("/// ```\n/// {words}\n/// ```\n    //! {words}")), 1);
    assert_eq!(check(&format!("// | {words} |\n/// # {words}")), 0);
    assert_eq!(check(&format!("/// At https://example.com/{}", "a".repeat(100))), 0);
    assert_eq!(check(&format!("/// `{words}`")), 0);
    assert_eq!(check(&format!("/// `a` {words}`b`")), 1);
}
