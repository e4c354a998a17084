//! Every export that is written is parsed and linted again, for its version.

use std::collections::BTreeSet;

use schemas::{
    diagnostic::Severity,
    export::{Exported, Form, TENSORRT_LLM_KEYS, Tuning, export},
    flags::Speculative,
    launch_file::LaunchFile,
    model::{ModelConfig, ModelFacts},
    tree::TreeShape,
    version::EngineVersion,
};
use serde_json::Value;

use super::{TREE, launch_file, tuning};
use crate::exported::check;

/// A target and its draft: name, algorithm, whether the draft has a folder, and both configs.
type Pair = (&'static str, &'static str, bool, &'static str, &'static str);

const LLAMA: &str = r#"{"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "max_position_embeddings": 8192,
    "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256}"#;

const PAIRS: [Pair; 4] = [
    (
        "EAGLE-3",
        "EAGLE3",
        true,
        LLAMA,
        r#"{"architectures": ["LlamaForCausalLMEagle3"], "torch_dtype": "float16", "max_position_embeddings": 2048,
            "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 1,
            "vocab_size": 128256, "draft_vocab_size": 32000}"#,
    ),
    (
        "EAGLE-2",
        "EAGLE",
        true,
        LLAMA,
        r#"{"architectures": ["LlamaForCausalLMEagle"], "torch_dtype": "float16", "max_position_embeddings": 2048,
            "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 1,
            "vocab_size": 128256}"#,
    ),
    (
        "MTP",
        "NEXTN",
        false,
        r#"{"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "torch_dtype": "bfloat16",
            "max_position_embeddings": 32768, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
            "num_hidden_layers": 36, "num_nextn_predict_layers": 1, "vocab_size": 151680}"#,
        "",
    ),
    (
        "a small model",
        "STANDALONE",
        true,
        LLAMA,
        r#"{"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "max_position_embeddings": 8192,
            "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 16,
            "vocab_size": 128256}"#,
    ),
];

const SGLANG: [&str; 8] = ["0.5.9", "0.5.12", "0.5.13", "0.5.14", "0.5.15.post1", "0.5.16", "0.5.19", "0.5.23"];
const VLLM: [&str; 9] = ["0.9.2", "0.10.2", "0.11.2", "0.18.1", "0.24.0", "0.26.0", "0.30.0", "0.32.0", "0.33.0"];
const TENSORRT_LLM: [&str; 3] = ["1.2.0", "1.3.0", "1.4.0"];

fn versions(form: Form) -> &'static [&'static str] {
    match form {
        Form::Sglang | Form::Slime | Form::SglangAdaptive => &SGLANG,
        Form::Vllm => &VLLM,
        Form::TensorRtLlm => &TENSORRT_LLM,
    }
}

/// Chains, trees, no speculation, and tables of them.
fn tables() -> Vec<Vec<(usize, TreeShape)>> {
    let (short, long, off) = (TreeShape::chain(1), TreeShape::chain(7), TreeShape::OFF);
    let wide = TreeShape { num_draft_tokens: 60, ..TREE };
    vec![
        vec![(128, off)],
        vec![(128, short)],
        vec![(128, long)],
        vec![(128, TREE)],
        vec![(128, wide)],
        vec![(4, long), (16, TreeShape::chain(3)), (128, short)],
        vec![(4, long), (32, short), (128, off)],
        vec![(5, short), (128, long)],
        vec![(1, TREE), (8, TreeShape::chain(3)), (128, off)],
    ]
}

fn facts(config: &str) -> Option<ModelFacts> {
    let config = ModelConfig::parse(config).ok()?;
    Some(ModelFacts { config, ..ModelFacts::default() })
}

