use std::collections::BTreeMap;

use launch::{Options, Parsed, parse};
use schemas::{
    sweep::{RandomPrompts, StrategyName, SystemKind, Workload},
    text::Source,
    tree::{NodeSource, TreeShape},
};

use super::{
    LaunchDraft, LaunchOverrides, LaunchStart, LaunchSweep, Rewritten, Treated, choose, read_to_run, rewrite, sweep_of,
    variables,
};
use crate::trials::configuration::{Configuration, Knobs};

const SGLANG: &str = "\
#!/bin/bash
export HF_TOKEN=hf_1234567890abcdefghij CUDA_VISIBLE_DEVICES=1
pip install something
MODEL=/m/target
nohup python3 -m sglang.launch_server \\
    --model-path $MODEL --host 0.0.0.0 --port 8000 --api-key sk-1234567890abcdef \\
    --speculative-algorithm EAGLE3 --speculative-draft-model-path /m/draft \\
    --speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 32 \\
    --tp 2 --mem-fraction-static 0.8 --context-length 4096 --max-running-requests 64
";

fn read(name: &str, text: &str) -> (Source, Parsed) {
    let source = Source::new(name, text);
    let parsed = parse(&source, &Options::default());
    (source, parsed)
}

fn wanted() -> LaunchOverrides {
    let text = "[models]\ntarget='t'\ndraft='d'\nalgorithm='EAGLE3'\n[workload]\nrandom={input_length=8}\nrequests=4\n";
    let file = schemas::sweep::SweepFile::read(&Source::new("s", text)).expect("a sweep file");
    let workload = Workload { random: Some(RandomPrompts { input_length: 8, ratio: 1.0 }), ..file.workload };
    LaunchOverrides {
        workload,
        concurrency: vec![1, 8],
        contexts: Vec::new(),
        repeats: 3,
        seconds: None,
        until: Default::default(),
        draft: None,
        command: None,
        start: None,
        local: false,
        keep_prefix_cache: false,
        variables: None,
    }
}

fn sweep(name: &str, text: &str, wanted: &LaunchOverrides) -> Result<LaunchSweep, Vec<String>> {
    sweep_with(name, text, wanted, &[])
}

fn sweep_with(
    name: &str,
    text: &str,
    wanted: &LaunchOverrides,
    values: &[(&str, &str)],
) -> Result<LaunchSweep, Vec<String>> {
    let source = Source::new(name, text);
    let given: BTreeMap<String, String> =
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let variables = self::variables(given);
    let parsed = read_to_run(&source, &variables);
    let wanted = LaunchOverrides { variables: Some(variables), ..wanted.clone() };
    sweep_of(&source, choose(&source, &parsed.launches, None).expect("one launch"), &wanted)
}

fn treatment<'a>(sweep: &'a LaunchSweep, flag: &str) -> &'a Treated {
    sweep.treated.iter().find(|one| one.launch.contains(flag)).expect(flag)
}

#[test]
fn a_shell_launch_becomes_a_sweep_of_its_own_command() {
    let sweep = sweep("run.sh", SGLANG, &wanted()).expect("a sweep");
    let file = &sweep.file;
    assert_eq!(file.system.kind, SystemKind::Sglang);
    assert_eq!(file.system.command, ["python3", "-m", "sglang.launch_server"]);
    let kept = ["--tp", "2", "--mem-fraction-static", "0.8"];
    assert_eq!(file.system.extra_args, kept);
    assert_eq!(file.engine.max_running_requests, Some(64));
    assert_eq!(file.system.env.get("CUDA_VISIBLE_DEVICES").map(String::as_str), Some("1"));
    assert_eq!((file.models.target.as_str(), file.models.draft.as_str()), ("/m/target", "/m/draft"));
    assert_eq!((file.engine.context_length, file.batch.sizes.clone()), (Some(4096), Some(vec![1, 8])));
    assert_eq!(sweep.own, TreeShape::new(5, 8, 32).ok());
    assert_eq!(file.space.current.as_deref(), Some("5,8,32"));
    let toml = file.write().expect("TOML");
    let mut again = schemas::sweep::SweepFile::read(&Source::new("again", &toml)).expect("the sweep file is valid");
    assert!(toml.contains("HF_TOKEN = \"***\"") && !toml.contains("hf_1234"), "{toml}");
    again.system.env.clone_from(&file.system.env);
    assert_eq!(&again, file);
}

