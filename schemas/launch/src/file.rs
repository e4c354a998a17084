//! Reads our TOML launch files.

mod spans;

pub(super) use spans::parse;

use schemas::text::Source;

/// Whether a text whose name does not say so is TOML rather than shell, judging by its first line that is not a comment.
pub(super) fn looks_like_toml(source: &Source) -> bool {
    let line = source.text().lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    line.is_some_and(|line| {
        if line.starts_with('[') {
            return line.trim_end().ends_with(']') && !line.starts_with("[[ ") && !line.starts_with("[ ");
        }
        // A shell assignment has no blanks around its `=`.
        line.split_once('=').is_some_and(|(key, value)| {
            let bare = key.trim_end();
            !bare.is_empty()
                && bare.len() < key.len()
                && value.starts_with(' ')
                && bare.chars().all(|character| character.is_ascii_alphanumeric() || "_-.\"".contains(character))
        })
    })
}
