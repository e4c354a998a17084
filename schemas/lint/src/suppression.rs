//! Comments that suppress findings: `# spectune: ignore[SD081]` for a line,
//! `# spectune: ignore-file[SD081]` for a file.
//!
//! A comment after other text suppresses findings on its own line. A comment on a separate line
//! suppresses findings on the next line that is not only a comment, including its continuation
//! lines, since a continued command cannot contain comments. The brackets contain selectors as for
//! `--select`, separated by commas; the text after them is the user's reason. A comment that
//! suppresses nothing is itself a finding.

mod read;

use std::collections::{BTreeMap, HashMap};

use read::{Comment, SuppressionEntry, SuppressionScope};
use schemas::{
    diagnostic::{Diagnostic, Edit, Fix, Safety},
    problems::{UNUSED_SUPPRESSION, WRONG_SUPPRESSION},
    text::{Source, Span},
};

use crate::rules::{Selection, keys};

/// Removes the findings that the text's comments suppress, and adds findings for comments that are
/// wrong or suppress nothing.
pub fn apply(source: &Source, found: Vec<Diagnostic>, selection: &Selection) -> Vec<Diagnostic> {
    let comments = read::comments(source);
    if comments.is_empty() {
        return found;
    }
    let index = SuppressionIndex::new(source, &comments);
    let mut used = vec![false; comments.iter().map(|comment| comment.entries.len()).sum()];
    let mut left: Vec<Diagnostic> = Vec::with_capacity(found.len());
    for diagnostic in found {
        match index.suppressing(source, &diagnostic) {
            Some(entry) => mark(&mut used, entry),
            None => left.push(diagnostic),
        }
    }
    let mut number = 0;
    let mut own = Vec::new();
    for comment in &comments {
        let numbers = number..number + comment.entries.len();
        number = numbers.end;
        own.extend(comment.wrong.iter().map(wrong));
        let is_used = |at: usize| used.get(at).copied().unwrap_or(true);
        own.extend(unused(source, comment, selection, |entry| is_used(numbers.start + entry)));
    }
    let wanted =
        |finding: &Diagnostic| selection.admits_finding(finding) && index.suppressing(source, finding).is_none();
    left.extend(own.into_iter().filter(wanted));
    left
}

fn mark(used: &mut [bool], entry: usize) {
    if let Some(slot) = used.get_mut(entry) {
        *slot = true;
    }
}

/// Entries by what they suppress. The values are indices into the entries of all comments.
#[derive(Default)]
struct SuppressionIndex {
    file: HashMap<String, usize>,
    /// By first line: the last line, and the entries.
    below: BTreeMap<usize, (usize, HashMap<String, usize>)>,
    extra: HashMap<usize, HashMap<String, usize>>,
}

impl SuppressionIndex {
    fn new(source: &Source, comments: &[Comment]) -> Self {
        let mut index = Self::default();
        let mut number = 0;
        for comment in comments {
            let entries = match comment.scope {
                SuppressionScope::File => &mut index.file,
                SuppressionScope::Line => index.extra.entry(source.position(comment.span.start).line).or_default(),
                SuppressionScope::Below { first, last } => {
                    &mut index.below.entry(first).or_insert((last, HashMap::new())).1
                }
            };
            for entry in &comment.entries {
                entries.entry(entry.selector.key().to_owned()).or_insert(number);
                number += 1;
            }
        }
        index
    }

    /// The entry that suppresses a finding; the nearest one if there are several.
    fn suppressing(&self, source: &Source, diagnostic: &Diagnostic) -> Option<usize> {
        let keys = keys(diagnostic.code, diagnostic.name);
        let among = |entries: &HashMap<String, usize>| keys.iter().find_map(|key| entries.get(key)).copied();
        let first = source.position(diagnostic.span.start).line;
        let last = source.position(diagnostic.span.end).line;
        let extra = [first, last].iter().find_map(|line| among(self.extra.get(line)?));
        let below = || {
            let (_, (end, entries)) = self.below.range(..=first).next_back()?;
            if first <= *end { among(entries) } else { None }
        };
        extra.or_else(below).or_else(|| among(&self.file))
    }
}

fn wrong((span, message): &(Span, String)) -> Diagnostic {
    let help = "write `# spectune: ignore[CODE]`, with a code that `spectune explain --list` has";
    WRONG_SUPPRESSION.at(*span, message.clone(), "suppresses nothing").help(help).certain()
}

/// A finding for the entries of a comment that suppress nothing, if their rules are selected.
fn unused(
    source: &Source,
    comment: &Comment,
    selection: &Selection,
    is_used: impl Fn(usize) -> bool,
) -> Option<Diagnostic> {
    let own =
        |entry: &SuppressionEntry| [UNUSED_SUPPRESSION.code, WRONG_SUPPRESSION.code].contains(&entry.selector.key());
    let idle: Vec<(usize, &SuppressionEntry)> = comment
        .entries
        .iter()
        .enumerate()
        .filter(|(at, entry)| !is_used(*at) && !own(entry) && entry.selector.is_looked_for(selection))
        .collect();
    let (_, first) = idle.first()?;
    let names: Vec<&str> = idle.iter().map(|(_, entry)| source.slice(entry.span)).collect();
    let whole = idle.len() == comment.entries.len() && comment.wrong.is_empty();
    let span = if whole { comment.span } else { first.span };
    let message = format!("`{}` suppresses nothing here", names.join(", "));
    let mut diagnostic = UNUSED_SUPPRESSION.at(span, message, "suppresses nothing").certain();
    diagnostic.help =
        Some(if whole { "take the comment out".into() } else { format!("take out {}", names.join(", ")) });
    let edits = if whole {
        vec![Edit { span: removal(source, comment.span), replacement: String::new() }]
    } else {
        let kept = comment.entries.iter().enumerate().filter(|(at, _)| idle.iter().all(|(number, _)| number != at));
        let kept: Vec<&str> = kept.map(|(_, entry)| source.slice(entry.span)).collect();
        vec![Edit { span: comment.list, replacement: kept.join(", ") }]
    };
    // There is no fix for a list with unknown words.
    if comment.wrong.is_empty() {
        let description = "remove the unused suppression".into();
        diagnostic.fix = Some(Fix { description, safety: Safety::Safe, edits });
    }
    Some(diagnostic)
}

/// The span to remove with a comment: also the blanks before it, or its whole line if that has
/// nothing else.
fn removal(source: &Source, comment: Span) -> Span {
    let text = source.text();
    let before = text.get(..comment.start).unwrap_or_default();
    let blanks = before.trim_end_matches([' ', '\t']).len();
    let alone = before.get(..blanks).is_some_and(|before| before.is_empty() || before.ends_with('\n'));
    if !alone {
        return Span::new(blanks, comment.end);
    }
    let after = text.get(comment.end..).unwrap_or_default();
    let line_end = after.find('\n').map_or(text.len(), |length| comment.end + length + 1);
    Span::new(blanks, line_end)
}

#[cfg(test)]
mod tests;