#[test]
fn a_launch_with_contexts_is_measured_in_buckets_without_predictions() {
    let wanted = LaunchOverrides { contexts: vec![1024, 8192], ..wanted() };
    let file = sweep("run.sh", SGLANG, &wanted).expect("a sweep").file;
    assert_eq!((file.batch.contexts.as_slice(), file.search.strategy), (&[1024, 8192][..], StrategyName::Grid));
    let toml = file.write().expect("TOML");
    assert!(schemas::sweep::SweepFile::read(&Source::new("again", &toml)).is_ok(), "{toml}");
}

#[test]
fn what_the_sweep_sets_itself_is_reported_and_secrets_are_hidden() {
    let sweep = sweep("run.sh", SGLANG, &wanted()).expect("a sweep");
    assert_eq!(treatment(&sweep, "--port").measured, "127.0.0.1 and a free port");
    assert_eq!(
        (treatment(&sweep, "--api-key").launch.as_str(), treatment(&sweep, "--api-key").measured.as_str()),
        ("--api-key ***", "none")
    );
    assert_eq!(treatment(&sweep, "--speculative-num-steps").measured, "varied");
    assert_eq!(treatment(&sweep, "prefix cache").measured, "off");
    assert!(!sweep.treated.iter().any(|one| one.launch.contains("sk-1234")));
}

#[test]
fn a_vllm_launch_varies_chains_and_keeps_its_own() {
    let text = "A=1 /venv/bin/vllm serve $ORG/model --served-model-name x --enable-prefix-caching --max-num-seqs 16 \
                --speculative-config '{\"method\": \"eagle3\", \"model\": \"org/draft\", \"num_speculative_tokens\": 7}'\n";
    let sweep = sweep_with("run.sh", text, &wanted(), &[("ORG", "org")]).expect("a sweep");
    assert_eq!(sweep.file.system.kind, SystemKind::Vllm);
    assert_eq!(sweep.file.system.command, ["/venv/bin/vllm", "serve"]);
    assert_eq!(sweep.file.system.env.get("A").map(String::as_str), Some("1"));
    assert!(sweep.file.system.extra_args.is_empty());
    assert_eq!(sweep.file.engine.max_running_requests, Some(16));
    assert_eq!((sweep.file.models.target.as_str(), sweep.file.models.algorithm.as_str()), ("org/model", "EAGLE3"));
    assert_eq!(sweep.own, Some(TreeShape::chain(7)));
    assert!(sweep.file.space.shapes.iter().all(|shape| shape.contains(",1,")));
}

#[test]
fn programs_are_known_by_path_or_variable() {
    let flags =
        "org/m --speculative-config '{\"method\": \"eagle3\", \"model\": \"d\", \"num_speculative_tokens\": 3}'\n";
    let command = |program: &str, variables: &[(&str, &str)]| {
        let sweep = sweep_with("run.sh", &format!("{program} {flags}"), &wanted(), variables).expect(program);
        assert_eq!(sweep.file.models.target, "org/m", "{program}");
        sweep.file.system.command.join(" ")
    };
    // Set in the script without being exported; set around it; named by the variable.
    assert_eq!(command("VENV=/v\n\"$VENV/bin/vllm\" serve", &[]), "/v/bin/vllm serve");
    assert_eq!(command("\"$VENV/bin/vllm\" serve", &[("VENV", "/w w")]), "/w w/bin/vllm serve");
    assert_eq!(command("\"$BIN\" serve", &[("BIN", "/v/bin/vllm")]), "/v/bin/vllm serve");
    assert_eq!(command("BIN=$(which vllm)\n\"$BIN\" serve", &[("BIN", "/x/vllm")]), "/x/vllm serve");
    assert_eq!(command("exec env A=1 ${VLLM_BIN:-vllm} serve", &[]), "vllm serve");
    let reported = sweep("run.sh", &format!("\"$BIN_OF_NOBODY\" serve {flags}"), &wanted()).expect_err("unknown");
    assert!(reported.join("\n").contains("--set BIN_OF_NOBODY=VALUE"), "{reported:?}");
}

#[test]
fn a_variable_may_hold_several_words() {
    let text = "python3 -m sglang.launch_server --model-path m $EXTRA --speculative-algorithm EAGLE3 \
                --speculative-draft-model-path d --speculative-num-steps 2 \"$@\"\n";
    let sweep =
        sweep_with("run.sh", text, &wanted(), &[("EXTRA", "--tp 2 --mem-fraction-static 0.7")]).expect("a sweep");
    assert_eq!(sweep.file.system.extra_args, ["--tp", "2", "--mem-fraction-static", "0.7"]);
    assert_eq!(treatment(&sweep, "$@").measured, "left out");
}

