//! `spectune tune FILE` with real servers: what the file starts is measured, and nothing else in it
//! is run.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

use super::sglang;

const SECRET: &str = "hf_0123456789abcdefghijklmnopqrst";

/// A folder with a launch file.
struct Tuned {
    folder: TempDir,
}

impl Tuned {
    fn new(launch: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository");
        let text = launch.replace("MODELS", &root.join("models/tiny").display().to_string());
        fs::write(folder.path().join("run.sh"), text).expect("a launch file");
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("run.sh")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).expect("the launch file")
    }

    fn tune(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spectune"));
        sglang::with_python(&mut command).current_dir(self.folder.path());
        command.args([
            "tune",
            "run.sh",
            "--input-len",
            "8",
            "--output-len",
            "12",
            "--requests",
            "2",
            "--concurrency",
            "1",
        ]);
        command.args(["--repeats", "2", "--out", "out"]).args(arguments);
        command.output().expect("the binary starts")
    }

    fn shapes(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("out/journal.jsonl")).unwrap_or_default();
        let records = text.lines().skip(1).filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let shape = |record: Value| {
            let shape = &record["content"]["trial"]["configuration"]["shape"];
            format!("{},{},{}", shape["num_steps"], shape["topk"], shape["num_draft_tokens"])
        };
        records.map(shape).collect()
    }
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn launch() -> String {
    format!(
        "#!/bin/bash\nexport HF_TOKEN={SECRET}\ntouch ran; pip install sglang\n\
         python3 -m sglang.launch_server --device cpu \\\n    --model-path $MODEL --port 8000 \\\n    \
         --speculative-algorithm EAGLE3 --speculative-draft-model-path MODELS/eagle3 \\\n    \
         --speculative-num-steps 2 --speculative-eagle-topk 2 --speculative-num-draft-tokens 4 \\\n    \
         --context-length 128 --attention-backend triton --max-running-requests 4\n"
    )
}

#[test]
fn a_launch_is_measured_with_its_own_shape_and_nothing_else_in_its_file_runs() {
    let tuned = Tuned::new(&launch());
    let before = tuned.text();
    let target = format!(
        "MODEL={}",
        before.split("path ").nth(2).and_then(|rest| rest.split("/eagle3").next()).expect("a path")
    );
    let ended = tuned.tune(&["--set", &format!("{target}/target")]);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{reported}");
    let shapes = tuned.shapes();
    for measured in ["0,1,1", "2,2,4"] {
        assert!(shapes.iter().any(|shape| shape == measured), "{measured} in {shapes:?}: {reported}");
    }
    assert_eq!(tuned.text(), before, "only --write changes the file");
    assert!(!tuned.folder.path().join("ran").exists());
    assert!(reported.contains("--port 8000") && reported.contains("127.0.0.1 and a free port"), "{reported}");
    assert!(reported.contains("run.sh stays as it is") || reported.contains("--write --resume"), "{reported}");
    // What is measured again from the journal is the same, so --write needs no trial.
    let trials = shapes.len();
    let ended = tuned.tune(&["--set", &format!("{target}/target"), "--write", "--resume"]);
    let reported = words(&ended);
    assert_eq!((ended.status.code(), tuned.shapes().len()), (Some(0), trials), "{reported}");
    assert_eq!(tuned.text() != before, reported.contains("run.sh is changed"), "{reported}");
    let out = tuned.folder.path().join("out");
    no_file_has(SECRET, &out);
    assert!(!reported.contains(SECRET), "{reported}");
    // Other prompts are refused before anything is written. The launch is the first one again,
    // since there is nothing to vary in what was written where no speculation was the fastest.
    fs::write(tuned.path(), before).expect("the launch file");
    let before = files(&out);
    let ended = tuned.tune(&["--set", &format!("{target}/target"), "--resume", "--seed", "5"]);
    let reported = words(&ended);
    assert!(ended.status.code() == Some(2) && reported.contains("no longer be comparable"), "{reported}");
    assert!(files(&out) == before, "the folder has changed");
}

/// All files below a folder with their bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => _ = found.insert(path.clone(), fs::read(&path).expect("a file")),
        }
    }
    found
}

/// Fails if a file below a folder contains a text.
fn no_file_has(text: &str, folder: &Path) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            no_file_has(text, &path);
            continue;
        }
        let bytes = fs::read(&path).expect("a file");
        assert!(!bytes.windows(text.len()).any(|part| part == text.as_bytes()), "{}", path.display());
    }
}

#[test]
fn a_printed_sweep_is_a_sweep_file_without_secrets() {
    let tuned = Tuned::new(&launch());
    let ended = tuned.tune(&["--set", "MODEL=MODELS/target", "--print-sweep"]);
    assert_eq!(ended.status.code(), Some(0), "{}", words(&ended));
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    // The variable is inherited.
    assert!(text.contains("# Set these variables before: HF_TOKEN") && !text.contains(SECRET), "{text}");
    let table: toml::Table = text.parse().expect("TOML");
    assert_eq!(table["system"]["command"][2].as_str(), Some("sglang.launch_server"));
    assert!(!tuned.folder.path().join("out").exists());
}

#[test]
fn a_launch_that_cannot_be_tuned_is_refused_with_every_reason() {
    let tuned = Tuned::new(&launch());
    let ended = tuned.tune(&["--concurrency", "8"]);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(2), "{reported}");
    assert!(reported.contains("--set MODEL=VALUE") && reported.contains("at most 4 requests together"), "{reported}");
}

#[test]
fn a_launch_with_errors_is_not_started_unless_that_is_requested() {
    let tuned = Tuned::new(&launch().replace("--speculative-num-draft-tokens 4", "--speculative-num-draft-tokens 400"));
    let ended = tuned.tune(&["--set", "MODEL=x"]);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(1), "{reported}");
    assert!(reported.contains("--force") && reported.contains("error["), "{reported}");
    assert!(!tuned.folder.path().join("out").exists());
}

#[test]
fn a_server_that_does_not_start_is_reported_in_its_own_words() {
    let tuned = Tuned::new(&launch().replace("--device cpu", "--device cpu --mem-fraction-static 7.5"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/target");
    let ended = tuned.tune(&["--force", "--set", &format!("MODEL={}", root.display())]);
    let reported = words(&ended);
    assert!(!matches!(ended.status.code(), Some(0)), "{reported}");
    assert!(reported.contains("mem-fraction-static"), "{reported}");
}
