//! Valid names of models and revisions on the Hugging Face hub.

use schemas::model::is_plain_name;

/// Whether a text can be the id of a model on the hub: `name` or `organisation/name`.
pub fn is_id(text: &str) -> bool {
    let mut parts = text.split('/');
    let (first, second, third) = (parts.next(), parts.next(), parts.next());
    third.is_none() && first.is_some_and(is_plain_name) && second.is_none_or(is_plain_name)
}

/// Whether a text can be a revision (a branch such as `refs/pr/1`, a tag or a commit), and cannot
/// lead out of the folder.
pub(crate) fn is_revision(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/');
    !text.is_empty()
        && text.len() < 256
        && text.bytes().all(plain)
        && !text.split('/').any(|part| part.starts_with('.'))
        && !text.starts_with('/')
}
