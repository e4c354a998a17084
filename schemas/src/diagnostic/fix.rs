//! Applying fixes to the user's text.

use super::{Diagnostic, Edit, Fix, Safety};
use crate::text::Source;

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
    let mut taken: Vec<&Edit> = Vec::new();
    let (mut applied, mut postponed) = (Vec::new(), Vec::new());
    for (index, diagnostic) in diagnostics.iter().enumerate() {
        let Some(fix) = diagnostic.fix.as_ref().filter(|fix| also_unsafe || fix.safety == Safety::Safe) else {
            continue;
        };
        if !lies_in(source, fix) {
            continue;
        }
        if fix.edits.iter().all(|edit| taken.contains(&edit)) {
            applied.push(index);
        } else if fix.edits.iter().any(|edit| taken.iter().any(|other| touch(edit, other))) {
            postponed.push(index);
        } else {
            taken.extend(&fix.edits);
            applied.push(index);
        }
    }
    taken.sort_by_key(|edit| edit.span);
    let mut text = String::with_capacity(source.text().len());
    let mut at = 0;
    for edit in taken {
        text.push_str(source.text().get(at..edit.span.start).unwrap_or_default());
        text.push_str(&edit.replacement);
        at = edit.span.end;
    }
    text.push_str(source.text().get(at..).unwrap_or_default());
    Fixed { text, applied, postponed }
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
