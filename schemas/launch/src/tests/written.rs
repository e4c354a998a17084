//! Launches as people write them for a shell.

use std::fmt::Write;

use schemas::text::Source;

use super::super::{Options, Parsed, Syntax, parse};

/// The launches of a text, for comparison in tests: engine, anchor, environment, and each flag with
/// its values; then the findings about the text itself.
fn shown(text: &str) -> String {
    shown_as("test.sh", text)
}

fn shown_as(name: &str, text: &str) -> String {
    let source = Source::new(name, text);
    let Parsed { launches, findings } = parse(&source, &Options::default());
    let mut out = String::new();
    for launch in &launches {
        let array = if launch.syntax == Syntax::ShellArray { " array" } else { "" };
        let _ = writeln!(out, "{}{array} `{}`", launch.engine, source.slice(launch.anchor));
        for (name, value) in launch.environment.iter() {
            let _ = writeln!(out, "  {name}={}", value.value.written());
        }
        for argument in &launch.arguments {
            let key = argument.key.map_or("?".into(), |key| format!("{key:?}"));
            let values: Vec<String> = argument
                .values
                .iter()
                .map(|value| match value.value.known() {
                    Some(text) => text.to_owned(),
                    None => format!("<{}>", value.value.written()),
                })
                .collect();
            assert!(
                argument.flag.value.is_empty() || !source.slice(argument.flag.span).is_empty(),
                "spans lie in the text"
            );
            let _ = writeln!(out, "  {} {key} {}", argument.flag.value, values.join(" "));
        }
    }
    for diagnostic in &findings {
        let _ = writeln!(out, "{} at `{}`", diagnostic.code, source.slice(diagnostic.span));
    }
    out
}

