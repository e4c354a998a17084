//! Applying fixes to the user's text.

use std::{collections::BTreeMap, ops::Bound};

use super::{Diagnostic, Edit, Fix, Safety, Severity};
use crate::{
    launch::PROBLEMS,
    text::{Source, Span},
};

/// Rounds of fixing: each fix may make room for another, and more than this are never needed but by fixes that undo one
/// another.
pub const MOST_ROUNDS: usize = 16;

/// A text with fixes applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The new text.
    pub text: String,
    /// The fixes in it, as indexes of the diagnostics.
    pub applied: Vec<usize>,
    /// The fixes that touch a place which another has changed already: look again and fix again.
    pub postponed: Vec<usize>,
}

/// Applies the fixes of the diagnostics in their order, the safe ones only unless `also_unsafe` is set.
///
/// A fix is applied whole or not at all. One that touches a place that an earlier one changes is postponed, so that a
/// text is fixed by looking and fixing until nothing is applied any more; two fixes that make the same edits are one.
/// Edits that do not lie in the text are never applied.
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
    /// What was fixed: a code and how often, by code.
    pub fixed: BTreeMap<&'static str, usize>,
    /// Codes of fixes that were taken back, because the text could not be read any more with them, or because they never
    /// came to rest.
    pub refused: Vec<&'static str>,
}

/// Looks and fixes until nothing is left to fix.
///
/// A round after which less of the text can be read (it has more errors about the text itself) is taken back, and nothing
/// more is done. So is the work of all rounds where fixes undo one another without end.
pub fn until_stable(source: &Source, also_unsafe: bool, look: impl Fn(&Source) -> Vec<Diagnostic>) -> FixedText {
    let mut mended = FixedText { text: source.text().to_owned(), fixed: BTreeMap::new(), refused: Vec::new() };
    let mut found = look(source);
    for _ in 0..MOST_ROUNDS {
        let present = Source::new(source.name(), mended.text.as_str());
        let fixed = apply(&present, &found, also_unsafe);
        if fixed.applied.is_empty() || fixed.text == mended.text {
            return mended;
        }
        let codes: Vec<&'static str> =
            fixed.applied.iter().filter_map(|at| found.get(*at)).map(|diagnostic| diagnostic.code).collect();
        let next = look(&Source::new(source.name(), fixed.text.as_str()));
        if unreadable(&next) > unreadable(&found) {
            mended.refused = codes;
            return mended;
        }
        codes.into_iter().for_each(|code| *mended.fixed.entry(code).or_default() += 1);
        mended.text = fixed.text;
        found = next;
    }
    // Still moving: whatever these fixes do, it is not what their writer meant.
    let refused = mended.fixed.into_keys().collect();
    FixedText { text: source.text().to_owned(), fixed: BTreeMap::new(), refused }
}

/// Errors about the text itself.
fn unreadable(diagnostics: &[Diagnostic]) -> usize {
    let own = |code: &str| PROBLEMS.iter().any(|problem| problem.code == code);
    diagnostics.iter().filter(|found| found.severity == Severity::Error && own(found.code)).count()
}

/// Edits that are decided on, by place; no two of them touch.
#[derive(Default)]
struct Taken<'a>(BTreeMap<Span, &'a str>);

impl<'a> Taken<'a> {
    fn add(&mut self, edit: &'a Edit) {
        self.0.insert(edit.span, &edit.replacement);
    }

    fn has(&self, edit: &Edit) -> bool {
        self.0.get(&edit.span) == Some(&edit.replacement.as_str())
    }

    /// Whether a span overlaps one of them, or inserts at the place of one.
    fn touches(&self, span: Span) -> bool {
        let overlap = |other: &Span| *other == span || (span.start < other.end && other.start < span.end);
        // They lie side by side, so only the last few that begin before the span's end can reach into it: an insertion
        // at a position precedes an edit that starts there.
        let end = Span::new(span.end, usize::MAX);
        self.0.range((Bound::Unbounded, Bound::Included(end))).rev().take(3).any(|(other, _)| overlap(other))
    }
}

/// Whether all edits are spans of the text that do not touch one another.
fn lies_in(source: &Source, fix: &Fix) -> bool {
    let inside = |edit: &Edit| source.text().get(edit.span.range()).is_some();
    let apart = |(index, edit): (usize, &Edit)| fix.edits.iter().skip(index + 1).all(|other| !touch(edit, other));
    !fix.edits.is_empty() && fix.edits.iter().all(inside) && fix.edits.iter().enumerate().all(apart)
}

/// Whether two edits overlap, or insert at one place.
fn touch(one: &Edit, other: &Edit) -> bool {
    let (one, other) = (one.span, other.span);
    one == other || (one.start < other.end && other.start < one.end)
}
