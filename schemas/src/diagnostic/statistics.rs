//! Number of findings per code.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::{Diagnostic, Findings, Safety, Severity};

/// The counts of one code.
struct CodeCount {
    name: &'static str,
    severity: Severity,
    count: usize,
    safe: usize,
    fixable: usize,
}

/// The codes that were found, the most frequent first, one per line: count, code, severity, name,
/// and number of findings that can be fixed.
pub fn table(findings: &[Findings<'_>]) -> String {
    let rows = rows(findings);
    let digits = rows.iter().map(|(_, row)| row.count.to_string().len()).max().unwrap_or_default();
    let width = rows.iter().map(|(_, row)| row.name.len()).max().unwrap_or_default();
    let line = |(code, row): &(&str, CodeCount)| {
        let fixable = match (row.safe, row.fixable) {
            (_, 0) => String::new(),
            (0, fixable) => format!("{fixable} fixable with --unsafe-fixes"),
            (safe, fixable) if safe == fixable => format!("{safe} fixable"),
            (safe, fixable) => format!("{safe} fixable, {} more with --unsafe-fixes", fixable - safe),
        };
        let line = format!("{:digits$}  {code}  {:7}  {:width$}  {fixable}", row.count, row.severity.word(), row.name);
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// The same as a list of objects: `code`, `name`, `severity`, `count`, `fixable`, `fixable_unsafe`.
pub fn json(findings: &[Findings<'_>]) -> String {
    let list: Vec<Json> = rows(findings)
        .iter()
        .map(|(code, row)| {
            json!({
                "code": code,
                "name": row.name,
                "severity": row.severity.word(),
                "count": row.count,
                "fixable": row.safe,
                "fixable_unsafe": row.fixable - row.safe,
            })
        })
        .collect();
    serde_json::to_string_pretty(&list).unwrap_or_default() + "\n"
}

fn rows(findings: &[Findings<'_>]) -> Vec<(&'static str, CodeCount)> {
    let mut rows: BTreeMap<&'static str, CodeCount> = BTreeMap::new();
    for diagnostic in findings.iter().flat_map(|findings| findings.diagnostics) {
        let Diagnostic { code, name, severity, fix, .. } = diagnostic;
        let empty = CodeCount { name, severity: *severity, count: 0, safe: 0, fixable: 0 };
        let row = rows.entry(code).or_insert(empty);
        row.severity = row.severity.max(*severity);
        row.count += 1;
        row.fixable += usize::from(fix.is_some());
        row.safe += usize::from(fix.as_ref().is_some_and(|fix| fix.safety == Safety::Safe));
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.count));
    rows
}
