use super::*;
use crate::spec::{Occurrence, PromptLookup, SuffixRule, TrieMatch, TrieRule};

fn options(line: &str) -> Result<EngineOptions, EngineError> {
    let words: Vec<String> = line.split_whitespace().map(ToOwned::to_owned).collect();
    let (_, launch) = launch::from_arguments(&words);
    with_launch(EngineOptions::default(), &launch)
}

#[test]
fn flags_become_options() {
    fn check(line: &str, change: impl FnOnce(&mut EngineOptions)) {
        let mut expected = EngineOptions { model_path: "m".into(), ..EngineOptions::default() };
        change(&mut expected);
        assert_eq!(options(&format!("--model-path m {line}")).expect(line), expected, "{line}");
    }
    check("", |_| {});
    check("--chunked-prefill-size 4k", |options| options.chunked_prefill_size = 4000);
    check("--chunked-prefill-size -1", |options| options.chunked_prefill_size = usize::MAX);
    check("--disable-radix-cache", |options| options.disable_radix_cache = true);
    check("--disable-cuda-graph", |options| options.disable_cuda_graph = true);
    check("--cuda-graph-max-bs 16", |options| options.cuda_graph_max_bs = Some(16));
    check("--cuda-graph-bs 4 1", |options| options.capture_sizes = vec![4, 1]);
    check("--tp-size 2", |options| options.tp_size = 2);
    check("--batch-invariant", |options| options.batch_invariant = true);
    check("--attention-backend auto", |_| {});
    check("--attention-backend flashinfer", |_| {});
    check("--attention-backend cutedsl_mla", |_| {});
    check("--attention-backend tiles", |options| options.attention_backend = Some("tiles".into()));
    check("--speculative-token-map freq.pt", |options| options.token_map = Some("freq.pt".into()));
    check("--simulate-accept-length 2.5", |options| options.simulated = Some(Simulated::Length(2.5)));
    check("--load-format safetensors", |_| {});
    check("--load-format dummy", |options| options.load_format = LoadFormat::Dummy);
    check("--speculative-draft-window-size 512", |options| options.draft_window = Some(512));
    check("--speculative-draft-model-path d --speculative-num-steps 2", |options| {
        options.draft_model_path = Some("d".into());
        options.policy = ShapePolicy::fixed(TreeShape::chain(2));
    });
}

#[test]
fn a_published_shape_needs_no_folder() {
    let line =
        "--load-format dummy --model-shape llama-3.1-8b --speculative-algorithm EAGLE3 --speculative-num-steps 3";
    let options = options(line).expect("it is complete");
    assert_eq!(options.model_shape.as_deref(), Some("llama-3.1-8b"));
    assert_eq!(options.policy, ShapePolicy::fixed(TreeShape::chain(3)));
}

#[test]
fn a_whole_model_drafts_the_chain_that_sglang_chooses() {
    let line = "--load-format dummy --model-shape llama-3.1-8b --speculative-draft-model-path llama-3.2-1b";
    let shape = |algorithm: &str| {
        let options = options(&format!("{line} --speculative-algorithm {algorithm}")).expect("it is complete");
        options.policy.shape(1).to_string()
    };
    assert_eq!([shape("STANDALONE"), shape("standalone"), shape("EAGLE3")], ["3,1,4", "3,1,4", "5,4,8"]);
    let refused = options("--model-path m --speculative-draft-window-size 0").expect_err("no window").to_string();
    assert!(refused.contains("at least 1"), "{refused}");
}

#[test]
fn a_block_head_of_a_published_shape_needs_no_folder() {
    for (line, expected) in [
        ("DFLASH", "15,1,16"),
        ("DSPARK", "7,1,8"),
        ("DFLASH --speculative-eagle-topk 4 --speculative-num-draft-tokens 32", "15,4,32"),
        ("DSPARK --speculative-dspark-block-size 4 --speculative-num-draft-tokens 3", "2,1,3"),
    ] {
        let line = format!("--load-format dummy --model-shape qwen3-8b --speculative-algorithm {line}");
        let found = options(&line).expect("it is complete");
        assert_eq!(found.policy.shape(1).to_string(), expected, "{line}");
    }
}

