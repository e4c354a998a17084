//! Runs the binary like a user: checks stdout, stderr and the exit code.
//!
//! Run by the crate `cli`: `cargo test -p cli --test commands`.

#[path = "commands/simulate.rs"]
mod simulate;

use std::{
    fs,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs the binary in the repository's root, with this standard input.
fn run_with(arguments: &[&str], input: &str) -> Ran {
    run_in(arguments, input, &[])
}

/// The same with environment variables.
fn run_in(arguments: &[&str], input: &str, variables: &[(&str, &str)]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_spectune"))
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A program that reads no input closes the pipe early.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs the binary, and checks the exit code and words on stderr.
#[track_caller]
fn check(arguments: &[&str], code: i32, words: &[&str]) -> Ran {
    let ran = run_with(arguments, "");
    assert_eq!(ran.code, Some(code), "{arguments:?}\n{}\n{}", ran.stdout, ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "{arguments:?}: no {word:?} in\n{}", ran.stderr);
    }
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran
}

/// Runs `lint` on a file, and checks words among its findings, which are on stdout.
#[track_caller]
fn check_lint(file: &Path, code: i32, words: &[&str]) {
    let ran = check(&["lint", text(file)], code, &[]);
    for word in words {
        assert!(ran.stdout.contains(word), "no {word:?} in\n{}", ran.stdout);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A copy of the demo target with one changed file.
fn spoiled(file: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let from = root().join("models/tiny/target");
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(from.join(name), folder.path().join(name)).expect("a copy");
    }
    let path = folder.path().join(file);
    fs::write(&path, change(fs::read(&path).expect("the file"))).expect("a changed file");
    folder
}

/// A Hugging Face cache that contains the demo pair under two ids.
fn cache() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, from) in [("acme/tiny", TARGET), ("acme/tiny-eagle3", EAGLE3)] {
        let repository = folder.path().join(format!("hub/models--{}", name.replace('/', "--")));
        fs::create_dir_all(repository.join("refs")).expect("a folder");
        fs::write(repository.join("refs/main"), "0a1b2c").expect("a file");
        let snapshot = repository.join("snapshots/0a1b2c");
        fs::create_dir_all(&snapshot).expect("a folder");
        for file in fs::read_dir(root().join(from)).expect("the demo pair") {
            let file = file.expect("a file").path();
            fs::copy(&file, snapshot.join(file.file_name().expect("a name"))).expect("a copy");
        }
    }
    folder
}

const TARGET: &str = "models/tiny/target";
const EAGLE3: &str = "models/tiny/eagle3";
const EAGLE2: &str = "models/tiny/eagle2";

#[test]
fn help_is_for_stdout_and_has_examples_for_every_command() {
    let commands =
        ["lint", "explain", "schema", "sweep", "merge", "report", "export", "generate", "serve", "bench", "selftest"];
    let overview = check(&["--help"], 0, &[]).stdout;
    assert!(overview.contains("Exit codes:") && overview.contains("Environment:"));
    for command in commands {
        assert!(overview.contains(command), "{command}");
        assert!(check(&[command, "--help"], 0, &[]).stdout.contains("Examples:"), "{command}");
    }
    check(&["swep"], 2, &["unrecognized subcommand", "sweep"]);
    check(&[], 2, &["Usage"]);
}

#[test]
fn what_an_export_loses_is_said_by_the_export_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let tuned = folder.path().join("tuned.toml");
    let target = root().join(TARGET).canonicalize().expect("the demo pair");
    let head = root().join(EAGLE3).canonicalize().expect("the demo pair");
    let row = |context: &str, steps: usize| {
        format!(
            "[[policy]]\nmax_running_batch = 8\n{context}measured_batch = 1\nnum_steps = {steps}\ntopk = 1\nnum_draft_tokens \
             = {}\noutput_tokens_per_s = 9.0\naccept_length = 2.0\nverdict = \"pays\"\n",
            steps + 1
        )
    };
    let content = format!(
        "format = 2\nwritten_by = \"a test\"\n[models]\ntarget = {target:?}\ndraft = {head:?}\nalgorithm = \"EAGLE3\"\ndtype = \
         \"float32\"\n[engine]\ndevice = \"cpu\"\ncontext_length = 512\npage_size = 1\nmem_fraction_static = \
         0.8\nmax_running_requests = 8\ncapture_sizes = []\n[measured]\ndevice_name = \"\"\ndriver = \"\"\nengine = \
         \"\"\ntarget_hash = \"\"\ndraft_hash = \"\"\nworkload_hash = \"\"\nobjective = \"throughput\"\n{}{}",
        row("max_context = 64\n", 3),
        row("", 2)
    );
    fs::write(&tuned, content).expect("a file");
    let words = "the tree depends on the context";
    let export = ["export", text(&tuned), "--to", "sglang"];
    check(&export, 0, &[words]);
    let silent = [
        check(&[&export[..], &["--context", "100"]].concat(), 0, &[]),
        check(&["generate", text(&tuned), "--prompt", "def", "--max-new-tokens", "4"], 0, &[]),
    ];
    assert!(silent.iter().all(|ran| !ran.stderr.contains(words)), "{}\n{}", silent[0].stderr, silent[1].stderr);
    let unknown = [&export[..], &["--context", "100", "--engine-version", "9.9.9"]].concat();
    check(&unknown, 0, &["9.9.9 is newer than", "the newest that is known"]);
    let one = fs::read_to_string(&tuned).expect("a file").replace("max_context = 64\n", "");
    fs::write(&tuned, one.replacen("max_running_batch = 8", "max_running_batch = 4", 1)).expect("a file");
    let without = [&export[..], &["--batch-size", "8", "--context", "100"]].concat();
    check(&without, 2, &["--context has no effect", "tuned.toml has a max_context", "remove it"]);
}

#[test]
fn a_wrong_tuned_file_is_shown_at_its_place_whoever_reads_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let tuned = folder.path().join("tuned.toml");
    fs::write(&tuned, "format = 1\nshape = 3\n").expect("a file");
    let tuned = tuned.to_str().expect("a plain path");
    for command in [&["serve", tuned][..], &["generate", tuned, "--prompt", "x"], &["export", tuned, "--to", "sglang"]]
    {
        check(command, 2, &["LT06", "tuned.toml:2:1", "unknown key `shape`", "2 | shape = 3"]);
    }
}

