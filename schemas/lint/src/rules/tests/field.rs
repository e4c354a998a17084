//! Real launches with their expected findings: failures that are visible in the text, and cases
//! without a failure.
//!
//! Expected values are from the engines' sources and issues; the rules' pages name them.

use launch::{
    Options, parse,
    resolve::{resolve, version_of},
};
use schemas::{
    diagnostic::{Diagnostic, Severity, fix},
    gpu::GpuMemory,
    text::Source,
};

use super::super::{Context, Selection, lint};
use crate::published_models;

/// Facts in addition to a launch: the engine's version, the GPU, the number of concurrent requests.
#[derive(Clone, Copy, Default)]
struct GivenFacts<'a> {
    version: Option<&'a str>,
    gpu: Option<&'a str>,
    requests: Option<usize>,
}

fn found(text: &str, extra: GivenFacts<'_>) -> Vec<Diagnostic> {
    let source = Source::new("run.sh", text);
    let stated = extra.version.map(|version| version.parse().expect("a version"));
    let parsed = parse(&source, &Options { version: stated, ..Options::default() });
    let [launch] = parsed.launches.as_slice() else { panic!("one launch in\n{text}") };
    let (version, given) = version_of(launch, stated);
    let (target, draft) = published_models::facts_of(launch);
    let gpu_memory = extra.gpu.map(|name| name.parse::<GpuMemory>().expect("a GPU").0);
    let resolved = resolve(launch, version, given, target.as_ref(), draft.as_ref(), gpu_memory);
    let context = Context {
        target: target.as_ref(),
        draft: draft.as_ref(),
        expected_concurrency: extra.requests,
        gpu_memory,
        ..Context::alone(launch, &resolved)
    };
    lint(&context, None, &Selection::default())
}

fn severity(code: &str, found: &[Diagnostic]) -> Option<Severity> {
    found.iter().filter(|one| one.code == code).map(|one| one.severity).max()
}

/// Checks that a rule finds something of this severity in this version (`None`: not stated).
#[track_caller]
fn finds(text: &str, version: Option<&str>, code: &str, expected: Severity) {
    finds_next_to(text, GivenFacts { version, ..GivenFacts::default() }, code, expected);
}

#[track_caller]
fn finds_next_to(text: &str, extra: GivenFacts<'_>, code: &str, expected: Severity) {
    let found = found(text, extra);
    assert_eq!(severity(code, &found), Some(expected), "{code} in\n{text}\n{found:#?}");
}

/// Checks that a rule finds nothing.
#[track_caller]
fn silent(text: &str, version: Option<&str>, code: &str) {
    silent_next_to(text, GivenFacts { version, ..GivenFacts::default() }, code);
}

#[track_caller]
fn silent_next_to(text: &str, extra: GivenFacts<'_>, code: &str) {
    let found = found(text, extra);
    assert_eq!(severity(code, &found), None, "{code} in\n{text}\n{found:#?}");
}

/// Checks that no finding is an error.
#[track_caller]
fn sound(text: &str, version: Option<&str>) {
    let found = found(text, GivenFacts { version, ..GivenFacts::default() });
    assert!(found.iter().all(|one| one.severity < Severity::Error), "{text}\n{found:#?}");
}

fn sglang(flags: &str) -> String {
    format!("python3 -m sglang.launch_server {flags}")
}

fn vllm(flags: &str, json: &str) -> String {
    format!("vllm serve {flags} --speculative-config '{json}'")
}

const CHAIN: &str =
    "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --max-running-requests 16";

#[test]
fn a_share_near_one_is_not_filled_where_tokens_are_bounded() {
    let launch = "--model-path deepseek-ai/DeepSeek-R1 --tp 8 --disaggregation-mode prefill --mem-fraction-static 0.95 \
                  --max-running-requests 64 --speculative-algorithm EAGLE --speculative-num-steps 2 \
                  --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 --attention-backend trtllm_mla";
    silent(&sglang(&format!("{launch} --max-total-tokens 8192")), Some("0.5.8"), "NR21");
    finds(&sglang(launch), Some("0.5.8"), "NR21", Severity::Error);
}

#[test]
fn tensor_parallelism_of_slime_and_miles() {
    let launch = |size: u32| {
        format!(
            "SGLANG_ARGS=( --rollout-num-gpus-per-engine 8 --sglang-tp-size {size} --sglang-max-running-requests 64 )"
        )
    };
    silent(&launch(8), None, "SD171");
    finds(&launch(4), None, "SD171", Severity::Warning);
    finds("SGLANG_ARGS=( --sglang-model-path m --sglang-max-running-requests 64 )", None, "SD171", Severity::Error);
}

#[test]
fn no_error_hangs_on_a_version_that_no_one_named() {
    let launch =
        sglang("--model-path m --cuda-graph-max-bs 16 --max-running-requests 16 --speculative-algorithm NGRAM");
    finds(&launch, None, "SD086", Severity::Info);
    finds(&launch, Some("0.5.23"), "SD086", Severity::Error);
    silent(&launch, Some("0.5.9"), "SD086");
    let notes = found(&launch, GivenFacts::default()).into_iter().flat_map(|one| one.notes);
    assert!(notes.into_iter().any(|note| note.contains("sglang 0.5.19 has every flag")));
    // A value that was added later, and an algorithm.
    let launch = sglang(
        "--model-path m --max-running-requests 16 --speculative-algorithm DFLASH --speculative-draft-model-path d",
    );
    sound(&launch, None);
    sound(
        &sglang("--model-path m --speculative-algorithm NGRAM --attention-backend dsa --max-running-requests 4"),
        None,
    );
    sound(
        "vllm serve m --speculative-config '{\"method\": \"medusa\", \"model\": \"d\", \"num_speculative_tokens\": 3}'",
        None,
    );
}

#[test]
fn a_fix_writes_no_flag_that_the_version_may_not_know() {
    let text = sglang("--model-path m --cuda-graph-max-bs 16 --max-running-requests 16 --speculative-algorithm NGRAM");
    let source = Source::new("run.sh", text.clone());
    let fixed =
        |version| fix::apply(&source, &found(&text, GivenFacts { version, ..GivenFacts::default() }), true).text;
    assert!(!fixed(None).contains("--cuda-graph-max-bs-decode"), "{}", fixed(None));
    assert!(fixed(Some("0.5.23")).contains("--cuda-graph-max-bs-decode 16"), "{}", fixed(Some("0.5.23")));
    // A switch that is set on purpose is kept.
    let text = sglang(&format!("--model-path m --disable-cuda-graph --speculative-algorithm EAGLE {CHAIN}"));
    let all = found(&text, GivenFacts { version: Some("0.5.9"), ..GivenFacts::default() });
    assert!(fix::apply(&Source::new("run.sh", text), &all, true).text.contains("--disable-cuda-graph"));
}

