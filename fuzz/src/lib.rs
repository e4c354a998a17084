//! Code shared by the targets: assertions that hold for any text, checked along the path that the
//! linter takes.
#![forbid(unsafe_code)]

pub mod lint;
pub mod sections;

use schemas::{diagnostic::{Diagnostic, Findings, Format, render}, text::{Source, Span}};

/// The input as text; `None` if it is not UTF-8.
pub fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}

/// Asserts that a span is inside its text and on character boundaries.
pub fn lies_in(source: &Source, span: Span) {
    assert!(source.text().get(span.range()).is_some(), "{span:?} is no part of the text");
}

/// Asserts that all spans of the findings are inside the text, and renders them in every format
/// except SARIF. SARIF prints the same values as JSON, but includes the page of every rule, which
/// makes each run many times slower.
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
