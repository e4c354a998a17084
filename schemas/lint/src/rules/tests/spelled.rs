//! Advice in the words of the launch: the engine's own names, and what a name means elsewhere.

use schemas::{diagnostic::fix, text::Source};

use crate::report::{ReportOptions, report_text};

/// The help of a rule's finding in a text.
fn help(name: &str, text: &str, code: &str) -> String {
    let found = report_text(&Source::new(name, text), &ReportOptions::default()).findings;
    let finding = found.iter().find(|one| one.code == code).unwrap_or_else(|| panic!("{code} in {text}: {found:?}"));
    finding.help.clone().unwrap_or_default()
}

#[test]
fn advice_names_the_flag_that_is_written() {
    let model = "meta-llama/Llama-3.1-8B-Instruct";
    let vllm = help("run.sh", &format!("vllm serve {model} --max-model-len 200000"), "SD066");
    assert!(vllm.contains("`--max-model-len 131072`"), "{vllm}");
    let call = format!("from vllm import LLM\nLLM(model=\"{model}\", max_model_len=200000)\n");
    let call = help("serve.py", &call, "SD066");
    assert!(call.contains("`max_model_len=131072`"), "{call}");
    let config = help("config.yaml", &format!("model: {model}\nmax-model-len: 200000\n"), "SD066");
    assert!(config.contains("`max-model-len: 131072`"), "{config}");
}

#[test]
fn a_format_of_another_name_is_the_one_that_is_meant() {
    let found = help("run.sh", "python3 -m sglang.launch_server --model-path org/m --kv-cache-dtype fp8", "SD195");
    assert_eq!(found, "write `--kv-cache-dtype fp8_e4m3`");
    let key = help("config.yaml", "model: org/m\ndtype: fp16\nmax-model-len: 4096\n", "VL20");
    assert_eq!(key, "write `dtype: float16`");
}

#[test]
fn flags_of_another_engine_have_a_counterpart() {
    for (text, code, expected) in [
        ("vllm serve org/m --tp 2", "VL19", "--tensor-parallel-size"),
        ("vllm serve org/m --max-model-length 4096", "VL19", "--max-model-len"),
        ("python3 -m sglang.launch_server --model-path org/m --max-model-len 4096", "LT09", "--context-length"),
    ] {
        let found = help("run.sh", text, code);
        assert!(found.contains(&format!("`{expected}`")), "{text}: {found}");
    }
}

#[test]
fn a_draft_that_is_not_loaded_limits_nothing() {
    let text = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct \\\n  \
                --speculative-draft-model-path lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B --speculative-num-steps 3 \
                --speculative-eagle-topk 1 --speculative-num-draft-tokens 4\n";
    let codes = |text: &str| -> Vec<&'static str> {
        let found = report_text(&Source::new("run.sh", text), &ReportOptions::default()).findings;
        found.iter().map(|one| one.code).collect()
    };
    assert_eq!(codes(text), ["SD017"]);
    let on = text.replace("--speculative-num-steps", "--speculative-algorithm EAGLE3 --speculative-num-steps");
    assert!(codes(&on).contains(&"SD060"), "{:?}", codes(&on));
    let findings = |source: &Source| report_text(source, &ReportOptions::default()).findings;
    let fixed = fix::until_stable(&Source::new("run.sh", text), true, findings).text;
    assert!(!fixed.contains("--context-length"), "{fixed}");
}

#[test]
fn parts_of_a_model_that_cannot_be_split_are_one_finding() {
    let text = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 3";
    let found = report_text(&Source::new("run.sh", text), &ReportOptions::default()).findings;
    let split: Vec<_> = found.iter().filter(|one| one.code == "SD096").collect();
    assert_eq!(split.len(), 1, "{found:?}");
    assert!(split[0].message.contains("32 attention heads and 8 key/value heads"), "{}", split[0].message);
    assert!(split[0].help.as_deref().is_some_and(|help| help.starts_with("write `--tp 2`")), "{:?}", split[0].help);
}

#[test]
fn the_tag_of_an_image_in_parts_states_the_version() {
    let text = "image:\n  repository: lmsysorg/sglang\n  tag: v0.5.6\ncommand: [python3, -m, sglang.launch_server]\n\
                args:\n  - --model-path=org/m\n";
    let parsed = launch::parse(&Source::new("values.yaml", text), &launch::Options::default());
    let stated = parsed.launches.first().and_then(|launch| launch.engine_version);
    assert_eq!(stated.map(|stated| stated.value.to_string()).as_deref(), Some("0.5.6"));
    let text = "image:\n  repository: vllm/vllm-openai\n  tag: v0.9.2\nargs:\n  - --model=org/m\n  - --dtype=half\n";
    let parsed = launch::parse(&Source::new("values.yaml", text), &launch::Options::default());
    let stated = parsed.launches.first().map(|launch| (launch.engine, launch.engine_version.is_some()));
    assert_eq!(stated, Some((schemas::engines::Engine::Vllm, true)));
}

#[test]
fn a_flag_and_its_value_in_one_item_are_reported_once() {
    let text = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: lmsysorg/sglang:v0.5.6\n    \
                command: [python3, -m, sglang.launch_server]\n    args:\n    - --model-path=org/m\n    - --port 30000\n";
    let found = report_text(&Source::new("pod.yaml", text), &ReportOptions::default()).findings;
    let codes: Vec<&str> = found.iter().map(|one| one.code).filter(|code| code.starts_with("LT")).collect();
    assert_eq!(codes, ["LT17"], "{found:?}");
}
