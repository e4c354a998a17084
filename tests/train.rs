//! Exact output and exit codes of `train` and `drift`, and a whole run of `train` that is killed.
//!
//! Run by the crate `cli`: `cargo test -p cli --test train`.
#![cfg(unix)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tempfile::TempDir;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Runs the binary in a folder; parts of the output that depend on the machine are replaced by
/// names.
fn spectune(folder: &TempDir, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spectune"));
    let output = command.args(arguments).current_dir(folder.path()).env("NO_COLOR", "1").env_remove("COLUMNS").output();
    let output = output.expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("an exit code");
    let shown = format!("exit code {code}\n--- stdout\n{}--- stderr\n{}", text(output.stdout), text(output.stderr));
    shown.replace(env!("CARGO_BIN_EXE_spectune"), "[SPECTUNE]")
}

/// A line of a log.
fn line(time: usize, draft: &str, shapes: &str, tokens: usize, rounds: usize) -> String {
    let output: Vec<usize> = (0..tokens).collect();
    let request = serde_json::json!({
        "format": 1, "time": 1_790_000_000 + 600 * time, "target": "t", "draft": draft, "shapes": shapes,
        "prompt_ids": [1, 2], "output_ids": output, "temperature": 0.0, "rounds": rounds,
        "accept_histogram": [rounds], "finish_reason": "length"
    });
    format!("{request}\n")
}

#[test]
fn drift_says_what_moved() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, lines: &[String]| fs::write(folder.path().join(name), lines.concat()).expect("written");
    let rounds = |time: usize, base: usize| base + time * 7 % 5;
    let steady: Vec<String> = (0..48).map(|time| line(time, "d", "3,1,4", 60, rounds(time, 20))).collect();
    let mut moved: Vec<String> =
        (0..48).map(|time| line(time, "d", "3,1,4", 60, rounds(time, if time < 20 { 20 } else { 26 }))).collect();
    moved.insert(0, line(0, "another", "3,1,4", 60, 10));
    moved.insert(0, line(0, "d", "5,4,8", 60, 10));
    write("steady.jsonl", &steady);
    // A server that is still writing leaves a truncated line.
    moved.push("{\"format\":1,\"ti".into());
    write("moved.jsonl", &moved);
    write("few.jsonl", &steady[..3]);
    write("wrong.jsonl", &["{\"format\":1}\n".into(), steady[0].clone()]);
    write("none.jsonl", &[]);
    let mut shown = String::new();
    for name in ["steady", "moved", "few", "wrong", "none", "missing"] {
        let log = format!("{name}.jsonl");
        shown.push_str(&format!("=== {log}\n{}\n", spectune(&folder, &["drift", &log])));
    }
    shown.push_str(&format!("=== since\n{}\n", spectune(&folder, &["drift", "steady.jsonl", "--since", "nowhere"])));
    insta::assert_snapshot!("drift", shown);
}

const TRAIN: &str = "\
[models]
target = \"TARGET\"
draft = \"DRAFT\"
algorithm = \"EAGLE3\"

[engine]
device = \"cpu\"
context_length = 128

[tree]
shape = \"3,1,4\"
batch = 1

[[prompts]]
name = \"python\"
file = \"prompts.jsonl\"

[answers]
output_length = 24
ignore_eos = true

[training]
steps = 8
batch_size = 4
unroll = 3
learning_rate = 1e-3
checkpoint_every = 2

[stop]
evaluate_every = 4
held_out = 0.45
";

fn train_folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let prompts = fs::read_to_string(repository("sweeps/train/python-prompts.jsonl")).expect("the demo's prompts");
    let some: Vec<&str> = prompts.lines().take(24).collect();
    fs::write(folder.path().join("prompts.jsonl"), some.join("\n")).expect("written");
    fs::write(folder.path().join("train.toml"), train_file()).expect("written");
    folder
}

fn train_file() -> String {
    let place = |path: &str| repository(path).canonicalize().expect("a model").display().to_string();
    TRAIN.replace("TARGET", &place("models/tiny/target")).replace("DRAFT", &place("models/tiny/eagle3"))
}

#[test]
fn a_training_file_that_is_wrong_is_shown_at_its_place() {
    let folder = train_folder();
    let mut shown = String::new();
    for (from, to) in [
        ("shape = \"3,1,4\"", "shape = \"3,1,5\""),
        ("learning_rate", "learnign_rate"),
        ("algorithm = \"EAGLE3\"", "algorithm = \"EAGLE4\""),
        ("prompts.jsonl", "prompst.jsonl"),
        ("file = \"prompts.jsonl\"", "file = \"prompts.jsonl\"\nlog = \"x\""),
        ("held_out = 0.45", "held_out = 1.5"),
        ("[stop]", "[training]"),
    ] {
        let text = train_file().replacen(from, to, 1);
        fs::write(folder.path().join("wrong.toml"), text).expect("written");
        let here = |shown: String| {
            let models = repository("models").canonicalize().expect("models").display().to_string();
            shown.replace(&models, "[MODELS]")
        };
        shown.push_str(&format!("=== {to}\n{}\n", here(spectune(&folder, &["train", "wrong.toml", "--out", "out"]))));
    }
    insta::assert_snapshot!("train_wrong", shown);
    assert!(!folder.path().join("out").exists(), "a wrong file makes no folder");
}

#[test]
fn a_run_that_is_killed_goes_on() {
    let folder = train_folder();
    let start = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spectune"));
        command.args(["train", "train.toml", "--out", "out"]).args(arguments).current_dir(folder.path());
        command.env("NO_COLOR", "1").stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().expect("it starts")
    };
    let mut child = start(&[]);
    let checkpoint = folder.path().join("out/checkpoint.safetensors");
    while !checkpoint.exists() {
        assert_eq!(child.try_wait().expect("a child"), None, "it ended before its first checkpoint");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("killed");
    child.wait().expect("it ends");
    let refused = start(&[]).wait_with_output().expect("it ends");
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    let ended = start(&["--resume"]).wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&ended.stderr);
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{words}");
    assert!(!words.contains("the target answers"), "the answers are kept: {words}");
    for file in ["training.json", "report.html", "report.md", "charts/accept-length.svg"] {
        assert!(folder.path().join("out").join(file).exists(), "{file}");
    }
    let page = fs::read_to_string(folder.path().join("out/report.html")).expect("the page");
    assert!(page.contains("Before and after") && page.contains("report-data"));
    // The report can be written again, and the head exists if it is better.
    let report =
        Command::new(env!("CARGO_BIN_EXE_spectune")).args(["report", "out"]).current_dir(folder.path()).output();
    assert!(report.expect("it starts").status.success());
    assert_eq!(folder.path().join("out/head").exists(), ended.status.code() == Some(0));
}
