//! The rules on the labelled corpus of published launches: they find what they must and nothing
//! that they must not, and no working launch gets an error.

use std::collections::{BTreeMap, BTreeSet};

use launch::{Launch, parse};
use lint::{
    report::{ReportOptions, report},
    rules::RULES,
};
use schemas::{
    diagnostic::Severity,
    gpu::GpuMemory,
    model::{ModelConfig, ModelFacts},
    text::Source,
    version::EngineVersion,
};
use serde_json::Value as Json;

const CORPUS: &str = include_str!("../../../tests/data/launches.jsonl");

fn text<'a>(record: &'a Json, field: &str) -> &'a str {
    record[field].as_str().unwrap_or_default()
}

/// The version of a record: the first one in its field, which may also contain ranges and remarks.
fn version(record: &Json) -> Option<EngineVersion> {
    let words = text(record, "version").split([' ', '-', '(', '+', ')']);
    words.filter(|word| word.contains('.')).find_map(|word| word.parse().ok())
}

fn facts(model: &Json) -> Option<ModelFacts> {
    let fields = model["config"].get("fields")?;
    Some(ModelFacts {
        name: text(model, "model").to_owned(),
        origin: "corpus".into(),
        config: ModelConfig::parse(&fields.to_string()).expect("an object"),
        partial: true,
        ..ModelFacts::default()
    })
}

/// The codes found, each with its highest severity.
fn findings(record: &Json) -> BTreeMap<String, Severity> {
    // The corpus stores the environment separately from the command.
    let variables = record["env"].as_object().into_iter().flatten();
    let environment: String =
        variables.map(|(name, value)| format!("{name}={} ", value.as_str().unwrap_or_default())).collect();
    let bare = text(record, "launch").starts_with("--");
    let exports: String = environment.split_whitespace().map(|one| format!("export {one}\n")).collect();
    let launch = text(record, "launch");
    let source =
        Source::new("run.sh", if bare { format!("{exports}{launch}") } else { format!("{environment}{launch}") });
    let version = version(record);
    let parsed = parse(&source, &launch::Options { version, ..launch::Options::default() });
    assert_eq!(parsed.launches.len(), 1, "{}", text(record, "id"));
    let expected_concurrency =
        record["workload"]["concurrency"].as_u64().and_then(|requests| usize::try_from(requests).ok());
    let options =
        ReportOptions { version, gpu_memory: gpu_memory(record), expected_concurrency, ..ReportOptions::default() };
    let models = |_: &Launch| (facts(&record["target"]), facts(&record["draft"]));
    let mut found = BTreeMap::new();
    for diagnostic in report(&source, parsed, models, &options).findings {
        let severity = found.entry(diagnostic.code.to_owned()).or_insert(diagnostic.severity);
        *severity = diagnostic.severity.max(*severity);
    }
    found
}

/// Memory in MiB of the GPU that the record names, such as `8x H20` or `H20-96G`.
fn gpu_memory(record: &Json) -> Option<u64> {
    let name = text(record, "hardware").rsplit("x ").next()?.split([',', ' ', '(']).next()?.replace("-96G", "");
    name.parse::<GpuMemory>().ok().map(|memory| memory.0)
}

fn severity(word: &str) -> Severity {
    match word {
        "error" => Severity::Error,
        "warn" => Severity::Warning,
        _ => Severity::Info,
    }
}

#[test]
fn the_corpus_is_judged_as_it_is_labelled() {
    let ours: BTreeSet<&str> = RULES.iter().map(|rule| rule.code).collect();
    let (mut problems, mut musts) = (Vec::new(), 0);
    for record in CORPUS.lines().map(|line| serde_json::from_str::<Json>(line).expect("a record")) {
        let id = text(&record, "id").to_owned();
        let found = findings(&record);
        let list = |field: &str| record[field].as_array().cloned().unwrap_or_default();
        for silent in list("must_be_silent").iter().filter_map(Json::as_str) {
            if found.contains_key(silent) {
                problems.push(format!("{id}: {silent} must be silent"));
            }
        }
        let mut known = BTreeMap::new();
        for expected in list("expected") {
            let code = text(&expected, "id").to_owned();
            if expected["must"] == true && ours.contains(code.as_str()) {
                musts += 1;
                if !found.contains_key(&code) {
                    problems.push(format!("{id}: {code} must be found"));
                }
            }
            known.insert(code, severity(text(&expected, "severity")));
        }
        for (code, severity) in &found {
            if text(&record, "kind") == "good" && *severity == Severity::Error {
                problems.push(format!("{id}: {code} is an error on a launch that works"));
            }
            if known.get(code).is_some_and(|most| severity > most) {
                problems.push(format!("{id}: {code} is graver than labelled"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(musts > 50, "only {musts} findings are demanded");
}
