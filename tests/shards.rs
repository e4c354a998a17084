//! Sweeps in parts: shards from a scheduler's variables, job files that are run, and merged
//! folders.
//!
//! Run by the crate `cli`: `cargo test -p cli --test shards`.
#![cfg(unix)]

use std::{fs, path::PathBuf, process::Command};

use tempfile::TempDir;

#[path = "support/demo_models.rs"]
mod demo_models;

/// Scheduler variables that may be set on this machine.
const VARIABLES: [&str; 6] = [
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_STEP",
    "JOB_COMPLETION_INDEX",
    "SPECTUNE_SHARDS",
];

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// A folder with copies of the demo models and a small sweep of them on the CPU, `sweep.toml`.
fn folder() -> TempDir {
    let folder = demo_models::folder();
    let content = "[models]\ntarget = 'models/target'\ndraft = 'models/eagle3'\nalgorithm = 'EAGLE3'\n\
                   [engine]\ndevice = 'cpu'\n[workload]\nrandom = { input_length = 16 }\nrequests = 1\n\
                   output_length = 8\n[space]\nshapes = ['1,1,2', '2,1,3']\n[search]\nrepeats = 1\nremeasure = 0\n";
    fs::write(folder.path().join("sweep.toml"), content).expect("a sweep file");
    folder
}

/// Runs a program in the folder with these variables, and without other scheduler variables.
#[track_caller]
fn run(
    program: &str,
    folder: &TempDir,
    arguments: &[&str],
    variables: &[(&str, &str)],
    code: i32,
    words: &[&str],
) -> Ran {
    let mut command = Command::new(program);
    VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    let output =
        command.args(arguments).current_dir(folder.path()).envs(variables.iter().copied()).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let ran = Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
    assert_eq!(ran.code, Some(code), "{arguments:?}\n{}\n{}", ran.stdout, ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "{arguments:?}: no {word:?} in\n{}", ran.stderr);
    }
    ran
}

fn spectune(folder: &TempDir, arguments: &[&str], variables: &[(&str, &str)], code: i32, words: &[&str]) -> Ran {
    run(env!("CARGO_BIN_EXE_spectune"), folder, arguments, variables, code, words)
}

fn records(folder: &TempDir, name: &str) -> usize {
    let path: PathBuf = folder.path().join(name).join("journal.jsonl");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).lines().count() - 1
}

#[test]
fn tasks_of_an_array_and_pods_measure_their_shards_and_merging_makes_the_whole() {
    let folder = folder();
    let task = [("SLURM_ARRAY_TASK_ID", "1"), ("SLURM_ARRAY_TASK_COUNT", "2"), ("SLURM_ARRAY_TASK_MIN", "1")];
    spectune(
        &folder,
        &["sweep", "sweep.toml"],
        &task,
        0,
        &["shard 1/2, from SLURM_ARRAY_TASK_ID=1", "3 trials measured"],
    );
    let pod = [("JOB_COMPLETION_INDEX", "1"), ("SPECTUNE_SHARDS", "2")];
    spectune(&folder, &["sweep", "sweep.toml"], &pod, 0, &["shard 2/2, from JOB_COMPLETION_INDEX=1"]);
    let shards = ["results/sweep-shard-1-of-2", "results/sweep-shard-2-of-2"];
    assert_eq!(shards.map(|shard| records(&folder, shard)), [3, 3]);

    let one = ["merge", shards[0], "--out", "partial"];
    spectune(&folder, &one, &[], 0, &["3 of at least 3 planned", "no folder contains shard 2/2", "tuned.toml"]);
    let both = ["merge", shards[0], shards[1], "--out", "whole"];
    spectune(&folder, &both, &[], 0, &["4 of 4 planned", "2 further repeats", "spectune report whole"]);
    // The merged folder can be reported and exported, and is complete.
    spectune(&folder, &["report", "whole"], &[], 0, &["report.html"]);
    spectune(&folder, &["export", "whole/tuned.toml", "--to", "sglang", "--batch-size", "1"], &[], 0, &[]);
    let resume = ["sweep", "sweep.toml", "--out", "whole", "--resume", "--shard", "1/1"];
    spectune(&folder, &resume, &task, 0, &["0 trials measured, 6 kept"]);

    // Without the models, their description is taken from the shards' tuned files. Only the sweep
    // knows why a search ended, not a merge.
    let tuned = |name: &str| {
        let text = fs::read_to_string(folder.path().join(name).join("tuned.toml")).expect("a tuned file");
        text.lines().filter(|line| !line.starts_with("search =")).collect::<Vec<_>>().join("\n")
    };
    let before = tuned("whole");
    assert!(before.contains("models/target") && before.contains("target_dtype"), "{before}");
    fs::rename(folder.path().join("models"), folder.path().join("gone")).expect("they go");
    spectune(&folder, &["merge", shards[0], shards[1], "--out", "later"], &[], 0, &["tuned.toml"]);
    assert_eq!(tuned("later"), before);
    for shard in shards {
        fs::remove_file(folder.path().join(shard).join("tuned.toml")).expect("it goes");
    }
    let no_one = ["merge", shards[0], shards[1], "--out", "last"];
    spectune(&folder, &no_one, &[], 0, &["this machine has no models/target"]);
    assert!(!folder.path().join("last/tuned.toml").exists());
}