#[test]
fn a_published_shape_may_be_cut_short() {
    let found = options("--load-format dummy --model-shape glm-4.5-air --num-layers 4").expect("it is complete");
    assert_eq!((found.model_shape.as_deref(), found.num_layers), (Some("glm-4.5-air"), Some(4)));
}

#[test]
fn what_has_no_sense_is_refused_by_name() {
    for (line, expected) in [
        ("", "add --model-path"),
        ("--model-shape llama-3.1-8b", "add --load-format dummy"),
        ("--model-path m --model-shape x --load-format dummy", "give one of them"),
        ("--model-path m --load-format gguf", "--load-format gguf"),
        ("--model-path m --chunked-prefill-size 0", "--chunked-prefill-size 0: expected"),
        ("--model-path m --cuda-graph-max-bs 0", "--cuda-graph-max-bs 0: expected"),
        ("--model-path m --cuda-graph-bs 0", "--cuda-graph-bs 0: expected"),
        ("--model-path m --attention-backend fast", "--attention-backend fast is unknown"),
        ("--model-path m --simulate-accept-length 0.5", "--simulate-accept-length 0.5: expected"),
        ("--model-path m --simulate-accept-length NaN", "--simulate-accept-length NaN: expected"),
        (
            "--model-path m --speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-num-steps 3 \
             --speculative-eagle-topk 2 --speculative-num-draft-tokens 6 --simulate-accept-length 4.5",
            "--simulate-accept-length 4.5: a round of 3,2,6 yields at most 4 tokens",
        ),
        ("--model-path m --tp-size 0", "--tp-size 0: expected"),
        ("--model-path m --num-layers 3", "give --model-shape"),
        ("--load-format dummy --model-shape mimo-7b --num-layers x", "--num-layers x"),
    ] {
        let found = options(line).expect_err(line).to_string();
        assert!(found.contains(expected), "{line}: {found}");
    }
}

#[test]
fn a_simulated_length_is_one_that_some_tree_of_the_policy_reaches() {
    let chains = vec![(1, TreeShape::chain(3)), (8, TreeShape::chain(1)), (64, TreeShape::OFF)];
    let base = EngineOptions {
        model_path: "m".into(),
        policy: ShapePolicy::table(chains).expect("rows"),
        ..EngineOptions::default()
    };
    let with = |length: &str| {
        let words = ["--simulate-accept-length", length].map(str::to_owned);
        with_launch(base.clone(), &launch::from_arguments(&words).1)
    };
    // The chain of one draft does not reach them, which is a warning.
    assert!(with("4").is_ok() && with("2").is_ok());
    let refused = with("4.01").expect_err("no chain reaches it").to_string();
    assert!(refused.contains("3,1,4 yields at most 4, 1,1,2 yields at most 2 tokens"), "{refused}");
}

