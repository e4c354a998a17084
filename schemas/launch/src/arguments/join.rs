//! Flags below a command that has ended: its line continuation is broken, or they are a list of
//! their own.

use std::collections::BTreeSet;

use schemas::{
    finding::Finding,
    text::{Source, Span},
};

use super::super::{
    command::{Field, ShellCommand},
    context::TextContext,
    placeholder, problems,
};
use super::flag_names;

/// Lines that start with a flag and follow another line continue it: a list of bare flags, one a
/// line, or a command whose continuation is broken.
pub(super) fn join_continued<'a>(
    source: &Source,
    context: &TextContext,
    lines: Vec<ShellCommand<'a>>,
) -> Vec<ShellCommand<'a>> {
    let mut joined: Vec<ShellCommand<'a>> = Vec::new();
    for line in lines {
        let follows = !line.is_variable && is_flag(line.words.first());
        let Some(before) = joined.last_mut().filter(|before| follows && !before.is_variable) else {
            joined.push(line);
            continue;
        };
        let (Some(last), Some(first)) = (before.words.last(), line.words.first()) else {
            joined.push(line);
            continue;
        };
        // One list of flags may be the other's alternative.
        let gap = Span::new(last.span.end, first.span.start);
        let is_list = is_flag(before.words.first());
        let is_behind = last.span.end <= first.span.start;
        // Flags by themselves, below an empty line of a page, are another thing to try.
        let is_other = || is_another(source.slice(gap)) && !context.is_script();
        if is_behind && ((is_list && is_apart(source.slice(gap), before, &line)) || (!is_list && is_other())) {
            joined.push(line);
            continue;
        }
        let between = || source.slice(gap).split('\n').map(str::trim);
        let adjacent = last.span.end <= first.span.start && between().all(ends_nothing);
        if !adjacent {
            joined.push(line);
            continue;
        }
        // One line end is representative of all.
        let is_cut = before.words.iter().any(|word| placeholder::is_ellipsis(word.value.written()));
        if !is_list && !is_cut && before.broken_at.is_none() {
            before.broken_at = Some(first.span);
        }
        before.words.extend(line.words);
        before.perhaps.extend(line.perhaps);
        before.branches.extend(line.branches);
        before.arrays.extend(line.arrays);
    }
    joined
}

/// Reports flags below a command that has ended.
pub(super) fn broken(first: Span) -> Finding {
    let message = "the command ends here, so the flags below are not part of it";
    let mut finding = problems::BROKEN_LINE.at(first, message, "run as a separate command").by_lines();
    finding.help = Some("end the line before with a backslash, and move comments out of the command".into());
    finding
}

/// Whether an empty line, or a comment if both contain the same flag, separates two lists of flags.
fn is_apart(gap: &str, before: &ShellCommand<'_>, line: &ShellCommand<'_>) -> bool {
    let between = lines_between(gap);
    between.contains(&"") || (!between.is_empty() && repeats(before, line))
}

/// Whether flags below a command are others to try: an empty line is between them, or a comment,
/// and no backslash.
fn is_another(gap: &str) -> bool {
    let between = lines_between(gap);
    between.contains(&"") || (!gap.contains('\\') && between.iter().any(|line| line.starts_with('#')))
}

/// The whole lines in what is between two words.
fn lines_between(gap: &str) -> Vec<&str> {
    let lines: Vec<&str> = gap.split('\n').map(str::trim).collect();
    lines.get(1..lines.len().saturating_sub(1)).unwrap_or_default().to_vec()
}

/// Whether two lists of flags have one in common.
fn repeats(before: &ShellCommand<'_>, line: &ShellCommand<'_>) -> bool {
    let flags = |line: &ShellCommand<'_>| -> BTreeSet<String> {
        let known = line.words.iter().filter_map(|word| word.value.known());
        known.filter(|text| flag_names::is_flag(text)).map(str::to_owned).collect()
    };
    !flags(before).is_disjoint(&flags(line))
}

/// Whether the rest of a line has no word: it is empty, a comment, or a line continuation.
fn ends_nothing(rest: &str) -> bool {
    matches!(rest, "" | "\\") || rest.starts_with('#')
}

/// Whether a word is written as a flag.
fn is_flag(word: Option<&Field<'_>>) -> bool {
    word.and_then(|word| word.value.known()).is_some_and(flag_names::is_flag)
}
