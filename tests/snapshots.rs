//! Exact output and exit codes of commands: merged folders, job files, compared runs.
//!
//! Run by the crate `cli`: `cargo test -p cli --test snapshots`.
#![cfg(unix)]

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;
use tuner::trials::{journal::JournalHeader, record::Fingerprint};

use self::{
    folders::two_shards,
    synthetic::{Synthetic, header},
};

#[path = "support/demo_models.rs"]
mod demo_models;
#[path = "../reports/tests/common/folders.rs"]
mod folders;
#[allow(dead_code, reason = "made for the tests of reports, which need more of it")]
#[path = "../reports/tests/common/synthetic.rs"]
mod synthetic;

/// Few enough trials for a page.
fn small() -> Synthetic {
    let shapes = ["0,1,1", "3,1,4", "5,4,8", "3,4,16"].map(|shape| shape.parse().expect("a shape"));
    Synthetic { batch_sizes: vec![1, 8], shapes: shapes.to_vec(), repeats: 3, ..Synthetic::default() }
}

/// Runs the binary in a folder; parts of the output that depend on the machine are replaced by
/// names.
fn spectune(folder: &TempDir, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spectune"));
    for name in ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "SPECTUNE_SHARDS", "COLUMNS"] {
        command.env_remove(name);
    }
    let output = command.args(arguments).current_dir(folder.path()).env("NO_COLOR", "1").output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("an exit code");
    let shown = format!("exit code {code}\n--- stdout\n{}--- stderr\n{}", text(output.stdout), text(output.stderr));
    let here = folder.path().canonicalize().expect("the folder");
    [
        (env!("CARGO_BIN_EXE_spectune"), "[SPECTUNE]"),
        (path(&here), "[FOLDER]"),
        (env!("CARGO_PKG_VERSION"), "[VERSION]"),
    ]
    .into_iter()
    .fold(shown, |shown, (place, name)| shown.replace(place, name))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Two runs of the same sweep, `before` and `after`, with different drivers and figures.
fn two_runs() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, driver, acceptance) in [("before", "570.10", 0.68), ("after", "580.20", 0.75)] {
        let fingerprint = Fingerprint { driver: driver.into(), ..header().fingerprint };
        let mut records = Synthetic { acceptance, ..small() }.records();
        for record in &mut records {
            record.id = record.trial.id(&fingerprint);
            record.fingerprint = fingerprint.clone();
        }
        folders::sweep(&folder.path().join(name), &JournalHeader { fingerprint, ..header() }, &records);
    }
    folder
}

#[test]
fn shards_are_merged() {
    let folder = tempfile::tempdir().expect("a folder");
    two_shards(folder.path(), &small());
    insta::assert_snapshot!("merge", spectune(&folder, &["merge", "shard-1", "shard-2", "--out", "whole"]));
    insta::assert_snapshot!("merge_in_part", spectune(&folder, &["merge", "shard-1", "--out", "part"]));
}

#[test]
fn runs_on_two_machines_are_not_merged() {
    let folder = two_runs();
    insta::assert_snapshot!("merge_refused", spectune(&folder, &["merge", "before", "after", "--out", "whole"]));
    assert!(!folder.path().join("whole").exists());
}

#[test]
fn two_runs_are_compared() {
    let folder = two_runs();
    insta::assert_snapshot!(
        "report_compare",
        spectune(&folder, &["report", "before", "after", "--compare", "--out", "compared"])
    );
    insta::assert_snapshot!("report_compare_one", spectune(&folder, &["report", "before", "--compare"]));
}

#[test]
fn job_files_are_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let sweep = "[models]\ntarget = 'target'\ndraft = 'draft'\nalgorithm = 'EAGLE3'\n[workload]\n\
                 prompts = 'prompts.jsonl'\n[space]\nshapes = ['1,1,2', '2,1,3', '3,1,4']\n";
    fs::write(folder.path().join("sweep.toml"), sweep).expect("a sweep file");
    for scheduler in ["slurm", "k8s", "bash"] {
        let shown = spectune(&folder, &["sweep", "sweep.toml", "--emit", scheduler, "--out", "results"]);
        insta::assert_snapshot!(format!("emit_{scheduler}"), shown);
    }
}

/// A folder with the demo models, a file of prompts, and a valid sweep file to modify.
fn sweep_folder() -> TempDir {
    let folder = demo_models::folder();
    fs::write(folder.path().join("prompts.jsonl"), "{\"prompt\": \"let x\"}\n").expect("prompts");
    fs::write(folder.path().join("sweep.toml"), SWEEP).expect("a sweep file");
    folder
}

