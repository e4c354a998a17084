//! The last line: number of findings, of fixed ones, and of fixable ones.

use std::collections::BTreeMap;

use schemas::diagnostic::{Diagnostic, Safety, Severity};

use super::{FileResult, LintFailures};

/// The last line. If a diff only shows fixes, `shown` are those up to this safety.
pub(super) fn summary(all: &[FileResult], failures: &LintFailures, shown: Option<Safety>) -> String {
    let findings = || all.iter().flat_map(|done| &done.checked.diagnostics);
    let count = |severity| findings().filter(|finding| finding.severity == severity).count();
    let counts = [
        counted(count(Severity::Error), "error", "s"),
        counted(count(Severity::Warning), "warning", "s"),
        counted(count(Severity::Info), "info", ""),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    let mut text = if counts.is_empty() { "no findings".to_owned() } else { format!("found {}", counts.join(", ")) };
    if failures.unwritten > 0 {
        text = format!("{} could not be written; {text}", failures.unwritten);
    }
    let unreadable = failures.unchecked.len();
    if unreadable > 0 {
        // Files that were not read have no findings.
        let rest = counted(all.len(), "file", "s").map_or_else(String::new, |rest| format!("; {text} in {rest}"));
        text = format!("{unreadable} could not be checked{rest}");
    }
    let mut fixed: BTreeMap<&str, usize> = BTreeMap::new();
    let fixes = || all.iter().filter_map(|done| done.fixes.as_ref());
    for (code, count) in fixes().flat_map(|fixes| &fixes.fixed) {
        *fixed.entry(code).or_default() += count;
    }
    if !fixed.is_empty() {
        let codes: Vec<&str> = fixed.keys().copied().collect();
        let done = if shown.is_some() { "would be fixed" } else { "fixed" };
        text.push_str(&format!("; {} {done} ({})", fixed.values().sum::<usize>(), codes.join(", ")));
    }
    // A diff has the findings of the text before its fixes.
    let is_shown = |safety| shown.is_some_and(|shown| shown == Safety::Unsafe || safety == Safety::Safe);
    let with = |safety| match is_shown(safety) {
        true => 0,
        false => findings().filter(|finding: &&Diagnostic| fix_is(finding, safety)).count(),
    };
    match (with(Safety::Safe), with(Safety::Unsafe)) {
        (0, 0) => {}
        (safe, 0) => text.push_str(&format!("; {safe} can be fixed with --fix")),
        (0, change) => text.push_str(&format!("; {change} can be fixed with --fix --unsafe-fixes")),
        (safe, change) => {
            text.push_str(&format!("; {safe} can be fixed with --fix, {change} more with --unsafe-fixes"));
        }
    }
    let refused: Vec<&str> = fixes().flat_map(|fixes| &fixes.refused).copied().collect();
    if !refused.is_empty() {
        text.push_str(&format!("\nnot fixed, because the fixes do not converge: {}", refused.join(", ")));
    }
    text
}

fn fix_is(finding: &Diagnostic, safety: Safety) -> bool {
    finding.fix.as_ref().is_some_and(|fix| fix.safety == safety)
}

fn counted(count: usize, word: &str, plural: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {word}")),
        count => Some(format!("{count} {word}{plural}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_checked_and_not_written_are_counted() {
        let failures = LintFailures { unwritten: 2, ..LintFailures::default() };
        assert_eq!(summary(&[], &failures, None), "2 could not be written; no findings");
        let mut failures = LintFailures { unwritten: 1, ..LintFailures::default() };
        failures.unchecked(std::path::Path::new("a.sh"), &anyhow::anyhow!("cannot read a.sh"));
        assert_eq!(summary(&[], &failures, None), "1 could not be checked");
    }
}