#[test]
fn made_up_acceptance_is_named() {
    let base = ["generate", "--model-path", TARGET, "--prompt", "def", "--max-new-tokens", "8", "--device", "cpu"];
    let draft = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", EAGLE3];
    let simulated = ["--simulate-accept-length", "3"];
    let ran =
        check(&[&base[..], &draft, &simulated].concat(), 0, &["acceptance is simulated", ", simulated (generated"]);
    assert!(!ran.stdout.is_empty());
    let line = |more: &[&str]| {
        let ran = check(&[&base[..], &draft, more, &["--json"]].concat(), 0, &[]);
        serde_json::from_str::<serde_json::Value>(&ran.stdout).expect("a JSON line")
    };
    assert_eq!(line(&simulated)["simulated"], true);
    assert_eq!(line(&[]).get("simulated"), None);
}

#[test]
fn models_of_the_hub_are_read_from_the_local_cache() {
    let cache = cache();
    let home = [("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", text(cache.path()))];
    let generate = |target: &str, draft: &str| {
        let words = ["generate", "--device", "cpu", "--prompt", "def", "--max-new-tokens", "8", "--json"];
        let models = ["--model-path", target, "--speculative-draft-model-path", draft];
        run_in(&[&words[..], &models, &["--speculative-algorithm", "EAGLE3"]].concat(), "", &home)
    };
    let (from_folder, from_cache) = (generate(TARGET, EAGLE3), generate("acme/tiny", "acme/tiny-eagle3"));
    assert_eq!(from_cache.code, Some(0), "{}", from_cache.stderr);
    assert_eq!(from_cache.stdout, from_folder.stdout);
    let absent = generate("acme/tiny", "acme/none");
    assert_eq!(absent.code, Some(2), "{}", absent.stderr);
    for word in ["acme/none is neither a folder nor in", text(&cache.path().join("hub")), "hf download acme/none"] {
        assert!(absent.stderr.contains(word), "no {word:?} in {}", absent.stderr);
    }

    let sweep = cache.path().join("sweep.toml");
    let models = "[models]\ntarget = \"acme/tiny\"\ndraft = \"acme/tiny-eagle3\"\nalgorithm = \"EAGLE3\"";
    let workload = "[workload]\nrandom = { input_length = 8 }\nrequests = 1\noutput_length = 4";
    fs::write(&sweep, format!("{models}\n{workload}\n")).expect("a sweep file");
    let planned = run_in(&["sweep", text(&sweep), "--device", "cpu", "--dry-run"], "", &home);
    assert_eq!(planned.code, Some(0), "{}", planned.stderr);
}

#[test]
fn kernels_are_not_checked_where_there_are_none() {
    check(&["selftest", "--device", "cpu", "--kernel", "top_k"], 2, &["kernels run on a GPU", "--device cuda:N"]);
    check(&["selftest", "--device", "cpu", "--kernel", "top_k", "--quick"], 2, &["cannot be used with"]);
}

#[test]
fn greedy_text_does_not_depend_on_speculation() {
    let generate = |more: &[&str]| {
        let base = ["generate", "--model-path", TARGET, "--device", "cpu", "--prompt", "def read(self", "--json"];
        let ran = check(&[&base[..], more].concat(), 0, &[]);
        serde_json::from_str::<serde_json::Value>(&ran.stdout).expect("a JSON line")
    };
    let plain = generate(&[]);
    for (head, algorithm, triple) in [(EAGLE3, "EAGLE3", ["3", "1", "4"]), (EAGLE2, "EAGLE", ["4", "4", "12"])] {
        let speculative = generate(&[
            "--speculative-algorithm",
            algorithm,
            "--speculative-draft-model-path",
            head,
            "--speculative-num-steps",
            triple[0],
            "--speculative-eagle-topk",
            triple[1],
            "--speculative-num-draft-tokens",
            triple[2],
        ]);
        assert_eq!(speculative["output_ids"], plain["output_ids"]);
        assert_eq!(speculative["text"], plain["text"]);
        assert!(speculative["rounds"].as_u64() < plain["rounds"].as_u64());
        let rounds: u64 =
            speculative["accept_histogram"].as_array().expect("a list").iter().filter_map(|n| n.as_u64()).sum();
        assert_eq!(speculative["rounds"].as_u64(), Some(rounds));
    }
}