#[test]
fn drafts_race_on_several_prompt_files_in_shards() {
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("chat.txt", "what is a list?\nwhat is a file?\n");
    write("code.txt", "def add(a, b):\n");
    fs::create_dir(folder.path().join("broken")).expect("a folder");
    fs::copy(folder.path().join("models/eagle3/config.json"), folder.path().join("broken/config.json"))
        .expect("a file");
    write("broken/model.safetensors", "nothing");
    write(
        "sweep.toml",
        "[models]\ntarget = 'models/target'\n[engine]\ndevice = 'cpu'\n\
         [workload]\nprompt_files = ['chat.txt', 'code.txt']\nrequests = 1\noutput_length = 8\n\
         [[drafts]]\nname = 'head'\npath = 'models/eagle3'\nalgorithm = 'EAGLE3'\nspace = { shapes = ['1,1,2'] }\n\
         [[drafts]]\npath = 'broken'\nalgorithm = 'EAGLE3'\n\
         [[drafts]]\nalgorithm = 'SUFFIX'\nspace = { shapes = ['4,1,5'] }\n[search]\nrepeats = 1\nremeasure = 0\n",
    );
    for (shard, out) in [("1/2", "one"), ("2/2", "two")] {
        let ran = spectune(&folder, &["sweep", "sweep.toml", "--shard", shard, "--out", out], &[], 0, &["4 trials"]);
        assert_eq!(ran.stderr.matches("draft broken takes no part").count(), 2, "once a workload: {}", ran.stderr);
        assert!(ran.stdout.contains("which draft for which workload:\nchat.txt, batch 1: "), "{}", ran.stdout);
    }
    // No speculation and both defaults run in both shards.
    spectune(&folder, &["merge", "one", "two", "--out", "both"], &[], 0, &["5 of 5 planned", "workload code"]);
    let ran = spectune(&folder, &["report", "both"], &[], 0, &["both/report.html"]);
    for words in ["head 1,1,2", "suffix 4,1,5", "best of each draft: ", "code.txt, batch 1: "] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    let page = fs::read_to_string(folder.path().join("both/report.md")).expect("a report");
    assert!(page.contains("Which draft for which workload") && page.contains("The best of each draft"), "{page}");
    let resume = ["sweep", "sweep.toml", "--out", "both", "--resume"];
    let ran = spectune(&folder, &resume, &[], 0, &["0 trials measured, 8 kept"]);
    assert!(ran.stderr.contains("workload chat (1 of 2)"), "{}", ran.stderr);
    spectune(&folder, &["sweep", "sweep.toml", "--out", "both"], &[], 2, &["continue with --resume"]);
    // Either draft may be the faster one on this machine, and SGLang has only one of them.
    let tuned = fs::read_to_string(folder.path().join("both/chat/tuned.toml")).expect("a tuned file");
    let (code, words): (i32, &[&str]) = match tuned.contains("\nalgorithm = \"SUFFIX\"\n") {
        true => (2, &["SGLang has no counterpart of the algorithm SUFFIX"]),
        false => (0, &[]),
    };
    spectune(&folder, &["export", "both/chat/tuned.toml", "--to", "sglang", "--batch-size", "1"], &[], code, words);
}

