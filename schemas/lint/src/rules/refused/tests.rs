use schemas::flags;

use super::*;
use crate::rules::examples::finds;

#[test]
fn every_row_is_read_and_names_flags_that_exist() {
    for (engine, known) in [(Engine::Sglang, flags::sglang()), (Engine::Vllm, flags::vllm())] {
        let rows = rows(engine);
        assert!(rows.len() >= 20, "{} rows only", rows.len());
        let mut ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
        for row in rows {
            assert!(are_edges(row.since.as_deref(), row.until.as_deref()), "{}", row.id);
            assert!(row.variables.iter().all(VariableCondition::has_test), "{}", row.id);
            assert!(engine == Engine::Vllm || (row.keys.is_empty() && row.runner.is_none()), "{}", row.id);
            let named = row.when.iter().flat_map(Condition::flags).chain(row.without.iter().map(String::as_str));
            for flag in named {
                assert!(known.spelling(flag).is_some(), "{}: {flag}", row.id);
            }
            assert!(row.message.len() < 160 && !row.message.ends_with('.'), "{}", row.id);
            let named: Vec<&str> = row.when.iter().flat_map(Condition::flags).collect();
            for part in row.message.split('{').skip(1) {
                let name = part.split('}').next().unwrap_or_default();
                assert!(named.contains(&name), "{}: {name}", row.id);
            }
        }
    }
}

const DSPARK: &str = "sglang serve --model-path m --speculative-algorithm DSPARK --speculative-draft-model-path d";

const EAGLE3: &str = "sglang serve --model-path m --speculative-algorithm EAGLE3 --speculative-draft-model-path d";

#[test]
fn variables_and_flags_are_refused_from_their_version_on() {
    let compact = "SGLANG_RAGGED_VERIFY_MODE=compact";
    for (variable, launch, flags, edges) in [
        (compact, EAGLE3, "--enable-linear-replayssm-spec", ["0.5.16", "0.5.17"]),
        (compact, DSPARK, "--enable-lora --lora-paths a=/a", ["0.5.18", "0.5.19"]),
        ("SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1", EAGLE3, "--enable-lora --lora-paths a=/a", ["0.5.18", "0.5.19"]),
        (compact, DSPARK, "--disable-cuda-graph-padding", ["0.5.15", "0.5.16"]),
        (compact, DSPARK, "--enable-two-batch-overlap --moe-a2a-backend deepep", ["0.5.15", "0.5.16"]),
        (compact, DSPARK, "--attention-backend flashinfer", ["0.5.15", "0.5.16"]),
        ("SGLANG_AITER_MLA_VERIFY_BACKEND=triton", DSPARK, "--attention-backend aiter", ["0.5.21", "0.5.22"]),
    ] {
        let found = |variable: &str, version| finds("SD202", &format!("{variable} {launch} {flags}"), version);
        assert_eq!(edges.map(|version| found(variable, version)), [false, true], "{variable} {flags}");
        assert!(!found("", "0.5.23"), "{flags}");
        assert!(!found("SGLANG_RAGGED_VERIFY_MODE=static", "0.5.23"), "{flags}");
    }
    let folded = format!("{compact} {DSPARK} --enable-linear-replayssm-spec");
    assert!(!finds("SD202", &folded, "0.5.23"));
}

