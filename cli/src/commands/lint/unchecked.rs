//! `--unchecked`: the rules that could not be checked in each launch.

use schemas::diagnostic::Format;
use serde_json::{Value, json};

use super::FileResult;

/// The findings, followed by the rules that could not be checked.
pub(super) fn with_findings(all: &[FileResult], format: Format, rendered: &str) -> anyhow::Result<String> {
    if format == Format::Json {
        let findings: Value = serde_json::from_str(rendered)?;
        let both = json!({ "findings": findings, "unchecked": all.iter().flat_map(objects).collect::<Vec<_>>() });
        return Ok(serde_json::to_string_pretty(&both)? + "\n");
    }
    let tables: String = all.iter().flat_map(tables).collect();
    Ok(format!("{rendered}{tables}"))
}

fn objects(done: &FileResult) -> impl Iterator<Item = Value> {
    let source = &done.checked.source;
    done.checked.unchecked.iter().map(move |(launch, rules)| {
        let rule = |one: &lint::rules::Unchecked| {
            let lacks: Vec<&str> = one.lacks.iter().map(|fact| fact.words()).collect();
            json!({ "code": one.code, "name": one.name, "lacks": lacks })
        };
        let line = source.has_lines().then(|| source.position(launch.start).line);
        json!({ "path": source.name(), "line": line, "rules": rules.iter().map(rule).collect::<Vec<_>>() })
    })
}

fn tables(done: &FileResult) -> impl Iterator<Item = String> {
    let source = &done.checked.source;
    done.checked.unchecked.iter().map(move |(launch, rules)| {
        let line = || format!(":{}", source.position(launch.start).line);
        let place = source.name().to_owned() + &if source.has_lines() { line() } else { String::new() };
        match rules.len() {
            0 => format!("{place}: every rule could be checked\n"),
            _ => {
                let lines: String = rules.iter().map(|one| format!("  {one}\n")).collect();
                format!("{place}: rules that could not be checked\n{lines}")
            }
        }
    })
}
