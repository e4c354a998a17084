//! The launch of slime's guide to speculative decoding, and the findings when a line is missing.

use launch::{
    Options, parse,
    resolve::{resolve, version_of},
};
use schemas::{
    diagnostic::{Diagnostic, Severity},
    model::{ModelConfig, ModelFacts},
    text::Source,
};

use super::super::{Context, Selection, lint};
use crate::published_models;

const SLIME: &str = "SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 1
   --sglang-mem-fraction-static 0.8

   --sglang-speculative-algorithm EAGLE3
   --sglang-speculative-draft-model-path /root/sglang-EAGLE3-LLaMA3.1-Instruct-8B
   --sglang-speculative-num-steps 5
   --sglang-speculative-eagle-topk 8
   --sglang-speculative-num-draft-tokens 32

   --sglang-max-running-requests 48
   --sglang-dtype float16
   --sglang-context-length 2048  # Limited by draft model
   --sglang-attention-backend fa3
)
";

const SGLANG: &str = "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct \\
   --mem-fraction-static 0.8 \\
   --speculative-algorithm EAGLE3 \\
   --speculative-draft-model-path /root/sglang-EAGLE3-LLaMA3.1-Instruct-8B \\
   --speculative-num-steps 5 \\
   --speculative-eagle-topk 8 \\
   --speculative-num-draft-tokens 32 \\
   --dtype float16 \\
   --context-length 2048 \\
   --attention-backend fa3 \\
   --max-running-requests 48
";

/// The configs as published.
fn checkpoints() -> (ModelFacts, ModelFacts) {
    let facts =
        |text: &str| ModelFacts { config: ModelConfig::parse(text).expect("a config"), ..ModelFacts::default() };
    let target = facts(
        r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
            "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": false,
            "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 8192}}"#,
    );
    let draft = facts(
        r#"{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 4096,
            "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
            "vocab_size": 128256, "draft_vocab_size": 32000, "max_position_embeddings": 2048,
            "torch_dtype": "float16", "tie_word_embeddings": false}"#,
    );
    (target, draft)
}

/// The findings with the checkpoints' files available, and with only the bundled table.
fn found(text: &str, version: Option<&str>) -> Vec<Vec<Diagnostic>> {
    let source = Source::new("launch", text);
    let stated = version.map(|version| version.parse().expect("a version"));
    let parsed = parse(&source, &Options { version: stated, ..Options::default() });
    assert!(parsed.findings.is_empty(), "{:?}", parsed.findings);
    let launch = parsed.launches.first().expect("a launch");
    let (version, given) = version_of(launch, stated);
    let (target, draft) = checkpoints();
    [(Some(target), Some(draft)), published_models::facts_of(launch)]
        .iter()
        .map(|(target, draft)| {
            let (target, draft) = (target.as_ref(), draft.as_ref());
            assert!(target.is_some() && draft.is_some());
            let resolved = resolve(launch, version, given, target, draft, None);
            let context = Context { target, draft, ..Context::alone(launch, &resolved) };
            lint(&context, None, &Selection::default())
        })
        .collect()
}

/// Checks that there is exactly one finding, which contains these words.
fn check(text: &str, version: Option<&str>, code: &str, severity: Severity, words: &[&str]) {
    check_next_to(text, version, (code, &[]), severity, words);
}

/// As [`check`], with other findings after it.
fn check_next_to(
    text: &str,
    version: Option<&str>,
    (code, others): (&str, &[&str]),
    severity: Severity,
    words: &[&str],
) {
    for diagnostics in found(text, version) {
        let codes: Vec<&str> = diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
        assert_eq!(codes, [&[code], others].concat(), "{version:?}");
        let diagnostic = &diagnostics[0];
        assert_eq!(diagnostic.severity, severity);
        let said = format!("{diagnostic:?}");
        for words in words {
            assert!(said.contains(words), "'{words}' in {said}");
        }
    }
}

fn without(text: &str, flag: &str) -> String {
    let kept: Vec<&str> = text.lines().filter(|line| !line.contains(flag)).collect();
    assert_eq!(kept.len() + 1, text.lines().count());
    kept.join("\n")
}

#[test]
fn the_guide_is_clean_as_it_stands() {
    for text in [SLIME, SGLANG] {
        for version in [None, Some("0.5.2"), Some("0.5.9"), Some("0.4.10")] {
            for diagnostics in found(text, version) {
                assert!(diagnostics.is_empty(), "{version:?}: {diagnostics:?}");
            }
        }
    }
}

