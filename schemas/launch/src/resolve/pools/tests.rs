use schemas::{
    model::{ModelConfig, ModelFacts, TensorIndex},
    text::Source,
};

use crate::{
    Options, parse,
    resolve::{FilledStates, MemoryEstimate, resolve},
};

fn model(architecture: &str, fields: &str, total_size: u64) -> ModelFacts {
    let text = format!(r#"{{"architectures": ["{architecture}"], "torch_dtype": "bfloat16", {fields}}}"#);
    ModelFacts {
        config: ModelConfig::parse(&text).expect("a config"),
        index: Some(TensorIndex { total_size: Some(total_size), ..TensorIndex::default() }),
        ..ModelFacts::default()
    }
}

fn gpt_oss() -> ModelFacts {
    model(
        "GptOssForCausalLM",
        r#""hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
           "head_dim": 64, "vocab_size": 201088, "sliding_window": 128"#,
        13_761_264_768,
    )
}

fn qwen() -> ModelFacts {
    model(
        "Qwen3_5MoeForConditionalGeneration",
        r#""text_config": {"hidden_size": 2048, "vocab_size": 248320, "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
           "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
           "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "mtp_num_hidden_layers": 1}"#,
        71_903_776_768,
    )
}

/// What a process has taken before it loads, in MiB.
const CONTEXT: u64 = 1331;

/// The estimate for a launch with these flags, and four fifths of the GPU's memory that is free
/// before it loads, in MiB.
fn estimate(
    (flags, version): (&str, &str),
    target: &ModelFacts,
    draft: Option<&ModelFacts>,
    free: u64,
) -> MemoryEstimate {
    let text = format!("sglang serve --model-path x --mem-fraction-static 0.8 {flags}");
    let parsed = parse(&Source::new("x", text), &Options::default());
    let launch = parsed.launches.first().expect("a launch");
    let version = version.parse().expect("a version");
    resolve(launch, version, true, Some(target), draft, Some(free + CONTEXT)).memory.expect("the GPU is known")
}

fn gpt_oss_pools(flags: &str, version: &str) -> (Option<u64>, Option<u64>, Option<String>) {
    let found = estimate((flags, version), &gpt_oss(), None, 81_559);
    (found.kv_tokens, found.window_tokens, found.undecided)
}

#[test]
fn windows_keep_a_share_of_the_tokens_of_other_layers() {
    // (0.8 * 81559 MiB - 13761264768) / (24576 + 0.8 * 24576), and 0.8 of that.
    assert_eq!(gpt_oss_pools("", "0.5.23"), (Some(1_235_518), Some(988_414), None));
    assert_eq!(gpt_oss_pools("", "0.5.16"), (Some(1_235_518), Some(988_414), None));
    assert_eq!(gpt_oss_pools("--swa-full-tokens-ratio 0.1", "0.5.23"), (Some(2_021_757), Some(202_175), None));
    // With twelve layers more that keep all.
    assert_eq!(gpt_oss_pools("--disable-hybrid-swa-memory", "0.5.23"), (Some(1_111_966), None, None));
}

#[test]
fn a_draft_counts_as_layers_that_keep_all_tokens() {
    let draft = model("LlamaForCausalLMEagle3", r#""num_hidden_layers": 1"#, 1_000_000_000);
    let flags = "--speculative-algorithm EAGLE3 --speculative-draft-model-path y";
    let found = estimate((flags, "0.5.23"), &gpt_oss(), Some(&draft), 81_559);
    // 24576 + 0.8 * 24576 + 2048, and the draft's weights.
    assert_eq!(found.kv_token, Some(46_284));
    assert_eq!((found.kv_tokens, found.window_tokens), (Some(1_159_244), Some(927_395)));
}

#[test]
fn what_is_not_decided_is_named() {
    let undecided = |flags: &str, version: &str| {
        let (tokens, _, undecided) = gpt_oss_pools(flags, version);
        assert_eq!(tokens, None, "{flags}");
        undecided.expect("named")
    };
    assert!(undecided("", "0.5.15").contains("0.5.15"));
    assert!(undecided("--enable-unified-memory", "0.5.23").contains("--enable-unified-memory"));
    assert!(undecided("--swa-full-tokens-ratio $X", "0.5.23").contains("--swa-full-tokens-ratio"));
    let limited = undecided("--disable-radix-cache --max-running-requests 8", "0.5.23");
    assert!(limited.contains("--disable-radix-cache"), "{limited}");
    let states = |flags: &str| estimate((flags, "0.5.23"), &qwen(), None, 143_771);
    let replayed = states("--enable-linear-replayssm");
    assert!(replayed.undecided.expect("named").contains("--enable-linear-replayssm"));
    assert_eq!((replayed.kv_tokens, replayed.states.map(|pool| pool.state)), (None, Some(64_389_120)));
    assert!(states("--device npu").undecided.is_some_and(|what| what.contains("--device")));
    assert_eq!(states("--device cuda").undecided, None);
}

/// States, bytes of them, bytes of those of verification, and tokens.
fn qwen_pools(flags: &str, version: &str) -> (u64, u64, u64, u64) {
    let found = estimate((flags, version), &qwen(), None, 143_771);
    assert_eq!(found.undecided, None, "{flags}");
    let pool = found.states.expect("linear attention");
    assert_eq!(pool.state, 30 * (8192 * 3 * 2 + 32 * 128 * 128 * 4));
    let FilledStates { states, bytes, verification, .. } = pool.filled.expect("known");
    (states, bytes, verification, found.kv_tokens.expect("known"))
}

const CHAIN: &str = "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 \
                     --speculative-num-draft-tokens 4";

#[test]
fn states_take_their_share_before_tokens() {
    // 9/19 of what the weights leave, with the draft's copies of embedding and head: K states, and
    // one for each of four tokens of a fifth as many requests.
    assert_eq!(qwen_pools(CHAIN, "0.5.23"), (187, 188 * 64_389_120, 38 * 4 * 64_389_120, 1_095_023));
    assert_eq!(qwen_pools(CHAIN, "0.5.16"), (190, 190 * 64_389_120, 38 * 4 * 64_389_120, 1_093_961));
    assert_eq!(qwen_pools("", "0.5.23"), (356, 357 * 64_389_120, 0, 1_250_405));
}

#[test]
fn a_written_number_of_states_is_kept() {
    let written = qwen_pools(&format!("{CHAIN} --max-mamba-cache-size 200"), "0.5.23");
    assert_eq!(written, (200, 201 * 64_389_120, 41 * 4 * 64_389_120, 1_023_568));
    // Without the prefix cache each request has one.
    let alone = qwen_pools(&format!("{CHAIN} --disable-radix-cache"), "0.5.23");
    assert_eq!(alone, (48, 49 * 64_389_120, 49 * 4 * 64_389_120, 1_366_550));
}

#[test]
fn states_for_a_request_depend_on_the_strategy() {
    let per_request = |flags: &str| {
        let found = estimate((&format!("{CHAIN} {flags}"), "0.5.23"), &qwen(), None, 143_771);
        found.states.expect("linear attention").filled.map(|filled| filled.per_request)
    };
    assert_eq!(per_request(""), Some(5));
    assert_eq!(per_request("--mamba-radix-cache-strategy extra_buffer_lazy"), Some(4));
    assert_eq!(per_request("--mamba-radix-cache-strategy no_buffer"), Some(3));
    assert_eq!(per_request("--disable-radix-cache"), Some(1));
    assert_eq!(per_request("--disable-overlap-schedule"), None);
}

#[test]
fn half_precision_halves_the_recurrent_part() {
    let found = estimate(("--mamba-ssm-dtype bfloat16", "0.5.23"), &qwen(), None, 143_771);
    assert_eq!(found.states.map(|pool| pool.state), Some(30 * (8192 * 3 * 2 + 32 * 128 * 128 * 2)));
}

/// Bytes in hundredths of GiB, as SGLang prints them.
fn printed(bytes: u64) -> u64 {
    (bytes * 100 + (1 << 29)) >> 30
}

#[test]
fn states_take_what_servers_printed_at_their_start() {
    let dense = |layers: u64, heads: u64| {
        let fields = format!(
            r#""text_config": {{"num_hidden_layers": {layers}, "num_attention_heads": 24, "num_key_value_heads": 4,
               "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": {heads},
               "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4}}"#
        );
        model("Qwen3_5ForConditionalGeneration", &fields, 20_000_000_000)
    };
    // 27B without drafts: 0.99 of convolutions and 50.77 of recurrent states, and 72 requests of
    // five states.
    let found = estimate(("--max-mamba-cache-size 360", "0.5.23"), &dense(64, 48), None, 143_771);
    let filled = found.states.and_then(|pool| pool.filled).expect("known");
    assert_eq!((printed(filled.bytes), filled.states / filled.per_request), (99 + 5077, 72));
    // 9B with 16 tokens for each of 64 requests without the prefix cache: 3.05 and 0.07; 48.75 of
    // recurrent states of drafts, of which the engine counts convolutions as whole ones.
    let flags = "--speculative-algorithm NGRAM --speculative-num-draft-tokens 16 --max-running-requests 64 \
                 --disable-radix-cache";
    let found = estimate((flags, "0.5.23"), &dense(32, 32), None, 143_771);
    let filled = found.states.and_then(|pool| pool.filled).expect("known");
    assert_eq!((filled.states, printed(filled.bytes)), (64, 305 + 7));
    let convolutions = 1040 * 24 * 8192 * 3 * 2;
    assert_eq!(printed(filled.verification - convolutions), 4875);
}

#[test]
fn copies_of_embedding_and_head_are_there_while_caches_are_sized() {
    let copies = |flags: &str, version: &str, draft: Option<&ModelFacts>| {
        estimate((flags, version), &qwen(), draft, 143_771).draft_copies
    };
    assert_eq!(copies(CHAIN, "0.5.23", None), Some(2 * 248_320 * 2048 * 2));
    assert_eq!(copies(&format!("{CHAIN} --tp-size 2"), "0.5.23", None), Some(248_320 * 2048 * 2));
    assert_eq!(copies(CHAIN, "0.5.14", None), Some(0), "the draft is loaded afterwards");
    assert_eq!(copies("", "0.5.23", None), Some(0));
    let head = |more: &str| ModelFacts {
        index: None,
        ..model("LlamaForCausalLMEagle3", &format!(r#""hidden_size": 2048, "vocab_size": 248320{more}"#), 0)
    };
    let flags = "--speculative-algorithm EAGLE3 --speculative-draft-model-path y";
    assert_eq!(copies(flags, "0.5.23", Some(&head(""))), Some(248_320 * 2048 * 2), "its head is its own");
    assert_eq!(copies(flags, "0.5.23", Some(&head(r#", "target_hidden_size": 4096"#))), Some(0), "so is its embedding");
    assert_eq!(copies(flags, "0.5.23", None), None);
}
