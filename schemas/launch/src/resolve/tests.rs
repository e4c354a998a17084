use schemas::{engines::NEWEST_SGLANG, model::ModelConfig, text::Source};

use super::*;
use crate::{Options, parse};

fn version(text: &str) -> EngineVersion {
    text.parse().expect("a version")
}

/// A model whose whole config is known.
fn model(architecture: &str, fields: &str) -> ModelFacts {
    let text =
        format!(r#"{{"architectures": ["{architecture}"]{}{fields}}}"#, if fields.is_empty() { "" } else { ", " });
    ModelFacts { config: ModelConfig::parse(&text).expect("a config"), ..ModelFacts::default() }
}

fn resolved(flags: &str, in_version: &str, target: Option<&ModelFacts>, memory: Option<u64>) -> Resolved {
    let source = Source::new("x", format!("sglang serve --model-path x {flags}"));
    let parsed = parse(&source, &Options::default());
    let launch = parsed.launches.first().expect("a launch");
    resolve(launch, version(in_version), true, target, None, memory)
}

/// The tree shape, with `*` after each number that the user did not write.
fn triple(resolved: &Resolved) -> String {
    let shown = |decided: &Option<Decided<usize>>| {
        decided.as_ref().map_or("?".into(), |decided| {
            format!("{}{}", decided.value, if decided.origin.is_written() { "" } else { "*" })
        })
    };
    [shown(&resolved.num_steps), shown(&resolved.topk), shown(&resolved.num_draft_tokens)].join(" ")
}

#[test]
fn the_triple_is_chosen_by_architecture_and_version() {
    let versions = ["0.4.7", "0.5.2", "0.5.6", "0.5.9", "0.5.23"];
    let (tree, chain) = ("5* 4* 8*", "3* 1* 4*");
    for (architecture, expected) in [
        ("LlamaForCausalLM", [tree, tree, tree, tree, tree]),
        ("DeepseekV3ForCausalLM", [chain, chain, chain, chain, chain]),
        ("GptOssForCausalLM", [tree, chain, chain, chain, chain]),
        ("BailingMoeForCausalLM", [tree, tree, chain, chain, chain]),
        ("DeepseekV32ForCausalLM", [tree, tree, chain, chain, chain]),
        ("Glm4MoeForCausalLM", [tree, tree, tree, chain, chain]),
        ("Grok1ForCausalLM", [tree, tree, tree, tree, tree]),
        ("Qwen3ForCausalLM", [tree, tree, tree, chain, chain]),
    ] {
        let target = model(architecture, "");
        for (version, expected) in versions.iter().zip(expected) {
            let found = resolved("--speculative-algorithm EAGLE", version, Some(&target), None);
            assert_eq!(triple(&found), expected, "{architecture} in {version}");
        }
    }
    assert_eq!(triple(&resolved("--speculative-algorithm EAGLE", "0.5.9", None, None)), "? ? ?");
    assert_eq!(triple(&resolved("--speculative-algorithm STANDALONE", "0.5.9", None, None)), chain);
}

#[test]
fn what_is_written_stands_but_for_what_the_engine_replaces() {
    let check = |flags: &str, in_version: &str, expected: &str| {
        let flags = format!("--speculative-algorithm {flags}");
        assert_eq!(triple(&resolved(&flags, in_version, None, None)), expected, "{flags} in {in_version}");
    };
    let all = |steps: i64, topk: i64, tokens: i64| {
        format!(
            "--speculative-num-steps {steps} --speculative-eagle-topk {topk} --speculative-num-draft-tokens {tokens}"
        )
    };
    check(&format!("EAGLE3 {}", all(5, 8, 32)), "0.5.9", "5 8 32");
    check(&format!("EAGLE {}", all(3, 1, 4)), "0.5.9", "3 1 4");
    check(&format!("EAGLE {}", all(4, 1, 24)), "0.5.9", "4 1 5*");
    check("EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1", "0.5.9", "3 1 4*");
    check("EAGLE --speculative-num-steps 3", "0.5.9", "3 ? ?");
    check("EAGLE --speculative-num-draft-tokens 8", "0.5.9", "? ? 8");
    check(&format!("EAGLE {}", all(-1, 4, 8)), "0.5.9", "? 4 8");
    check("EAGLE --speculative-adaptive", "0.5.23", "3* 1* 4*");
    check("EAGLE --speculative-adaptive --speculative-num-steps 5", "0.5.23", "5 1* 6*");
    check("NGRAM", "0.5.23", "1* 10* 12*");
    check("NGRAM --speculative-eagle-topk 2 --speculative-num-draft-tokens 20", "0.5.23", "2* 10* 20");
    check("NGRAM --speculative-ngram-max-match-window-size 8 --speculative-ngram-max-bfs-breadth 4", "0.5.6", "2* 4 8");
    check(&format!("DFLASH {}", all(3, 4, 8)), "0.5.23", "1* 1* 8");
    check("DSPARK --speculative-dspark-block-size 5", "0.5.23", "1* 1* 6");
    check(&format!("EAGLE {} --page-size 16", all(3, 4, 8)), "0.4.7", "3 1* 4*");
    check(&format!("EAGLE {} --page-size 16", all(3, 4, 8)), "0.5.9", "3 4 8");
    check("$ALGORITHM", "0.5.9", "? ? ?");
}

#[test]
fn algorithms_are_named_as_the_version_names_them() {
    let check = |flags: &str, in_version: &str, expected: Option<Algorithm>| {
        let found = resolved(&format!("--speculative-algorithm {flags}"), in_version, None, None);
        assert!(found.speculative);
        assert_eq!(found.algorithm.map(|algorithm| algorithm.value), expected, "{flags}");
    };
    check("NEXTN", "0.5.9", Some(Algorithm::Eagle));
    check("eagle3", "0.5.23", Some(Algorithm::Eagle3));
    check("eagle3", "0.5.6", None);
    check("MEDUSA", "0.5.23", None);
    assert!(!resolved("", "0.5.9", None, None).speculative);
}

#[test]
fn states_are_captured_without_a_draft() {
    let flags =
        "--speculative-algorithm DFLASH --enable-return-aux-hidden-states --return-aux-hidden-state-layer-ids 1 9";
    let found = resolved(flags, "0.5.23", None, None);
    assert_eq!((found.speculative, found.algorithm, found.num_draft_tokens), (false, None, None));
    assert!(found.off.is_some_and(|why| why.contains("captures")));
}

#[test]
fn running_requests_are_48_with_speculation() {
    let check = |flags: &str, target: Option<&ModelFacts>, expected: Option<usize>| {
        let found = resolved(flags, "0.5.23", target, None);
        assert_eq!(found.max_running_requests.map(|limit| limit.value), expected, "{flags}");
    };
    check("--speculative-algorithm EAGLE", None, Some(48));
    check("--speculative-algorithm NGRAM", None, Some(48));
    check("--speculative-algorithm EAGLE --max-running-requests 128", None, Some(128));
    check("--speculative-algorithm EAGLE --max-running-requests $N", None, None);
    check("--speculative-algorithm UNO", None, None);
    check("", None, None);
    check("--speculative-algorithm EAGLE", Some(&model("DeepseekV4ForCausalLM", "")), Some(256));
}

fn sizes(flags: &str, in_version: &str, memory: Option<u64>) -> String {
    let found = resolved(flags, in_version, None, memory).capture_sizes;
    found.map_or("?".into(), |sizes| view_of(&sizes.value))
}

fn view_of(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
}

const H200: Option<u64> = Some(143_771);
const DENSE: &str = "1 2 3 4 5 6 7 8 10 12 14 16 18 20 22 24 26 28 30 32";

#[test]
fn capture_sizes_follow_version_memory_and_running_requests() {
    let eagle = "--speculative-algorithm EAGLE";
    assert_eq!(sizes(eagle, "0.5.23", H200), format!("{DENSE} 40 44 48"));
    assert_eq!(sizes(eagle, "0.5.2", H200), format!("{DENSE} 40 48"));
    assert_eq!(sizes(&format!("{eagle} --max-running-requests 44"), "0.5.2", H200), format!("{DENSE} 40 44"));
    assert_eq!(sizes(&format!("{eagle} --max-running-requests 5"), "0.5.9", None), "1 2 3 4 5");
    let many = resolved(&format!("{eagle} --max-running-requests 4096"), "0.5.23", None, H200);
    assert_eq!(many.capture_sizes.map(|sizes| sizes.value.len()), Some(51));
    let many = resolved(&format!("{eagle} --max-running-requests 4096 --tp 8"), "0.5.23", None, H200);
    assert_eq!(many.capture_sizes.map(|sizes| sizes.value.len()), Some(67));
    // Without speculation.
    assert_eq!(sizes("--cuda-graph-max-bs 30", "0.5.9", None), "1 2 4 8 12 16 24");
    assert_eq!(sizes("--cuda-graph-max-bs 30", "0.5.12.post1", None), "1 2 4 8 12 16 24 30");
    // Small cards.
    assert_eq!(sizes(eagle, "0.5.9", Some(24_000)), "1 2 3 4 5 6 7 8 10 12 14 16 18 20 22 24");
    assert_eq!(sizes(eagle, "0.5.2", Some(24_000)), "1 2 3 4 5 6 7 8");
}

#[test]
fn lists_of_the_user_are_cut_to_what_can_run() {
    let eagle = "--speculative-algorithm EAGLE --max-running-requests 10";
    assert_eq!(sizes(&format!("{eagle} --cuda-graph-bs 1 2 4 8"), "0.5.9", None), "1 2 4 8");
    assert_eq!(sizes(&format!("{eagle} --cuda-graph-bs 8 4 16 $(seq 32 32 128)"), "0.5.9", None), "4 8 10");
    assert_eq!(sizes(&format!("{eagle} --cuda-graph-bs 1 $MORE"), "0.5.9", None), "?");
    assert_eq!(sizes(&format!("{eagle} --cuda-graph-bs 0"), "0.5.9", None), "?");
    let kept = resolved(&format!("{eagle} --cuda-graph-bs 1 2 4 8"), "0.5.9", None, None);
    assert!(kept.capture_sizes.is_some_and(|sizes| sizes.origin.is_written()));
    let cut = resolved(&format!("{eagle} --cuda-graph-bs 1 16"), "0.5.9", None, None);
    assert!(cut.capture_sizes.is_some_and(|sizes| matches!(sizes.origin, Origin::Rewritten { .. })));
}

#[test]
fn graphs_can_be_off_and_limits_absurd() {
    let eagle = "--speculative-algorithm EAGLE";
    for off in ["--disable-cuda-graph", "--cuda-graph-backend-decode disabled", "--attention-backend torch_native"] {
        assert_eq!(sizes(&format!("{eagle} {off}"), "0.5.23", None), "", "{off}");
    }
    let huge = "--cuda-graph-max-bs 9223372036854775807 --max-running-requests 9223372036854775807";
    for in_version in ["0.4.7", "0.5.2", "0.5.9", "0.5.23"] {
        assert_eq!(sizes(&format!("{eagle} {huge}"), in_version, None), "?");
        let _ = sizes(&format!("{eagle} {huge} --disable-cuda-graph-padding"), in_version, None);
        let _ = sizes(&format!("{eagle} {huge} --cuda-graph-bs 9223372036854775807 1"), in_version, None);
    }
    assert_eq!(
        sizes(&format!("{eagle} --disable-cuda-graph-padding --max-running-requests 4"), "0.5.9", None),
        "1 2 3 4"
    );
}

#[test]
fn running_requests_and_sizes_are_shared_among_attention_ranks() {
    let flags = "--speculative-algorithm EAGLE --tp 8 --dp-size 8 --enable-dp-attention";
    assert_eq!(sizes(flags, "0.5.9", H200), "1 2 3 4 5 6");
    let flags = "--speculative-algorithm EAGLE --speculative-num-steps 2 --speculative-eagle-topk 1 \
                 --speculative-num-draft-tokens 3 --tp 8 --dp-size 4 --enable-dp-attention --max-running-requests 32";
    assert_eq!(sizes(flags, "0.5.12.post1", H200), "2 4 6 8");
}

#[test]
fn what_depends_on_ranks_that_are_not_known_is_not_known() {
    let check = |flags: &str, in_version: &str, known: bool| {
        let flags = format!("--speculative-algorithm EAGLE --tp 8 {flags}");
        let target = model("LlamaForCausalLM", r#""hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 1000"#);
        let resolved = resolved(&flags, in_version, Some(&target), H200);
        assert_eq!(resolved.capture_sizes.is_some(), known, "sizes of {flags} in {in_version}");
        let by_use = in_version != "0.4.10";
        assert_eq!(resolved.mem_fraction_static.is_some(), known || !by_use, "share of {flags} in {in_version}");
        assert!(resolved.max_running_requests.is_some(), "the limit of all ranks together");
    };
    for version in ["0.4.10", "0.5.9", "0.5.23"] {
        check("--enable-dp-attention --dp-size 4", version, true);
        check("--enable-dp-attention --dp-size $DP", version, false);
        check("--attn-dp-size $DP", version, false);
        check("--dp-size $DP", version, true);
    }
    let off = resolved("--tp 8 --enable-dp-attention --dp-size $DP --disable-cuda-graph", "0.5.23", None, H200);
    assert_eq!(off.capture_sizes.map(|sizes| sizes.value), Some(Vec::new()), "no graphs with any number of ranks");
}

#[test]
fn the_attention_backend_follows_model_topk_and_gpu() {
    let check = |architecture: &str, flags: &str, in_version: &str, memory: Option<u64>, expected: Option<&str>| {
        let target = model(architecture, "");
        let found = resolved(flags, in_version, Some(&target), memory).attention_backend;
        assert_eq!(
            found.as_ref().map(|backend| backend.value.as_str()),
            expected,
            "{architecture} {flags} {in_version}"
        );
    };
    let tree = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8";
    let chain = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";
    let auto = "--speculative-algorithm EAGLE";
    let llama = "LlamaForCausalLM";
    check(llama, tree, "0.5.23", None, Some("flashinfer"));
    check(llama, chain, "0.5.23", None, Some("fa3"));
    check(llama, &format!("{chain} --page-size 16"), "0.5.23", None, Some("flashinfer"));
    check(llama, auto, "0.5.23", None, Some("fa3"));
    check(llama, auto, "0.5.2", None, Some("flashinfer"));
    check(llama, "", "0.4.7", None, Some("fa3"));
    check("MiMoForCausalLM", chain, "0.5.6", None, Some("flashinfer"));
    check("MiMoForCausalLM", chain, "0.5.9", None, Some("fa3"));
    check("Glm4MoeForCausalLM", chain, "0.4.9.post6", None, Some("fa3"));
    check("Qwen3VLForConditionalGeneration", chain, "0.5.7", None, Some("fa3"));
    check("MixtralForCausalLM", chain, "0.5.8", None, Some("fa3"));
    check("GptOssForCausalLM", chain, "0.5.1", None, Some("fa3"));
    check(llama, &format!("{chain} --enable-hierarchical-cache"), "0.4.10", None, Some("flashinfer"));
    check(llama, &format!("{chain} --enable-hierarchical-cache"), "0.5.1", None, Some("fa3"));
    check(llama, chain, "0.5.7", Some(183_359), Some("trtllm_mha"));
    check(llama, chain, "0.5.23", Some(183_359), Some("trtllm_mha"));
    check(llama, auto, "0.5.23", Some(183_359), Some("flashinfer"));
    check(llama, chain, "0.5.23", Some(24_564), Some("flashinfer"));
    check("DeepseekV3ForCausalLM", tree, "0.5.23", None, Some("fa3"));
    check("DeepseekV3ForCausalLM", chain, "0.5.23", Some(183_359), Some("flashinfer"));
    check("GptOssForCausalLM", chain, "0.5.23", None, Some("fa3"));
    check("DeepseekV32ForCausalLM", chain, "0.5.9", None, Some("nsa"));
    check("Qwen3NextForCausalLM", chain, "0.5.9", None, None);
    check(llama, "--attention-backend triton", "0.5.23", None, Some("triton"));
    check(llama, "--attention-backend fa3 --kv-cache-dtype fp8_e5m2", "0.5.23", None, Some("triton"));
    check(llama, "--device cpu", "0.5.23", None, None);
    check(llama, "--attention-backend $B", "0.5.23", None, None);
}

#[test]
fn pages_snap_to_what_the_backend_takes() {
    let check = |flags: &str, expected: usize, written: bool| {
        let found = resolved(flags, "0.5.23", None, None).page_size.expect("known");
        assert_eq!((found.value, found.origin.is_written()), (expected, written), "{flags}");
    };
    check("", 1, false);
    check("--page-size 16", 16, true);
    check("--attention-backend flashmla", 64, false);
    check("--attention-backend flashmla --page-size 16", 64, false);
    check("--attention-backend trtllm_mla --page-size 32", 32, true);
    check("--attention-backend trtllm_mha --page-size 128", 128, true);
    check("--attention-backend trtllm_mha", 64, false);
}

#[test]
fn dtypes_are_loaded_as_the_configs_say_unless_stated() {
    let source =
        Source::new("x", "sglang serve --model-path x --speculative-algorithm EAGLE3 --speculative-draft-model-path y");
    let parsed = parse(&source, &Options::default());
    let launch = parsed.launches.first().expect("a launch");
    let (target, silent) = (model("A", r#""torch_dtype": "bfloat16""#), model("B", ""));
    let check = |draft: &ModelFacts, expected: Option<&str>| {
        let found = resolve(launch, NEWEST_SGLANG, false, Some(&target), Some(draft), None);
        assert_eq!(found.target_dtype.as_ref().map(|dtype| dtype.value.as_str()), Some("bfloat16"));
        assert_eq!(found.draft_dtype.as_ref().map(|dtype| dtype.value.as_str()), expected);
    };
    check(&silent, Some("float16"));
    check(&ModelFacts { partial: true, ..silent.clone() }, None);
    check(&model("B", r#""dtype": "float32""#), Some("float16"));
    check(&model("B", r#""dtype": "float32", "model_type": "gemma3""#), Some("bfloat16"));
    let stated = resolved("--dtype half", "0.5.9", Some(&target), None);
    assert_eq!(stated.target_dtype.map(|dtype| dtype.value).as_deref(), Some("float16"));
}

#[test]
fn slime_shares_out_the_gpus_of_an_engine() {
    let text = "A=( --sglang-pp-size 2 --rollout-num-gpus-per-engine 8 --sglang-dtype half )";
    let source = Source::new("x", text);
    let parsed = parse(&source, &Options::default());
    let launch = parsed.launches.first().expect("a launch");
    let (version, given) = version_of(launch, None);
    assert_eq!((version, given), (SLIME_PIN, false));
    assert_eq!(resolve(launch, version, given, None, None, None).tp_size.map(|size| size.value), Some(4));
}

#[test]
fn the_view_says_where_everything_comes_from() {
    let text = "sglang serve --model-path x --speculative-algorithm NEXTN --speculative-num-steps 4 \\\n  \
                --speculative-eagle-topk 1 --speculative-num-draft-tokens 24";
    let source = Source::new("x", text);
    let parsed = parse(&source, &Options::default());
    let target = model("LlamaForCausalLM", LLAMA);
    let launch = parsed.launches.first().expect("a launch");
    let found = resolve(launch, NEWEST_SGLANG, false, Some(&target), None, Some(143_771));
    insta::assert_snapshot!(found.table(&source), @r"
    resolved for sglang 0.5.23 (assumed)
      speculative_algorithm          EAGLE                                     replaces what is written at 1:53: NEXTN is an alias of EAGLE [sglang arg_groups/speculative_hook.py]
      speculative_num_steps          4                                         written at 1:83
      speculative_eagle_topk         1                                         written at 2:28
      speculative_num_draft_tokens   5                                         replaces what is written at 2:30: with topk 1 the tree is a chain of num_steps + 1 tokens [sglang arg_groups/speculative_hook.py]
      max_running_requests           48                                        default: reset to 48 for speculative decoding [sglang arg_groups/speculative_hook.py]
      cuda_graph_bs                  1-8 10 12 14 16 18 20 22 24 26 28 30 32 40 44 48  default: the list up to 256, on a GPU of 143771 MiB with tensor parallelism 1, cut to the 48 requests that can run together on one worker [sglang arg_groups/cuda_graph_hook.py]
      attention_backend              fa3                                       default: for a chain or no speculation, taking a GPU of 143771 MiB for a Hopper [sglang get_default_attn_backend]
      page_size                      1                                         default: a page is one token by default [sglang arg_groups/overrides.py]
      dtype                          bfloat16                                  default: as the config says [sglang configs/model_config.py]
      draft_dtype                    ?                                         not known from what was given
      context_length                 131072                                    default: derived from the target's config [sglang hf_transformers/common.py]
      usable_context_length          131067                                    default: the context but for the 5 slots of the drafts: max(topk × steps, draft tokens) [sglang managers/utils.py]
      kv_slots_reserved_per_request  10                                        default: two rounds, for overlap, of 5 slots: max(topk × steps, draft tokens) [sglang mem_cache/allocation_sizing.py]
      chunked_prefill_size           8192                                      default: on a GPU of 143771 MiB [sglang arg_groups/memory_hook.py]
      mem_fraction_static            0.903                                     default: what is left of 143771 MiB for weights and KV cache [sglang arg_groups/memory_hook.py]
      tp_size                        1                                         default: one GPU by default [sglang server_args]
    memory of one GPU, estimated
      all                           140.4 GiB
      before loading                  1.3 GiB  context and libraries of CUDA, as measured on an H200
      static                        125.6 GiB  weights and KV cache
      target weights                 15.0 GiB  static
      draft weights                   0 bytes  static
      KV cache                  878990 tokens  of 132.0 KiB, target and draft
      outside                        13.5 GiB  activations, graphs, logits
      activations, graphs            12.6 GiB  by the engine's own rule of chunk and largest batch
      verify logits                 117.4 MiB  float32, once; sampling makes copies
    ");
    let json = found.to_json(&source);
    assert_eq!(json.pointer("/speculative_num_draft_tokens/value").and_then(serde_json::Value::as_u64), Some(5));
    assert_eq!(
        json.pointer("/speculative_num_draft_tokens/origin").and_then(serde_json::Value::as_str),
        Some("rewritten")
    );
    assert_eq!(json.pointer("/speculative_num_draft_tokens/line").and_then(serde_json::Value::as_u64), Some(2));
    assert!(json.pointer("/draft_dtype/value").is_some_and(serde_json::Value::is_null));
}

const LLAMA: &str = r#""hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16""#;

/// Computed by hand from the rule of each version (`server_args.py`, `arg_groups/memory_hook.py`).
#[test]
fn the_static_share_follows_the_versions_rule() {
    let target = model("LlamaForCausalLM", LLAMA);
    let check = |flags: &str, in_version: &str, memory: u64, expected: f64| {
        let found = resolved(flags, in_version, Some(&target), Some(memory)).mem_fraction_static;
        let found = found.map(|share| share.value).unwrap_or_default();
        assert!((found - expected).abs() < 5e-4, "{flags} in {in_version} on {memory} MiB: {found}, not {expected}");
    };
    let (h100, h200, b200, a10) = (81_559, 143_771, 183_359, 23_028);
    let eagle = "--speculative-algorithm EAGLE3";
    // By card and parallelism; with speculation 5% less, or 20 GiB reserved on large cards.
    check("", "0.4.7", h100, 0.88);
    check(eagle, "0.4.7", h100, 0.836);
    check("--tp-size 8", "0.4.7", h100, 0.81);
    check(eagle, "0.4.7", h200, 0.8576);
    check("", "0.4.7", b200, 0.79);
    // 9.5 GiB (12, 2.8) and half a GiB per GPU; 2 GiB for a draft, 6 for a whole model.
    check("", "0.4.10", h100, 0.874);
    check(eagle, "0.5.2", h100, 0.849);
    check("--speculative-algorithm STANDALONE", "0.5.2", h100, 0.799);
    check("--speculative-algorithm STANDALONE", "0.4.10", h100, 0.849);
    check(eagle, "0.5.2", h200, 0.897);
    check("", "0.5.2", a10, 0.871);
    check("", "0.5.2", b200, 0.821);
    // 512 + 1.5 per token of the chunk + 2 per request + 128 per GPU, at least 10 GiB: 13440 on
    // both.
    check("", "0.5.6", h100, 0.835);
    check(eagle, "0.5.9", h100, 0.81);
    check(eagle, "0.5.9", h200, 0.892);
    check("--speculative-algorithm NGRAM", "0.5.9", h100, 0.835);
    // Prefill is captured in 58 sizes of 8 MiB each; 4 GiB for a draft, and none once it counts as
    // static.
    check(eagle, "0.5.12", h200, 0.875);
    check(eagle, "0.5.23", h200, 0.903);
    check("--speculative-algorithm EAGLE3 --disable-prefill-cuda-graph", "0.5.23", h200, 0.907);
    check("--speculative-algorithm EAGLE3 --chunked-prefill-size 2048 --max-running-requests 8", "0.5.23", h200, 0.929);
    check("--mem-fraction-static 0.7", "0.5.23", h200, 0.7);
    assert_eq!(resolved(eagle, "0.5.23", Some(&target), None).mem_fraction_static, None);
}

#[test]
fn chunks_follow_card_and_version() {
    for (in_version, sizes) in [
        ("0.4.7", [2048, 8192, 8192, 8192, 16384]),
        ("0.5.2", [2048, 2048, 8192, 8192, 16384]),
        ("0.5.9", [2048, 2048, 4096, 8192, 16384]),
        ("0.5.23", [2048, 4096, 4096, 8192, 16384]),
    ] {
        for (memory, expected) in [16_384, 32_768, 46_068, 143_771, 183_359].into_iter().zip(sizes) {
            let found = resolved("", in_version, None, Some(memory)).chunked_prefill_size;
            assert_eq!(found.map(|chunk| chunk.value), Some(expected), "{memory} MiB in {in_version}");
        }
    }
}

#[test]
fn drafts_take_context_and_slots_of_each_request() {
    let target = model("LlamaForCausalLM", LLAMA);
    let check = |flags: &str, in_version: &str, expected: (Option<usize>, Option<usize>)| {
        let flags = format!("--context-length 4096 {flags}");
        let found = resolved(&flags, in_version, Some(&target), None);
        let value = |decided: Option<Decided<usize>>| decided.map(|decided| decided.value);
        assert_eq!((value(found.usable_context), value(found.reserved_slots)), expected, "{flags} in {in_version}");
    };
    let tree = |steps: usize, topk: usize, tokens: usize| {
        format!(
            "--speculative-algorithm EAGLE3 --speculative-num-steps {steps} --speculative-eagle-topk {topk} \
             --speculative-num-draft-tokens {tokens}"
        )
    };
    check("", "0.5.23", (Some(4096), None));
    check(&tree(3, 1, 4), "0.5.23", (Some(4092), Some(8)));
    check(&tree(5, 8, 32), "0.5.23", (Some(4056), Some(80)));
    check(&tree(2, 4, 20), "0.5.23", (Some(4076), Some(40)));
    // ceil((16 - 1 + 5) / 16) = 2 pages of each of 8 branches, twice.
    check(&format!("{} --page-size 16 --attention-backend fa3", tree(5, 8, 32)), "0.5.23", (Some(4056), Some(512)));
    check(&tree(5, 8, 32), "0.5.9", (Some(4056), None));
    check(&tree(3, 1, 4), "0.5.9", (Some(4092), Some(8)));
    check(&tree(5, 8, 32), "0.5.2", (Some(4096), None));
    check("--speculative-algorithm NGRAM", "0.5.23", (Some(4096), Some(24)));
}

#[test]
fn the_cache_of_a_whole_model_that_drafts_is_its_own_and_counted_as_the_targets() {
    let target = model("LlamaForCausalLM", LLAMA);
    let flags = "--speculative-algorithm STANDALONE --speculative-draft-model-path small --max-running-requests 64 \
                 --mem-fraction-static 0.8";
    // Sixteen layers with 8 heads of 64, as Llama-3.2-1B, and the same with 32.
    let drafted = |heads: usize, algorithm: &str| {
        let small = model(
            "LlamaForCausalLM",
            &format!(
                r#""hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
                   "num_key_value_heads": {heads}, "vocab_size": 128256, "tie_word_embeddings": true"#
            ),
        );
        let text = format!("sglang serve --model-path m {}", flags.replace("STANDALONE", algorithm));
        let source = Source::new("run.sh", text);
        let parsed = parse(&source, &Options::default());
        let launch = parsed.launches.first().expect("a launch");
        resolve(launch, version("0.5.23"), true, Some(&target), Some(&small), Some(81_559)).memory.expect("known")
    };
    let narrow = drafted(8, "STANDALONE");
    assert_eq!(narrow.kv_token, Some(131_072 + 131_072 / 2), "16 of the target's 32 layers");
    assert_eq!((narrow.draft_kv_token, narrow.draft_kv_beyond), (Some(2 * 8 * 64 * 16 * 2), Some(0)));
    assert_eq!(narrow.draft_weights, Some(2 * 1_235_746_816));
    let wide = drafted(32, "STANDALONE");
    assert_eq!(wide.draft_kv_token, Some(131_072));
    assert_eq!(wide.draft_kv_beyond, Some(65_536 * wide.kv_tokens.expect("known")));
    assert!(wide.needed_outside() > narrow.needed_outside());
    assert_eq!(drafted(8, "EAGLE").draft_kv_token, None);
}

#[test]
fn memory_is_estimated_where_the_sizes_are_known() {
    let target = model("LlamaForCausalLM", LLAMA);
    let flags = "--speculative-algorithm EAGLE3 --max-running-requests 64 --mem-fraction-static 0.8 \
                 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";
    let found = resolved(flags, "0.5.9", Some(&target), Some(81_559)).memory.expect("the GPU is known");
    assert_eq!(found.target_weights, Some(2 * 8_029_995_008));
    assert_eq!(found.draft_weights, Some(0), "no draft of its own");
    assert_eq!(found.kv_token, Some(131_072 / 32 * 33));
    assert_eq!(found.verify_logits, Some(64 * 4 * 128_256 * 4));
    assert_eq!(found.kv_tokens, Some((found.static_share.expect("given") - 2 * 8_029_995_008) / (131_072 / 32 * 33)));
    assert_eq!(resolved(flags, "0.5.9", Some(&target), None).memory, None);
    let shared = resolved(
        &format!("{flags} --tp-size 4 --enable-dp-attention --dp-size 4"),
        "0.5.9",
        Some(&target),
        Some(81_559),
    );
    assert_eq!(shared.memory.expect("the GPU is known").target_weights, None, "ranks keep whole copies");
}

#[test]
fn layers_with_a_window_are_shown_apart() {
    let target = model(
        "GptOssForCausalLM",
        r#""hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
           "head_dim": 64, "vocab_size": 201088, "sliding_window": 128, "torch_dtype": "bfloat16""#,
    );
    let found = resolved("--mem-fraction-static 0.8", "0.5.23", Some(&target), Some(81_559)).memory.expect("known");
    let token = found.with_windows.expect("every second layer");
    assert_eq!((token.full, token.windowed, token.window), (12 * 2048, 12 * 2048, 128));
    assert_eq!((found.kv_token, found.kv_tokens), (Some(44_236), None), "the weights are not known");
}
