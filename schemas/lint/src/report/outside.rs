//! Fixes that depend on values from outside the text.

use launch::Launch;
use schemas::{
    diagnostic::{Diagnostic, Edit, Safety},
    text::{Source, Span},
};

/// A fix that writes a value is not safe where that value, or one that belongs to it, comes from a
/// variable: it may be another one when the text is run.
pub(super) fn doubt_fix(source: &Source, launch: &Launch, found: &mut Diagnostic) {
    let is_expanded = |span: Span| source.slice(span).contains('$');
    let settings = || launch.settings.iter().filter(|(key, _)| key.flag().name.starts_with("speculative"));
    let varies = settings().any(|(_, setting)| setting.values.iter().any(|value| is_expanded(value.span)));
    let is_of_shape = |edit: &Edit| {
        let overlaps = |span: Span| edit.span.start < span.end && span.start < edit.span.end;
        let replaces = settings().filter_map(|(_, setting)| setting.value).any(overlaps);
        replaces || edit.replacement.contains("--speculative")
    };
    if let Some(fix) = &mut found.fix {
        let depends = |edit: &Edit| is_expanded(edit.span) || (varies && is_of_shape(edit));
        if fix.edits.iter().any(depends) {
            fix.safety = Safety::Unsafe;
        }
    }
}
