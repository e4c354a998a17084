//! Parses the comments that suppress findings.

use std::ops::Range;

use schemas::text::{Source, Span};

use crate::rules::Selector;

/// Maximum number of comments that are read in a text; a text with more was not written by hand.
const MOST_COMMENTS: usize = 1024;

/// Maximum number of selectors of one comment.
const MOST_ENTRIES: usize = 64;

/// Maximum number of selectors of a text: each is compared with every rule.
const MOST_SELECTORS: usize = 2048;

/// Maximum number of wrong selectors of a text for which a correction is suggested: each is
/// compared with every name.
const MOST_GUESSES: usize = 64;

/// A comment that suppresses findings.
#[derive(Debug)]
pub(super) struct Comment {
    /// From its `#` to the end of the line.
    pub span: Span,
    /// The text between the brackets.
    pub list: Span,
    pub scope: SuppressionScope,
    pub entries: Vec<SuppressionEntry>,
    /// The parts that cannot be read, and why.
    pub wrong: Vec<(Span, String)>,
}

/// The lines in which it suppresses findings, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuppressionScope {
    File,
    /// The comment's own line.
    Line,
    /// Lines below the comment.
    Below {
        first: usize,
        last: usize,
    },
}

/// One selector of a list.
#[derive(Debug)]
pub(super) struct SuppressionEntry {
    pub selector: Selector,
    pub span: Span,
}

/// The comments of a text that suppress findings, in the order of the text.
pub(super) fn comments(source: &Source) -> Vec<Comment> {
    if !source.text().contains("spectune:") {
        return Vec::new();
    }
    let mut comments: Vec<Comment> = Vec::new();
    let mut selectors = 0;
    let mut guesses = 0..MOST_GUESSES;
    for span in launch::comments(source) {
        if comments.len() == MOST_COMMENTS || selectors > MOST_SELECTORS {
            break;
        }
        let above = comments.last().map(|comment| comment.scope);
        let comment = comment(source, span, above, &mut guesses);
        selectors += comment.iter().map(|comment| comment.entries.len() + comment.wrong.len()).sum::<usize>();
        comments.extend(comment);
    }
    comments
}

/// The suppression within a comment, if it contains one; `above` is the scope of the previous
/// suppression.
fn comment(
    source: &Source,
    whole: Span,
    above: Option<SuppressionScope>,
    guesses: &mut Range<usize>,
) -> Option<Comment> {
    let text = source.slice(whole);
    let (at, rest) = text.match_indices('#').find_map(|(at, _)| {
        let rest = text.get(at + 1..)?.trim_start().strip_prefix("spectune:")?.trim_start().strip_prefix("ignore")?;
        Some((at, rest))
    })?;
    let (file, rest) = match rest.strip_prefix("-file") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    // `ignored` and `ignore-me` are words of a sentence.
    if rest.starts_with(|next: char| next.is_alphanumeric() || next == '-') {
        return None;
    }
    let span = Span::new(whole.start + at, whole.end);
    let scope = if file { SuppressionScope::File } else { scope(source, span, above) };
    let mut comment =
        Comment { span, list: Span::new(span.end, span.end), scope, entries: Vec::new(), wrong: Vec::new() };
    let list = rest.trim_start().strip_prefix('[').and_then(|list| Some((list, list.find(']')?)));
    let Some((list, length)) = list else {
        comment.wrong.push((span, "a comment that suppresses says which rules, in brackets".into()));
        return Some(comment);
    };
    let start = whole.end - list.len();
    comment.list = Span::new(start, start + length);
    comment.read_list(list.get(..length).unwrap_or_default(), guesses);
    Some(comment)
}

impl Comment {
    fn read_list(&mut self, list: &str, guesses: &mut Range<usize>) {
        let mut at = self.list.start;
        for part in list.split(',').take(MOST_ENTRIES) {
            let word = part.trim();
            let start = at + (part.len() - part.trim_start().len());
            at += part.len() + 1;
            let span = Span::new(start, start + word.len());
            if word.is_empty() {
                continue;
            }
            let selector = Selector::known(word);
            // A correct selector needs no suggestion.
            match selector.or_else(|error| guesses.next().map_or(Err(error), |_| Selector::new(word))) {
                Ok(selector) => self.entries.push(SuppressionEntry { selector, span }),
                Err(error) => self.wrong.push((span, error.to_string())),
            }
        }
        if self.entries.is_empty() && self.wrong.is_empty() {
            self.wrong.push((self.span, "a comment that suppresses says which rules, in brackets".into()));
        }
    }
}

/// A comment after other text applies to its own line, a comment on a separate line to what follows
/// it.
fn scope(source: &Source, comment: Span, above: Option<SuppressionScope>) -> SuppressionScope {
    let text = source.text();
    let line_start = text.get(..comment.start).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
    let before = text.get(line_start..comment.start).unwrap_or_default().trim_start();
    if !(before.is_empty() || before.starts_with('#')) {
        return SuppressionScope::Line;
    }
    let mut first = source.position(comment.start).line;
    // Comments on consecutive lines apply to the same lines, which are searched once.
    if let Some(SuppressionScope::Below { first: below, .. }) = above
        && first < below
    {
        return above.unwrap_or(SuppressionScope::Line);
    }
    let mut lines = text.get(comment.end..).unwrap_or_default().split('\n').skip(1).peekable();
    first += 1;
    while lines.next_if(|line| line.trim_start().starts_with('#')).is_some() {
        first += 1;
    }
    let continued = lines.take_while(|line| line.trim_end().ends_with('\\')).count();
    SuppressionScope::Below { first, last: first + continued }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, scope: SuppressionScope, entries: &[&str], wrong: usize) {
        let source = Source::new("x.sh", text);
        let comments = comments(&source);
        let [comment] = comments.as_slice() else { panic!("one comment in {text}: {comments:?}") };
        let found: Vec<&str> = comment.entries.iter().map(|entry| source.slice(entry.span)).collect();
        assert_eq!((comment.scope, found.as_slice(), comment.wrong.len()), (scope, entries, wrong), "{text}");
    }

    #[test]
    fn a_comment_has_a_scope_and_selectors() {
        check("--a # spectune: ignore[SD081]", SuppressionScope::Line, &["SD081"], 0);
        check(
            "--a # why # spectune:ignore[sd081 , dtype-mismatch] because",
            SuppressionScope::Line,
            &["sd081", "dtype-mismatch"],
            0,
        );
        check(
            "# spectune: ignore[SD081]\n# more\na \\\n  b \\ \n c\nd",
            SuppressionScope::Below { first: 3, last: 5 },
            &["SD081"],
            0,
        );
        check("a\n # spectune: ignore-file[graph]\nb", SuppressionScope::File, &["graph"], 0);
        check("# spectune: ignore[SD081, SD999]", SuppressionScope::Below { first: 2, last: 2 }, &["SD081"], 1);
    }

    #[test]
    fn what_cannot_be_read_is_said_and_prose_is_left_alone() {
        for text in
            ["# spectune: ignore", "# spectune: ignore SD081", "# spectune: ignore[]", "# spectune: ignore[SD081"]
        {
            check(text, SuppressionScope::Below { first: 2, last: 2 }, &[], 1);
        }
        for text in ["# spectune: ignored", "# spectune: lint", "# ignore[SD081]", "echo 'x # spectune: ignore[SD081]'"]
        {
            assert!(comments(&Source::new("x.sh", text)).is_empty(), "{text}");
        }
    }
}