#[test]
fn a_slime_launch_becomes_a_plain_server() {
    let text = "SGLANG_ARGS=(\n   --rollout-num-gpus-per-engine 4\n   --sglang-mem-fraction-static 0.7\n   \
                --sglang-speculative-algorithm EAGLE\n   --sglang-speculative-num-steps 3\n   \
                --sglang-speculative-eagle-topk 1\n   --sglang-speculative-num-draft-tokens 4\n)\n\
                python3 train.py --hf-checkpoint /m/GLM --lr 1 ${SGLANG_ARGS[@]}\n";
    let sweep = sweep("run-slime.sh", text, &wanted()).expect("a sweep");
    assert_eq!(sweep.file.system.command, ["python3", "-m", "sglang.launch_server"]);
    assert_eq!(sweep.file.system.extra_args, ["--tp-size", "4", "--mem-fraction-static", "0.7"]);
    assert_eq!((sweep.file.models.target.as_str(), sweep.file.models.draft.as_str()), ("/m/GLM", ""));
    assert_eq!(sweep.own, Some(TreeShape::chain(3)));
}

#[test]
fn short_names_of_vllm_are_written_in_full() {
    let text = "vllm serve m -tp 2 -pp 2 -q fp8 -sc.model d -sc.method eagle3 -sc.num_speculative_tokens 3\n";
    let sweep = sweep("run.sh", text, &wanted()).expect("a sweep");
    let expected = ["--tensor-parallel-size", "2", "--pipeline-parallel-size", "2", "--quantization", "fp8"];
    assert_eq!(sweep.file.system.extra_args, expected);
    assert_eq!((sweep.file.system.gpus(), sweep.own), (4, Some(TreeShape::chain(3))));
}

#[test]
fn flags_alone_and_abbreviations_are_understood() {
    let text = "--model-path m --speculative-algo EAGLE3 --speculative-draft d --speculative-num-steps 2 --tp 2\n";
    let sweep = sweep("flags.sh", text, &wanted()).expect("a sweep");
    assert_eq!(sweep.file.system.command, ["python3", "-m", "sglang.launch_server"]);
    assert_eq!(sweep.file.system.extra_args, ["--tp", "2"]);
    assert_eq!((sweep.file.models.draft.as_str(), sweep.own), ("d", Some(TreeShape::chain(2))));
    let text = "--hf-checkpoint m --rollout-num-gpus-per-engine 1 --sglang-router-policy x --sglang-config pd.yaml \
                --sglang-speculative-algorithm EAGLE --sglang-speculative-num-steps 3\n";
    let reported = self::sweep("args.sh", text, &wanted()).expect_err("servers differ").join("\n");
    assert!(reported.contains("--sglang-config"), "{reported}");
    let sweep = self::sweep("args.sh", &text.replace("--sglang-config pd.yaml", ""), &wanted()).expect("a sweep");
    assert_eq!(sweep.file.system.command, ["python3", "-m", "sglang.launch_server"]);
    assert_eq!(sweep.file.system.extra_args, ["--tp-size", "1"]);
}

#[test]
fn every_reason_against_a_launch_is_reported_at_once() {
    let text = "srun python3 -m sglang.launch_server --model-path $NOWHERE_SET --disaggregation-mode prefill --nnodes 2 \
                --max-running-requests 4 --speculative-algorithm UNO\n";
    let reported = sweep("run.sh", text, &wanted()).expect_err("refused").join("\n");
    for expected in [
        "disaggregated",
        "several nodes",
        "--set NOWHERE_SET=VALUE",
        "srun starts the engine elsewhere",
        "with UNO is not varied",
        "at most 4 requests together, but --concurrency asks for 8",
    ] {
        assert!(reported.contains(expected), "{expected}: {reported}");
    }
}

#[test]
fn a_launch_without_speculation_takes_a_draft() {
    let text = "python3 -m sglang.launch_server --model-path m\n";
    let reported = sweep("run.sh", text, &wanted()).expect_err("no draft").join("\n");
    assert!(reported.contains("--draft DIR"), "{reported}");
    let sweep = sweep(
        "run.sh",
        text,
        &LaunchOverrides { draft: Some(LaunchDraft { path: "d".into(), algorithm: "EAGLE3".into() }), ..wanted() },
    )
    .expect("a sweep");
    assert_eq!((sweep.file.models.draft.as_str(), sweep.own), ("d", None));
}