#[test]
fn wrong_models_are_named_with_what_was_expected() {
    let generate = |folder: &str| check(&["generate", "--model-path", folder, "--prompt", "x"], 2, &[]).stderr;
    assert!(generate("no/such/folder").contains("no/such/folder"));
    assert!(generate("models").contains("no config.json in this folder"));
    assert!(generate(EAGLE3).contains("LlamaForCausalLMEagle3"));
    let cut = spoiled("model.safetensors", |bytes| bytes[..bytes.len() / 2].to_vec());
    assert!(generate(text(cut.path())).contains("truncated"));
    let huge = spoiled("model.safetensors", |mut bytes| {
        bytes[..8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
        bytes
    });
    assert!(generate(text(huge.path())).contains("1152921504606846976"));
    let empty = spoiled("model.safetensors", |_| Vec::new());
    assert!(generate(text(empty.path())).contains("model.safetensors"));
    let config = |from: &str, to: &str| {
        let (from, to) = (from.to_owned(), to.to_owned());
        spoiled("config.json", move |bytes| String::from_utf8(bytes).expect("text").replace(&from, &to).into_bytes())
    };
    let narrow = config("\"intermediate_size\": 384", "\"intermediate_size\": 512");
    let error = generate(text(narrow.path()));
    assert!(error.contains("[384, 128]") && error.contains("[512, 128]") && error.contains("gate_proj"), "{error}");
    assert!(generate(text(config("LlamaForCausalLM", "GPT2LMHeadModel").path())).contains("GPT2LMHeadModel"));
    assert!(generate(text(config("{", "{{").path())).contains("config.json"));
}

#[test]
fn wrong_pairs_and_flags_are_named() {
    let base = ["generate", "--model-path", TARGET, "--prompt", "x"];
    let with = |more: &[&str], words: &[&str]| check(&[&base[..], more].concat(), 2, words);
    let draft = ["--speculative-draft-model-path", EAGLE3];
    with(
        &[&draft[..], &["--speculative-algorithm", "EAGLE"]].concat(),
        &["EAGLE-3 head", "--speculative-algorithm EAGLE3"],
    );
    with(&["--speculative-algorithm", "EAGLE3"], &["--speculative-draft-model-path"]);
    with(&["--speculative-row-budget", "2"], &["speculation needs a draft", "--speculative-draft-model-path"]);
    with(&["--speculative-algorithm", "SUFIX"], &["expected one of EAGLE", "did you mean SUFFIX?"]);
    with(&["--speculative-algorithm", "DFLASH"], &["give its folder with --speculative-draft-model-path"]);
    for (folder, holds) in [(TARGET, "holds a whole model"), (EAGLE3, "holds an EAGLE-3 head")] {
        with(&["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", folder], &[folder, holds]);
    }
    with(&[&draft[..], &["--speculative-eagle-topk", "4"]].concat(), &["tree shape is incomplete"]);
    let large =
        ["--speculative-num-steps", "2", "--speculative-eagle-topk", "2", "--speculative-num-draft-tokens", "9"];
    with(&[&draft[..], &large].concat(), &["larger than the 7 nodes"]);
    with(&["--context-length", "99999"], &["99999", "2048"]);
    for (flag, value) in [
        ("--max-running-requests", "999999999"),
        ("--max-running-requests", "9223372036854775807"),
        ("--page-size", "4611686018427387904"),
        ("--page-size", "0"),
    ] {
        with(&[flag, value], &[flag, value, "expected 1 to 1048576"]);
    }
    with(&["--simulate-accept-length", "2"], &["--simulate-accept-length", "without speculation"]);
    with(&["--temperature", "-1"], &["temperature"]);
    with(&["--dtype", "int4"], &["int4"]);
    with(&["--tp-size", "2"], &["--tp-size"]);
    with(&["--device", "tpu"], &["--device tpu"]);
    check(&[&base[..], &["--device", "cuda:7"]].concat(), 3, &["cuda:7"]);
    check(&["sweep", "sweeps/demo.toml", "--device", "cuda:7", "--dry-run"], 3, &["cuda:7"]);
    with(&["--max-new-tokens", "0"], &["nothing would be generated"]);
    let long = "word ".repeat(3000);
    check(
        &["generate", "--model-path", TARGET, "--prompt", &long],
        2,
        &["the context length is 2048", "--context-length"],
    );
    let folder = tempfile::tempdir().expect("a folder");
    let ids = folder.path().join("ids.json");
    for (content, words) in [
        ("[]", "no prompt"),
        ("[1, 2]", "list of token-id lists"),
        ("[[1, 4000000]]", "vocabulary"),
        ("[[]]", "prompt 1 of 1 has no token"),
    ] {
        fs::write(&ids, content).expect("a file");
        check(&["generate", "--model-path", TARGET, "--input-ids", text(&ids)], 2, &[words]);
    }
}

const SWEEP: &str = r#"
[models]
target = "TARGET"
draft = "DRAFT"
algorithm = "EAGLE3"
[workload]
random = { input_length = 24 }
requests = 2
output_length = 16
[batch]
sizes = [1, 2]
[space]
shapes = ["1,1,2", "2,2,4"]
[search]
repeats = 2
remeasure = 0
"#;

/// A folder with a small sweep file.
fn sweep_folder(change: impl FnOnce(String) -> String) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let models = root().canonicalize().expect("the repository");
    let content = SWEEP.replace("TARGET", text(&models.join(TARGET))).replace("DRAFT", text(&models.join(EAGLE3)));
    let path = folder.path().join("sweep.toml");
    fs::write(&path, change(content)).expect("a sweep file");
    (folder, path)
}

#[test]
fn a_sweep_leaves_a_journal_a_tuned_file_and_a_report_that_the_other_commands_take() {
    let (folder, sweep) = sweep_folder(|content| content);
    let out = folder.path().join("out");
    let plan = check(&["sweep", text(&sweep), "--out", text(&out), "--dry-run"], 0, &[]).stdout;
    // No speculation, the default (5,4,8) of a Llama and two shapes, two batch sizes, two repeats.
    assert!(plan.contains("trials     16") && plan.contains("estimate"), "{plan}");
    assert!(!out.exists(), "a dry run writes nothing");

    let ran =
        check(&["sweep", text(&sweep), "--out", text(&out)], 0, &["16 trials measured", "report.html", "tuned.toml"]);
    assert!(ran.stdout.contains("no speculation") && ran.stdout.contains("batch 2:"), "{}", ran.stdout);
    for name in
        ["journal.jsonl", "tuned.toml", "report.html", "report.md", "report.json", "trials.csv", "trials.parquet"]
    {
        assert!(out.join(name).exists(), "{name}");
    }
    check(&["sweep", text(&sweep), "--out", text(&out)], 2, &["--resume"]);
    check(&["sweep", text(&sweep), "--out", text(&out), "--resume"], 0, &["0 trials measured, 16 kept"]);
    fs::write(&sweep, fs::read_to_string(&sweep).expect("it").replace("output_length = 16", "output_length = 17"))
        .expect("it");
    check(
        &["sweep", text(&sweep), "--out", text(&out), "--resume"],
        2,
        &["no longer be comparable", "workload.output_length was 16 and is 17"],
    );

    let tuned = out.join("tuned.toml");
    check(&["report", text(&out), "--out", text(&folder.path().join("again"))], 0, &["report.html"]);
    let generated =
        check(&["generate", text(&tuned), "--prompt", "fn main", "--max-new-tokens", "5", "--json"], 0, &[]);
    assert!(generated.stdout.contains("\"completion_tokens\":5"));
    for form in ["sglang", "slime"] {
        let exported = check(&["export", text(&tuned), "--to", form, "--batch-size", "2"], 0, &[]).stdout;
        let linted = run_with(&["lint", "-", "--format", "json"], &exported);
        assert_eq!(linted.code, Some(0), "{exported}\n{}", linted.stdout);
    }
    other_weights_than_those_of_a_tuned_file_are_named(&tuned);
}

/// `tuned` was measured with the models that it names.
#[track_caller]
fn other_weights_than_those_of_a_tuned_file_are_named(tuned: &Path) {
    let generate = ["generate", text(tuned), "--prompt", "fn main", "--max-new-tokens", "2"];
    let export = ["export", text(tuned), "--to", "sglang", "--batch-size", "2"];
    for command in [&generate[..], &export] {
        let ran = check(command, 0, &[]);
        assert!(!ran.stderr.contains("it was measured with"), "{}", ran.stderr);
    }
    let content = fs::read_to_string(tuned).expect("a tuned file");
    let hash = |name: &str| {
        let line = content.lines().find(|line| line.starts_with(name)).expect("a hash");
        line.split('"').nth(1).expect("a value").to_owned()
    };
    let others =
        content.replace(&hash("target_hash"), "0000000000000000").replace(&hash("draft_hash"), "1111111111111111");
    fs::write(tuned, others).expect("it is written");
    let words = ["tuned.toml", "other weights of the target (hash 0000000000000000", "other weights of the draft"];
    for command in [&generate[..], &export] {
        check(command, 0, &words);
    }
}