const SWEEP: &str = "\
[models]
target = 'models/target'
draft = 'models/eagle3'
algorithm = 'EAGLE3'
[engine]
device = 'cpu'
context_length = 256
[workload]
prompts = 'prompts.jsonl'
requests = 1
output_length = 8
[batch]
sizes = [1]
[space]
shapes = ['1,1,2']
[search]
repeats = 1
";

#[test]
fn a_wrong_sweep_file_is_shown_with_what_may_have_been_meant() {
    let folder = sweep_folder();
    let mut shown = String::new();
    for (from, to) in [
        ("repeats = 1", "repeat = 1"),
        ("[space]", "[spcae]"),
        ("repeats = 1", "strategy = 'gird'"),
        ("repeats = 1", "repeats = 3 3"),
        ("sizes = [1]", "sizes = ['1']"),
        ("sizes = [1]", "sizes = 8"),
        ("requests = 1", "requests = -1"),
        ("device = 'cpu'", "device = 'cdua'"),
        ("algorithm = 'EAGLE3'\n", ""),
        ("'prompts.jsonl'", "'prompt.jsonl'"),
        ("'models/eagle3'", "'./models/eagle'"),
        ("target = 'models/target'", "target = 'prompts.jsonl'"),
        ("sizes = [1]", "sizes = [1, 1000000]"),
    ] {
        fs::write(folder.path().join("sweep.toml"), SWEEP.replacen(from, to, 1)).expect("a sweep file");
        let found = spectune(&folder, &["sweep", "sweep.toml", "--out", "out"]);
        // The available memory depends on the machine.
        let found = match found.find("there is room for ") {
            Some(at) => format!("{}there is room for […]\n", &found[..at]),
            None => found,
        };
        shown.push_str(&format!("=== {to:?}\n{found}\n"));
        assert!(!folder.path().join("out/journal.jsonl").exists(), "{to}");
    }
    insta::assert_snapshot!("sweep_wrong", shown);
}

#[test]
fn a_wrong_file_of_prompts_is_named_with_its_line() {
    let folder = sweep_folder();
    let mut shown = String::new();
    for prompts in ["name,text\n1,hello\n", "{\"prompt\": 7}\n", "{\"query\": \"x\"}\n", "\n", "[{\"prompt\": \"x\"}"] {
        fs::write(folder.path().join("prompts.jsonl"), prompts).expect("prompts");
        let found = spectune(&folder, &["sweep", "sweep.toml", "--out", "out"]);
        shown.push_str(&format!("=== {prompts:?}\n{found}\n"));
    }
    insta::assert_snapshot!("sweep_prompts", shown);
}

#[test]
fn a_dry_run_prints_the_plan() {
    let folder = sweep_folder();
    let shown = spectune(&folder, &["sweep", "sweep.toml", "--dry-run"]);
    let (plan, rest) = shown.split_once("device ").expect("the plan, then what was measured");
    assert!(rest.contains("estimate") && rest.contains("tokens/s for each of 1 requests"), "{rest}");
    insta::assert_snapshot!("sweep_dry_run", plan);
}

#[test]
fn files_of_the_other_kind_are_reported() {
    let folder = sweep_folder();
    fs::write(folder.path().join("tuned.toml"), TUNED).expect("a tuned file");
    let training = "[models]\ntarget = 'a'\ndraft = 'b'\n[[prompts]]\nfile = 'p.jsonl'\n[training]\nsteps = 1\n";
    fs::write(folder.path().join("train.toml"), training).expect("a training file");
    let mut shown = String::new();
    for arguments in [
        &["sweep", "tuned.toml"][..],
        &["sweep", "train.toml"],
        &["train", "sweep.toml"],
        &["train", "tuned.toml"],
        &["serve", "train.toml"],
        &["lint", "train.toml"],
        &["serve", "sweep.toml"],
        &["export", "sweep.toml", "--to", "sglang"],
        &["export", "tuned.toml", "--to", "slgang"],
        &["report", "sweep.toml"],
        &["explain", "dtype-mismach"],
    ] {
        shown.push_str(&format!("=== {arguments:?}\n{}\n", spectune(&folder, arguments)));
    }
    insta::assert_snapshot!("other_kinds", shown);
}

