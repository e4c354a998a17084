//! Comments that a site's generator takes out of the commands of a page: numbers of annotations, marks of highlighted lines.

use schemas::text::Source;

/// Whether the rest of a line is such a comment, after a backslash or by itself: `# (1)!`, `# <1>`, `# highlight-next-line`,
/// `# [!code focus]`.
pub(super) fn is_annotation(rest: &str) -> bool {
    let text = rest.trim().trim_start_matches('\\').trim();
    let Some(comment) = text.strip_prefix('#').map(str::trim) else { return false };
    let numbered = |open: char, close: char| {
        let number = comment.strip_prefix(open).and_then(|rest| rest.trim_end_matches('!').strip_suffix(close));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    numbered('(', ')')
        || numbered('<', '>')
        || comment.starts_with("highlight-")
        || comment.starts_with("[!code")
        || comment.starts_with("!mark")
}

/// Whether what follows a flag is a word for the reader that a shell takes for a comment: `--tp #GPUs`.
pub(super) fn follows(source: &Source, at: usize) -> bool {
    let rest = source.text().get(at..).unwrap_or_default();
    let word = rest.trim_start_matches([' ', '\t']).strip_prefix('#').filter(|_| rest.starts_with([' ', '\t']));
    word.is_some_and(|word| word.starts_with(|letter: char| letter.is_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_told_from_comments() {
        for text in ["# (1)!", "\\ # (12)", "# <3>", "# highlight-next-line", "# [!code ++]"] {
            assert!(is_annotation(text), "{text}");
        }
        for text in ["", "\\", "\\ ", "# the port", "# (see below)", "\\ # tp", "x", "# 1"] {
            assert!(!is_annotation(text), "{text}");
        }
    }
}