#[test]
fn a_speculation_that_a_branch_decides_is_given_by_the_user() {
    let config =
        |tokens: usize| format!("{{\"method\": \"eagle3\", \"model\": \"d\", \"num_speculative_tokens\": {tokens}}}");
    let text = format!(
        "if [ -n \"$FAST\" ]; then C='{}'; else C='{}'; fi\nvllm serve m --speculative-config \"$C\"\n",
        config(1),
        config(5)
    );
    let given = config(4);
    let sweep = sweep_with("run.sh", &text, &wanted(), &[("C", &given)]).expect("a sweep");
    assert_eq!(sweep.own, Some(TreeShape::chain(4)));
    let computed = "vllm serve m --speculative-config \"$(cat c.json)\"\n";
    let reported = self::sweep("run.sh", computed, &wanted()).expect_err("unknown").join("\n");
    assert!(reported.contains("how the launch speculates is not known here"), "{reported}");
}

#[test]
fn several_launches_are_listed() {
    let (source, parsed) = read("run.sh", "vllm serve a --port 1 &\nvllm serve b --port 2\n");
    let reported = choose(&source, &parsed.launches, None).expect_err("two").clone();
    assert!(reported.contains("--launch 2   vllm, line 2"), "{reported}");
    assert!(choose(&source, &parsed.launches, Some(2)).is_ok());
    assert!(choose(&source, &parsed.launches, Some(3)).is_err());
    assert!(choose(&source, &parsed.launches, Some(0)).is_err());
}

/// The first launch with another shape of its draft.
fn with_shape(source: &Source, parsed: &Parsed, shape: TreeShape) -> Rewritten {
    // Its own draft, unless it has none.
    let own =
        super::speculation::launch_speculation(&parsed.launches[0], None).map_or_else(|_| draft(), |own| own.draft);
    rewrite(source, &parsed.launches[0], &own, &Configuration::from_shape(shape))
}

#[test]
fn another_draft_is_written_with_its_shape() {
    let other = LaunchDraft { path: "/m/other".into(), algorithm: "EAGLE".into() };
    let changed = |text: &str| {
        let (source, parsed) = read("run.sh", text);
        rewrite(&source, &parsed.launches[0], &other, &Configuration::from_shape(TreeShape::chain(3)))
    };
    let text = changed(SGLANG).text.expect("written");
    assert!(text.contains("EAGLE ") && text.contains("/m/other") && !text.contains("/m/draft"), "{text}");
    let vllm = "vllm serve m --speculative-config '{\"method\": \"eagle3\", \"model\": \"d\", \"num_speculative_tokens\": 7}'\n";
    let found = changed(vllm);
    assert_eq!(found.text, None, "the whole JSON changes");
    assert!(found.flags.contains("/m/other") && found.flags.contains("\"eagle\""), "{}", found.flags);
}

fn draft() -> LaunchDraft {
    LaunchDraft { path: "/m/draft".into(), algorithm: "EAGLE3".into() }
}

#[test]
fn capture_sizes_are_written_into_the_launch_with_the_shape() {
    let knobs = Knobs { capture_sizes: Some(vec![1, 5, 8]), ..Knobs::default() };
    let with = |text: &str, shape: TreeShape| {
        let (source, parsed) = read("run.sh", text);
        rewrite(
            &source,
            &parsed.launches[0],
            &draft(),
            &Configuration { knobs: knobs.clone(), ..Configuration::from_shape(shape) },
        )
    };
    let listed = SGLANG.replace("--tp 2", "--cuda-graph-bs 1 8 --tp 2");
    let text = with(&listed, TreeShape::chain(3)).text.expect("written");
    assert!(text.contains("--cuda-graph-bs 1 5 8 --tp 2") && text.contains("--speculative-num-steps 3"), "{text}");
    let off = with(SGLANG, TreeShape::OFF);
    let text = off.text.expect("written");
    assert!(text.contains("cuda-graph-bs") && text.contains("1 5 8") && !text.contains("--speculative"), "{text}");
    assert!(off.flags.ends_with("1 5 8"), "{}", off.flags);
    let outside = SGLANG.replace("--tp 2", "--cuda-graph-bs $SIZES --tp 2");
    assert_eq!(with(&outside, TreeShape::OFF).text, None, "its value comes from outside");
}

