//! Every launch of the published corpus is read word for word as by a shell and argparse.

use launch::{Launch, Options, Value, parse};
use schemas::{diagnostic::Severity, engines::Engine, flags::Key, text::Source};
use serde_json::Value as Json;

const CORPUS: &str = include_str!("../../../tests/data/launches.jsonl");

fn records() -> Vec<Json> {
    CORPUS.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

fn text<'a>(record: &'a Json, field: &str) -> &'a str {
    record[field].as_str().unwrap_or_default()
}

fn only_launch(record: &Json) -> Launch {
    let id = text(record, "id");
    let source = Source::new("<corpus>", text(record, "launch"));
    let parsed = parse(&source, &Options::default());
    let errors: Vec<_> = parsed.findings.iter().filter(|found| found.harm == Severity::Error).collect();
    assert!(errors.is_empty(), "{id}: {errors:?}");
    let mut launches = parsed.launches;
    assert_eq!(launches.len(), 1, "{id}");
    launches.remove(0)
}

#[test]
fn every_launch_is_recognised_for_its_engine() {
    for record in records() {
        let launch = only_launch(&record);
        assert_eq!(launch.engine.word(), text(&record, "engine"), "{}", text(&record, "id"));
    }
}

#[test]
fn the_words_are_those_of_a_shell() {
    for record in records() {
        let launch = only_launch(&record);
        let mut words = Vec::new();
        for argument in &launch.arguments {
            if !argument.is_positional() {
                words.push(argument.flag.value.clone());
            }
            words.extend(argument.values.iter().map(|value| match &value.value {
                Value::Known(text) => text.clone(),
                Value::Unknown(text) => panic!("{}: {text} is constant", text),
            }));
        }
        let expected: Vec<String> = record["argv"]
            .as_array()
            .expect("words")
            .iter()
            .filter_map(Json::as_str)
            .flat_map(|word| word.strip_prefix("--").map_or(vec![word], |_| word.splitn(2, '=').collect()))
            .map(str::to_owned)
            .collect();
        assert!(expected.ends_with(&words), "{}:\n{words:?}\n{expected:?}", text(&record, "id"));
        assert!(expected.len() - words.len() <= 3, "{}", text(&record, "id"));
    }
}

#[test]
fn every_flag_about_speculation_is_known() {
    for record in records() {
        let launch = only_launch(&record);
        if launch.engine == Engine::Vllm {
            continue;
        }
        for argument in &launch.arguments {
            let flag = &argument.flag.value;
            let prefixed = flag.starts_with("--sglang-speculative-");
            // slime does not forward a flag without its prefix.
            let bare = flag.starts_with("--speculative-") && launch.engine == Engine::Sglang;
            let has_no_rule = flag.ends_with("-moe-a2a-backend");
            assert!(!(prefixed || bare) || has_no_rule || argument.key.is_some(), "{}: {flag}", text(&record, "id"));
        }
        let model = launch.text(Key::ModelPath).map(|model| model.value.to_owned());
        assert!(model.is_some(), "{} names its target", text(&record, "id"));
    }
}

#[test]
fn a_printed_launch_reads_back_as_the_same() {
    for record in records() {
        let launch = only_launch(&record);
        let printed = launch.to_string();
        let again = parse(&Source::new("<printed>", printed.clone()), &Options::default());
        let again = again.launches.first().map(ToString::to_string);
        assert_eq!(again.as_deref(), Some(printed.as_str()), "{}", text(&record, "id"));
    }
}