#[test]
fn a_check_of_a_newer_run_needs_several_older_ones() {
    let (folder, sweep) = sweep_folder(|content| content);
    let out = folder.path().join("a");
    check(&["sweep", text(&sweep), "--out", text(&out)], 0, &[]);
    // Runs of their own, but for their trials: these do not scatter at all.
    let copies: Vec<PathBuf> = ["b", "c", "d"].map(|name| folder.path().join(name)).into();
    let lines = |folder: &Path| fs::read_to_string(folder.join("journal.jsonl")).expect("a journal");
    let journal = lines(&out);
    let trials = journal.split_once('\n').expect("a header").1;
    for copy in &copies {
        check(&["sweep", text(&sweep), "--out", text(copy)], 0, &[]);
        let own = lines(copy);
        let header = own.split_once('\n').expect("a header").0;
        fs::write(copy.join("journal.jsonl"), format!("{header}\n{trials}")).expect("a journal");
    }
    let [b, c, d] = [0, 1, 2].map(|at| text(&copies[at]));
    let all = ["report", "--compare", text(&out), b, c, d, "--fail-if"];
    let passed = check(&[&all[..], &["throughput < 0.97"]].concat(), 0, &[]).stdout;
    assert_eq!(passed.matches("1.000 (1.000 to 1.000) passes").count(), 2, "{passed}");
    let failed = check(&[&all[..], &["latency > 0.9", "--load", "1"]].concat(), 1, &[]).stdout;
    assert!(failed.starts_with("batch 1, ") && failed.trim_end().ends_with("fails"), "{failed}");
    let few = ["report", "--compare", text(&out), b, "--fail-if", "throughput < 0.97"];
    let unknown = check(&few, 4, &["give more folders"]).stdout;
    assert!(unknown.contains("cannot tell"), "{unknown}");
    check(&[&all[..], &["speed < 0.97"]].concat(), 2, &["throughput, latency, ttft, itl, accept_length"]);
    check(&[&all[..], &["itl > 1.1", "--load", "99"]].concat(), 2, &["the load 99 was not measured"]);
    check(&["report", b, "--fail-if", "itl > 1.1"], 2, &["measured in turns"]);
}

#[test]
fn wrong_sweeps_point_at_the_line() {
    let with = |from: &str, to: &str, words: &[&str]| {
        let (folder, sweep) = sweep_folder(|content| content.replace(from, to));
        check(&["sweep", text(&sweep), "--out", text(&folder.path().join("out"))], 2, words);
    };
    with("repeats = 2", "repeat = 2", &["sweep.toml:15:1", "unknown key `repeat`", "did you mean `repeats`?"]);
    with("\"2,2,4\"", "\"2,2,9\"", &["sweep.toml:13", "larger than the 7 nodes"]);
    with("output_length = 16", "output_length = 9999", &["does not fit the context"]);
    with("random = { input_length = 24 }", "prompts = \"none.jsonl\"", &["none.jsonl"]);
    with(
        "algorithm = \"EAGLE3\"",
        "algorithm = \"EAGLE\"",
        &["sweep.toml:", "algorithm is EAGLE", "write algorithm = \"EAGLE3\""],
    );
    with("[batch]", "[engine]\ndevice = \"gpu\"\n[batch]", &["did you mean \"cuda\"?"]);
    check(&["sweep", "no-such-file.toml"], 2, &["cannot read no-such-file.toml"]);
    check(&["report", "models"], 2, &["journal.jsonl", "it contains no results"]);
    check(&["report", TARGET], 2, &["it contains a model"]);
    check(&["merge", "no-such-folder", "--out", "x"], 2, &["there is no folder no-such-folder"]);
    check(&["simulate", "--rollout", "2x2"], 2, &["--trace FILE", "--accept-lengths"]);
    let times = ["simulate", "--accept-lengths", "1.8", "--rollout", "2x2", "--times", "nowhere"];
    check(&times, 2, &["expected a file of costs, or a machine (", "llama-3.1-8b-eagle3-h200"]);
    check(&["tune"], 2, &["give the launch file", "--url"]);
}

#[test]
fn lint_finds_in_a_sweep_file_what_the_sweep_refuses() {
    let same = |from: &str, to: &str, words: &[&str]| {
        let (folder, sweep) = sweep_folder(|content| content.replace(from, to));
        check_lint(&sweep, 1, words);
        check(&["sweep", text(&sweep), "--out", text(&folder.path().join("out"))], 2, words);
    };
    same("algorithm = \"EAGLE3\"", "algorithm = \"EAGLE\"", &["holds a draft for EAGLE3", "sweep.toml:"]);
    same("output_length = 16", "output_length = 9999", &["does not fit the context"]);
    same("random = { input_length = 24 }", "prompts = \"none.jsonl\"", &["there is no file", "none.jsonl"]);
    same("random = { input_length = 24 }", "prompts = \"sweep.toml\"\nmax_prompt_tokens = 0", &["0 is out of range"]);
    let (folder, sweep) =
        sweep_folder(|content| content.replace("random = { input_length = 24 }", "prompts = \"p.parquet\""));
    std::fs::write(folder.path().join("p.parquet"), "PAR1").expect("a file");
    check_lint(&sweep, 1, &["Parquet", "pandas.read_parquet", "sweep.toml:"]);
    let (_folder, sweep) = sweep_folder(|content| content);
    check_lint(&sweep, 0, &[]);
}

#[test]
fn lint_warns_about_models_of_a_sweep_that_may_be_on_another_machine() {
    for (name, reason) in [("/no/such/head", "there is no folder"), ("no-such/head", "is neither a folder nor in")] {
        let line = |line: &str| match line.starts_with("draft = ") {
            true => format!("draft = \"{name}\"\n"),
            false => format!("{line}\n"),
        };
        let (folder, sweep) = sweep_folder(|content| content.lines().map(line).collect());
        check_lint(&sweep, 1, &["warning", reason, "sweep.toml:4:9", "if that is another one, this is no error"]);
        check(&["sweep", text(&sweep), "--out", text(&folder.path().join("out"))], 2, &[reason, "sweep.toml:4:9"]);
    }
}

#[test]
fn a_bucket_of_contexts_that_a_prompt_file_does_not_reach_is_refused_before_the_first_sweep() {
    let (folder, sweep) = sweep_folder(|content| {
        let files = "prompt_files = [\"long.txt\", \"short.txt\"]";
        content
            .replace("random = { input_length = 24 }", files)
            .replace("sizes = [1, 2]", "sizes = [1]\ncontexts = [64]")
    });
    fs::write(folder.path().join("long.txt"), format!("def\n{}\n", "def read ".repeat(80))).expect("a file");
    fs::write(folder.path().join("short.txt"), "def\nreturn\n").expect("a file");
    let words = ["short.txt has contexts above 64", "sweep.toml:12:"];
    let out = folder.path().join("out");
    let refused = check(&["sweep", text(&sweep), "--out", text(&out), "--device", "cpu"], 2, &words);
    assert!(!refused.stderr.contains("long.txt has") && !out.exists(), "{}", refused.stderr);
    check_lint(&sweep, 1, &words);
}

