//! Runs the binary like a user: checks stdout, stderr and the exit code.
//!
//! Run by the crate `cli`: `cargo test -p cli --test commands`.

#[path = "commands/bench.rs"]
mod bench;
#[path = "commands/diagnose.rs"]
mod diagnose;
#[path = "commands/pages.rs"]
mod pages;
#[path = "commands/simulate.rs"]
mod simulate;
#[path = "commands/sweep.rs"]
mod sweep;

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