#[test]
fn without_the_dtype_the_graphs_cannot_be_captured() {
    let words = ["Capture cuda graph failed", "expected mat1 and mat2 to have the same dtype", "BFloat16 != c10::Half"];
    for version in [None, Some("0.5.2"), Some("0.4.10")] {
        let slime = without(SLIME, "--sglang-dtype");
        let own = ["`--sglang-dtype float16`", "`--sglang-dtype bfloat16`"];
        check(&slime, version, "SD070", Severity::Error, &[&words[..], &own[..]].concat());
        let sglang = without(SGLANG, "--dtype");
        check(&sglang, version, "SD070", Severity::Error, &[&words[..], &["`--dtype float16`"]].concat());
    }
}

#[test]
fn without_the_context_length_the_draft_is_too_short() {
    let words = ["ValueError", "context_length (131072) is greater than the derived context_length (2048)"];
    let (slime, sglang) = (without(SLIME, "--sglang-context-length"), without(SGLANG, "--context-length"));
    for version in [None, Some("0.5.2"), Some("0.5.9"), Some("0.5.23")] {
        let own = ["add `--sglang-context-length 2048`"];
        check(&slime, version, "SD060", Severity::Error, &[&words[..], &own].concat());
        check(&sglang, version, "SD060", Severity::Error, &[&words[..], &["add `--context-length 2048`"]].concat());
    }
    for version in [Some("0.4.7"), Some("0.4.10"), Some("0.5.0")] {
        let words = ["illegal memory access", "add `--sglang-context-length 2048`"];
        // It runs with short prompts, and drafts poorly with long ones.
        let codes = ("SD061", &["SD062"][..]);
        check_next_to(&slime, version, codes, Severity::Warning, &words);
        check_next_to(&sglang, version, codes, Severity::Warning, &["add `--context-length 2048`"]);
    }
}

#[test]
fn without_the_backend_flashinfer_pads_its_batches() {
    let words = ["flashinfer pads batches", "illegal memory access", "#9888", "#9521"];
    let (slime, sglang) = (without(SLIME, "--sglang-attention-backend"), without(SGLANG, "--attention-backend"));
    for version in [None, Some("0.5.2"), Some("0.5.9"), Some("0.4.10")] {
        let own = ["add `--sglang-attention-backend fa3`"];
        check(&slime, version, "SD081", Severity::Warning, &[&words[..], &own].concat());
        let severity = if version.is_none() { Severity::Info } else { Severity::Warning };
        check(&sglang, version, "SD081", severity, &[&words[..], &["add `--attention-backend fa3`"]].concat());
    }
}

#[test]
fn a_target_that_the_launch_does_not_name_is_said_to_be_assumed() {
    let diagnostics = found(&without(SLIME, "--sglang-dtype"), None).remove(1);
    let notes = &diagnostics.first().expect("found").notes;
    assert!(notes.iter().any(|note| note.contains("assumed because the draft was trained for it")), "{notes:?}");
}

#[test]
fn words_that_may_hold_flags_hold_back_what_is_said_of_absent_ones() {
    let text = without(SLIME, "--sglang-dtype").replace("\n)", "\n   \"${EXTRA_SGLANG_ARGS[@]}\"\n)");
    for diagnostics in found(&text, None) {
        assert!(diagnostics.is_empty(), "{diagnostics:?}");
    }
}

#[test]
fn what_only_sglang_does_is_a_hint_for_spectunes_own_engine() {
    let text = "model_path = \"meta-llama/Llama-3.1-8B-Instruct\"\nspeculative_algorithm = \"EAGLE3\"\n\
                speculative_draft_model_path = \"lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B\"\n\
                context_length = 2048\nmax_running_requests = 8\nattention_backend = \"fa3\"\n";
    for (engine, severity) in [("spectune", Severity::Info), ("sglang", Severity::Error)] {
        check(&format!("engine = \"{engine}\"\n{text}"), None, "SD070", severity, &["add `dtype = \\\"bfloat16\\\"`"]);
    }
}

#[test]
fn launches_of_vllm_are_not_judged_by_what_sglang_does() {
    let text = SGLANG.replace("python3 -m sglang.launch_server", "vllm serve").replace("--dtype float16 ", "");
    let parsed = parse(&Source::new("run.sh", text), &Options::default());
    let launch = parsed.launches.first().expect("a launch");
    let (target, draft) = checkpoints();
    let (version, given) = version_of(launch, None);
    let resolved = resolve(launch, version, given, Some(&target), Some(&draft), None);
    let context = Context { target: Some(&target), draft: Some(&draft), ..Context::alone(launch, &resolved) };
    let found = lint(&context, None, &Selection::default());
    // Its parser lacks these flags; nothing else is reported.
    assert!(!found.is_empty() && found.iter().all(|found| found.code == "VL19"), "{found:?}");
}
