//! Applies fixes to the user's text.

use std::{collections::BTreeMap, ops::Bound};

use super::{Diagnostic, Edit, Fix, Safety, Severity};
use crate::text::{Source, Span};

/// The start of the codes of problems of the text itself.
const OF_THE_TEXT: &str = "LT";

/// Maximum number of rounds of fixing. A fix may allow another one in the next round; only fixes
/// that undo each other need more rounds than this.
pub const MOST_ROUNDS: usize = 16;

/// A text with fixes applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The new text.
    pub text: String,
    /// The fixes in it, as indices into the diagnostics.
    pub applied: Vec<usize>,
    /// The fixes that touch a place that another fix has changed; lint and fix the new text again
    /// for them.
    pub postponed: Vec<usize>,
}

/// Applies the fixes of the diagnostics in order; only the safe ones unless `also_unsafe` is set.
///
/// A fix is applied completely or not at all. A fix that touches a place that an earlier one
/// changes is postponed, so linting and fixing are repeated until no fix is applied any more. Two
/// fixes with the same edits count as one. A fix with an edit outside the text is never applied.
pub fn apply(source: &Source, diagnostics: &[Diagnostic], also_unsafe: bool) -> Fixed {
    let mut taken = Taken::default();
    let (mut applied, mut postponed) = (Vec::new(), Vec::new());
    for (index, diagnostic) in diagnostics.iter().enumerate() {
        let Some(fix) = diagnostic.fix.as_ref().filter(|fix| also_unsafe || fix.safety == Safety::Safe) else {
            continue;
        };
        if !lies_in(source, fix) {
            continue;
        }
        if fix.edits.iter().all(|edit| taken.has(edit)) {
            applied.push(index);
        } else if fix.edits.iter().any(|edit| taken.touches(edit.span)) {
            postponed.push(index);
        } else {
            fix.edits.iter().for_each(|edit| taken.add(edit));
            applied.push(index);
        }
    }
    let mut text = String::with_capacity(source.text().len());
    let mut at = 0;
    for (span, replacement) in taken.0 {
        text.push_str(source.text().get(at..span.start).unwrap_or_default());
        text.push_str(replacement);
        at = span.end;
    }
    text.push_str(source.text().get(at..).unwrap_or_default());
    Fixed { text, applied, postponed }
}

/// A text after all rounds of fixing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedText {
    /// The new text.
    pub text: String,
    /// Number of applied fixes by code.
    pub fixed: BTreeMap<&'static str, usize>,
    /// Codes of fixes that were reverted, because the text could no longer be read with them, or
    /// because they never reached a stable text.
    pub refused: Vec<&'static str>,
}

/// Lints the text with `look` and fixes it until nothing is left to fix.
///
/// If a round increases the number of errors about the text itself, it is reverted, and fixing
/// ends. If fixes undo each other endlessly, all rounds are reverted.
pub fn until_stable(source: &Source, also_unsafe: bool, look: impl Fn(&Source) -> Vec<Diagnostic>) -> FixedText {
    let mut edited = FixedText { text: source.text().to_owned(), fixed: BTreeMap::new(), refused: Vec::new() };
    let mut found = look(source);
    for _ in 0..MOST_ROUNDS {
        let present = Source::new(source.name(), edited.text.as_str());
        let fixed = apply(&present, &found, also_unsafe);
        if fixed.applied.is_empty() || fixed.text == edited.text {
            return edited;
        }
        let codes: Vec<&'static str> =
            fixed.applied.iter().filter_map(|at| found.get(*at)).map(|diagnostic| diagnostic.code).collect();
        let next = look(&Source::new(source.name(), fixed.text.as_str()));
        if unreadable(&next) > unreadable(&found) {
            edited.refused = codes;
            return edited;
        }
        codes.into_iter().for_each(|code| *edited.fixed.entry(code).or_default() += 1);
        edited.text = fixed.text;
        found = next;
    }
    // Not stable: these fixes cannot do what their author intended.
    let refused = edited.fixed.into_keys().collect();
    FixedText { text: source.text().to_owned(), fixed: BTreeMap::new(), refused }
}

/// Number of errors about the text itself.
fn unreadable(diagnostics: &[Diagnostic]) -> usize {
    let is_error = |found: &&Diagnostic| found.severity == Severity::Error && found.code.starts_with(OF_THE_TEXT);
    diagnostics.iter().filter(is_error).count()
}

/// Accepted edits by place; no two of them touch.
#[derive(Default)]
struct Taken<'a>(BTreeMap<Span, &'a str>);

impl<'a> Taken<'a> {
    fn add(&mut self, edit: &'a Edit) {
        self.0.insert(edit.span, &edit.replacement);
    }

    fn has(&self, edit: &Edit) -> bool {
        self.0.get(&edit.span) == Some(&edit.replacement.as_str())
    }

    /// Whether a span overlaps an accepted edit, or inserts at the place of one.
    fn touches(&self, span: Span) -> bool {
        let overlap = |other: &Span| *other == span || (span.start < other.end && other.start < span.end);
        // Accepted edits do not overlap, so only the last few that start before the span's end can
        // reach into it: an insertion at a position precedes an edit that starts there.
        let end = Span::new(span.end, usize::MAX);
        self.0.range((Bound::Unbounded, Bound::Included(end))).rev().take(3).any(|(other, _)| overlap(other))
    }
}

/// Whether there are edits and all of them are in the text and do not touch each other.
fn lies_in(source: &Source, fix: &Fix) -> bool {
    let inside = |edit: &Edit| source.text().get(edit.span.range()).is_some();
    let apart = |(index, edit): (usize, &Edit)| fix.edits.iter().skip(index + 1).all(|other| !touch(edit, other));
    !fix.edits.is_empty() && fix.edits.iter().all(inside) && fix.edits.iter().enumerate().all(apart)
}

/// Whether two edits overlap, or insert at the same place.
fn touch(one: &Edit, other: &Edit) -> bool {
    let (one, other) = (one.span, other.span);
    one == other || (one.start < other.end && other.start < one.end)
}
