//! One line per finding: `file:line:column: severity[CODE] message`.

use std::fmt::Write;

use super::Findings;

pub(super) fn render(findings: &[Findings<'_>]) -> String {
    let mut text = String::new();
    for Findings { source, diagnostics } in findings {
        for diagnostic in *diagnostics {
            let place = source.position(diagnostic.span.start);
            let message = diagnostic.message.replace('\n', " ");
            let _ = writeln!(
                text,
                "{}:{}:{}: {}[{}] {message}",
                source.name(),
                place.line,
                place.column,
                diagnostic.severity.word(),
                diagnostic.code,
            );
        }
    }
    text
}
