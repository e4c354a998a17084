//! SARIF 2.1.0, for code scanning services.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::{Diagnostic, Findings, Severity};
use crate::text::{Source, Span};

/// The findings as a SARIF log; `describe` returns what is known of a rule by its code.
pub fn render(findings: &[Findings<'_>], describe: impl Fn(&str) -> Option<Descriptor>) -> String {
    let all = || findings.iter().flat_map(|findings| findings.diagnostics.iter().map(|one| (findings.source, one)));
    let rules: BTreeMap<&str, &str> = all().map(|(_, diagnostic)| (diagnostic.code, diagnostic.name)).collect();
    let index: BTreeMap<&str, usize> = rules.keys().enumerate().map(|(index, code)| (*code, index)).collect();
    let rules: Vec<Json> = rules.iter().map(|(code, name)| described(code, name, describe(code))).collect();
    let results: Vec<Json> = all()
        .map(|(source, diagnostic)| result(source, diagnostic, index.get(diagnostic.code).copied().unwrap_or_default()))
        .collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "spectune", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    let mut text = serde_json::to_string_pretty(&log).unwrap_or_default();
    text.push('\n');
    text
}

/// What SARIF tells of a rule besides its results.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// The maximum severity of its findings.
    pub severity: Severity,
    /// The area, as a tag.
    pub tags: Vec<&'static str>,
    /// One sentence.
    pub summary: String,
    /// The page as plain text and as Markdown, which viewers show next to the results.
    pub page: Option<(String, String)>,
}

fn described(code: &str, name: &str, descriptor: Option<Descriptor>) -> Json {
    let severity = descriptor.as_ref().map_or(Severity::Warning, |descriptor| descriptor.severity);
    let tags = descriptor.as_ref().map(|descriptor| descriptor.tags.clone()).unwrap_or_default();
    let mut rule = json!({
        "id": code,
        "name": name,
        "defaultConfiguration": { "level": level(severity) },
        "properties": { "tags": tags },
    });
    if let (Some(object), Some(Descriptor { summary, page, .. })) = (rule.as_object_mut(), descriptor) {
        object.insert("shortDescription".into(), json!({ "text": summary }));
        if let Some((plain, markdown)) = page {
            object.insert("help".into(), json!({ "text": plain, "markdown": markdown }));
        }
    }
    rule
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

fn result(source: &Source, diagnostic: &Diagnostic, rule: usize) -> Json {
    // A result of SARIF has no field of its own for help.
    let mut message = diagnostic.message.clone();
    if let Some(help) = &diagnostic.help {
        message.push_str("; ");
        message.push_str(help);
    }
    let mut result = json!({
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": level(diagnostic.severity),
        "message": { "text": message },
        "locations": [location(source, diagnostic.span, None)],
    });
    let Some(object) = result.as_object_mut() else { return result };
    if !diagnostic.related.is_empty() {
        let related = diagnostic.related.iter().map(|related| location(source, related.span, Some(&related.label)));
        object.insert("relatedLocations".into(), related.collect());
    }
    if let Some(fix) = &diagnostic.fix {
        let replacements: Vec<Json> = fix
            .edits
            .iter()
            .map(|edit| {
                json!({
                    "deletedRegion": region(source, edit.span),
                    "insertedContent": { "text": edit.replacement },
                })
            })
            .collect();
        object.insert("fixes".into(), json!([{
            "description": { "text": fix.description },
            "artifactChanges": [{ "artifactLocation": { "uri": uri(source.name()) }, "replacements": replacements }],
        }]));
    }
    result
}

fn location(source: &Source, span: Span, message: Option<&str>) -> Json {
    let mut location = json!({
        "physicalLocation": { "artifactLocation": { "uri": uri(source.name()) }, "region": region(source, span) },
    });
    if let (Some(message), Some(object)) = (message, location.as_object_mut()) {
        object.insert("message".into(), json!({ "text": message }));
    }
    location
}

fn region(source: &Source, span: Span) -> Json {
    let (start, end) = (source.position(span.start), source.position(span.end));
    json!({
        "startLine": start.line,
        "startColumn": start.column,
        "endLine": end.line,
        "endColumn": end.column,
    })
}

/// A file name as a URI reference: characters that are not allowed in a URI are percent-encoded,
/// and absolute names get a scheme.
fn uri(name: &str) -> String {
    let name = name.strip_prefix("./").unwrap_or(name);
    let mut uri = String::with_capacity(name.len());
    if name.starts_with('/') {
        uri.push_str("file://");
    }
    for byte in name.bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) => uri.push(char::from(byte)),
            // Elsewhere a backslash is part of a name.
            b'\\' if cfg!(windows) => uri.push('/'),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}
