//! The output of `spectune explain`.

use schemas::{
    diagnostic::{Severity, sarif::Descriptor},
    problems::PROBLEMS,
};

use super::{RULES, area_of};

/// The page of a rule as plain text, by code or name in any case; one line for a problem of the
/// text itself.
pub fn explain(code: &str) -> Option<String> {
    let is = |own: &str, name: &str| code.eq_ignore_ascii_case(own) || code.eq_ignore_ascii_case(name);
    if let Some(rule) = RULES.iter().find(|rule| is(rule.code, rule.name)) {
        return Some(rule.page().plain());
    }
    let problem = PROBLEMS.iter().find(|problem| is(problem.code, problem.name))?;
    Some(format!("{}: {}\n\n{}\n", problem.code, problem.name, problem.summary))
}

/// One line for each code: code, name, severity, summary.
pub fn table() -> String {
    let rules = RULES.iter().map(|rule| (rule.code, rule.name, rule.severity, rule.page().summary));
    let problems =
        PROBLEMS.iter().map(|problem| (problem.code, problem.name, problem.severity, problem.summary.to_owned()));
    let rows: Vec<(&str, &str, Severity, String)> = rules.chain(problems).collect();
    let width = rows.iter().map(|(_, name, ..)| name.len()).max().unwrap_or_default();
    rows.iter()
        .map(|(code, name, severity, summary)| format!("{code:5}  {name:width$}  {:7}  {summary}\n", severity.word()))
        .collect()
}

/// What is known of a rule, or of a problem of the text, for formats that list rules.
pub fn descriptor(code: &str) -> Option<Descriptor> {
    let tags = area_of(code).into_iter().collect();
    if let Some(rule) = RULES.iter().find(|rule| rule.code == code) {
        let page = rule.page();
        let texts = Some((page.plain(), page.markdown()));
        return Some(Descriptor { severity: rule.severity, tags, summary: page.summary, page: texts });
    }
    let problem = PROBLEMS.iter().find(|problem| problem.code == code)?;
    Some(Descriptor { severity: problem.severity, tags, summary: problem.summary.to_owned(), page: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_explained_by_code_and_by_name() {
        let page = explain("sd070").expect("a rule");
        assert!(page.starts_with("SD070: dtype-mismatch\n"), "{page}");
        assert_eq!(explain("dtype-mismatch").as_deref(), Some(page.as_str()));
        assert!(explain("LT05").is_some_and(|text| text.contains("missing-value")));
        assert_eq!(explain("SD"), None);
    }

    #[test]
    fn the_table_has_a_line_for_every_code() {
        assert_eq!(table().lines().count(), RULES.len() + PROBLEMS.len());
    }
}
