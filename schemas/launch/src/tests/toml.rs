//! Launch files.

use schemas::{flags::Key, text::Source, version::EngineVersion};

use super::super::{Engine, Options, parse};

const FILE: &str = r#"engine = "sglang"
engine_version = "0.5.9"
model_path = "meta-llama/Llama-3.1-8B-Instruct"
speculative_algorithm = "EAGLE3"
cuda_graph_bs = [1, 2, 4]
mem_fraction_static = 0.8
trust_remote_code = true
enable_lora = false

[environment]
SGLANG_ENABLE_SPEC_V2 = "1"
"#;

#[test]
fn a_launch_file_is_a_launch_with_places() {
    let source = Source::new("launch.toml", FILE);
    let parsed = parse(&source, &Options::default());
    assert_eq!(parsed.findings, []);
    let launch = parsed.launches.first().expect("a launch");
    assert_eq!(launch.engine, Engine::Sglang);
    assert_eq!(launch.engine_version.as_ref().map(|version| version.value), Some(EngineVersion::new(0, 5, 9)));
    let model = launch.text(Key::ModelPath).expect("given");
    assert_eq!(source.slice(model.span), "\"meta-llama/Llama-3.1-8B-Instruct\"");
    let sizes = launch.integers(Key::CudaGraphBs).expect("integers");
    assert_eq!(sizes.iter().map(|size| size.value).collect::<Vec<_>>(), [1, 2, 4]);
    assert_eq!(source.slice(sizes[2].span), "4");
    assert_eq!(launch.number(Key::MemFractionStatic).map(|number| number.value), Some(0.8));
    assert!(launch.has(Key::TrustRemoteCode) && !launch.has(Key::EnableLora));
    assert_eq!(launch.variable("SGLANG_ENABLE_SPEC_V2").map(|variable| variable.value), Some("1"));
}

#[test]
fn edits_of_a_file_are_toml() {
    let source = Source::new("launch.toml", FILE);
    let parsed = parse(&source, &Options::default());
    let launch = parsed.launches.first().expect("a launch");
    let version = EngineVersion::new(0, 5, 9);
    let apply = |edit: schemas::diagnostic::Edit| {
        let mut text = FILE.to_owned();
        text.replace_range(edit.span.range(), &edit.replacement);
        text
    };
    let added = apply(launch.add(Key::Dtype, version, "float16"));
    assert!(added.contains("enable_lora = false\ndtype = \"float16\"\n\n[environment]"), "{added}");
    let changed = apply(launch.set(Key::CudaGraphBs, version, "1 2 3"));
    assert!(changed.contains("cuda_graph_bs = [1, 2, 3]\n"), "{changed}");
    let removed = apply(launch.remove(Key::TrustRemoteCode).expect("given"));
    assert!(!removed.contains("trust_remote_code") && removed.contains("0.8\nenable_lora"), "{removed}");
}

fn check(text: &str, expected: &[(usize, usize, &str)]) {
    let source = Source::new("launch.toml", text);
    let parsed = parse(&source, &Options::default());
    let found: Vec<_> = parsed
        .findings
        .iter()
        .map(|diagnostic| {
            let place = source.position(diagnostic.span.start);
            (place.line, place.column, diagnostic.message.as_str())
        })
        .collect();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((line, column, message), (expected_line, expected_column, part)) in found.iter().zip(expected) {
        assert_eq!((line, column), (expected_line, expected_column), "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn errors_point_into_the_users_file() {
    check("model_path = \"x\"\nspeculative_num_stps = 3\n", &[(2, 1, "unknown field")]);
    check("model_path = \"x\"\ntp_size = \"four\"\n", &[(2, 11, "invalid type")]);
    check("model_path = \n", &[(1, 14, "")]);
    check("engine_version = \"new\"\n", &[(1, 18, "not an engine version")]);
    check("", &[]);
}

#[test]
fn an_unknown_key_comes_with_the_one_that_was_meant() {
    let source = Source::new("launch.toml", "speculative_num_stps = 3\ntp = 2");
    let parsed = parse(&source, &Options::default());
    let help = parsed.findings.first().and_then(|diagnostic| diagnostic.help.clone());
    assert_eq!(help.as_deref(), Some("write `speculative_num_steps`"));
}

#[test]
fn files_of_other_programs_hold_no_launch() {
    for text in ["[package]\nname = \"x\"\n", "[lint]\nselect = [\"SD\"]\n", "a = 1\n"] {
        let parsed = parse(&Source::new("x.toml", text), &Options::default());
        assert!(parsed.launches.is_empty(), "{text}");
        assert_eq!(parsed.findings.iter().map(|found| found.code).collect::<Vec<_>>(), ["LT02"], "{text}");
    }
}