#[test]
fn capture_sizes_of_sglang_are_the_sweeps() {
    let (source, parsed) = read("run.sh", &SGLANG.replace("--tp 2", "--cuda-graph-bs 1 8 --tp 2"));
    let sweep = sweep_of(&source, &parsed.launches[0], &wanted()).expect("a sweep");
    assert_eq!(sweep.file.engine.capture_sizes, [1, 8]);
    assert!(!sweep.file.system.extra_args.iter().any(|word| word.contains("cuda-graph")));
}

#[test]
fn the_winner_is_written_into_the_launch() {
    let (source, parsed) = read("run.sh", SGLANG);
    let changed = with_shape(&source, &parsed, TreeShape::chain(3));
    let text = changed.text.expect("written");
    let steps = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";
    assert_eq!(
        text,
        SGLANG.replace("--speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 32", steps)
    );
    assert!(changed.flags.ends_with(steps), "{}", changed.flags);
    let off = with_shape(&source, &parsed, TreeShape::OFF).text.expect("written");
    assert!(!off.contains("--speculative") && off.contains("--tp 2"), "{off}");

    let vllm = "vllm serve m --speculative-config '{\"method\": \"eagle3\", \"model\": \"d\", \"num_speculative_tokens\": 7}' --x 1\n";
    let (source, parsed) = read("run.sh", vllm);
    let changed = with_shape(&source, &parsed, TreeShape::chain(2));
    let text = changed.text.expect("written");
    assert_eq!(text, vllm.replace(": 7}", ": 2}"), "blanks are kept");
    let off = with_shape(&source, &parsed, TreeShape::OFF).text.expect("written");
    assert_eq!(off, "vllm serve m --x 1\n");
    let escaped = "vllm serve m \\\n  --speculative-config \"{\\\"method\\\": \\\"eagle3\\\", \\\"model\\\": \\\"d\\\", \
                   \\\"num_speculative_tokens\\\": 7}\" \\\n  --x 1\n";
    let (source, parsed) = read("run.sh", escaped);
    let text = with_shape(&source, &parsed, TreeShape::chain(2)).text.expect("written");
    assert_eq!(text, escaped.replace(": 7}", ": 2}"));
    let off = with_shape(&source, &parsed, TreeShape::OFF).text.expect("written");
    assert_eq!(off, "vllm serve m \\\n  --x 1\n");
    let pod = "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.26.0\n    args: [--model, m, --speculative-config,\n      \
               '{\"method\": \"eagle3\", \"model\": \"d\", \"num_speculative_tokens\": 7}']\n";
    let (source, parsed) = read("pod.yaml", pod);
    let text = with_shape(&source, &parsed, TreeShape::chain(2)).text.expect("written");
    assert_eq!(text, pod.replace(": 7}", ": 2}"));

    let plain = "python3 -m sglang.launch_server --model-path m\n";
    let (source, parsed) = read("run.sh", plain);
    let text = with_shape(&source, &parsed, TreeShape::chain(3)).text.expect("written");
    assert!(
        text.contains("EAGLE3") && text.contains("/m/draft") && text.contains("--speculative-num-draft-tokens 4"),
        "{text}"
    );
}

#[test]
fn the_image_of_a_dockerfile_is_said_not_to_be_built() {
    let text = "FROM vllm/vllm-openai:v0.26.0\nCMD [\"--model\", \"m\", \"--speculative-config\", \
                \"{\\\"method\\\": \\\"eagle3\\\", \\\"model\\\": \\\"d\\\", \\\"num_speculative_tokens\\\": 3}\"]\n";
    let sweep = sweep("Dockerfile", text, &wanted()).expect("a sweep");
    assert_eq!(treatment(&sweep, "the image that this file builds").measured, "vllm serve");
}

#[test]
fn a_budget_of_rows_is_left_out_and_its_tree_is_not_the_current_one() {
    let text = "spectune serve --model-path m --speculative-algorithm EAGLE3 --speculative-draft-model-path d \
                --speculative-num-steps 3 --speculative-eagle-topk 2 --speculative-num-draft-tokens 6 \
                --speculative-row-budget 2.5\n";
    let sweep = sweep("run.sh", text, &wanted()).expect("a sweep");
    assert!(sweep.file.system.extra_args.is_empty(), "{:?}", sweep.file.system.extra_args);
    assert_eq!(treatment(&sweep, "--speculative-row-budget 2.5").measured, "left out");
    assert_eq!(sweep.own, None);
}