#[test]
fn deepseek_v4_sets_its_own_limit_and_takes_two_names() {
    for model in ["DeepSeek-V4-Flash", "DeepSeek-V4-Flash-0731", "DeepSeek-V4-Flash-of-mine"] {
        let launch = format!("sglang serve --model-path deepseek-ai/{model} --tp 4 --speculative-algorithm DSPARK");
        silent(&launch, Some("0.5.23"), "SD090");
    }
    let launch = "sglang serve --model-path deepseek-ai/DeepSeek-V4-Flash --tp 2 --speculative-algorithm NEXTN \
                  --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3";
    for version in ["0.5.16", "0.5.19", "0.5.23"] {
        finds(launch, Some(version), "SD105", Severity::Error);
        silent(launch, Some(version), "SD002");
    }
    finds(launch, None, "SD105", Severity::Error);
    silent(&launch.replace("NEXTN", "EAGLE"), Some("0.5.23"), "SD105");
}

#[test]
fn ngram_does_not_verify_on_torch_native() {
    let launch = sglang(
        "--model-path m --speculative-algorithm NGRAM --attention-backend torch_native --max-running-requests 16",
    );
    finds(&launch, Some("0.5.19"), "SD106", Severity::Error);
}

#[test]
fn crashes_that_are_known_by_version() {
    let decode = |algorithm: &str| {
        sglang(&format!(
            "--model-path m --disaggregation-mode decode --speculative-algorithm {algorithm} \
             --speculative-draft-model-path d --max-running-requests 16"
        ))
    };
    for version in ["0.5.16", "0.5.19"] {
        finds(&decode("DFLASH"), Some(version), "SD193", Severity::Error);
    }
    silent(&decode("DFLASH"), Some("0.5.21"), "SD193");
    // It has been fixed since: a launch without a version gets no finding.
    silent(&decode("DFLASH"), None, "SD193");
    finds(&decode("DSPARK"), Some("0.5.16"), "SD193", Severity::Error);
    silent(&decode("DSPARK"), Some("0.5.17"), "SD193");

    let adaptive = sglang(
        "--model-path m --speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-adaptive \
         --max-running-requests 16",
    );
    for version in ["0.5.16", "0.5.17"] {
        finds(&adaptive, Some(version), "SD193", Severity::Error);
        silent(&format!("{adaptive} --speculative-num-steps 7"), Some(version), "SD193");
    }
    silent(&adaptive, Some("0.5.19"), "SD193");

    let glm = sglang(&format!("--model-path nvidia/GLM-5.2-NVFP4 --tp 8 --speculative-algorithm EAGLE {CHAIN}"));
    finds(&glm, Some("0.5.16"), "SD193", Severity::Warning);
    silent(&format!("{glm} --speculative-moe-runner-backend triton"), Some("0.5.16"), "SD193");
    let qwen = sglang(&format!("--model-path Qwen/Qwen3.6-27B-FP8 --speculative-algorithm NEXTN {CHAIN}"));
    finds(&qwen, Some("0.5.14"), "SD193", Severity::Warning);
    silent(&qwen, None, "SD193");
    silent(&qwen, Some("0.5.19"), "SD193");
    let dspark = sglang("--model-path deepseek-ai/DeepSeek-V4-Flash-0731 --tp 4 --speculative-algorithm DSPARK");
    finds(&dspark, Some("0.5.17"), "SD194", Severity::Warning);
    silent(&dspark, None, "SD194");
}