#[test]
fn all_errors_of_a_sweep_file_are_shown_at_once() {
    let (_folder, sweep) = sweep_folder(|content| {
        content.replace("repeats = 2", "repeat = 2").replace("output_length = 16", "output_length = 0")
    });
    let words = ["unknown key `repeat`", "0 is out of range"];
    check(&["sweep", text(&sweep)], 2, &words);
    check_lint(&sweep, 1, &words);
}

#[test]
fn prompts_are_plain_text_json_or_csv() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = ["generate", "--model-path", "models/tiny/target", "--max-new-tokens", "3", "--json"];
    let outputs = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("a file");
        let arguments = [&base[..], &["--prompts", text(&path)]].concat();
        check(&arguments, 0, &[]).stdout
    };
    let expected = check(&[&base[..], &["--prompt", "def a", "--prompt", "def b"]].concat(), 0, &[]).stdout;
    assert_eq!(outputs("p.txt", "def a\n\ndef b\n"), expected);
    assert_eq!(outputs("p", "def a\ndef b\n"), expected);
    assert_eq!(outputs("p.json", "[\"def a\", {\"prompt\": \"def b\"}]"), expected);
    assert_eq!(outputs("p.csv", "id,prompt\n1,def a\n2,def b\n"), expected);
    std::fs::write(folder.path().join("bad.jsonl"), "{\"prompt\": \"a\"}\n{\"prompt\": 1}\n{\"x\": 1}\n")
        .expect("a file");
    let bad = folder.path().join("bad.jsonl");
    check(&[&base[..], &["--prompts", text(&bad)]].concat(), 2, &["bad.jsonl, line 2", "2 of 3 entries"]);
}

#[test]
fn a_data_set_is_read_from_the_local_cache() {
    let cache = tempfile::tempdir().expect("a folder");
    let repository = cache.path().join("datasets--org--alpaca");
    let snapshot = repository.join("snapshots/abc");
    std::fs::create_dir_all(&snapshot).expect("a folder");
    std::fs::create_dir_all(repository.join("refs")).expect("a folder");
    std::fs::write(repository.join("refs/main"), "abc").expect("a file");
    std::fs::write(snapshot.join("alpaca.json"), "[{\"instruction\": \"def a\", \"input\": \"\"}]").expect("a file");
    let ran = run_in(
        &["generate", "--model-path", "models/tiny/target", "--max-new-tokens", "2", "--prompts", "org/alpaca"],
        "",
        &[("HF_HUB_CACHE", text(cache.path()))],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("prompts: alpaca.json of the data set org/alpaca"), "{}", ran.stderr);
}

#[test]
fn a_sweep_and_a_training_run_refuse_each_others_folder() {
    let (folder, sweep) = sweep_folder(|content| content);
    let out = folder.path().join("out");
    std::fs::create_dir(&out).expect("a folder");
    std::fs::write(out.join("run.json"), "{}").expect("a file");
    check(&["sweep", text(&sweep), "--out", text(&out)], 2, &["contains a training run", "--out"]);
    std::fs::rename(out.join("run.json"), out.join("journal.jsonl")).expect("renamed");
    check(&["train", "sweeps/train/demo.toml", "--out", text(&out)], 2, &["contains a sweep", "--out"]);
}

#[test]
fn the_home_folder_is_meant_by_a_tilde() {
    let (folder, sweep) =
        sweep_folder(|content| content.replace("random = { input_length = 24 }", "prompts = \"~/p.txt\""));
    let home = text(folder.path()).to_owned();
    let lint = || run_in(&["lint", text(&sweep)], "", &[("HOME", &home)]);
    assert!(lint().stdout.contains("p.txt"), "{}", lint().stdout);
    std::fs::write(folder.path().join("p.txt"), "def a\n").expect("a file");
    assert_eq!(lint().code, Some(0), "{}", lint().stdout);
}

#[test]
fn an_output_folder_that_cannot_be_written_is_an_error_and_nothing_is_lost() {
    let (folder, sweep) = sweep_folder(|content| content);
    let file = folder.path().join("a-file");
    fs::write(&file, "keep me").expect("a file");
    check(&["sweep", text(&sweep), "--out", text(&file.join("out"))], 2, &["cannot write"]);
    assert_eq!(fs::read_to_string(&file).expect("the file"), "keep me");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    check(&["serve", "--model-path", TARGET, "--port", &port], 2, &[&port, "choose another --port"]);
}

#[test]
fn lint_finds_what_the_guide_describes_and_nothing_else() {
    let guide =
        fs::read_to_string(root().join("tests/data/launches/slime-guide-llama31-eagle3.sh")).expect("the guide");
    let codes = |script: &str| {
        let ran = run_with(&["lint", "-", "--format", "json"], script);
        let found: Vec<serde_json::Value> = serde_json::from_str(&ran.stdout).expect("a list");
        let codes: Vec<String> = found.iter().map(|one| one["code"].as_str().expect("a code").to_owned()).collect();
        (ran.code, codes)
    };
    assert_eq!(codes(&guide), (Some(0), vec![]));
    for (flag, code) in [("dtype", "SD070"), ("context-length", "SD060"), ("attention-backend", "SD081")] {
        let without: String = guide
            .lines()
            .filter(|line| !line.contains(&format!("--sglang-{flag}")))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(codes(&without), (Some(1), vec![code.to_owned()]), "without {flag}");
        let fixed = run_with(&["lint", "-", "--fix", "--unsafe-fixes"], &without);
        assert_eq!(codes(&fixed.stdout), (Some(0), vec![]), "{}", fixed.stdout);
    }
}

#[test]
fn lint_takes_facts_from_folders_and_says_what_will_run() {
    let launch = format!(
        "python3 -m sglang.launch_server --model-path {TARGET} --speculative-algorithm EAGLE --speculative-draft-model-path {EAGLE3} --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 9 --max-running-requests 8"
    );
    let ran = run_with(&["lint", "-", "--format", "concise"], &launch);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("SD004") && ran.stdout.contains("SD023"), "{}", ran.stdout);
    let resolved = run_with(&["lint", "-", "--resolved"], &launch).stdout;
    assert!(resolved.contains("num_draft_tokens") && resolved.contains('4'), "{resolved}");
    assert_eq!(run_with(&["lint", "-"], "echo hello\n").code, Some(1));
    check(&["lint", "no-such-file.sh"], 2, &["cannot read no-such-file.sh"]);
    check(&["lint", "README.md", "--select", "SD999"], 2, &["SD999"]);
    check(&["lint", "README.md", "--model-path", "nowhere"], 2, &["nowhere is not a folder"]);
}

