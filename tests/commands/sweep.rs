//! `sweep` with the commands that take its folder, and the linter's view of its file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{EAGLE3, TARGET, check, check_lint, root, run_in, run_with, text};

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