const TUNED: &str = "\
format = 2
written_by = 'spectune 0.1.0'
warnings = ['the machine was busy with other things']
[models]
target = 'meta-llama/Llama-3.1-8B-Instruct'
draft = 'lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B'
algorithm = 'EAGLE3'
dtype = 'auto'
target_dtype = 'bfloat16'
draft_context_length = 2048
[engine]
device = 'cuda:0'
context_length = 4096
page_size = 16
mem_fraction_static = 0.8
max_running_requests = 8
capture_sizes = [1, 8]
[[policy]]
max_running_batch = 1
num_steps = 3
topk = 1
num_draft_tokens = 4
output_tokens_per_s = 200.0
repeats = 1
speedup = 1.5
accept_length = 2.5
verdict = 'not-known'
[[policy]]
max_running_batch = 8
num_steps = 2
topk = 1
num_draft_tokens = 3
output_tokens_per_s = 900.0
repeats = 7
speedup = 1.2
speedup_interval = [1.1, 1.3]
interval_kind = 'confidence'
interval_level = 0.984
accept_length = 2.1
verdict = 'pays'
[measured]
hosts = ['node-1']
device_name = 'NVIDIA H200'
driver = '580.20'
engine = 'spectune 0.0.9'
target_hash = 'a'
draft_hash = 'b'
workload_hash = 'c'
loads = ['batch 1', 'batch 8']
first_trial = '2026-11-25 12:40'
last_trial = '2026-11-25 12:44'
objective = 'throughput'
";

#[test]
fn an_export_says_whose_figures_chose_it_and_repeats_warnings() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("tuned.toml"), TUNED).expect("a tuned file");
    let mut shown = String::new();
    for to in ["sglang", "slime", "vllm", "sglang-adaptive", "tensorrt-llm"] {
        let arguments = ["export", "tuned.toml", "--to", to, "--batch-size", "1"];
        shown.push_str(&format!("=== {to}\n{}\n", spectune(&folder, &arguments)));
    }
    insta::assert_snapshot!("export", shown);
    let mut shown = String::new();
    let export = |file: &str, more: &[&str]| {
        let arguments = [&["export", file, "--to", "sglang"], more].concat();
        format!("=== {arguments:?}\n{}\n", spectune(&folder, &arguments))
    };
    // Rows that differ, and a head that SGLang does not load as one.
    shown.push_str(&export("tuned.toml", &[]));
    let draft = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B";
    let other = TUNED.replace("lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B", draft);
    fs::write(folder.path().join("other.toml"), other).expect("a tuned file");
    shown.push_str(&export("other.toml", &["--batch-size", "8"]));
    shown.push_str(&export("other.toml", &["--batch-size", "8", "--force"]));
    insta::assert_snapshot!("export_refused", shown);
}

#[test]
fn lint_takes_folders_sweep_files_and_tuned_files() {
    let folder = sweep_folder();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    write("tuned.toml", TUNED);
    write("wrong/sweep.toml", &SWEEP.replace("[space]", "[spaec]"));
    write("wrong/tuned.toml", &TUNED.replace("topk = 1", "topkk = 1"));
    write("scripts/run.sh", "python3 -m sglang.launch_server --model-path x --tp-size 2 --dtpye half\n");
    write("scripts/tools/clean.sh", "rm -rf build\n");
    write("scripts/values.yaml", "replicas: 2\n");
    write("empty/notes.txt", "nothing\n");
    write("empty/clean.sh", "rm -rf build\n");
    write("bad/run.sh", "");
    fs::write(folder.path().join("bad/run.sh"), b"\xff\xfe").expect("no text");
    let mut shown = String::new();
    for arguments in [
        &["lint", "sweep.toml", "tuned.toml"][..],
        &["lint", "wrong/sweep.toml", "wrong/tuned.toml"],
        &["lint", "scripts", "--isolated", "--format", "concise"],
        &["lint", "empty"],
        &["lint", "empty", "--allow-no-launch"],
        &["lint", "bad/run.sh"],
        &["lint", "bad/run.sh", "sweep.toml"],
    ] {
        shown.push_str(&format!("=== {arguments:?}\n{}\n", spectune(&folder, arguments)));
    }
    insta::assert_snapshot!("lint_files", shown);
}

#[test]
fn a_sweep_that_is_stopped_prints_the_command_that_goes_on() {
    let folder = sweep_folder();
    let text = SWEEP.replace("repeats = 1", "repeats = 500").replace("output_length = 8", "output_length = 64");
    fs::write(folder.path().join("a sweep.toml"), text).expect("a sweep file");
    let mut child = Command::new(env!("CARGO_BIN_EXE_spectune"))
        .args(["sweep", "a sweep.toml", "--out", "out", "--device", "cpu"])
        .current_dir(folder.path())
        .env("NO_COLOR", "1")
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().expect("a pipe")));
    lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("[1/")).expect("a first trial");
    let pid = child.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().expect("a signal");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{rest:?}");
    let program = env!("CARGO_BIN_EXE_spectune");
    let expected =
        format!("interrupted; continue with: {program} sweep 'a sweep.toml' --out out --resume --device cpu");
    assert_eq!(rest.last(), Some(&expected), "{rest:?}");
}
