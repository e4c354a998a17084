//! One line per finding: `file:line:column: severity[CODE] message`; without line and column if the
//! text cannot be seen.

use std::fmt::Write;

use super::Findings;

pub(super) fn render(findings: &[Findings<'_>]) -> String {
    let mut text = String::new();
    for Findings { source, diagnostics } in findings {
        for diagnostic in *diagnostics {
            let place = source.position(diagnostic.span.start);
            let message = diagnostic.message.replace('\n', " ");
            let (severity, code) = (diagnostic.severity.word(), diagnostic.code);
            let _ = match source.has_lines() {
                true => {
                    let (line, column) = (place.line, place.column);
                    writeln!(text, "{}:{line}:{column}: {severity}[{code}] {message}", source.name())
                }
                false => writeln!(text, "{}: {severity}[{code}] {message}", source.name()),
            };
        }
    }
    text
}
