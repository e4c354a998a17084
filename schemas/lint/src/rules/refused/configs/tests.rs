use schemas::{engines::Engine, flags};

use super::{super::are_edges, *};
use crate::rules::examples::found_in;

#[test]
fn every_row_is_read_and_names_flags_that_exist() {
    for (engine, known, least) in [(Engine::Sglang, flags::sglang(), 25), (Engine::Vllm, flags::vllm(), 2)] {
        let rows = rows(engine);
        assert!(rows.len() >= least, "{} rows only", rows.len());
        let mut ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
        for row in rows {
            assert!(are_edges(row.since.as_deref(), row.until.as_deref()), "{}", row.id);
            let by_class = !row.classes.is_empty() && (!row.flags.is_empty() || row.of == ConfigOwner::Target);
            assert!((!row.when.is_empty() || by_class) && !row.methods.is_empty(), "{}", row.id);
            let named = row.flags.iter().flat_map(Condition::flags).chain(row.without.iter().map(String::as_str));
            for flag in named {
                assert!(known.spelling(flag).is_some(), "{}: {flag}", row.id);
            }
            assert!(row.variables.iter().all(VariableCondition::has_test), "{}", row.id);
            assert!(engine == Engine::Vllm || row.runner.is_none(), "{}", row.id);
            assert!(row.message.len() < 160 && !row.message.ends_with('.'), "{}", row.id);
            assert!(row.when.iter().all(|condition| !condition.fields.is_empty()), "{}", row.id);
        }
    }
}