#[test]
fn keys_of_toml_are_flags_and_a_log_of_requests_is_left_out() {
    let text = "model_path = \"m\"\ndevice = \"cpu\"\ntrust_remote_code = true\nspeculative_algorithm = \"EAGLE3\"\n\
                speculative_draft_model_path = \"d\"\nspeculative_num_steps = 3\n";
    let sweep = sweep("s.toml", text, &wanted()).expect("a sweep");
    assert_eq!(sweep.file.system.extra_args, ["--device", "cpu", "--trust-remote-code"]);
    assert_eq!(treatment(&sweep, "no limit of running requests").measured, "8");
    let text = "spectune serve --model-path m --log-requests=l.jsonl --speculative-algorithm EAGLE3 \
                --speculative-draft-model-path d --speculative-num-steps 3\n";
    let sweep = self::sweep("run.sh", text, &wanted()).expect("a sweep");
    assert!(sweep.file.system.extra_args.is_empty(), "{:?}", sweep.file.system.extra_args);
}

#[test]
fn variables_in_speculative_flags_are_requested() {
    let text = "python3 -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3 \
                --speculative-draft-model-path $NO_DRAFT --speculative-num-steps $((1+2)) --speculative-eagle-topk $NO_TOPK\n";
    let reported = sweep("run.sh", text, &wanted()).expect_err("variables").join("\n");
    for part in ["--set NO_DRAFT=VALUE", "--set NO_TOPK=VALUE"] {
        assert!(reported.contains(part), "{part}: {reported}");
    }
    let draft = LaunchDraft { path: "d".into(), algorithm: "EAGLE3".into() };
    assert!(
        sweep("run.sh", text, &LaunchOverrides { draft: Some(draft), ..wanted() }).is_ok(),
        "another draft replaces them"
    );
}

/// A launch, the shape that it runs, the shapes that are tried beside it, and the launch with one
/// of them.
fn check_draft(text: &str, own: &str, tried: &str, to: &str, written: &str) {
    let (source, parsed) = read("run.sh", text);
    let sweep = sweep_of(&source, &parsed.launches[0], &wanted()).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
    assert_eq!(sweep.own.map(|own| own.to_string()).unwrap_or_default(), own, "{text}");
    assert_eq!(sweep.file.space.shapes.join(" "), tried, "{text}");
    let file = sweep.file.write().expect("TOML");
    schemas::sweep::SweepFile::read(&Source::new("s", file)).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let shape = NodeSource::named(&sweep.draft.algorithm).parse(to).expect("a shape");
    let changed = rewrite(&source, &parsed.launches[0], &sweep.draft, &Configuration::from_shape(shape));
    assert_eq!(changed.text.as_deref(), Some(written), "{text}");
    let off = rewrite(&source, &parsed.launches[0], &sweep.draft, &Configuration::from_shape(TreeShape::OFF)).text;
    assert!(off.is_some_and(|off| !off.contains("speculative")), "{text}");
}

#[test]
fn blocks_and_look_ups_are_varied_as_their_engine_is_reported_them() {
    let blocks = "2,1,3 3,1,4 5,1,6 7,1,8 11,1,12 15,1,16";
    let lookups = "2,1,3 3,1,4 5,1,6 8,1,9 16,1,17 24,1,25";
    let sglang = "python3 -m sglang.launch_server --model-path m ";
    let dflash = format!(
        "{sglang}--speculative-algorithm DFLASH --speculative-draft-model-path d --speculative-num-draft-tokens 16\n"
    );
    check_draft(&dflash, "15,1,16", blocks, "7,1,8", &dflash.replace("tokens 16", "tokens 8"));
    let both = dflash.replace("tokens 16", "tokens 16 --speculative-dflash-block-size 16");
    check_draft(&both, "15,1,16", blocks, "7,1,8", &both.replace(" 16", " 8"));
    let dspark = format!(
        "{sglang}--speculative-algorithm DSPARK --speculative-draft-model-path d --speculative-dspark-block-size 7 \
         --speculative-num-draft-tokens 8\n"
    );
    let shorter = dspark.replace("size 7", "size 5").replace("tokens 8", "tokens 6");
    check_draft(&dspark, "7,1,8", blocks, "5,1,6", &shorter);
    let ngram = format!(
        "{sglang}--speculative-algorithm NGRAM --speculative-num-draft-tokens 16 --speculative-ngram-max-bfs-breadth 8\n"
    );
    let tries = "3,1,4 3,10,4 7,1,8 7,10,8 11,1,12 11,10,12 15,1,16 15,10,16";
    check_draft(
        &ngram,
        "15,8,16",
        tries,
        "7,1,8",
        &ngram.replace("tokens 16", "tokens 8").replace("breadth 8", "breadth 1"),
    );
    let vllm = "vllm serve m --speculative-config '{\"method\": \"dflash\", \"model\": \"d\", \"num_speculative_tokens\": 15}'\n";
    check_draft(vllm, "15,1,16", blocks, "7,1,8", &vllm.replace(": 15}", ": 7}"));
    let lookup = "vllm serve m --speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 4, \"prompt_lookup_max\": 3}'\n";
    check_draft(lookup, "4,1,5", lookups, "8,1,9", &lookup.replace("tokens\": 4", "tokens\": 8"));
}