#[test]
fn explain_and_schema_print_their_pages() {
    assert!(check(&["explain", "SD070"], 0, &[]).stdout.starts_with("SD070: dtype-mismatch"));
    let list = check(&["explain", "--list"], 0, &[]).stdout;
    assert!(list.lines().count() > 50);
    assert_eq!(check(&["explain"], 0, &[]).stdout, list);
    check(&["explain", "SD9999"], 2, &["no rule 'SD9999'"]);
    for name in ["launch", "settings", "sweep", "tuned"] {
        let schema = check(&["schema", name], 0, &[]).stdout;
        let published = fs::read_to_string(root().join(format!("schemas/json/{name}.schema.json"))).expect("a schema");
        assert_eq!(schema, published);
    }
}

#[test]
fn bench_refuses_lengths_and_budgets_that_its_shapes_do_not_have() {
    let base = ["bench", "--model-path", TARGET, "--batch-size", "1", "--input-len", "16", "--output-len", "12"];
    let draft = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", EAGLE3];
    let with = |more: &[&str], words: &[&str]| check(&[&base[..], &draft, more].concat(), 2, words);
    with(&["--shapes", "3,2,6@30"], &["3,2,6@30", "a number from 1 to 4", "the tree 3,2,6"]);
    with(&["--shapes", "3,2,6@4.01"], &["a number from 1 to 4"]);
    with(&["--shapes", "none@2"], &["none@2", "a number from 1 to 1", "no speculation"]);
    with(&["--simulate-accept-length", "30"], &["--simulate-accept-length 30", "yields at most"]);
    let budget = ["--speculative-row-budget", "2.5"];
    with(
        &[&budget[..], &["--shapes", "none;3,2,6"]].concat(),
        &["--speculative-row-budget", "--shapes", "write 3,2,6~2.5"],
    );
}

#[test]
fn bench_refuses_flags_without_effect_before_it_loads_a_model() {
    let folder = TempDir::new().expect("a folder");
    let [trace, policies, times] = ["trace", "policies", "none/times"].map(|name| folder.path().join(name));
    let base = ["bench", "--model-path", TARGET];
    let refused = |more: &[&str], words: &[&str]| {
        let ran = check(&[&base[..], more].concat(), 2, words);
        assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    };
    let rounds = ["--batch-size", "1", "--input-len", "16", "--output-len", "12"];
    for flags in [
        &["--finish", "95"][..],
        &["--abort"],
        &["--keep-contexts"],
        &["--median-len", "9"],
        &["--limit-drafts", "25:0"],
        &["--draw", "3"],
        &["--contexts", "64"],
        &["--points", "9"],
    ] {
        refused(&[&rounds[..], flags].concat(), &[flags[0], "has no effect here", "it needs"]);
    }
    let played = ["--simulate-acceptance", text(&trace)];
    let policies = ["--policies", text(&policies)];
    refused(&[&rounds[..], &played, &policies].concat(), &["--policies has no effect", "--rollout"]);
    let closed = [&played[..], &["--requests-per-user", "2", "--batch-size", "2", "--input-len", "16"]].concat();
    refused(&[&closed[..], &["--finish", "95"]].concat(), &["--finish has no effect", "--rollout"]);
    refused(&[&closed[..], &["--output-len", "9"]].concat(), &["--output-len has no effect"]);
    refused(&[&closed[..], &["--points", "9"]].concat(), &["--points has no effect", "--times-out"]);
    let rollout = [&played[..], &["--rollout", "4x2", "--input-len", "16"]].concat();
    refused(&[&rollout[..], &["--batch-size", "4"]].concat(), &["--batch-size has no effect"]);
    refused(&[&rollout[..], &["--abort"]].concat(), &["--abort has no effect", "--finish below 100"]);
    let timed = ["--times-out", text(&times), "--batch-size", "1"];
    refused(&timed, &["--times-out needs --batch-size and --contexts"]);
    let timed = [&timed[..], &["--contexts", "64"]].concat();
    refused(&[&timed[..], &["--points", "0"]].concat(), &["--points 0 is out of range"]);
    refused(&[&timed[..], &["--contexts", "0"]].concat(), &["--contexts 0 is out of range"]);
    for flags in [&["--json"][..], &["--repeats", "2"], &["--shapes", "none@1"], &["--requests-per-user", "2"]] {
        refused(&[&timed[..], flags].concat(), &["has no effect here", flags[0]]);
    }
    // What cannot be written is found before minutes of measurement.
    refused(&timed, &["cannot write", "none/times"]);
}

#[test]
fn sweeps_refuse_flags_without_effect() {
    let (folder, sweep) = sweep_folder(|sweep| sweep);
    check(&["sweep", text(&sweep), "--dry-run", "--keep-states", "1"], 2, &["--keep-states has no effect", "guided"]);
    check(&["sweep", text(&sweep), "--emit", "bash", "--until", "decided"], 2, &["--until <WHEN>", "cannot be used"]);
    check(&["sweep", text(&sweep), "--end-servers", "--keep-states", "1"], 2, &["cannot be used"]);
    let running = folder.path().join("running.toml");
    let content = fs::read_to_string(&sweep).expect("a file").replace("[space]\nshapes = [\"1,1,2\", \"2,2,4\"]\n", "");
    let content = content.replace("remeasure = 0\n", "[system]\nurl = \"http://localhost:9\"\n");
    fs::write(&running, content).expect("a file");
    check(&["sweep", text(&running), "--dry-run", "--until", "decided"], 2, &["--until has no effect", "at a URL"]);
}

