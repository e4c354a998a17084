//! Quoting of words for a shell.

/// A word as a shell must read it: in single quotes where it holds anything that a shell would act on.
pub fn quoted(word: &str) -> String {
    if is_plain(word) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Whether a word holds nothing that a shell would act on.
pub fn is_plain(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=./:,@%+".contains(&byte);
    !word.is_empty() && word.bytes().all(plain)
}
