//! Quoting of words for a shell.

/// A word quoted for a shell: in single quotes if it contains anything that a shell would
/// interpret.
pub fn quoted(word: &str) -> String {
    if is_plain(word) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Whether a word contains nothing that a shell, or GNU parallel (`:::`), would interpret.
pub fn is_plain(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=./:,@%+".contains(&byte);
    !word.is_empty() && word.bytes().all(plain) && !matches!(word, ":::" | "::::")
}
