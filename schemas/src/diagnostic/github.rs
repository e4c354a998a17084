//! Workflow commands of GitHub Actions, which annotate the lines of a pull request.

use std::fmt::Write;

use super::{Findings, Severity};

pub(super) fn render(findings: &[Findings<'_>]) -> String {
    let mut text = String::new();
    for Findings { source, diagnostics } in findings {
        for diagnostic in *diagnostics {
            let (start, end) = (source.position(diagnostic.span.start), source.position(diagnostic.span.end));
            let command = match diagnostic.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Info => "notice",
            };
            let mut message = diagnostic.message.clone();
            if let Some(help) = &diagnostic.help {
                message.push_str("\nhelp: ");
                message.push_str(help);
            }
            let _ = write!(text, "::{command} file={},line={}", property(source.name()), start.line);
            // GitHub accepts columns only for findings within one line.
            if start.line == end.line {
                let _ = write!(text, ",col={},endColumn={}", start.column, end.column);
            } else {
                let _ = write!(text, ",endLine={}", end.line);
            }
            let title = format!("{} {}", diagnostic.code, diagnostic.name);
            let _ = writeln!(text, ",title={}::{}", property(&title), data(&message));
        }
    }
    text
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