/// What SD205 says in a version of a DFLASH or DSPARK draft with these fields.
fn says(algorithm: &str, class: &str, fields: &str, version: &str) -> Vec<String> {
    let target = r#"{"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "vocab_size": 1000}"#;
    let draft = format!(r#"{{"architectures": ["{class}"], {fields}}}"#);
    let text = format!(
        "SGLANG_RAGGED_VERIFY_MODE=compact sglang serve --model-path target --speculative-algorithm {algorithm} \
         --speculative-draft-model-path draft"
    );
    let found = found_in(&text, version, target, &draft);
    found.into_iter().filter(|found| found.code == "SD205").map(|found| found.message).collect()
}

#[test]
fn configs_of_blocks_are_refused_from_their_version_on() {
    let window = r#""num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]"#;
    for (fields, before, first) in [
        (window, "0.5.13", "0.5.14"),
        (r#""num_hidden_layers": 3, "layer_types": ["full_attention"]"#, "0.5.13", "0.5.14"),
        (r#""layer_types": ["linear_attention"]"#, "0.5.13", "0.5.14"),
        (r#""dflash_config": {"mask_token_id": 1000}"#, "0.5.11", "0.5.12"),
        (r#""mask_token_id": -1"#, "0.5.11", "0.5.12"),
        (r#""dflash_config": {"target_layer_ids": [1, 36]}"#, "0.5.11", "0.5.12"),
        (r#""target_layer_ids": []"#, "0.5.11", "0.5.12"),
        (r#""dflash_config": {"conv_kernel_size": 4}"#, "0.5.18", "0.5.19"),
        (r#""hidden_size": 64, "dflash_config": {"conv_kernel_size": 4, "conv_group_size": 3}"#, "0.5.18", "0.5.19"),
        (r#""dflash_config": {"selector_rank": 4}"#, "0.5.18", "0.5.19"),
        (
            r#""dflash_config": {"projector_type": "domino", "pure_draft_prefix_len": 1, "emb_dim": 8}"#,
            "0.5.19",
            "0.5.20",
        ),
        (r#""hidden_act": "gelu""#, "0.5.11", "0.5.12"),
        (r#""dflash_config": {"attention_sink_bias": 1}"#, "0.5.14", "0.5.23"),
    ] {
        assert_eq!(says("DFLASH", "DFlashDraftModel", fields, before).len(), 0, "{fields} {before}");
        assert_eq!(says("DFLASH", "DFlashDraftModel", fields, first).len(), 1, "{fields} {first}");
    }
    assert_eq!(says("DFLASH", "DFlashDraftModel", &format!(r#"{window}, "sliding_window": 128"#), "0.5.23").len(), 0);
    assert_eq!(says("DFLASH", "DFlashDraftModel", r#""hidden_act": "swigluoai""#, "0.5.22").len(), 1);
    assert_eq!(says("DFLASH", "DFlashDraftModel", r#""hidden_act": "swigluoai""#, "0.5.23").len(), 0);
}

#[test]
fn configs_of_dspark_and_eagle3_are_refused() {
    let whole = r#""markov_rank": 8, "markov_head_type": "vanilla", "mask_token_id": 7"#;
    let check = |fields: &str, count: usize| {
        assert_eq!(says("DSPARK", "Qwen3DSparkModel", fields, "0.5.23").len(), count, "{fields}");
    };
    check(whole, 0);
    check(&whole.replace(r#""markov_rank": 8,"#, ""), 1);
    // A rank of 0 is that of another kind of head (SD019).
    check(&whole.replace("8", "0"), 0);
    check(&whole.replace("vanilla", "lstm"), 1);
    check(&whole.replace(r#""mask_token_id": 7"#, r#""x": 1"#), 1);
    check(&whole.replace('7', "1000"), 1);
    check(&whole.replace(r#""markov_head_type": "vanilla","#, ""), 1);
    check(&format!(r#"{whole}, "enable_confidence_head": false"#), 1);
    let layers = r#""num_hidden_layers": 2"#;
    assert_eq!(says("EAGLE3", "LlamaForCausalLMEagle3", layers, "0.5.11").len(), 1);
    assert_eq!(says("EAGLE3", "LlamaForCausalLMEagle3", layers, "0.5.12").len(), 0);
    assert_eq!(says("EAGLE3", "Eagle3DeepseekV2ForCausalLM", layers, "0.5.23").len(), 2);
}

/// How often a rule reports a launch for a version with these configs.
fn count(code: &str, text: &str, version: &str, target: &str, draft: &str) -> usize {
    found_in(text, version, target, draft).iter().filter(|found| found.code == code).count()
}

#[test]
fn targets_refuse_flags_and_methods_from_their_version_on() {
    let chain = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";
    let tree = "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8";
    for (class, more, flags, edges) in [
        ("Qwen3ForCausalLM", "", format!("EAGLE3 {chain} --enable-unified-memory"), ["0.5.21", "0.5.22"]),
        ("DeepseekV4ForCausalLM", "", format!("EAGLE {chain} --enable-hisparse"), ["0.5.21", "0.5.22"]),
        ("Qwen4ExpForCausalLM", r#", "ple_layer_ids": [1]"#, "NGRAM".into(), ["0.5.19", "0.5.20"]),
        ("FalconMambaForCausalLM", "", "NGRAM".into(), ["0.5.19", "0.5.20"]),
        ("BailingMoeV2_5ForCausalLM", "", format!("EAGLE {tree}"), ["0.5.12", "0.5.13"]),
        ("InklingForCausalLM", "", format!("EAGLE {chain}"), ["0.5.16", "0.5.17"]),
        (
            "Qwen3NextForCausalLM",
            "",
            "DFLASH --speculative-draft-model-path draft --enable-linear-replayssm-spec".into(),
            ["0.5.16", "0.5.17"],
        ),
        (
            "Qwen4ExpForConditionalGeneration",
            "",
            format!("EAGLE {chain} --enable-prefill-cp --cp-strategy zigzag --attn-cp-size 4"),
            ["0.5.21", "0.5.22"],
        ),
    ] {
        let target = format!(r#"{{"architectures": ["{class}"], "num_nextn_predict_layers": 1{more}}}"#);
        let text = format!("sglang serve --model-path target --tp 4 --speculative-algorithm {flags}");
        let counts = edges.map(|version| count("SD205", &text, version, &target, ""));
        assert_eq!(counts, [0, 1], "{class} {edges:?}");
    }
    let plain = r#"{"architectures": ["BailingMoeV2_5ForCausalLM"], "num_nextn_predict_layers": 1}"#;
    let text = format!("sglang serve --model-path target --speculative-algorithm EAGLE {chain}");
    assert_eq!(count("SD205", &text, "0.5.23", plain, ""), 0);
    assert_eq!(count("SD205", &text, "0.5.23", &plain.replace("BailingMoeV2_5", "Inkling"), ""), 1);
    let several = format!("{text} --enable-multi-layer-eagle");
    assert_eq!(count("SD205", &several, "0.5.23", &plain.replace("BailingMoeV2_5", "Inkling"), ""), 0);
    let window = plain.replace("BailingMoeV2_5ForCausalLM", "Gemma3ForCausalLM");
    assert_eq!(count("SD205", &format!("{text} --enable-unified-memory"), "0.5.23", &window, ""), 0);
}

#[test]
fn a_latent_backend_needs_a_draft_with_latent_attention() {
    let text = "sglang serve --model-path target --speculative-algorithm EAGLE3 --speculative-draft-model-path draft \
                --speculative-draft-attention-backend trtllm_mla";
    let target = r#"{"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512}"#;
    let plain = r#"{"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}"#;
    assert_eq!(count("SD205", text, "0.5.23", target, plain), 1);
    assert_eq!(count("SD205", text, "0.5.23", target, ""), 0);
    let latent = r#"{"architectures": ["Eagle3DeepseekV2ForCausalLM"], "num_hidden_layers": 1, "kv_lora_rank": 512,
                     "q_lora_rank": 1536}"#;
    assert_eq!(count("SD205", text, "0.5.23", target, latent), 0);
}

#[test]
fn vllm_refuses_configs_by_runner_method_and_number() {
    let text = |method: &str, tokens: usize| {
        format!(
            r#"vllm serve target --speculative-config '{{"method": "{method}", "model": "draft", "num_speculative_tokens": {tokens}}}'"#
        )
    };
    let first = |method: &str, tokens: usize| format!("VLLM_USE_V2_MODEL_RUNNER=0 {}", text(method, tokens));
    let target = r#"{"architectures": ["Qwen3ForCausalLM"]}"#;
    let mixed = r#"{"architectures": ["DFlashDraftModel"], "sliding_window": 128,
                    "layer_types": ["full_attention", "sliding_attention"]}"#;
    let of = |text: &str, version: &str, target: &str, draft: &str| count("VL46", text, version, target, draft);
    assert_eq!(["0.28.0", "0.29.0"].map(|version| of(&first("dflash", 7), version, target, mixed)), [0, 1]);
    assert_eq!(of(&text("dflash", 7), "0.33.0", target, mixed), 0);
    let candidates = r#"{"architectures": ["DFlash2DraftModel"]}"#;
    assert_eq!(["0.30.0", "0.31.0"].map(|version| of(&first("dflash", 7), version, target, candidates)), [0, 1]);
    let groups =
        r#"{"architectures": ["DFlash2DraftModel"], "hidden_size": 64, "dflash_config": {"conv_group_size": 3}}"#;
    assert_eq!(["0.30.0", "0.31.0"].map(|version| of(&text("dflash", 7), version, target, groups)), [0, 1]);
    let ranks = text("dspark", 7) + " --prefill-context-parallel-size 2";
    let deepseek = r#"{"architectures": ["DeepseekV41ForCausalLM"]}"#;
    assert_eq!(["0.32.0", "0.33.0"].map(|version| of(&ranks, version, deepseek, "")), [0, 1]);
    assert_eq!(of(&text("dspark", 7), "0.33.0", deepseek, ""), 0);
    let marked = text("dflash", 7).replace("vllm serve target", "vllm serve target --watermark-config '{}'");
    assert_eq!(["0.32.0", "0.33.0"].map(|version| of(&marked, version, target, candidates)), [0, 1]);
    for (class, method, edges) in
        [("Qwen4Exp", "eagle3", ["0.28.0", "0.29.0"]), ("AliceAI", "dflash", ["0.32.0", "0.33.0"])]
    {
        let target = format!(r#"{{"architectures": ["{class}ForCausalLM"]}}"#);
        assert_eq!(edges.map(|version| of(&text(method, 7), version, &target, "")), [0, 1], "{class}");
        assert_eq!(of(&text("ngram", 7), "0.33.0", &target, ""), 0, "{class}");
    }
    let own = r#"{"architectures": ["Step3p5ForCausalLM"], "num_nextn_predict_layers": 3}"#;
    let counts = [2, 3, 4, 6].map(|tokens| {
        let text = text("mtp", tokens).replace(r#""model": "draft", "#, "");
        of(&text, "0.33.0", own, "")
    });
    assert_eq!(counts, [0, 0, 1, 0]);
    let states = r#"{"architectures": ["NemotronHForCausalLM"], "num_nextn_predict_layers": 1}"#;
    let replayed = text("mtp", 1).replace(r#""model": "draft", "#, "") + " --use-replayssm";
    assert_eq!(["0.31.0", "0.32.0"].map(|version| of(&replayed, version, states, "")), [0, 1]);
    assert_eq!(of(&format!("{replayed} --mamba-backend flashinfer"), "0.33.0", states, ""), 0);
}
