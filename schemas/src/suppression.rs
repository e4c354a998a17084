//! Comments that suppress findings: `# spectune: ignore[SD081]` for a line, `# spectune: ignore-file[SD081]` for a file.
//!
//! A comment after something suppresses what is found on its line. A comment that has its line to itself suppresses what
//! is found on the next line that is more than a comment, to the end of its continuation: no comment can be inside
//! a continued command. The brackets contain the selectors of `--select`, separated by commas; what follows them is
//! the user's reason. A comment that suppresses nothing is a finding itself.

mod read;

use std::collections::{BTreeMap, HashMap};

use read::{Comment, Entry, Scope};

use crate::{
    diagnostic::{Diagnostic, Edit, Fix, Safety},
    launch::{UNUSED_SUPPRESSION, WRONG_SUPPRESSION},
    rules::{Selection, keys},
    text::{Source, Span},
};

/// Takes out the findings that the text's comments suppress, and says which comments are wrong or suppress nothing.
pub fn apply(source: &Source, found: Vec<Diagnostic>, selection: &Selection) -> Vec<Diagnostic> {
    let comments = read::comments(source);
    if comments.is_empty() {
        return found;
    }
    let index = Index::new(source, &comments);
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

/// Entries by what they suppress: the number of each among all entries of all comments.
#[derive(Default)]
struct Index {
    file: HashMap<String, usize>,
    /// By the first line: the last line, and the entries.
    below: BTreeMap<usize, (usize, HashMap<String, usize>)>,
    beside: HashMap<usize, HashMap<String, usize>>,
}

impl Index {
    fn new(source: &Source, comments: &[Comment]) -> Self {
        let mut index = Self::default();
        let mut number = 0;
        for comment in comments {
            let entries = match comment.scope {
                Scope::File => &mut index.file,
                Scope::Line => index.beside.entry(source.position(comment.span.start).line).or_default(),
                Scope::Below { first, last } => &mut index.below.entry(first).or_insert((last, HashMap::new())).1,
            };
            for entry in &comment.entries {
                entries.entry(entry.selector.key().to_owned()).or_insert(number);
                number += 1;
            }
        }
        index
    }

    /// The entry that suppresses a finding, those nearest to it first.
    fn suppressing(&self, source: &Source, diagnostic: &Diagnostic) -> Option<usize> {
        let keys = keys(diagnostic.code, diagnostic.name);
        let among = |entries: &HashMap<String, usize>| keys.iter().find_map(|key| entries.get(key)).copied();
        let first = source.position(diagnostic.span.start).line;
        let last = source.position(diagnostic.span.end).line;
        let beside = [first, last].iter().find_map(|line| among(self.beside.get(line)?));
        let below = || {
            let (_, (end, entries)) = self.below.range(..=first).next_back()?;
            if first <= *end { among(entries) } else { None }
        };
        beside.or_else(below).or_else(|| among(&self.file))
    }
}

fn wrong((span, message): &(Span, String)) -> Diagnostic {
    let mut diagnostic = WRONG_SUPPRESSION.at(*span, message.clone(), "suppresses nothing");
    diagnostic.help = Some("write `# spectune: ignore[CODE]`, with a code that `spectune explain --list` has".into());
    diagnostic
}

/// What of a comment suppresses nothing, among what was looked for.
fn unused(
    source: &Source,
    comment: &Comment,
    selection: &Selection,
    is_used: impl Fn(usize) -> bool,
) -> Option<Diagnostic> {
    let own = |entry: &Entry| [UNUSED_SUPPRESSION.code, WRONG_SUPPRESSION.code].contains(&entry.selector.key());
    let idle: Vec<(usize, &Entry)> = comment
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
    let mut diagnostic = UNUSED_SUPPRESSION.at(span, message, "suppresses nothing");
    diagnostic.help =
        Some(if whole { "take the comment out".into() } else { format!("take out {}", names.join(", ")) });
    let edits = if whole {
        vec![Edit { span: removal(source, comment.span), replacement: String::new() }]
    } else {
        let kept = comment.entries.iter().enumerate().filter(|(at, _)| idle.iter().all(|(number, _)| number != at));
        let kept: Vec<&str> = kept.map(|(_, entry)| source.slice(entry.span)).collect();
        vec![Edit { span: comment.list, replacement: kept.join(", ") }]
    };
    // A list with unknown words is left to its author.
    if comment.wrong.is_empty() {
        let description = "remove the unused suppression".into();
        diagnostic.fix = Some(Fix { description, safety: Safety::Safe, edits });
    }
    Some(diagnostic)
}

/// What goes with a comment: the blanks before it, or its whole line where there is nothing else.
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
