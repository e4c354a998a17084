//! A list of objects, one per finding: `code`, `name`, `severity`, `message`, `file`, `line`,
//! `column`, `end_line`, `end_column`, `help`, `fix`, `url`. Lines and columns count from one,
//! columns in characters; the end is exclusive. Places and fixes are null in a text that cannot be
//! seen, where `flag` is the flag of the finding.

use serde_json::{Value as Json, json};

use super::{Diagnostic, Findings, Safety};
use crate::{
    secrets::starred,
    text::{Source, Span},
};

pub(super) fn render(findings: &[Findings<'_>]) -> String {
    let list: Vec<Json> = findings
        .iter()
        .flat_map(|findings| findings.diagnostics.iter().map(|diagnostic| object(findings.source, diagnostic)))
        .collect();
    let mut text = serde_json::to_string_pretty(&list).unwrap_or_default();
    text.push('\n');
    text
}

fn object(source: &Source, diagnostic: &Diagnostic) -> Json {
    let (start, end) = ends(source, diagnostic.span);
    let seen = source.has_lines();
    let place = |number: usize| seen.then_some(number);
    let flag = source.flag_at(source.clamp(diagnostic.span)).filter(|_| !seen).map(starred);
    let mut object = json!({
        "code": diagnostic.code,
        "name": diagnostic.name,
        "severity": diagnostic.severity.word(),
        "message": diagnostic.message,
        "file": source.name(),
        "line": place(start.line),
        "column": place(start.column),
        "end_line": place(end.line),
        "end_column": place(end.column),
        "help": diagnostic.help,
        "fix": diagnostic.fix.as_ref().filter(|_| seen).map(|fix| json!({
            "description": fix.description,
            "safety": match fix.safety { Safety::Safe => "safe", Safety::Unsafe => "unsafe" },
            "edits": fix.edits.iter().map(|edit| {
                let (start, end) = ends(source, edit.span);
                json!({
                    "line": start.line,
                    "column": start.column,
                    "end_line": end.line,
                    "end_column": end.column,
                    "replacement": edit.replacement,
                })
            }).collect::<Vec<_>>(),
        })),
        // The pages of the rules are not published anywhere yet: `spectune explain CODE` prints
        // them.
        "url": Json::Null,
    });
    if !seen {
        object["flag"] = json!(flag);
    }
    object
}

fn ends(source: &Source, span: Span) -> (crate::text::Position, crate::text::Position) {
    (source.position(span.start), source.position(span.end))
}