#[test]
fn flags_are_refused_with_drafts_from_their_version_on() {
    let shared = "sglang serve --model-path m --speculative-algorithm FROZEN_KV_MTP --speculative-draft-model-path d \
                  --speculative-num-steps 2 --speculative-num-draft-tokens 4";
    let dflash = "sglang serve --model-path m --speculative-algorithm DFLASH --speculative-draft-model-path d --tp 8 \
                  --enable-dp-attention --enable-dp-lm-head --dp-size 2";
    let uno = "sglang serve --model-path m --speculative-algorithm UNO --uno-lora-path a --attention-backend fa3 \
               --speculative-eagle-topk 4";
    for (launch, refused, runs, edges) in [
        (
            EAGLE3,
            "--enable-unified-memory --disaggregation-decode-retraction-backup host_pool",
            "--enable-unified-memory",
            ["0.5.21", "0.5.22"],
        ),
        (
            EAGLE3,
            "--enable-unified-memory --speculative-draft-attention-backend fa4",
            "--enable-unified-memory --speculative-draft-attention-backend fa3",
            ["0.5.21", "0.5.22"],
        ),
        (
            EAGLE3,
            "--enable-hisparse --disable-radix-cache --speculative-eagle-topk 2",
            "--enable-hisparse --disable-radix-cache --speculative-eagle-topk 1",
            ["0.5.21", "0.5.22"],
        ),
        (dflash, "--attn-cp-size 2", "", ["0.5.22", "0.5.23"]),
        (
            shared,
            "--speculative-eagle-topk 2 --attention-backend fa3",
            "--speculative-eagle-topk 1 --attention-backend fa3",
            ["0.5.11", "0.5.12"],
        ),
        (
            shared,
            "--speculative-eagle-topk 2 --speculative-draft-attention-backend fa3",
            "--speculative-eagle-topk 2 --speculative-draft-attention-backend triton",
            ["0.5.11", "0.5.12"],
        ),
        (
            EAGLE3,
            "--enable-hisparse --disaggregation-mode decode --disaggregation-transfer-backend nixl",
            "--enable-hisparse --disaggregation-mode decode --disaggregation-transfer-backend mooncake",
            ["0.5.21", "0.5.22"],
        ),
        (EAGLE3, "--quantization minimax_m3_nvfp4", "--quantization fp8", ["0.5.22", "0.5.23"]),
        (
            uno,
            "--speculative-num-steps 3 --speculative-num-draft-tokens 200",
            "--speculative-num-steps 3 --speculative-num-draft-tokens 8",
            ["0.5.22", "0.5.23"],
        ),
        (
            uno,
            "--speculative-num-draft-tokens 8",
            "--speculative-num-steps 3 --speculative-num-draft-tokens 8",
            ["0.5.22", "0.5.23"],
        ),
    ] {
        let found = |flags: &str, version| finds("SD202", &format!("{launch} {flags}"), version);
        assert_eq!(edges.map(|version| found(refused, version)), [false, true], "{refused}");
        assert!(!found(runs, "0.5.23"), "{runs}");
    }
}

#[test]
fn vllm_refuses_keys_together_from_their_version_on() {
    let eagle = r#""method": "eagle3", "model": "d", "num_speculative_tokens": 3"#;
    let model = r#""method": "draft_model", "model": "d", "num_speculative_tokens": 3"#;
    for (before, keys, other, edges) in [
        (
            "vllm serve m",
            format!(r#"{model}, "use_heterogeneous_vocab": true, "use_local_argmax_reduction": true"#),
            format!(r#"{model}, "use_heterogeneous_vocab": true"#),
            ["0.32.0", "0.33.0"],
        ),
        (
            r#"vllm serve m --compilation-config '{"cudagraph_mode": "PIECEWISE"}'"#,
            r#""method": "dspark", "model": "d", "num_speculative_tokens": 3, "enable_adaptive_verification": true"#
                .to_owned(),
            eagle.to_owned(),
            ["0.29.0", "0.30.0"],
        ),
        (
            "VLLM_USE_V2_MODEL_RUNNER=0 vllm serve m",
            format!(r#"{eagle}, "disable_padded_drafter_batch": true, "parallel_drafting": true"#),
            format!(r#"{eagle}, "parallel_drafting": true"#),
            ["0.19.0", "0.20.2"],
        ),
        (
            "vllm serve m --return-sampling-mask",
            r#""method": "suffix", "num_speculative_tokens": 8"#.to_owned(),
            eagle.to_owned(),
            ["0.27.1", "0.28.0"],
        ),
        (
            "vllm serve m --enable-return-routed-experts",
            r#""method": "suffix", "num_speculative_tokens": 8"#.to_owned(),
            eagle.to_owned(),
            ["0.30.0", "0.31.0"],
        ),
        (
            "vllm serve m --watermark-config '{}'",
            format!(r#"{eagle}, "draft_sample_method": "probabilistic", "parallel_drafting": true"#),
            format!(r#"{eagle}, "draft_sample_method": "probabilistic""#),
            ["0.29.0", "0.30.0"],
        ),
    ] {
        let found =
            |keys: &str, version| finds("VL36", &format!("{before} --speculative-config '{{{keys}}}'"), version);
        assert_eq!(edges.map(|version| found(&keys, version)), [false, true], "{keys}");
        assert!(!found(&other, "0.33.0"), "{other}");
    }
}
