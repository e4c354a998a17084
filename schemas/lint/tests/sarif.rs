//! The output of `--format sarif` is valid SARIF 2.1.0 according to the standard's own schema.

use lint::{
    report::{ReportOptions, render, report_text},
    rules::RULES,
};
use schemas::{
    diagnostic::{Diagnostic, Edit, Findings, Fix, Format, Related, Safety},
    problems::PROBLEMS,
    text::{Source, Span},
};
use serde_json::Value as Json;

const SCHEMA: &str = include_str!("../../../tests/data/sarif/sarif-schema-2.1.0.json");
const CORPUS: &str = include_str!("../../../tests/data/launches.jsonl");

fn validator() -> jsonschema::Validator {
    let mut schema: Json = serde_json::from_str(SCHEMA).expect("the schema");
    // The standard's pattern for language tags has an extra bracket, and spectune writes no
    // language.
    for owner in ["run", "toolComponent"] {
        let language = schema.pointer_mut(&format!("/definitions/{owner}/properties/language"));
        language.and_then(Json::as_object_mut).expect("the field").remove("pattern");
    }
    jsonschema::options()
        .with_draft(jsonschema::Draft::Draft7)
        .should_validate_formats(true)
        .build(&schema)
        .expect("a valid schema")
}

fn check(findings: &[Findings<'_>]) -> Json {
    let log: Json = serde_json::from_str(&render(findings, Format::Sarif, false)).expect("JSON");
    let validator = validator();
    let errors: Vec<String> =
        validator.iter_errors(&log).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert_eq!(errors, Vec::<String>::new());
    log
}

#[test]
fn the_schema_refuses_what_is_not_sarif() {
    let source = Source::new("x.sh", "");
    let log = render(&[Findings { source: &source, diagnostics: &[] }], Format::Sarif, false);
    for (from, to) in [
        ("2.1.0\"", "2.0.0\""),
        ("\"results\"", "\"result\""),
        ("\"tool\"", "\"tools\""),
        ("spectune\"", "spectune\", \"x\": 1"),
    ] {
        let wrong = log.replace(from, to);
        assert_ne!(wrong, log);
        assert!(!validator().is_valid(&serde_json::from_str(&wrong).expect("JSON")), "{wrong}");
    }
}

#[test]
fn nothing_found_is_a_valid_log() {
    let source = Source::new("x.sh", "");
    check(&[]);
    check(&[Findings { source: &source, diagnostics: &[] }]);
}

#[test]
fn the_findings_of_the_corpus_are_a_valid_log() {
    let mut looked: Vec<(Source, Vec<Diagnostic>)> = Vec::new();
    for (number, line) in CORPUS.lines().enumerate() {
        let record: Json = serde_json::from_str(line).expect("a record");
        let source = Source::new(format!("./launch {number}.sh"), record["launch"].as_str().expect("a launch"));
        let diagnostics = report_text(&source, &ReportOptions::default()).findings;
        looked.push((source, diagnostics));
    }
    let findings: Vec<Findings<'_>> =
        looked.iter().map(|(source, diagnostics)| Findings { source, diagnostics }).collect();
    let log = check(&findings);
    let count = looked.iter().map(|(_, diagnostics)| diagnostics.len()).sum::<usize>();
    assert_eq!(log["runs"][0]["results"].as_array().map(Vec::len), Some(count));
    assert!(count > 100, "only {count} findings");
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().expect("rules");
    for rule in rules.iter().filter(|rule| RULES.iter().any(|known| rule["id"] == known.code)) {
        let page = rule["help"]["markdown"].as_str().unwrap_or_default();
        assert!(page.starts_with(&format!("# {}: ", rule["id"].as_str().expect("a code"))), "{rule}");
    }
}

#[test]
fn every_rule_and_odd_names_and_places_are_valid() {
    let codes = RULES.iter().map(|rule| (rule.code, rule.name, rule.severity));
    let codes = codes.chain(PROBLEMS.iter().map(|problem| (problem.code, problem.name, problem.severity)));
    let diagnostics: Vec<Diagnostic> = codes
        .map(|(code, name, severity)| {
            let edits = vec![
                Edit { span: Span::new(1, 1), replacement: "ä\n".into() },
                Edit { span: Span::new(40, 90), replacement: String::new() },
            ];
            Diagnostic {
                code,
                name,
                severity,
                message: "a message".into(),
                span: Span::new(3, 99),
                label: String::new(),
                related: vec![Related { span: Span::new(0, 0), label: String::new() }],
                notes: vec!["a note".into()],
                help: None,
                fix: Some(Fix { description: "do".into(), safety: Safety::Unsafe, edits }),
            }
        })
        .collect();
    for name in ["<stdin>", "/root/a b#c?.sh", "C:\\x.sh", "ä/ö%20.yaml", "", "a:b"] {
        let source = Source::new(name, "sglang \u{1F600}\nserve");
        let log = check(&[Findings { source: &source, diagnostics: &diagnostics }]);
        let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().expect("rules");
        assert_eq!(rules.len(), diagnostics.len());
        assert!(
            rules.iter().all(|rule| rule["shortDescription"]["text"].as_str().is_some_and(|text| !text.is_empty()))
        );
    }
}