#[test]
fn the_launch_of_the_slime_guide() {
    insta::assert_snapshot!(shown(
        "SGLANG_ARGS=(
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
"
    ), @r"
    slime array `SGLANG_ARGS`
      --rollout-num-gpus-per-engine RolloutNumGpusPerEngine 1
      --sglang-mem-fraction-static MemFractionStatic 0.8
      --sglang-speculative-algorithm SpeculativeAlgorithm EAGLE3
      --sglang-speculative-draft-model-path SpeculativeDraftModelPath /root/sglang-EAGLE3-LLaMA3.1-Instruct-8B
      --sglang-speculative-num-steps SpeculativeNumSteps 5
      --sglang-speculative-eagle-topk SpeculativeEagleTopk 8
      --sglang-speculative-num-draft-tokens SpeculativeNumDraftTokens 32
      --sglang-max-running-requests MaxRunningRequests 48
      --sglang-dtype Dtype float16
      --sglang-context-length ContextLength 2048
      --sglang-attention-backend AttentionBackend fa3
    ");
}

#[test]
fn arrays_that_one_command_uses_are_one_launch() {
    insta::assert_snapshot!(shown(
        r#"#!/bin/bash
set -ex
MODEL_DIR=/root/models
STEPS=${STEPS:-3}
CKPT_ARGS=(
   --hf-checkpoint "${MODEL_DIR}/MiMo-7B-RL" # the target
   #--ref-load /root/x
)
PERF_ARGS=( --tensor-model-parallel-size 2 --recompute-granularity full )
SPEC_ARGS=(--sglang-speculative-algorithm EAGLE
  --sglang-speculative-num-steps $STEPS --sglang-speculative-eagle-topk "1"
  --sglang-cuda-graph-bs 1 2 4 8 $(seq 16 8 32))
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 2
   --sglang-enable-metrics
   --sglang-mem-fraction-static 0.7
)
export SGLANG_LOG=1
ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json="${RUNTIME_ENV_JSON}" \
   -- python3 train.py \
   --actor-num-nodes 1 \
   ${CKPT_ARGS[@]} "${SGLANG_ARGS[@]}" ${SPEC_ARGS[@]} ${PERF_ARGS[@]}
"#
    ), @r"
    slime array `SGLANG_ARGS`
      SGLANG_LOG=1
      --actor-num-nodes ActorNumNodes 1
      --hf-checkpoint ModelPath /root/models/MiMo-7B-RL
      --rollout-num-gpus-per-engine RolloutNumGpusPerEngine 2
      --sglang-enable-metrics ? 
      --sglang-mem-fraction-static MemFractionStatic 0.7
      --sglang-speculative-algorithm SpeculativeAlgorithm EAGLE
      --sglang-speculative-num-steps SpeculativeNumSteps 3
      --sglang-speculative-eagle-topk SpeculativeEagleTopk 1
      --sglang-cuda-graph-bs CudaGraphBs 1 2 4 8 16 24 32
      --tensor-model-parallel-size ? 2
      --recompute-granularity ? full
    ");
}

#[test]
fn arrays_without_a_command_take_what_the_others_say_of_the_target() {
    insta::assert_snapshot!(shown(
        "CKPT_ARGS=( --hf-checkpoint Qwen/Qwen3-8B --load x )
if [ \"$FAST\" = 1 ]; then
  SGLANG_ARGS=( --sglang-speculative-algorithm EAGLE3 --sglang-speculative-num-steps 3 )
else
  SGLANG_ARGS=( --sglang-speculative-algorithm NGRAM )
fi
run ${SGLANG_ARGS[@]}
"
    ), @r"
    slime array `SGLANG_ARGS`
      --sglang-speculative-algorithm SpeculativeAlgorithm EAGLE3
      --sglang-speculative-num-steps SpeculativeNumSteps 3
      --hf-checkpoint ModelPath Qwen/Qwen3-8B
    slime array `SGLANG_ARGS`
      --sglang-speculative-algorithm SpeculativeAlgorithm NGRAM
      --hf-checkpoint ModelPath Qwen/Qwen3-8B
    ");
}

#[test]
fn command_lines_in_every_dress() {
    insta::assert_snapshot!(shown(
        "export SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1
CUDA_VISIBLE_DEVICES=0,1 python3 -m sglang.launch_server --model meta-llama/Llama-3.1-8B-Instruct \\
  --speculative-algo EAGLE3 --speculative-draft yuhuili/EAGLE3 --tp 2 \\
  --trust-remote-code --context-len 8Ki --mem-fraction=0.7 \\
  --json-model-override-args '{\"a\": 1}' > log.txt 2>&1 &
"
    ), @r#"
    sglang `sglang.launch_server`
      CUDA_VISIBLE_DEVICES=0,1
      SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1
      --model ModelPath meta-llama/Llama-3.1-8B-Instruct
      --speculative-algo SpeculativeAlgorithm EAGLE3
      --speculative-draft SpeculativeDraftModelPath yuhuili/EAGLE3
      --tp TpSize 2
      --trust-remote-code TrustRemoteCode 
      --context-len ContextLength 8Ki
      --mem-fraction MemFractionStatic 0.7
      --json-model-override-args ? {"a": 1}
    "#);
    insta::assert_snapshot!(shown(
        "docker run --gpus all -v ~/x:/x lmsysorg/sglang:latest bash -c \"sglang serve --model-path $MODEL --tp-size ${TP:-4} --page-size\""
    ), @r"
    sglang `sglang serve`
      --model-path ModelPath <$MODEL>
      --tp-size TpSize 4
      --page-size PageSize 
    LT05 at `--page-size`
    ");
    insta::assert_snapshot!(shown(
        "--model-path=a\n--speculative-algorithm EAGLE\n# a comment\n--chunked-prefill-size -1\n"
    ), @r"
    sglang `--model-path=a`
      --model-path ModelPath a
      --speculative-algorithm SpeculativeAlgorithm EAGLE
      --chunked-prefill-size ChunkedPrefillSize -1
    ");
    insta::assert_snapshot!(shown(
        "CMD='python -m sglang.launch_server --model-path x --dtype half'\neval $CMD\nSERVE=\"sglang serve --model-path y --speculative-algorithm NGRAM\"\n"
    ), @r"
    sglang `sglang.launch_server`
      --model-path ModelPath x
      --dtype Dtype half
    sglang `sglang serve`
      --model-path ModelPath y
      --speculative-algorithm SpeculativeAlgorithm NGRAM
    ");
    insta::assert_snapshot!(shown(
        "vllm serve meta/x --speculative-config '{\"method\": \"ngram\"}' --enable-lora"
    ), @r#"
    vllm `vllm serve`
      meta/x ModelPath meta/x
      --speculative-config ? {"method": "ngram"}
      --enable-lora ? 
    LT07 at `vllm serve`
    "#);
}

#[test]
fn markdown_is_read_in_its_fences_only() {
    insta::assert_snapshot!(shown_as("a.md",
        "# Don't panic\n\nIt's `--easy`.\n\n```bash\n$ python3 -m sglang.launch_server --model-path <MODEL> --tp 4\n```\n\nThat's it.\n"
    ), @r"
    sglang `sglang.launch_server`
      --model-path ModelPath <<MODEL>>
      --tp TpSize 4
    ");
}

#[test]
fn a_script_that_prints_markdown_is_read_as_a_whole() {
    insta::assert_snapshot!(shown(
        "#!/bin/bash\ncat <<EOF\n```\nhello\n```\nEOF\nsglang serve --model-path x\n"
    ), @r"
    sglang `sglang serve`
      --model-path ModelPath x
    ");
}

#[test]
fn what_a_shell_would_stumble_over_is_stated() {
    insta::assert_snapshot!(shown(
        "python3 -m sglang.launch_server --model-path x \\ \n  --tp 4\n  --dtype half\n"
    ), @r#"
    sglang `sglang.launch_server`
      --model-path ModelPath x
      --tp TpSize 4
      --dtype Dtype half
    LT04 at `--dtype`
    LT04 at `\ `
    "#);
    insta::assert_snapshot!(shown(
        "python3 -m sglang.launch_server --model-path 'x --trust-remote-code yes --tp-size"
    ), @r"
    sglang `sglang.launch_server`
      --model-path ModelPath 'x
      --trust-remote-code TrustRemoteCode 
      yes ? yes
      --tp-size TpSize 
    LT08 at `yes`
    LT05 at `--tp-size`
    LT03 at `'`
    ");
    insta::assert_snapshot!(shown(
        "SGLANG_ARGS=(\n --sglang-dtype half\nOTHER_ARGS=(\n --lr 1\n)\n"
    ), @r"
    slime array `SGLANG_ARGS`
      --sglang-dtype Dtype half
    LT03 at `SGLANG_ARGS`
    ");
    insta::assert_snapshot!(shown(
        "A=( --sglang-speculativ-num-steps 3 ----sglang-ep-size 2 --sglang-of-a-fork 1 --sglang-router-ip x ... )"
    ), @r"
    slime array `A`
      --sglang-speculativ-num-steps ? 3
      ----sglang-ep-size ? 2
      --sglang-of-a-fork ? 1
      --sglang-router-ip ? x
      ... ? <...>
    LT09 at `--sglang-speculativ-num-steps`
    LT09 at `----sglang-ep-size`
    LT09 at `--sglang-of-a-fork`
    ");
    insta::assert_snapshot!(shown("sglang serve --model-path x --specualtive-eagle-topk 1 ..."), @r"
    sglang `sglang serve`
      --model-path ModelPath x
      --specualtive-eagle-topk ? 1
      ... ? <...>
    LT09 at `--specualtive-eagle-topk`
    ");
    insta::assert_snapshot!(shown("Hello, world"), @"LT02 at `Hello, world`");
}

#[test]
fn a_word_that_may_hold_flags_makes_a_launch_incomplete() {
    let check = |text: &str, expected: bool| {
        let parsed = parse(&Source::new("test.sh", text), &Options::default());
        assert_eq!(parsed.launches.first().map(super::super::Launch::is_complete), Some(expected), "{text}");
    };
    check("sglang serve --model-path x", true);
    check("sglang serve --model-path $X", true);
    check("sglang serve --model-path x $EXTRA", false);
    check("sglang serve --model-path x ...", false);
    check("A=( --sglang-dtype half )\npython3 train.py ${MODEL_ARGS[@]} ${A[@]}", true);
    check("A=( --sglang-dtype half )\npython3 train.py ${A[@]} ${MORE_SGLANG_ARGS[@]}", false);
}

/// The text after an edit.
fn edited(text: &str, edit: impl Fn(&super::super::Launch) -> schemas::diagnostic::Edit) -> String {
    let source = Source::new("test.sh", text);
    let parsed = parse(&source, &Options::default());
    let edit = edit(parsed.launches.first().expect("a launch"));
    let mut text = text.to_owned();
    text.replace_range(edit.span.range(), &edit.replacement);
    text
}

#[test]
fn edits_keep_the_users_layout() {
    use schemas::{flags::Key, version::EngineVersion};
    let version = EngineVersion::new(0, 5, 23);
    let array = "SGLANG_ARGS=(\n   --sglang-dtype half  # why\n   --sglang-tp 2 --sglang-page-size 1\n   --sglang-context-length 8 # c\n)\n";
    let line = "python3 -m sglang.launch_server --model-path x \\\n    --dtype half \\\n    --page-size 1\n";
    let check = |text: &str, edit: &dyn Fn(&super::super::Launch) -> schemas::diagnostic::Edit, expected: &str| {
        assert_eq!(edited(text, edit), expected);
    };
    let add = |launch: &super::super::Launch| launch.add(Key::CudaGraphBs, version, "1 2 4");
    check(array, &add, &array.replace("# c\n", "# c\n   --sglang-cuda-graph-bs-decode 1 2 4\n"));
    check(line, &add, &line.replace("size 1\n", "size 1 \\\n    --cuda-graph-bs-decode 1 2 4\n"));
    check("sglang serve --model-path x", &add, "sglang serve --model-path x --cuda-graph-bs-decode 1 2 4");
    check("A=(--sglang-dtype half)", &add, "A=(--sglang-dtype half --sglang-cuda-graph-bs-decode 1 2 4)");
    let remove = |key| move |launch: &super::super::Launch| launch.remove(key).expect("given");
    check(array, &remove(Key::Dtype), &array.replace("   --sglang-dtype half  # why\n", ""));
    check(array, &remove(Key::PageSize), &array.replace(" --sglang-page-size 1", ""));
    check(line, &remove(Key::Dtype), &line.replace(" \\\n    --dtype half", ""));
    check(line, &remove(Key::PageSize), &line.replace(" \\\n    --page-size 1", ""));
    let set = |launch: &super::super::Launch| launch.set(Key::Dtype, version, "bfloat16");
    check(array, &set, &array.replace("half", "bfloat16"));
    check("sglang serve --dtype=half --tp 1", &set, "sglang serve --dtype=bfloat16 --tp 1");
}