#[test]
fn words_that_argparse_refuses() {
    let launch =
        |flag: &str| sglang(&format!("--model-path m --max-running-requests 16 --speculative-algorithm NGRAM {flag}"));
    for (flag, expected) in [
        ("--kv-cache-dtype fp8", Severity::Error),
        ("--dtype fp16", Severity::Error),
        ("--disaggregation-mode prefil", Severity::Error),
        ("--mamba-radix-cache-strategy extra_buffers", Severity::Error),
        ("--speculative-attention-mode both", Severity::Error),
        // Plug-ins can add to these lists.
        ("--attention-backend flash_attn", Severity::Warning),
        ("--grammar-backend xgramar", Severity::Warning),
        ("--load-format dumy", Severity::Warning),
    ] {
        finds(&launch(flag), Some("0.5.23"), "SD195", expected);
    }
    for flag in ["--kv-cache-dtype fp8_e4m3", "--dtype $DTYPE", "--attention-backend <backend>", "--load-format dummy"]
    {
        silent(&launch(flag), Some("0.5.23"), "SD195");
    }
    // Between two versions that were read it may already exist.
    silent(&launch("--attention-backend trtllm_mla"), Some("0.5.1"), "SD195");
    finds(&launch("--stream-interval many"), Some("0.5.23"), "SD195", Severity::Error);
    finds(
        &vllm("m --dtype fp16", r#"{"method": "ngram", "num_speculative_tokens": 3}"#),
        Some("0.33.0"),
        "VL20",
        Severity::Error,
    );
}

#[test]
fn backends_that_the_named_gpu_does_not_have() {
    let launch = sglang(&format!("--model-path m --attention-backend fa3 --speculative-algorithm EAGLE {CHAIN}"));
    let on = |gpu| GivenFacts { version: Some("0.5.23"), gpu: Some(gpu), requests: None };
    for gpu in ["B200", "RTX 5090", "MI300X", "GB10", "B300"] {
        finds_next_to(&launch, on(gpu), "SD196", Severity::Error);
    }
    for gpu in ["H100", "A100", "L4"] {
        silent_next_to(&launch, on(gpu), "SD196");
    }
    let latent = sglang(&format!(
        "--model-path deepseek-ai/DeepSeek-V3 --tp 8 --attention-backend fa3 --speculative-algorithm EAGLE {CHAIN}"
    ));
    finds_next_to(&latent, on("A100"), "SD196", Severity::Error);
    silent_next_to(&latent, on("H200"), "SD196");
    finds_next_to(&latent.replace("fa3", "trtllm_mla"), on("H200"), "SD196", Severity::Error);
}

#[test]
fn what_the_json_of_vllm_alone_tells() {
    let version = Some("0.33.0");
    for json in [
        r#"{"method":"medusa","num_speculative_tokens":3}"#,
        r#"{"method":"mlp_speculator","num_speculative_tokens":3}"#,
        r#"{"num_speculative_tokens":3}"#,
    ] {
        finds(&vllm("m", json), version, "VL15", Severity::Error);
    }
    let json = r#"{"model":"d","num_speculative_tokens":3,"draft_tensor_parallel_size":2}"#;
    finds(&vllm("m -tp 4", json), version, "VL17", Severity::Error);
    finds(&vllm("m", r#"{"model":"d","num_speculative_tokens":3}"#), Some("0.10.0"), "VL09", Severity::Error);
    finds("vllm serve m --speculative-model d --num-speculative-tokens 3", version, "VL19", Severity::Error);
    let old = "vllm serve m --ngram-prompt-lookup-max 3 --speculative-model '[ngram]'";
    finds(old, version, "VL19", Severity::Error);
    finds(old, None, "VL19", Severity::Warning);
    finds("vllm serve m --speculative-model d --use-v2-block-manager", version, "VL19", Severity::Error);
    let json = r#"{"method":"mtp","num_speculative_tokens":2}"#;
    finds(&vllm("Qwen/Qwen3-8B", json), version, "VL21", Severity::Error);
    finds(&vllm("Qwen/Qwen3-8B", json), None, "VL21", Severity::Error);
    silent(&vllm("Qwen/Qwen3.6-27B", json), version, "VL21");
    let json = r#"{"method":"dspark","num_speculative_tokens":3}"#;
    finds(&vllm("deepseek-ai/DeepSeek-V4-Flash-0731", json), Some("0.26.0"), "VL22", Severity::Error);
    silent(&vllm("deepseek-ai/DeepSeek-V4-Flash-0731", json), version, "VL22");
}

#[test]
fn latent_attention_runs_fa3_and_blocks_need_their_flags() {
    let dp = "--tp 8 --dp-size 8 --enable-dp-attention --max-running-requests 64";
    let launch = |algorithm: &str| {
        sglang(&format!("--model-path m --speculative-algorithm {algorithm} --speculative-draft-model-path d {dp}"))
    };
    finds(&launch("DSPARK"), Some("0.5.20"), "SD197", Severity::Error);
    silent(&format!("{} --enable-dp-lm-head", launch("DSPARK")), Some("0.5.20"), "SD197");
    finds(&format!("{} --enable-dp-lm-head", launch("DFLASH")), Some("0.5.20"), "SD095", Severity::Error);
    finds(&launch("DFLASH"), Some("0.5.23"), "SD095", Severity::Error);
    silent(&format!("{} --enable-dp-lm-head", launch("DFLASH")), Some("0.5.23"), "SD095");
    let uno = sglang(
        "--model-path m --speculative-algorithm UNO --uno-lora-path a --speculative-num-draft-tokens 8 --tp 2 \
         --max-running-requests 16",
    );
    finds(&uno, Some("0.5.23"), "SD198", Severity::Error);
    let stages = sglang(&format!(
        "--model-path m --pp-size 2 --disaggregation-mode prefill --speculative-algorithm EAGLE {CHAIN}"
    ));
    finds(&stages, Some("0.5.19"), "SD093", Severity::Error);
    silent(&stages, Some("0.5.21"), "SD093");
}

#[test]
fn adaptive_steps_by_version() {
    let launch = |steps: u32| {
        sglang(&format!(
            "--model-path m --speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-adaptive \
                         --speculative-num-steps {steps} --max-running-requests 16"
        ))
    };
    finds(&launch(5), Some("0.5.19"), "SD121", Severity::Error);
    silent(&launch(5), Some("0.5.20"), "SD121");
    finds(&launch(4), Some("0.5.23"), "SD121", Severity::Error);
    finds(&launch(4), None, "SD121", Severity::Warning);
}

#[test]
fn drafts_of_one_family_that_differ_by_padding() {
    let launch = sglang(
        "--model-path Qwen/Qwen2.5-7B-Instruct --speculative-algorithm STANDALONE --max-running-requests 8 \
                         --speculative-draft-model-path Qwen/Qwen2.5-1.5B-Instruct",
    );
    finds(&launch, Some("0.5.9"), "SD040", Severity::Warning);
    finds(&launch, Some("0.5.19"), "SD040", Severity::Error);
    finds(&launch, Some("0.5.9"), "SD058", Severity::Error);
    let alone = GivenFacts { version: Some("0.5.9"), requests: Some(1), gpu: None };
    silent_next_to(&launch, alone, "SD058");
    let one = launch.replace("--max-running-requests 8", "--max-running-requests 1");
    silent(&one, Some("0.5.9"), "SD058");
}

#[test]
fn other_rules_with_their_bounds() {
    let none = sglang("--model-path m --speculative-algorithm NONE");
    silent(&none, Some("0.5.19"), "SD001");
    silent(&none, Some("0.5.19"), "SD090");
    let tree = sglang(
        "--model-path mine --attention-backend flashmla --speculative-algorithm EAGLE --speculative-draft-model-path d \
                       --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8 \
                       --max-running-requests 8",
    );
    finds(&tree, Some("0.5.19"), "SD031", Severity::Error);
    let block = format!("{} --speculative-use-block-verification", tree.replace("flashmla", "fa3"));
    finds(&block, Some("0.5.23"), "SD112", Severity::Error);
    let decode = sglang(&format!(
        "--model-path m --tp 8 --dp-size 8 --enable-dp-attention --disaggregation-mode decode \
         --speculative-algorithm EAGLE {CHAIN}"
    ));
    finds(&decode, Some("0.5.9"), "NR18", Severity::Info);
    let shared = decode.replace("--model-path m ", "--model-path zai-org/GLM-5.2-FP8 ");
    finds(&shared, Some("0.5.9"), "NR18", Severity::Warning);
    silent(&decode, Some("0.5.19"), "NR18");
    let sink = sglang(&format!("--model-path m --speculative-algorithm EAGLE --speculative-draft-sink-size 4 {CHAIN}"));
    finds(&sink, Some("0.5.23"), "SD145", Severity::Error);
    let model = "Qwen/Qwen3.5-397B-A17B-FP8 --tp 8 --mamba-radix-cache-strategy no_buffer";
    let hybrid = sglang(&format!("--model-path {model} --speculative-algorithm EAGLE {CHAIN}"));
    finds(&hybrid, Some("0.5.23"), "SD102", Severity::Error);
}

#[test]
fn a_flag_of_old_versions_is_for_an_old_version() {
    let launch = "vllm serve m --speculative-model d --num-speculative-tokens 5";
    finds(launch, None, "VL19", Severity::Warning);
    finds(launch, Some("0.33.0"), "VL19", Severity::Error);
    silent(launch, Some("0.7.3"), "VL19");
    // The unknown flag is the only finding.
    for code in ["VL02", "VL12", "VL15"] {
        silent("vllm serve m --num-speculative-tokens 0", Some("0.33.0"), code);
    }
    // No version has both flags.
    finds(&format!("{launch} --spec-tokens 3"), None, "VL19", Severity::Error);
}

#[test]
fn programs_and_builds_may_have_flags_of_their_own() {
    silent("vllm bench latency --model m --input-len 32 --batch-size 8", Some("0.33.0"), "VL19");
    let own = "docker run --gpus all me/sglang:mine python3 -m sglang.launch_server --model-path m --load-balance-method mine";
    finds(own, Some("0.5.16"), "SD195", Severity::Info);
    finds(&own.replace("me/sglang:mine", "lmsysorg/sglang:v0.5.16"), None, "SD195", Severity::Error);
}

/// Reports that were read only after the rules were written, by issue; see
/// docs/notes/lint-field.md.
#[test]
fn reports_of_the_last_months() {
    let dflash =
        "--model-path Qwen/Qwen3-8B --speculative-algorithm DFLASH --speculative-draft-model-path d --page-size 1";
    finds(&sglang(dflash), Some("0.5.17"), "SD194", Severity::Warning);
    silent(&sglang(&dflash.replace("--page-size 1", "--page-size 64")), Some("0.5.17"), "SD194");
    let kimi = format!(
        "--model-path moonshotai/Kimi-K2.6 --speculative-algorithm EAGLE3 --speculative-draft-model-path \
         x/kimi-k2.6-eagle3-mla {CHAIN}"
    );
    finds(&sglang(&kimi), Some("0.5.11"), "SD193", Severity::Error);
    silent(&sglang(&kimi), Some("0.5.12"), "SD193");
    silent(&sglang(&kimi.replace("-mla", "")), Some("0.5.11"), "SD193");
    let sparse = format!("--model-path deepseek-ai/DeepSeek-V3.2 --tp 8 --dp 2 --speculative-algorithm EAGLE {CHAIN}");
    finds(&sglang(&format!("{sparse} --enable-dp-attention")), Some("0.5.14"), "SD193", Severity::Warning);
    silent(&sglang(&format!("{sparse} --enable-dp-attention")), Some("0.5.18"), "SD193");
    silent(&sglang(&sparse), Some("0.5.14"), "SD193");
    let layers =
        "--model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE --enable-multi-layer-eagle";
    finds(&sglang(layers), Some("0.5.18"), "SD103", Severity::Error);
    silent(
        &sglang(
            "--model-path m --speculative-algorithm EAGLE --enable-multi-layer-eagle --speculative-num-steps 3 \
             --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
        ),
        Some("0.5.18"),
        "SD103",
    );

    let dspark = "{\"method\": \"dspark\", \"model\": \"d\", \"num_speculative_tokens\": 7}";
    let mtp = "{\"method\": \"mtp\", \"num_speculative_tokens\": 1}";
    finds(&vllm("google/gemma-4-31B-it", mtp), Some("0.20.2"), "VL24", Severity::Warning);
    finds(&vllm("google/gemma-4-31B-it", dspark), Some("0.26.0"), "VL24", Severity::Warning);
    let transfer =
        |connector: &str| format!("Qwen/Qwen3-8B --kv-transfer-config '{{\"kv_connector\": \"{connector}\"}}'");
    finds(&vllm(&transfer("NixlConnector"), dspark), Some("0.25.0"), "VL24", Severity::Warning);
    silent(&vllm(&transfer("MooncakeConnector"), dspark), Some("0.25.0"), "VL24");
    let lookup = "{\"method\": \"ngram\", \"num_speculative_tokens\": 4, \"prompt_lookup_max\": 4}";
    finds(&vllm("tiiuae/Falcon-H1-7B-Instruct", lookup), Some("0.24.0"), "VL24", Severity::Warning);
    silent(&vllm("Qwen/Qwen3-8B", lookup), Some("0.24.0"), "VL24");
    let v4 = "deepseek-ai/DeepSeek-V4-Flash";
    finds(&vllm(&format!("{v4} --tensor-parallel-size 4"), mtp), Some("0.20.1"), "VL24", Severity::Warning);
    silent(&vllm(&format!("{v4} --tensor-parallel-size 1"), mtp), Some("0.20.1"), "VL24");
    finds(&vllm(v4, mtp), Some("0.18.0"), "VL24", Severity::Error);
    finds(&vllm(&format!("{v4} --pipeline-parallel-size 3"), dspark), Some("0.27.0"), "VL06", Severity::Error);
    finds(&vllm("Qwen/Qwen3.6-27B --pipeline-parallel-size 2", mtp), Some("0.25.1"), "VL06", Severity::Warning);
    silent(&vllm("Qwen/Qwen3.6-27B --pipeline-parallel-size 2", mtp), Some("0.30.0"), "VL06");
    let second = "{\"method\": \"dflash\", \"model\": \"z-lab/Qwen3.8-27B-DFlash2\", \"num_speculative_tokens\": 7}";
    finds(&vllm("Qwen/Qwen3.8-27B", second), Some("0.27.0"), "VL24", Severity::Error);
    silent(&vllm("Qwen/Qwen3.8-27B", &second.replace("DFlash2", "DFlash")), Some("0.27.0"), "VL24");
    finds(&vllm("moonshotai/Kimi-K3 --kv-transfer-config {}", dspark), Some("0.27.1"), "VL25", Severity::Warning);
}

/// Reports of June to September 2026.
#[test]
fn second_reports_are_stated() {
    let eagle = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";
    let ngram = |more: &str| sglang(&format!("--model-path m --speculative-algorithm NGRAM {more}"));
    finds(&ngram("--speculative-ngram-capacity 18"), Some("0.5.23"), "SD133", Severity::Error);
    silent(&ngram("--speculative-ngram-capacity 19"), Some("0.5.23"), "SD133");
    silent(&ngram("--speculative-ngram-capacity 5 --speculative-ngram-max-trie-depth 4"), Some("0.5.18"), "SD133");
    silent(&ngram("--speculative-ngram-capacity 5 --speculative-ngram-max-trie-depth $D"), Some("0.5.18"), "SD133");

    let store = |more: &str| {
        sglang(&format!("--model-path m {eagle} --enable-hierarchical-cache --hicache-storage-backend mooncake {more}"))
    };
    let alone = "--hicache-storage-backend-extra-config '{\"standalone_storage\": true}'";
    finds(&store(alone), Some("0.5.14"), "SD193", Severity::Error);
    silent(&store(alone), Some("0.5.19"), "SD193");
    silent(&store(""), Some("0.5.14"), "SD193");

    let v4 = format!("--model-path deepseek-ai/DeepSeek-V4-Flash --tp 8 --dp 8 {eagle}");
    finds(&sglang(&format!("{v4} --enable-dp-attention")), Some("0.5.15"), "SD193", Severity::Warning);
    silent(&sglang(&format!("{v4} --enable-dp-attention")), Some("0.5.20"), "SD193");
    silent(&sglang(&v4), Some("0.5.15"), "SD193");
    let decode = format!("--model-path zai-org/GLM-5.3 {eagle} --disaggregation-mode decode --tp 8 --dp 2");
    finds(&sglang(&format!("{decode} --enable-dp-attention")), Some("0.5.19"), "SD193", Severity::Warning);
    silent(&sglang(&decode), Some("0.5.19"), "SD193");

    let radix = |algorithm: &str| {
        let own = eagle.replace("EAGLE", algorithm);
        sglang(&format!("--model-path m --disaggregation-mode decode --disaggregation-decode-enable-radix-cache {own}"))
    };
    finds(&radix("EAGLE"), Some("0.5.22"), "SD101", Severity::Error);
    silent(&radix("EAGLE"), Some("0.5.23"), "SD101");
    // No version is stated: a launch that starts in the newest gets no finding.
    silent(&radix("EAGLE"), None, "SD101");

    let simulated = |algorithm: &str| {
        format!(
            "SGLANG_SIMULATE_ACC_LEN=3 sglang serve --model-path m --speculative-algorithm {algorithm} --speculative-draft-model-path d"
        )
    };
    finds(&simulated("DFLASH"), Some("0.5.16"), "SD190", Severity::Warning);
    finds(&simulated("DFLASH"), Some("0.5.17"), "SD190", Severity::Error);
    finds(&simulated("EAGLE3"), Some("0.5.16"), "SD190", Severity::Error);
}

/// The same for vLLM.
#[test]
fn second_reports_of_vllm_are_stated() {
    let dspark = "{\"method\": \"dspark\", \"model\": \"d\", \"num_speculative_tokens\": 7}";
    let mtp = "{\"method\": \"mtp\", \"num_speculative_tokens\": 1}";
    finds(&vllm("deepseek-ai/DeepSeek-V4-Flash-0731", mtp), Some("0.27.1"), "VL24", Severity::Error);
    silent(&vllm("deepseek-ai/DeepSeek-V4-Flash", mtp), Some("0.27.1"), "VL24");
    finds(&vllm("XiaomiMiMo/MiMo-V2.5-Pro", mtp), Some("0.24.0"), "VL25", Severity::Warning);
    silent(&vllm("XiaomiMiMo/MiMo-V2.5-Pro --no-async-scheduling", mtp), Some("0.24.0"), "VL25");
    let glm = |flags: &str, json: &str| vllm(&format!("zai-org/GLM-5.2-FP8 {flags}"), json);
    finds(&glm("--kv-cache-dtype fp8_ds_mla", dspark), Some("0.29.0"), "VL24", Severity::Error);
    let own = dspark.replace("\"d\"", "\"d\", \"kv_cache_dtype\": \"bfloat16\"");
    silent(&glm("--kv-cache-dtype fp8_ds_mla", &own), Some("0.29.0"), "VL24");
    finds(&glm("--decode-context-parallel-size 4", dspark), Some("0.29.0"), "VL25", Severity::Warning);
    silent(&glm("--decode-context-parallel-size 1", dspark), Some("0.29.0"), "VL25");
    let block = "{\"method\": \"dflash\", \"model\": \"d\", \"num_speculative_tokens\": 7}";
    let hybrid = block.replace("\"d\"", "\"d\", \"kv_cache_dtype\": \"fp8\"");
    finds(&vllm("Qwen/Qwen3.8-27B", &hybrid), Some("0.28.0"), "VL24", Severity::Warning);
    silent(&vllm("Qwen/Qwen3-8B", &hybrid), Some("0.28.0"), "VL24");
    let quantised = vllm("Qwen/Qwen3-8B --kv-cache-dtype fp8", block);
    finds(&quantised, Some("0.21.0"), "VL24", Severity::Warning);
    silent(&quantised, Some("0.29.0"), "VL24");
    let gb10 = GivenFacts { version: Some("0.29.0"), gpu: Some("GB10"), ..GivenFacts::default() };
    finds_next_to(&quantised, gb10, "VL24", Severity::Warning);
}

#[test]
fn ranks_names_and_tokens_of_drafts_are_looked_at() {
    let with = |method: &str, more: &str| {
        format!("{{\"method\": \"{method}\", \"model\": \"d\", \"num_speculative_tokens\": 3, {more}}}")
    };
    let over = |method: &str, ranks: u32| {
        vllm("m --tensor-parallel-size 4", &with(method, &format!("\"draft_tensor_parallel_size\": {ranks}")))
    };
    finds(&over("draft_model", 1), Some("0.33.0"), "VL17", Severity::Error);
    finds(&over("mtp", 1), Some("0.33.0"), "VL17", Severity::Warning);
    finds(&over("eagle3", 2), Some("0.33.0"), "VL17", Severity::Error);
    silent(&over("dspark", 1), Some("0.33.0"), "VL17");
    silent(&over("draft_model", 4), Some("0.33.0"), "VL17");
    finds(&vllm("m", "{\"method\": \"mtp\"}"), Some("0.28.0"), "VL02", Severity::Error);
    // The draft's config is unknown.
    finds(&vllm("m", "{\"model\": \"a/accelerator\"}"), Some("0.28.0"), "VL02", Severity::Warning);
    let named = "{\"method\": \"draft_model\", \"model\": \"/a/eagle-1/small\", \"num_speculative_tokens\": 3}";
    finds(&vllm("m", named), Some("0.28.0"), "VL08", Severity::Warning);
    silent(&vllm("m", &named.replace("eagle-1", "b")), Some("0.28.0"), "VL08");
}

#[test]
fn third_reports_are_stated() {
    let blocks = "sglang serve --model-path Qwen/Qwen3.8-Flash-Next --speculative-algorithm DFLASH --speculative-draft-model-path d";
    finds(blocks, Some("0.5.21"), "SD193", Severity::Warning);
    silent(&blocks.replace("Qwen3.8-Flash-Next", "Qwen3-8B"), Some("0.5.21"), "SD193");
    let chain = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";
    let hybrid = format!("sglang serve --model-path Qwen/Qwen3.8-27B --tp 2 {chain}");
    let extra = |gpu| GivenFacts { version: Some("0.5.17"), gpu: Some(gpu), ..GivenFacts::default() };
    finds_next_to(&hybrid, extra("RTX 3090"), "SD193", Severity::Warning);
    let sparse = format!("sglang serve --model-path zai-org/GLM-5.3-Flash --tp 4 --dsa-decode-backend trtllm {chain}");
    let newest = |gpu| GivenFacts { version: Some("0.5.22"), gpu: Some(gpu), ..GivenFacts::default() };
    finds_next_to(&sparse, newest("RTX 5090"), "SD193", Severity::Warning);
    let quantised = format!("sglang serve --model-path a/MiMo-V2.5-NVFP4 --tp 4 {chain}");
    finds(&quantised, Some("0.5.11"), "SD193", Severity::Warning);
    silent(&quantised.replace("-NVFP4", ""), Some("0.5.11"), "SD193");
    let ngram = "{\"method\": \"ngram\", \"num_speculative_tokens\": 4, \"prompt_lookup_max\": 4}";
    finds(&vllm("Qwen/Qwen3.6-27B", ngram), Some("0.19.0"), "VL25", Severity::Warning);
    silent(&vllm("Qwen/Qwen3-8B", ngram), Some("0.19.0"), "VL25");
    let mtp = "{\"method\": \"mtp\", \"num_speculative_tokens\": 1}";
    let turbo = vllm("Qwen/Qwen3.6-27B --kv-cache-dtype turboquant_k8v4", mtp);
    finds(&turbo, Some("0.21.0"), "VL24", Severity::Warning);
    silent(&turbo, Some("0.24.0"), "VL24");
}

#[test]
fn underscores_are_dashes_to_vllm_in_every_version() {
    for flags in
        ["--speculative_model d --num_speculative_tokens 5", "--speculative-model d --num-speculative-tokens 5"]
    {
        let text = format!("vllm serve m {flags}");
        finds(&text, None, "VL19", Severity::Warning);
        finds(&text, Some("0.20.0"), "VL19", Severity::Error);
        silent(&text, Some("0.7.0"), "VL19");
    }
}

#[test]
fn drafts_take_no_quantisation_of_the_target_from_vllm_0_11_1_on() {
    let eagle = r#"{"model": "nvidia/gpt-oss-120b-Eagle3", "num_speculative_tokens": 3, "method": "eagle3"}"#;
    finds(&vllm("/models/gpt-oss-120b --tensor-parallel-size 2", eagle), Some("0.11.0"), "VL24", Severity::Error);
    silent(&vllm("/models/gpt-oss-120b", eagle), Some("0.11.1"), "VL24");
    silent(&vllm("/models/gpt-oss-120b", eagle), None, "VL24");
    silent(&vllm("unsloth/gpt-oss-120b-BF16", eagle), Some("0.11.0"), "VL24");
    // Without a name, a parser implies the family, which is not certain.
    let parsed = vllm("/models/target --reasoning-parser openai_gptoss", eagle);
    finds(&parsed, Some("0.11.0"), "VL24", Severity::Warning);
}

#[test]
fn assistants_of_gemma_are_draft_models_to_old_versions() {
    let assistant = r#"{"model": "google/gemma-4-E2B-it-assistant", "num_speculative_tokens": 4}"#;
    let launch = vllm("google/gemma-4-E2B-it --max-model-len 8192", assistant);
    finds(&launch, Some("0.20.1"), "VL24", Severity::Error);
    silent(&launch, Some("0.21.0"), "VL24");
    silent(&launch, None, "VL24");
    // Any draft model for a target that accepts images.
    let small =
        |target: &str| vllm(target, r#"{"method": "draft_model", "model": "small", "num_speculative_tokens": 4}"#);
    finds(&small("Qwen/Qwen2.5-VL-72B-Instruct"), Some("0.19.1"), "VL24", Severity::Error);
    silent(&small("Qwen/Qwen2.5-VL-72B-Instruct --language-model-only"), Some("0.19.1"), "VL24");
    silent(&small("Qwen/Qwen2.5-VL-72B-Instruct"), Some("0.21.0"), "VL24");
    silent(&small("Qwen/Qwen2.5-72B-Instruct"), Some("0.19.1"), "VL24");
}

#[test]
fn no_method_of_old_versions_runs_over_stages() {
    let old = "vllm serve /models/DeepSeek-R1/ --tensor-parallel-size 8 --pipeline-parallel-size 2 --num-speculative-tokens 1";
    finds(old, None, "VL06", Severity::Warning);
    finds(old, Some("0.7.3"), "VL06", Severity::Error);
    let eagle = r#"{"method": "eagle3", "model": "d", "num_speculative_tokens": 3}"#;
    let staged = vllm("m --pipeline-parallel-size 2", eagle);
    finds(&staged, Some("0.12.0"), "VL06", Severity::Error);
    finds(&staged, Some("0.10.0"), "VL06", Severity::Warning);
    finds(&staged, Some("0.27.0"), "VL06", Severity::Warning);
    silent(&staged, Some("0.30.0"), "VL06");
    silent(&staged, None, "VL06");
    silent(&vllm("m --pipeline-parallel-size 1", eagle), Some("0.12.0"), "VL06");
}

#[test]
fn heads_read_states_that_the_targets_class_hands_out() {
    let eagle = r#"{"method": "eagle3", "model": "/runs/head", "num_speculative_tokens": 5}"#;
    let next = vllm("/models/Qwen3-Next-80B-A3B-Instruct", eagle);
    finds(&next, Some("0.15.0"), "VL29", Severity::Error);
    silent(&next, Some("0.25.1"), "VL29");
    silent(&next, None, "VL29");
    silent(&vllm("Qwen/Qwen3-8B", eagle), Some("0.15.0"), "VL29");
    let mtp = r#"{"method": "mtp", "num_speculative_tokens": 2}"#;
    silent(&vllm("Qwen/Qwen3-Next-80B-A3B-Instruct", mtp), Some("0.15.0"), "VL29");
    let wrapped = vllm("Qwen/Qwen3-Next-80B-A3B-Instruct --model-impl transformers", eagle);
    finds(&wrapped, Some("0.15.0"), "VL29", Severity::Warning);
}

#[test]
fn an_nvfp4_cache_is_not_verified_through_flashinfer() {
    let launch = |more: &str| {
        sglang(&format!(
            "--model-path Qwen/Qwen3.8-27B-FP8 --kv-cache-dtype nvfp4 --speculative-algorithm NEXTN {CHAIN} {more}"
        ))
    };
    let pair = "--prefill-attention-backend flashinfer --decode-attention-backend trtllm_mha";
    finds(&launch(pair), Some("0.5.18"), "SD193", Severity::Error);
    silent(&launch(&format!("{pair} --speculative-attention-mode decode")), Some("0.5.18"), "SD193");
    silent(&launch("--attention-backend trtllm_mha"), Some("0.5.18"), "SD193");
    silent(&launch(pair), Some("0.5.23"), "SD193");
    let on = |gpu| GivenFacts { version: Some("0.5.23"), gpu: Some(gpu), ..GivenFacts::default() };
    finds_next_to(&launch(""), on("RTX 5090"), "SD193", Severity::Warning);
    silent_next_to(&launch(""), on("B200"), "SD193");
}

#[test]
fn old_versions_speculate_with_one_attention_backend() {
    let launch = |backends: &str| {
        sglang(&format!("--model deepseek-ai/DeepSeek-V3-0324 --tp 8 --speculative-algorithm EAGLE {CHAIN} {backends}"))
    };
    let two = launch("--attention-backend trtllm_mla --prefill-attention-backend flashinfer");
    finds(&two, Some("0.5.1"), "SD199", Severity::Error);
    silent(&two, Some("0.5.2"), "SD199");
    silent(&two, None, "SD199");
    // The engine's default may be the same.
    silent(&launch("--prefill-attention-backend flashinfer"), Some("0.5.1"), "SD199");
    silent(&launch("--attention-backend $BACKEND --prefill-attention-backend fa3"), Some("0.5.1"), "SD199");
}

#[test]
fn a_path_may_name_its_model_in_other_words() {
    let launch = |model: &str, more: &str| {
        sglang(&format!(
            "--model-path {model} --tp 8 --dp-size 8 --enable-dp-attention --speculative-algorithm EAGLE {CHAIN} {more}"
        ))
    };
    let parser = "--tool-call-parser deepseekv32 --reasoning-parser deepseek-v3";
    finds(&launch("/models/deepseek-32", parser), Some("0.5.7"), "SD193", Severity::Warning);
    finds(&launch("/data/weights", parser), Some("0.5.7"), "SD193", Severity::Warning);
    finds(&launch("/data/weights", "--served-model-name DeepSeek-V3.2"), Some("0.5.7"), "SD193", Severity::Warning);
    silent(&launch("/data/weights", "--tool-call-parser deepseekv3"), Some("0.5.7"), "SD193");
    silent(&launch("/models/deepseek-32b", ""), Some("0.5.7"), "SD193");
    // A model's own config takes precedence over a parser.
    silent(&launch("deepseek-ai/DeepSeek-R1", parser), Some("0.5.7"), "SD193");
    let fp4 = "--quantization modelopt_fp4 --moe-runner-backend flashinfer_trtllm";
    let alone = format!("--model-path /models/deepseek-32-nvfp4 --speculative-algorithm EAGLE {CHAIN} {fp4}");
    finds(&sglang(&alone), Some("0.5.8.post1"), "SD193", Severity::Warning);
    silent(&sglang(&alone), Some("0.5.10"), "SD193");
    silent(&sglang(&alone.replace("_trtllm", "_cutlass")), Some("0.5.8.post1"), "SD193");
}

#[test]
fn a_host_cache_spoils_glm_5_3_flash_with_and_without_drafts() {
    let launch = |more: &str| sglang(&format!("--model-path glm-5.3-flash --tp-size 8 --attention-backend dsa {more}"));
    let drafts = format!("--speculative-algorithm EAGLE {CHAIN}");
    finds(
        &launch(&format!("{drafts} --enable-hierarchical-cache --hicache-size 140")),
        None,
        "SD194",
        Severity::Warning,
    );
    finds(&launch("--enable-hierarchical-cache --hicache-size 140"), None, "SD194", Severity::Warning);
    silent(&launch(&drafts), None, "SD194");
    let other = launch("--enable-hierarchical-cache").replace("glm-5.3-flash", "zai-org/GLM-5.2");
    silent(&other, None, "SD194");
}

#[test]
fn a_value_of_no_version_is_an_error_only_of_a_certain_version_or_as_a_slip() {
    let run = |value: &str| format!("python3 -m sglang.launch_server --model-path m --schedule-policy {value}\n");
    finds(&run("vtc"), None, "SD195", Severity::Warning);
    finds(&run("vtc"), Some("0.5.9"), "SD195", Severity::Error);
    finds(&run("lpn"), None, "SD195", Severity::Error);
    finds(&run("kpm"), None, "SD195", Severity::Warning);
    let image = format!("docker run lmsysorg/sglang:v0.5.9 {}", run("vtc"));
    finds(&image, None, "SD195", Severity::Error);
}

#[test]
fn flags_of_a_plugin_that_the_text_names_are_not_reported() {
    let flags =
        "vllm serve m --ulysses-sequence-parallel-size 8 --enable-shift-parallel --max-num-batched-tokens 131072";
    finds(flags, None, "VL19", Severity::Warning);
    silent(&format!("pip install arctic-inference[vllm]\n{flags}"), None, "VL19");
    silent(&format!("ARCTIC_INFERENCE_ENABLED=1 {flags}"), None, "VL19");
    // A typo is still a typo.
    let slip = "pip install arctic-inference[vllm]\nvllm serve m --max-num-batched-tokes 9";
    finds(slip, None, "VL19", Severity::Warning);
    let arctic = vllm("m", r#"{"method": "arctic", "model": "d", "num_speculative_tokens": 3}"#);
    finds(&arctic, Some("0.10.1"), "VL11", Severity::Warning);
    silent(&format!("pip install arctic-inference[vllm]\n{arctic}"), Some("0.10.1"), "VL11");
}

#[test]
fn reports_of_2026_are_found_where_they_apply() {
    let chain = CHAIN;
    let tree = "--model-path Qwen/Qwen3-30B-A3B --attention-backend fa3 --page-size 8 --speculative-algorithm EAGLE3 \
                --speculative-draft-model-path d --speculative-num-steps 3 --speculative-eagle-topk 2 \
                --speculative-num-draft-tokens 6";
    finds(&sglang(tree), Some("0.5.11"), "SD193", Severity::Warning);
    silent(&sglang(&tree.replace("--page-size 8", "--page-size 1")), Some("0.5.11"), "SD193");
    let kimi = format!(
        "--model-path moonshotai/Kimi-K2.5 --tp 8 --speculative-algorithm EAGLE3 --speculative-draft-model-path d {chain}"
    );
    finds(&sglang(&kimi), Some("0.5.10"), "SD193", Severity::Warning);
    silent(&sglang(&format!("{kimi} --disable-chunked-prefix-cache")), Some("0.5.10"), "SD193");
    let aiter = format!(
        "--model-path Qwen/Qwen3.5-122B-A10B-FP8 --attention-backend aiter --speculative-algorithm NEXTN {chain}"
    );
    finds(&sglang(&aiter), Some("0.5.19"), "SD193", Severity::Warning);
    silent(&sglang(&aiter.replace("aiter", "triton")), Some("0.5.19"), "SD193");
    let window = format!(
        "--model-path google/gemma-3-27b-it --attention-backend triton --speculative-algorithm EAGLE3 --speculative-draft-model-path d {chain}"
    );
    finds(&sglang(&window), Some("0.5.10"), "SD193", Severity::Warning);
    let host = format!(
        "--model-path /models/GLM-5.2-W4AFP8 --tp 8 --speculative-algorithm EAGLE --enable-hierarchical-cache {chain}"
    );
    finds(&sglang(&host), Some("0.5.15.post1"), "SD194", Severity::Warning);
    let overlap = format!("--model-path Qwen/Qwen3.8-Flash-Next-FP8 --tp 2 --speculative-algorithm NEXTN {chain}");
    finds(&sglang(&overlap), None, "SD193", Severity::Warning);
    silent(&sglang(&format!("{overlap} --disable-overlap-schedule")), None, "SD193");
}

#[test]
fn reports_of_2026_on_vllm_are_found_where_they_apply() {
    let dflash = r#"{"method": "dflash", "model": "z-lab/Qwen3.5-35B-A3B-DFlash", "num_speculative_tokens": 8}"#;
    finds(&vllm("Qwen/Qwen3.5-35B-A3B", dflash), Some("0.20.1"), "VL24", Severity::Warning);
    // Slots that are not filled yet, with any target.
    finds(&vllm("Qwen/Qwen3-8B", dflash), Some("0.20.1"), "VL24", Severity::Warning);
    silent(&vllm("Qwen/Qwen3-8B", dflash), Some("0.25.1"), "VL24");
    let mtp = r#"{"method": "mtp", "num_speculative_tokens": 2}"#;
    finds(&vllm("Qwen/Qwen3.6-35B-A3B", mtp), Some("0.23.0"), "VL25", Severity::Warning);
    silent(&vllm("Qwen/Qwen3.6-35B-A3B", mtp), None, "VL25");
    let ranks = format!("{} --data-parallel-size 2 --enable-expert-parallel", vllm("Qwen/Qwen3.5-35B-A3B", mtp));
    finds(&ranks, Some("0.22.0"), "VL24", Severity::Warning);
    silent(&ranks.replace("size 2", "size 1"), Some("0.22.0"), "VL24");
    let ngram = vllm("Qwen/Qwen3-1.7B", r#"{"method": "ngram_gpu", "num_speculative_tokens": 3}"#);
    finds(&format!("{ngram} --async-scheduling"), Some("0.18.0"), "VL25", Severity::Warning);
    let dspark = vllm("deepseek-ai/DeepSeek-V4-Flash-0731", r#"{"method": "dspark", "num_speculative_tokens": 5}"#);
    finds(&format!("{dspark} --data-parallel-size 2"), Some("0.29.0"), "VL24", Severity::Warning);
    let parallel = r#"{"method": "eagle3", "model": "d", "num_speculative_tokens": 5, "parallel_drafting": true}"#;
    finds(&vllm("google/gemma-4-31B-it", parallel), Some("0.20.1"), "VL24", Severity::Warning);
    silent(&vllm("google/gemma-4-31B-it", &parallel.replace("true", "false")), Some("0.20.1"), "VL24");
}

#[test]
fn what_a_program_that_is_not_known_is_given_is_no_error() {
    let flags = "--model-path m --speculative-algorithm MTP --speculative-num-steps 3";
    finds(&format!("sglang serve {flags}"), Some("0.5.20"), "SD001", Severity::Error);
    finds(&format!("./serve.sh {flags}"), Some("0.5.20"), "SD001", Severity::Warning);
    // A text that names the intended engine.
    finds(&format!("# for tokenspeed\nsglang serve {flags}"), Some("0.5.20"), "SD001", Severity::Warning);
    let own = "./serve.sh --model m --speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 3}' --own-flag 3";
    silent(own, Some("0.20.0"), "VL19");
    // In documentation a letter stands for a number.
    silent("vllm serve m --data-parallel-size N --data-parallel-rank K", Some("0.20.0"), "VL20");
}

#[test]
fn faults_of_a_plugin_are_stated_by_its_image() {
    let with = |image: &str| {
        format!(
            "docker run {image} vllm serve m --speculative-config '{{\"method\": \"eagle3\", \"model\": \"d\", \"num_speculative_tokens\": 2}}' --compilation-config '{{\"cudagraph_mode\": \"FULL_DECODE_ONLY\"}}'"
        )
    };
    finds(&with("quay.io/ascend/vllm-ascend:v0.14.0rc1"), None, "VL24", Severity::Warning);
    for image in ["quay.io/ascend/vllm-ascend:v0.18.0rc1", "vllm/vllm-openai:v0.14.0"] {
        let found = found(&with(image), GivenFacts::default());
        assert_eq!(severity("VL24", &found), None, "{image}: {found:#?}");
    }
}