#[test]
fn bench_prints_the_fields_of_its_contract() {
    let arguments =
        ["bench", "--model-path", TARGET, "--batch-size", "1,3", "--input-len", "16", "--output-len", "12", "--json"];
    let lines = check(&arguments, 0, &[]).stdout;
    let objects: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(objects.iter().map(|one| one["batch_size"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(3)]);
    assert_eq!(objects[0]["accept_length"], 1.0, "a round without drafts yields one token");
    for name in [
        "output_tokens_per_s",
        "tokens_per_s_per_user",
        "round_ms",
        "accept_length",
        "simulated",
        "memory_floor_ms",
        "share_of_floor",
        "startup_s",
        "graph_capture_s",
        "fingerprint",
    ] {
        assert!(objects[0].get(name).is_some(), "{name}");
    }
    for (flag, value) in
        [("--batch-size", "0"), ("--batch-size", "99999999999"), ("--repeats", "0"), ("--input-len", "0")]
    {
        let base = ["bench", "--model-path", TARGET, "--output-len", "1"];
        let mut given = vec![("--batch-size", "1"), ("--input-len", "1")];
        given.retain(|(name, _)| *name != flag);
        given.push((flag, value));
        let given: Vec<&str> = given.into_iter().flat_map(|(name, value)| [name, value]).collect();
        let ran = check(&[&base[..], &given].concat(), 2, &[flag, value, "expected 1 to 1048576"]);
        assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    }
}

#[test]
fn the_demo_is_written_once_and_can_be_swept() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("demo");
    let sweep = out.join("sweeps/demo.toml");
    check(&["demo", "--out", text(&out)], 0, &["spectune sweep", text(&sweep)]);
    let original = fs::read(root().join("sweeps/demo.toml")).expect("the repository's");
    assert_eq!(fs::read(&sweep).expect("a sweep file"), original);
    for name in ["demo.toml", "guided.toml", "open-loop.toml"] {
        check(&["lint", text(&out.join("sweeps").join(name))], 0, &[]);
    }
    let plan = check(&["sweep", text(&sweep), "--dry-run", "--out", text(&folder.path().join("results"))], 0, &[]);
    assert!(plan.stdout.contains("3,1,4"), "{}", plan.stdout);

    // A second run changes nothing. If a file was modified by the user, it is not overwritten, and
    // nothing else is written.
    check(&["demo", "--out", text(&out)], 0, &[]);
    fs::write(&sweep, "mine").expect("written");
    fs::remove_file(out.join("sweeps/guided.toml")).expect("removed");
    check(&["demo", "--out", text(&out)], 2, &[text(&sweep), "differs", "--out"]);
    assert_eq!(fs::read_to_string(&sweep).expect("there"), "mine");
    assert!(!out.join("sweeps/guided.toml").exists());
}

#[test]
fn completions_and_manual_pages_know_commands_and_engine_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = check(&["completions", shell], 0, &[]);
        for word in ["lint", "sweep", "speculative-num-steps"] {
            assert!(ran.stdout.contains(word), "{shell}: no {word}");
        }
    }
    check(&["completions", "tcsh"], 2, &["tcsh"]);

    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("man1");
    check(&["man", "--out", text(&out)], 0, &[text(&out)]);
    let page = fs::read_to_string(out.join("spectune-serve.1")).expect("a page of serve");
    assert!(page.contains(r"\-\-speculative\-num\-steps"), "{page}");
    assert!(out.join("spectune.1").is_file());
    check(&["man", "--out", text(&out.join("spectune.1"))], 2, &["cannot write the manual pages"]);
}

#[test]
fn the_version_names_its_commit_and_features() {
    let short = check(&["-V"], 0, &[]).stdout;
    assert!(short.starts_with(concat!("spectune ", env!("CARGO_PKG_VERSION"), " (")), "{short}");
    assert_eq!(short.lines().count(), 1);
    let long = check(&["--version"], 0, &[]).stdout;
    for word in [env!("CARGO_PKG_VERSION"), "commit:", "build:", "features:", "cuda"] {
        assert!(long.contains(word), "no {word} in\n{long}");
    }
}

#[test]
fn other_commands_name_the_one_that_tunes_a_launch() {
    let folder = TempDir::new().expect("a folder");
    for (name, content) in
        [("run.sh", "export A=1\n"), ("run", "#!/bin/bash\nexport A=1\n"), ("pod.yaml", "kind: Pod\n")]
    {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("a file");
        let tune = format!("run `spectune tune {}`", path.display());
        check(&["sweep", text(&path)], 2, &["is not a sweep file", &tune]);
        check(&["serve", text(&path)], 2, &["is not a tuned file", &tune]);
    }
}

#[test]
fn a_log_is_diagnosed_from_standard_input() {
    let report = |accept: &str, rate: f64| {
        format!(
            "[2026-11-28 21:36:04 TP0] Decode batch, #running-req: 32, #token: 9, token usage: 0.03, {accept}cuda graph: True, \
             gen throughput (token/s): {rate}, #queue-req: 0\n"
        )
    };
    let with = report("accept len: 2.00, ", 1600.0).repeat(4);
    let folder = TempDir::new().expect("a folder");
    let plain = folder.path().join("plain.log");
    let plain = plain.to_str().expect("a path");
    fs::write(plain, report("", 3200.0).repeat(4)).expect("a file");
    let promise = ["--against", plain, "--promised-speed-up", "1.5", "--promised-accept-length", "3"];
    let ran = run_with(&[&["diagnose", "-"][..], &promise].concat(), &with);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    for expected in [
        "0.50× as fast; accept length 2.00, a round takes 4.00 times",
        "1.50×  acceptance",
        "2.00×  rounds",
        "3.00×  together",
        "speculation is slower than none",
    ] {
        assert!(ran.stdout.contains(expected), "{expected}: {}", ran.stdout);
    }
    let json = run_with(&["diagnose", "-", "--json"], &with);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("it is JSON");
    assert_eq!((&json["loads"][0]["round_ms"], json["against"].as_array().map(Vec::len)), (&40.0.into(), Some(0)));
    assert_eq!((&json["engine"], &json["speculates"]), (&"SGLang".into(), &true.into()));
    // Loads that differ are not compared, and that is said.
    let other = with.replace("#running-req: 32", "#running-req: 8");
    let apart = run_with(&["diagnose", "-", "--against", plain], &other);
    let expected = "the loads of the two logs differ (8 running requests with speculation, 32 without";
    assert!(apart.stdout.contains(expected), "{}", apart.stdout);
    let short = run_with(&["diagnose", "-"], &report("accept len: 2.00, ", 1600.0));
    assert!(
        short.stdout.contains("Too few reports to say") && !short.stdout.contains("Nothing here"),
        "{}",
        short.stdout
    );
    let vllm = "INFO 11-28 21:36:13 [loggers.py:310] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation \
                throughput: 9.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%\n";
    let both = run_with(&["diagnose", "-"], &format!("{with}{vllm}"));
    assert!(both.stderr.contains("1 report of vLLM too, which are left out"), "{}", both.stderr);
    let address = run_with(&["diagnose", "127.0.0.1:30000"], "");
    assert!(address.code == Some(2) && address.stderr.contains("give http://127.0.0.1:30000"), "{}", address.stderr);
    let none = run_with(&["diagnose", "-"], "INFO: ready\n");
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("reports no rounds"), "{}", none.stderr);
    let twice = run_with(&["diagnose", plain, "--against", "-"], &with);
    assert!(twice.stderr.contains("speculates too"), "{}", twice.stderr);
}