#[test]
fn graphs_are_captured_up_to_the_running_requests() {
    fn check(change: impl FnOnce(&mut EngineOptions), expected: &[usize]) {
        let mut options = EngineOptions { max_running_requests: 20, ..EngineOptions::default() };
        change(&mut options);
        assert_eq!(options.graph_sizes(), expected);
    }
    check(|_| {}, &[1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20]);
    check(|options| options.cuda_graph_max_bs = Some(9), &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    check(|options| options.capture_sizes = vec![64, 8, 32, 8], &[8, 20]);
    check(|options| options.disable_cuda_graph = true, &[]);
}

#[test]
fn an_adaptive_file_with_one_candidate_a_slot_is_a_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("adaptive.json");
    let with = |text: &str, flags: &str| {
        std::fs::write(&file, text).expect("a file");
        let path = file.display();
        options(
            &format!("--model-path m --speculative-draft-model-path d --speculative-num-steps 4 {flags}")
                .replace("FILE", &path.to_string()),
        )
    };
    let good = r#"{"1": {"candidate_steps": [4]}, "3": {"candidate_steps": [1]}}"#;
    let flags = "--speculative-adaptive --speculative-adaptive-config FILE";
    let table = vec![(2, TreeShape::chain(4)), (usize::MAX, TreeShape::chain(1))];
    assert_eq!(Some(with(good, flags).expect("a table").policy), ShapePolicy::table(table));
    for (text, flags, words) in [
        (good, "--speculative-adaptive", "give the table with --speculative-adaptive-config"),
        (good, "--speculative-adaptive-config FILE", "has no effect without"),
        (good, "--speculative-adaptive --speculative-adaptive-config /nonexistent", "/nonexistent: No such file"),
        (r#"{"1": {"candidate_steps": [1, 3]}}"#, flags, "2 candidate steps"),
    ] {
        let error = with(text, flags).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn rules_for_texts_have_flags_of_their_own_and_the_engines_defaults() {
    fn check(line: &str, shape: &str, rule: impl Fn(&TextSpec) -> bool) {
        let found = options(&format!("--model-path m {line}")).expect(line);
        assert_eq!(found.policy.shape(1).to_string(), shape, "{line}");
        assert!(found.text_draft().is_some_and(|found| rule(&found)), "{line}: {:?}", found.text_draft());
    }
    check("--speculative-algorithm NGRAM", "11,10,12", |rule| *rule == TextSpec::Trie(TrieRule::DEFAULT));
    check("--speculative-algorithm ngram --speculative-num-draft-tokens 30", "17,10,30", |_| true);
    // As in SGLang, these two do not change the tree.
    check("--speculative-algorithm NGRAM --speculative-eagle-topk 2 --speculative-num-steps 3", "11,10,12", |_| true);
    check(
        "--speculative-algorithm NGRAM --speculative-ngram-max-bfs-breadth 4 --speculative-ngram-min-bfs-breadth 2 \
         --speculative-ngram-match-type PROB --speculative-ngram-max-trie-depth 8 --speculative-ngram-capacity 1000",
        "7,4,12",
        |rule| {
            let expected = TrieRule { max_depth: 8, min_breadth: 2, matching: TrieMatch::Prob, capacity: 1000 };
            *rule == TextSpec::Trie(expected)
        },
    );
    check("--speculative-algorithm PROMPT_LOOKUP", "5,1,6", |rule| {
        *rule == TextSpec::PromptLookup(PromptLookup::DEFAULT)
    });
    check(
        "--speculative-algorithm prompt_lookup --prompt-lookup-max 3 --prompt-lookup-match latest-filled \
         --speculative-num-draft-tokens 9",
        "8,1,9",
        |rule| {
            let expected = PromptLookup { min: 3, max: 3, occurrence: Occurrence::LatestFilled };
            *rule == TextSpec::PromptLookup(expected)
        },
    );
    check(
        "--speculative-algorithm SUFFIX --suffix-decoding-min-token-prob 0.2",
        "24,1,25",
        |rule| matches!(rule, TextSpec::Suffix(rule) if rule.min_token_prob == 0.2),
    );
    check("--speculative-algorithm SUFFIX --speculative-num-steps 4", "4,1,5", |_| true);
    check("--speculative-algorithm SUFFIX --speculative-num-steps 0", "0,1,1", |_| true);
    check("--speculative-algorithm NGRAM --speculative-num-steps 3 --speculative-eagle-topk 4", "11,10,12", |_| true);
    check(
        "--speculative-algorithm SUFFIX --suffix-decoding-max-tree-depth 40 --speculative-num-draft-tokens 41",
        "40,1,41",
        |_| true,
    );
    let refused = options("--model-path m --speculative-algorithm SUFFIX --speculative-num-draft-tokens 26");
    let refused = refused.expect_err("deeper than the texts that are kept").to_string();
    assert!(refused.contains("at most 25, or raise --suffix-decoding-max-tree-depth"), "{refused}");
}

#[test]
fn a_second_source_has_the_numbers_of_its_flags() {
    let head = "--model-path m --speculative-draft-model-path d --speculative-num-steps 2";
    let second = |line: &str| options(&format!("{head} {line}")).expect(line).second_source;
    assert_eq!(second(""), None);
    let lookup = |min, max| PromptLookup { min, max, ..PromptLookup::SECOND };
    assert_eq!(second("--speculative-second-source prompt_lookup"), Some(TextSpec::PromptLookup(lookup(2, 16))));
    let found = second("--speculative-second-source PROMPT_LOOKUP --prompt-lookup-min 1 --prompt-lookup-max 4");
    assert_eq!(found, Some(TextSpec::PromptLookup(lookup(1, 4))));
    let found = second("--speculative-second-source SUFFIX --suffix-decoding-max-cached-requests 0");
    let own = SuffixRule { max_cached_requests: 0, ..SuffixRule::DEFAULT };
    assert_eq!(found, Some(TextSpec::Suffix(own)));
}

#[test]
fn flags_of_rules_for_texts_are_refused_where_they_have_no_effect() {
    for (line, expected) in [
        ("--speculative-algorithm SUFFIX --prompt-lookup-max 3", "--prompt-lookup-max is for --speculative-algorithm"),
        ("--speculative-ngram-match-type BFS", "is for --speculative-algorithm NGRAM"),
        ("--speculative-second-source NGRAM", "expected PROMPT_LOOKUP or SUFFIX"),
        ("--speculative-second-source SUFFIX --prompt-lookup-max 3", "--prompt-lookup-max is for"),
        ("--speculative-second-source SUFFIX --suffix-decoding-max-tree-depth 1", "max-tree-depth 1: expected"),
        ("--speculative-second-source PROMPT_LOOKUP --prompt-lookup-match latest-filled", "latest or earliest"),
        ("--speculative-algorithm PROMPT_LOOKUP --prompt-lookup-min 4 --prompt-lookup-max 3", "--prompt-lookup-min 4"),
        ("--speculative-algorithm PROMPT_LOOKUP --prompt-lookup-min 0", "--prompt-lookup-min 0: expected"),
        ("--speculative-algorithm PROMPT_LOOKUP --prompt-lookup-min 257", "--prompt-lookup-min 257: expected"),
        ("--speculative-algorithm PROMPT_LOOKUP --prompt-lookup-max 0", "--prompt-lookup-max 0: expected"),
        ("--speculative-algorithm PROMPT_LOOKUP --speculative-eagle-topk 2", "chains only"),
        ("--speculative-algorithm PROMPT_LOOKUP --speculative-num-steps 3 --speculative-num-draft-tokens 9", "= 4"),
        ("--speculative-algorithm SUFFIX --speculative-num-draft-tokens 26", "at most 24"),
        ("--speculative-algorithm NGRAM --speculative-ngram-capacity 5", "--speculative-ngram-capacity 5"),
        (
            "--speculative-algorithm NGRAM --speculative-ngram-max-bfs-breadth 1 --speculative-ngram-min-bfs-breadth 2",
            "is below",
        ),
    ] {
        let found = options(&format!("--model-path m {line}")).expect_err(line).to_string();
        assert!(found.contains(expected), "{line}: {found}");
    }
}

#[test]
fn a_policy_is_read_by_batch_and_then_by_context() {
    let rows = [(8, usize::MAX, 2), (2, 1000, 0), (2, 9000, 5), (8, 500, 1)];
    let rows = rows.map(|(batch, context, steps)| (batch, context, TreeShape::chain(steps)));
    let policy = ShapePolicy::by_context(rows.to_vec()).expect("rows");
    let steps = |batch, context| policy.shape_at(batch, context).num_steps;
    assert_eq!([steps(1, 10), steps(2, 1000), steps(2, 1001), steps(2, 99_999)], [0, 0, 5, 5]);
    assert_eq!([steps(3, 500), steps(8, 501), steps(99, 1), steps(99, usize::MAX)], [1, 2, 1, 2]);
    assert!(policy.has_contexts() && !ShapePolicy::fixed(TreeShape::OFF).has_contexts());
    assert_eq!((policy.shape(1), policy.shape(3)), (TreeShape::OFF, TreeShape::chain(1)));
}