#[test]
fn variables_without_sense_are_an_error_before_anything_is_loaded() {
    let folder = folder();
    for (variables, words) in [
        (&[("SLURM_ARRAY_TASK_ID", "9"), ("SLURM_ARRAY_TASK_COUNT", "2")][..], ["SLURM_ARRAY_TASK_ID is 9", "--shard"]),
        (&[("SLURM_ARRAY_TASK_ID", "1")], ["SLURM_ARRAY_TASK_COUNT is not set", "--shard 1/1"]),
        (&[("JOB_COMPLETION_INDEX", "0")], ["SPECTUNE_SHARDS is not set", "--shard 1/1"]),
    ] {
        spectune(&folder, &["sweep", "sweep.toml"], variables, 2, &words);
        assert!(!folder.path().join("results").exists());
    }
}

#[test]
fn the_job_file_for_one_host_runs_to_the_merged_report() {
    let folder = folder();
    let emitted =
        spectune(&folder, &["sweep", "sweep.toml", "--emit", "bash", "--shards", "2"], &[], 0, &["2 shards for 2"]);
    fs::write(folder.path().join("job.sh"), &emitted.stdout).expect("a script");
    let ran = run("bash", &folder, &["job.sh"], &[], 0, &["shard 1/2 on cpu", "4 of 4 planned", "report.html"]);
    assert!(ran.stdout.contains("no speculation"), "{}", ran.stdout);
    // Each shard measures its own baseline next to its shape, so that no pair crosses shards.
    assert_eq!(records(&folder, "results/sweep"), 6);
    // Run again: nothing is measured twice.
    run("bash", &folder, &["job.sh"], &[], 0, &["4 of 4 planned"]);
    let log = fs::read_to_string(folder.path().join("results/sweep-shard-2-of-2.log")).expect("a log");
    assert!(log.contains("3 trials measured") && log.contains("0 trials measured, 3 kept"), "{log}");
}

#[test]
fn job_files_are_printed_for_checked_sweeps_only() {
    let folder = folder();
    let slurm =
        spectune(&folder, &["sweep", "sweep.toml", "--emit", "slurm"], &[], 0, &["2 shards for 2 configurations"]);
    assert!(slurm.stdout.starts_with("#!/bin/bash\n") && slurm.stdout.contains("#SBATCH --array=1-2\n"));
    let more = ["sweep", "sweep.toml", "--emit", "k8s", "--shards", "3", "--device", "cuda"];
    let job = spectune(&folder, &more, &[], 0, &["more shards than configurations"]).stdout;
    assert!(job.contains("completions: 3\n") && job.contains("nvidia.com/gpu: 1\n"), "{job}");
    spectune(&folder, &["sweep", "sweep.toml", "--emit", "pbs"], &[], 2, &["slurm, k8s, bash"]);
    spectune(&folder, &["sweep", "sweep.toml", "--shards", "3"], &[], 2, &["--emit"]);
    fs::write(folder.path().join("broken.toml"), "[models]\n").expect("a file");
    let broken = spectune(&folder, &["sweep", "broken.toml", "--emit", "slurm"], &[], 2, &["broken.toml"]);
    assert!(broken.stdout.is_empty());
    assert!(!folder.path().join("results").exists(), "nothing is measured");
    spectune(
        &folder,
        &["merge", "nothing", "--out", "out"],
        &[],
        2,
        &["no journal.jsonl", "there is no folder nothing"],
    );
    spectune(&folder, &["merge", "nothing"], &[], 2, &["--out"]);
}
