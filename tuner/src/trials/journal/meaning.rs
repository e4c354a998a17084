//! The settings of a sweep file that define what its finished trials mean. A resumed sweep may
//! change everything else: configurations, loads, repeats, the search and its budget.

use schemas::sweep::{Objective, SweepDraft, SweepFile};
use serde_json::{Map, Value};

/// Hash of the settings that define what finished trials mean.
pub fn hash(file: &SweepFile) -> String {
    blake3::hash(Value::Object(tables(file)).to_string().as_bytes()).to_hex()[..16].to_owned()
}

/// The keys in which two files differ, each with both values.
pub fn changes(before: &SweepFile, now: &SweepFile) -> Vec<String> {
    let mut changes = Vec::new();
    compare("", &Value::Object(tables(before)), &Value::Object(tables(now)), &mut changes);
    changes
}

fn tables(file: &SweepFile) -> Map<String, Value> {
    let SweepFile { models, drafts, engine, workload, objective, .. } = file;
    let Objective { ttft_ms, itl_ms, .. } = objective;
    let limits = serde_json::json!({ "ttft_ms": ttft_ms, "itl_ms": itl_ms });
    let value = |value: serde_json::Result<Value>| value.unwrap_or_default();
    let mut tables: Map<String, Value> = [
        ("models", value(serde_json::to_value(models))),
        ("engine", value(serde_json::to_value(engine))),
        ("workload", value(serde_json::to_value(workload))),
        ("objective", limits),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect();
    // What the name of a draft in a configuration stands for. Shapes may change, as those of
    // `[space]`; without a list the hash is that of earlier versions.
    let each = |draft: &SweepDraft| {
        let mut of = serde_json::json!({ "algorithm": draft.algorithm, "path": draft.path });
        if let (Some(second), Value::Object(keys)) = (&draft.second_source, &mut of) {
            keys.insert("second_source".into(), second.as_str().into());
        }
        (draft.display_name(), of)
    };
    if !drafts.is_empty() {
        tables.insert("drafts".into(), Value::Object(drafts.iter().map(each).collect()));
    }
    tables
}

fn compare(name: &str, before: &Value, now: &Value, changes: &mut Vec<String>) {
    if let (Value::Object(before), Value::Object(now)) = (before, now) {
        let mut keys: Vec<&String> = before.keys().chain(now.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            let of = |table: &Map<String, Value>| table.get(key).cloned().unwrap_or_default();
            compare(&name, &of(before), &of(now), changes);
        }
    } else if before != now {
        let word = |value: &Value| if value.is_null() { "not set".to_owned() } else { value.to_string() };
        changes.push(format!("{name} was {} and is {}", word(before), word(now)));
    }
}

#[cfg(test)]
mod tests {
    use schemas::text::Source;

    use super::*;

    #[test]
    fn what_finished_trials_do_not_depend_on_may_change() {
        let file = |more: &str| {
            let text =
                format!("[models]\ntarget = 't'\ndraft = 'd'\nalgorithm = 'EAGLE'\n[workload]\nprompts = 'p'\n{more}");
            SweepFile::read(&Source::new("sweep.toml", text)).unwrap_or_else(|finding| panic!("{}", finding.message))
        };
        let base = file("");
        let check = |more: &str, changed: &[&str]| {
            let other = file(more);
            assert_eq!(changes(&base, &other), changed, "{more}");
            assert_eq!(hash(&base) == hash(&other), changed.is_empty(), "{more}");
        };
        check("[search]\nrepeats = 9\nseconds = 10.0\nstrategy = 'guided'\nseed = 3", &[]);
        check(
            "[batch]\nsizes = [1, 8]\n[space]\nnum_steps = [1, 2, 7]\ntopk = [1]\n[objective]\nmetric = 'latency'",
            &[],
        );
        check("output_length = 7", &["workload.output_length was 128 and is 7"]);
        check("[engine]\npage_size = 4", &["engine.page_size was 1 and is 4"]);
        check("[objective]\nmetric = 'goodput'\nttft_ms = 100.0", &["objective.ttft_ms was not set and is 100.0"]);
    }
}