#[test]
fn a_value_that_comes_from_outside_is_not_written_over() {
    let text = "python3 -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3 \
                --speculative-draft-model-path d --speculative-num-steps $STEPS --speculative-eagle-topk 1\n";
    let (source, parsed) = read("run.sh", text);
    let changed = with_shape(&source, &parsed, TreeShape::chain(3));
    assert_eq!(changed.text, None);
    assert!(changed.flags.contains("--speculative-num-steps 3"), "{}", changed.flags);
}

#[test]
fn a_docker_run_gets_a_network_and_keeps_its_secrets_out_of_the_command() {
    let text = "export HF_TOKEN=hf_1234567890abcdefghij\nsudo docker run -it -d --rm --gpus all -v /data:/models -p 8000:8000 \
                --name llm -e HF_TOKEN=$HF_TOKEN -e A=1 vllm/vllm-openai:v0.26.0 --model /models/m \
                --speculative-config '{\"method\": \"eagle3\", \"model\": \"/models/d\", \"num_speculative_tokens\": 3, \
                \"rejection_sample_method\": \"synthetic\", \"synthetic_acceptance_length\": 1.9}'\n";
    let sweep = sweep("run.sh", text, &wanted()).expect("a sweep");
    let system = &sweep.file.system;
    assert_eq!(
        system.command.join(" "),
        "sudo docker run --gpus all -v /data:/models --network host -e HF_TOKEN -e A=1 vllm/vllm-openai:v0.26.0"
    );
    assert_eq!(system.env.get("HF_TOKEN").map(String::as_str), Some("hf_1234567890abcdefghij"));
    assert_eq!(treatment(&sweep, "docker run").measured, "--network host, no --name -d -i -t -p");
    // Keys of the user's own, which simulate acceptance.
    assert!(system.simulates_acceptance());
    assert_eq!(system.speculative_config["synthetic_acceptance_length"], 1.9);
    assert_eq!(treatment(&sweep, "simulated acceptance").measured, "as it is");
    assert_eq!(super::on_host(&system.command, "/models/m").as_deref(), Some("/data/m"));
    let mut command = system.command.clone();
    super::mount_models(&mut command, &["/data/m", "/cache/models--o--d/snapshots/1", "org/m"]);
    let mounted = "run --volume /cache/models--o--d:/cache/models--o--d:ro --volume /data/m:/data/m:ro --gpus";
    assert!(command.join(" ").contains(mounted), "{command:?}");
    let local = self::sweep("run.sh", text, &LaunchOverrides { local: true, ..wanted() }).expect("a sweep");
    assert_eq!(local.file.system.command, ["vllm", "serve"]);
}

#[test]
fn a_service_is_run_by_docker_or_without_it() {
    let text = "services:\n  llm:\n    image: lmsysorg/sglang:v0.5.16\n    volumes: ['./models:/models']\n    environment:\n      \
                HF_TOKEN: hf_1234567890abcdefghij\n      MISSING_HERE_X: ${MISSING_HERE_X}\n    command: >\n      python3 -m \
                sglang.launch_server --model-path /models/m --speculative-algorithm EAGLE3 --speculative-draft-model-path \
                /models/d --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4\n";
    let sweep = sweep("/srv/compose.yaml", text, &wanted()).expect("a sweep");
    assert_eq!(
        sweep.file.system.command.join(" "),
        "docker run --volume /srv/models:/models --network host -e HF_TOKEN --entrypoint python3 lmsysorg/sglang:v0.5.16 \
         -m sglang.launch_server"
    );
    assert_eq!(treatment(&sweep, "MISSING_HERE_X").measured, "left out");
    let local = self::sweep("/srv/compose.yaml", text, &LaunchOverrides { local: true, ..wanted() }).expect("a sweep");
    assert_eq!(local.file.system.command, ["python3", "-m", "sglang.launch_server"]);
    assert!(local.file.system.env.contains_key("HF_TOKEN"));
}