/// Calls `look` with everything that is written.
fn each(mut look: impl FnMut(&Exported, Form, &Pair)) -> usize {
    let mut written = 0;
    for pair in &PAIRS {
        let (_, algorithm, has_draft, _, _) = *pair;
        for table in tables() {
            for captures in [None, Some(vec![1, 2, 4, 8, 16, 32, 64, 128])] {
                let launch = LaunchFile {
                    speculative_algorithm: Some(algorithm.into()),
                    speculative_draft_model_path: has_draft.then(|| "models/draft".into()),
                    cuda_graph_bs: captures,
                    ..launch_file()
                };
                let tuning = Tuning { draft_context_length: None, target_dtype: None, ..tuning(launch, &table) };
                let tuning = tuning.with_facts(facts(pair.3).as_ref(), facts(pair.4).as_ref());
                for form in Form::ALL {
                    for version in versions(form) {
                        for batch in [None, Some(3), Some(64)] {
                            let version: EngineVersion = version.parse().expect("a version");
                            let Ok(exported) = export(&tuning, form, batch, Some(version)) else { continue };
                            written += 1;
                            look(&exported, form, pair);
                        }
                    }
                }
            }
        }
    }
    written
}

/// Errors that no export can mend, since the version does not run such models: pair, code.
const OF_THE_MODELS: [(&str, &str); 3] = [
    // vLLM before 0.11 knows MTP layers by the names of their models.
    ("MTP", "VL11"),
    // vLLM 0.10 to 0.14 has no draft models.
    ("a small model", "VL09"),
    // SGLang before 0.5.15 cannot merge batches of a draft of another width.
    ("a small model", "SD058"),
];

#[test]
fn every_export_that_is_written_lints_without_an_error_for_its_version() {
    let mut wrong = BTreeSet::new();
    let written = each(|exported, form, pair| {
        let checked = check(exported, form, facts(pair.3).as_ref(), facts(pair.4).as_ref());
        let errors = checked.findings.iter().filter(|finding| finding.severity == Severity::Error);
        for finding in errors.filter(|finding| !OF_THE_MODELS.contains(&(pair.0, finding.code))) {
            wrong.insert(format!("{}, {form} {}: {} {}", pair.0, exported.version, finding.code, finding.message));
        }
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(written > 2000, "{written}");
}

#[test]
fn the_json_for_vllm_has_keys_of_its_version() {
    let mut seen = BTreeSet::new();
    each(|exported, form, _| {
        let Some((_, rest)) = exported.text.split_once("--speculative-config '") else { return };
        assert_eq!(form, Form::Vllm);
        let json: Value = serde_json::from_str(rest.split_once('\'').expect("quoted").0).expect("JSON");
        for key in json.as_object().expect("an object").keys() {
            let known = Speculative::Key.word(key).unwrap_or_else(|| panic!("{key}"));
            assert!(known.exists_in(exported.version), "{key} in {}", exported.version);
            seen.insert(key.clone());
        }
    });
    let expected = ["method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size"];
    assert_eq!(seen.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn the_file_for_tensorrt_llm_has_keys_of_its_classes() {
    let keys = |class: &str| {
        let known = TENSORRT_LLM_KEYS.iter().find(|(name, _)| *name == class);
        known.unwrap_or_else(|| panic!("{class}")).1
    };
    let mut trees = 0;
    each(|exported, form, _| {
        if form != Form::TensorRtLlm {
            return;
        }
        let kind = exported.text.split_once("decoding_type: ").map(|(_, rest)| rest.lines().next().expect("a line"));
        let mut class = "TorchLlmArgs";
        for line in exported.text.lines() {
            let key = line.trim_start().split(':').next().expect("a key");
            match line.len() - line.trim_start().len() {
                0 => {
                    assert!(keys("TorchLlmArgs").contains(&key), "{line}");
                    class = match key {
                        "speculative_config" => kind.expect("a kind"),
                        "cuda_graph_config" => "DecodeCudaGraphConfig",
                        _ => class,
                    };
                }
                2 => assert!(keys(class).contains(&key), "{class}: {line}"),
                _ => assert!(key.parse::<usize>().is_ok(), "{line}"),
            }
        }
        trees += usize::from(exported.text.contains("use_dynamic_tree: true"));
    });
    assert!(trees > 0);
}