#[test]
fn a_log_of_several_starts_and_ranks_is_diagnosed_one_start_at_a_time() {
    let start = |steps: usize, rate: f64| {
        let ranks: String = (0..2)
            .map(|rank| {
                format!(
                    "[2026-11-28 21:36:04 DP{rank} TP{rank}] Decode batch, #running-req: 8, #token: 9, token usage: 0.03, accept \
                     len: 2.00, cuda graph: True, gen throughput (token/s): {rate}, #queue-req: 0\n"
                )
            })
            .collect();
        format!(
            "[2026-11-28 21:34:48] server_args=ServerArgs(speculative_algorithm='EAGLE3', speculative_num_steps={steps}, \
             speculative_eagle_topk=1, speculative_num_draft_tokens={})\n[2026-11-28 21:34:58 DP0 TP0] \
             max_total_num_tokens=400000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, \
             context_len=8192, available_gpu_mem=6.56 GB\n{}",
            steps + 1,
            ranks.repeat(4)
        )
    };
    let text = start(3, 1600.0) + &start(5, 800.0);
    let last = run_with(&["diagnose", "-"], &text);
    assert!(last.stderr.contains("2 starts"), "{}", last.stderr);
    for expected in [
        "EAGLE3 (5,1,6), at most 48 requests at once on each; 8 reports of 2 ranks or engines; all figures are those of one",
        " 800    2.00 ",
    ] {
        assert!(last.stdout.contains(expected), "{expected}: {}", last.stdout);
    }
    let first = run_with(&["diagnose", "-", "--start", "1"], &text);
    assert!(first.stdout.contains("EAGLE3 (3,1,4)") && first.stdout.contains(" 1600    2.00 "), "{}", first.stdout);
    let none = run_with(&["diagnose", "-", "--start", "3"], &text);
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("has reports of 2 starts"), "{}", none.stderr);
    let silent = text.replace("accept len: 2.00, ", "");
    let folder = TempDir::new().expect("a folder");
    let at = folder.path().join("silent.log");
    fs::write(&at, silent).expect("a file");
    let against = run_with(&["diagnose", "-", "--against", at.to_str().expect("a path")], &text);
    assert!(against.stderr.contains("speculates too"), "{}", against.stderr);
    let packed = folder.path().join("server.log.gz");
    fs::write(&packed, [0x1f, 0x8b, 8, 0]).expect("a file");
    let packed = run_with(&["diagnose", packed.to_str().expect("a path")], "");
    assert_eq!(packed.code, Some(2));
    assert!(packed.stderr.contains("gzip -dk"), "{}", packed.stderr);
    let piped = run_with(&["diagnose", "-"], "BZh91AY&SY");
    assert!(piped.code == Some(2) && piped.stderr.contains("`bzip2 -dc |`"), "{}", piped.stderr);
}

#[test]
fn simulations_that_cannot_be_are_refused_before_the_work() {
    let folder = TempDir::new().expect("a folder");
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("a file");
        path.display().to_string()
    };
    let lengths = ["simulate", "--accept-lengths", "1.8,2.4", "--draws", "2", "--median-len", "10"];
    let refused = |more: &[&str], words: &[&str]| {
        let ran = check(&[&lengths[..], more].concat(), 2, words);
        assert!(ran.stdout.is_empty(), "{more:?}: {}", ran.stdout);
    };
    refused(&["--rollout", "4x2", "--max-len", "0"], &["--max-len 0", "expected 1 to 1048576"]);
    refused(&["--rollout", "4x2", "--tail", "inf"], &["--tail inf: expected a finite number"]);
    refused(&["--rollout", "4x2", "--max-len", "9"], &["--median-len 10 is above --max-len 9"]);
    refused(&["--request-rate", "1e-300"], &["beyond the clock"]);
    for (content, words) in [
        ("", "no arrival time"),
        ("0\n99999999999999999999\n", "line 2: expected seconds, at least 0"),
        ("0\n-1\n", "line 2: expected seconds, at least 0"),
        ("0\nsoon\n", "found \"soon\""),
        ("1\n0\n", "line 2: 0 s is before the last time"),
    ] {
        refused(&["--arrivals", &file("arrivals", content)], &["arrivals: ", words]);
    }
    refused(&["--batch-size", "300"], &["--batch-size 300 is above --max-running-requests 256"]);
    refused(&["--request-rate", "inf"], &["--request-rate inf: expected a finite number above 0"]);
    // A wrong unit shows in a note, and traces are read.
    let trace = file(
        "trace.jsonl",
        "{\"arrival_ms\": 1500, \"output_length\": 3}\n{\"arrival_ms\": 0, \"output_length\": 5}\n",
    );
    let lengths_of_trace =
        ["simulate", "--accept-lengths", "1.8,2.4", "--draws", "2", "--policy", "fixed", "--lengths", &trace];
    check(&[&lengths_of_trace[..], &["--arrivals", &trace]].concat(), 0, &["2 recorded requests arrive within 1.50 s"]);
    let times = file("times", "0\n500\n");
    check(&[&lengths[..], &["--arrivals", &times]].concat(), 0, &["2 recorded requests arrive within 500 s"]);
    let load = ["--rollout", "4x2"];
    let refused = |more: &[&str], words: &[&str]| refused(&[&load[..], more].concat(), words);
    refused(&["--policy", "budget"], &["--policy budget", "give --trace FILE"]);
    refused(&["--policy", "vllm-adaptive,none"], &["--policy vllm-adaptive", "give --trace FILE"]);
    refused(&["--policies-out", text(&folder.path().join("none/out"))], &["cannot write"]);
    refused(&["--policies-out", text(folder.path())], &["cannot write"]);
    let out = folder.path().join("out").display().to_string();
    let both = ["--export", "spectune", "--export-file", &out, "--policies-out", &out];
    refused(&both, &["--export-file", "is also the file of --policies-out"]);
    refused(&["--json", "--export", "spectune"], &["add --export-file"]);
    assert!(!folder.path().join("out").exists());
}

#[test]
fn a_simulation_in_json_has_its_warnings_and_files_only() {
    let folder = TempDir::new().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("lengths"), "\u{feff}7\n9\n").expect("a file");
    let rows = at("rows.toml");
    let lengths = at("lengths");
    let load = ["--rollout", "4x2", "--lengths", text(&lengths), "--draws", "2", "--policy", "fixed"];
    let draft = ["simulate", "--accept-lengths", "1.9", "--speculative-algorithm", "NGRAM", "--json"];
    let export = ["--export", "spectune", "--export-file", text(&rows)];
    let ran = check(&[&draft[..], &load[..], &export[..]].concat(), 0, &["written: ", "looked up in texts"]);
    let found: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON alone");
    let notes = found["notes"].as_array().expect("notes");
    let warns = |note: &serde_json::Value| note.as_str().is_some_and(|note| note.contains("looked up in texts"));
    assert!(notes.iter().any(warns), "{notes:?}");
    assert!(fs::read_to_string(&rows).expect("the rows").contains("[[policy]]"));
}