#[test]
fn several_nodes_need_commands_that_start_and_end_them() {
    let text = "srun python3 -m sglang.launch_server --model-path m --nnodes 2 --node-rank $SLURM_NODEID_X \
                --dist-init-addr h:1 --speculative-algorithm EAGLE3 --speculative-draft-model-path d \
                --speculative-num-steps 2 --tp 16\n";
    let reported = sweep("run.sh", text, &wanted()).expect_err("refused").join("\n");
    assert!(reported.contains("--start and --stop"), "{reported}");
    let start = LaunchStart {
        start: "sbatch --wait s.sh".into(),
        stop: Some("scancel -n s".into()),
        address: Some("http://n1:30000".into()),
    };
    let sweep = self::sweep("run.sh", text, &LaunchOverrides { start: Some(start), ..wanted() }).expect("a sweep");
    assert_eq!(sweep.file.system.extra_args, ["--tp", "16"]);
    assert_eq!(sweep.file.system.address.as_deref(), Some("http://n1:30000"));
    assert_eq!(treatment(&sweep, "--nnodes").why, "the start command sets it");
}

#[test]
fn the_prefix_cache_stays_if_that_is_wanted_and_the_launch_has_one() {
    let keep = LaunchOverrides { keep_prefix_cache: true, ..wanted() };
    let sweep = self::sweep("run.sh", SGLANG, &keep).expect("a sweep");
    assert!(sweep.file.system.keep_prefix_cache);
    assert_eq!(treatment(&sweep, "prefix cache").measured, "flushed before every trial");
    let without = SGLANG.replace("--tp 2", "--disable-radix-cache");
    assert!(!self::sweep("run.sh", &without, &keep).expect("a sweep").file.system.keep_prefix_cache);
}

#[test]
fn capture_sizes_of_vllm_follow_the_chain() {
    let text = "vllm serve m --cudagraph-capture-sizes 8 16 32 --speculative-config \
                '{\"method\": \"eagle3\", \"model\": \"d\", \"num_speculative_tokens\": 7}'\n";
    let sweep = sweep("run.sh", text, &wanted()).expect("a sweep");
    assert_eq!(sweep.file.engine.capture_sizes, [1, 2, 4]);
    assert!(sweep.file.system.extra_args.is_empty());
}

#[test]
fn a_single_older_capture_size_of_vllm_stays_the_limit_that_it_is() {
    let of = |flag: &str| {
        let text = format!(
            "vllm serve m {flag} --speculative-config '{{\"method\": \"eagle3\", \"model\": \"d\", \
             \"num_speculative_tokens\": 7}}'\n"
        );
        let file = sweep("run.sh", &text, &wanted()).expect("a sweep").file;
        (file.engine.capture_sizes, file.system.extra_args)
    };
    assert_eq!(of("--cuda-graph-sizes 32"), (vec![], vec!["--cuda-graph-sizes".to_owned(), "32".to_owned()]));
    assert_eq!(of("--cuda-graph-sizes 8 32"), (vec![1, 4], vec![]));
    assert_eq!(of("--cudagraph-capture-sizes 32"), (vec![4], vec![]));
}

#[test]
fn the_method_of_a_single_model_stays_as_the_launch_has_it() {
    let of = |method: &str| {
        let text = format!(
            "vllm serve m --speculative-config '{{\"method\": \"{method}\", \"num_speculative_tokens\": 1}}'\n"
        );
        let file = sweep("run.sh", &text, &wanted()).expect("a sweep").file;
        (file.models.algorithm, file.system.speculative_config.get("method").cloned())
    };
    assert_eq!(of("deepseek_mtp"), ("NEXTN".to_owned(), Some("deepseek_mtp".into())));
    assert_eq!(of("mtp"), ("NEXTN".to_owned(), None));
}
