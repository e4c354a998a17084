//! What the targets share: the promises that hold for any text, checked as the linter would use it.
#![forbid(unsafe_code)]

pub mod lint;
pub mod sections;

use schemas::{
    diagnostic::{Diagnostic, Findings, Format, render},
    text::{Source, Span},
};

/// The text of an input; nothing where it is none.
pub fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}

/// A span must lie in its text, on the boundaries of characters.
pub fn lies_in(source: &Source, span: Span) {
    assert!(source.text().get(span.range()).is_some(), "{span:?} is no part of the text");
}

/// All places of the findings must lie in the text, and every format must be able to print them (SARIF takes the same
/// values as JSON and carries the page of every rule, which makes each run many times slower).
pub fn check_findings(source: &Source, diagnostics: &[Diagnostic]) {
    for diagnostic in diagnostics {
        lies_in(source, diagnostic.span);
        diagnostic.related.iter().for_each(|related| lies_in(source, related.span));
        diagnostic.fix.iter().flat_map(|fix| &fix.edits).for_each(|edit| lies_in(source, edit.span));
    }
    let findings = [Findings { source, diagnostics }];
    for format in [Format::Full, Format::Concise, Format::Json, Format::Github] {
        render(&findings, format, false);
    }
}
