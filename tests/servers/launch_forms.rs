//! `spectune tune FILE` from start to end in the forms in which launches are written: the changed
//! launch starts, or the page says that nothing was better.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use super::sglang;

const FLAGS: &str = "--device cpu --model-path MODELS/target --speculative-algorithm EAGLE3 \
                     --speculative-draft-model-path MODELS/eagle3 --speculative-num-steps 5 --speculative-eagle-topk 4 \
                     --speculative-num-draft-tokens 16 --context-length 128 --attention-backend triton";
const WORKLOAD: [&str; 10] =
    ["--input-len", "8", "--output-len", "12", "--requests", "2", "--concurrency", "1", "--repeats", "2"];

/// A folder with a launch file.
struct Launched {
    folder: TempDir,
    name: &'static str,
}

impl Launched {
    fn new(name: &'static str, text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository");
        let text = text.replace("MODELS", &root.join("models/tiny").display().to_string());
        fs::write(folder.path().join(name), text).expect("a launch file");
        Self { folder, name }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path(self.name)).expect("the launch file")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spectune"));
        sglang::with_python(&mut command).current_dir(self.folder.path()).args(arguments);
        command
    }

    /// `tune` with a small workload.
    fn tune(&self, out: &str, arguments: &[&str]) -> Command {
        let mut command = self.command(&["tune", self.name, "--out", out]);
        command.args(WORKLOAD).args(arguments);
        command
    }

    /// The shapes that a journal measured.
    fn measured(&self, out: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(out).join("journal.jsonl")).unwrap_or_default();
        let records = text.lines().skip(1).filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let shape = |record: Value| {
            let content = &record["content"];
            let shape = &content["trial"]["configuration"]["shape"];
            let is_measured = content["outcome"]["status"] == "measured";
            is_measured.then(|| format!("{},{},{}", shape["num_steps"], shape["topk"], shape["num_draft_tokens"]))
        };
        records.filter_map(shape).collect()
    }

    /// Processes of servers whose log is in this folder.
    fn servers_left(&self) -> usize {
        let folder = self.folder.path().display().to_string();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let is_ours = |entry: &fs::DirEntry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let is_marked = environment.split(|byte| *byte == 0).any(|one| one.starts_with(b"SPECTUNE_SERVER="));
            let log = fs::read_link(entry.path().join("fd/1"));
            is_marked && log.is_ok_and(|log| log.display().to_string().starts_with(&folder))
        };
        processes.filter(is_ours).count()
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < Duration::from_secs(120), "{what}");
            sleep(Duration::from_millis(5));
        }
    }
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Tunes a launch and writes the change; what was written starts, and has no errors.
fn from_start_to_end(name: &'static str, text: &str, arguments: &[&str]) -> String {
    let launched = Launched::new(name, text);
    let before = launched.text();
    let ended = launched.tune("out", &[arguments, &["--write"]].concat()).output().expect("the binary starts");
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{name}: {reported}");
    let measured = launched.measured("out");
    for shape in ["0,1,1", "5,4,16"] {
        assert!(measured.iter().any(|one| one == shape), "{name}: {shape} in {measured:?}: {reported}");
    }
    let is_changed = reported.contains(&format!("{name} is changed"));
    assert_eq!(launched.text() != before, is_changed, "{name}: {reported}");
    assert!(is_changed || reported.contains(&format!("{name} stays as it is")), "{name}: {reported}");
    if is_changed {
        let linted = launched.command(&["lint", name, "--format", "json"]).output().expect("the binary starts");
        let findings: Value = serde_json::from_slice(&linted.stdout).expect("JSON");
        let is_error = |one: &Value| one["severity"] == "error";
        assert!(!findings.as_array().is_some_and(|all| all.iter().any(is_error)), "{name}: {findings}");
        let again = launched.tune("again", &[arguments, &["--algorithm", "EAGLE3", "--draft"]].concat());
        let mut again = again;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/eagle3");
        let ended = again.arg(root).output().expect("the binary starts");
        assert_eq!(ended.status.code(), Some(0), "{name}: {}", words(&ended));
    }
    assert_eq!(launched.servers_left(), 0);
    reported
}

#[test]
fn a_script_and_a_unit_are_tuned_from_start_to_end() {
    from_start_to_end("run.sh", &format!("#!/bin/bash\nPY=python3\n\"$PY\" -m sglang.launch_server {FLAGS}\n"), &[]);
    let unit = format!("[Service]\nExecStart=/usr/bin/env python3 -m sglang.launch_server {FLAGS}\n");
    from_start_to_end("sglang.service", &unit, &[]);
}

#[test]
fn slimes_arrays_are_tuned_as_a_plain_server() {
    let flags = FLAGS.replace("--model-path MODELS/target ", "").replace("--", "--sglang-");
    let text = format!(
        "SGLANG_ARGS=(\n   --rollout-num-gpus-per-engine 1\n   {}\n)\n\
         python3 train.py --hf-checkpoint MODELS/target ${{SGLANG_ARGS[@]}}\n",
        flags.replace(" --", "\n   --")
    );
    from_start_to_end("run-slime.sh", &text, &[]);
}

#[test]
fn a_service_is_tuned_in_its_container_or_without_it() {
    let flags = FLAGS.replace("MODELS", "/models");
    let text = format!(
        "services:\n  llm:\n    image: lmsysorg/sglang:v0.5.16\n    ipc: host\n    volumes:\n      - MODELS:/models\n    \
         environment:\n      HF_TOKEN: hf_0123456789abcdefghijklmnopqrst\n    command: >\n      python3 -m \
         sglang.launch_server {flags}\n"
    );
    let reported = from_start_to_end("compose.yaml", &text, &[]);
    assert!(reported.contains("docker run") && !reported.contains("hf_0123"), "{reported}");
}

#[test]
fn a_kill_in_the_middle_leaves_nothing_and_resume_goes_on() {
    let launched = Launched::new("run.sh", &format!("python3 -m sglang.launch_server {FLAGS}\n"));
    let mut command = launched.tune("out", &[]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
    launched.wait_for("a server starts", |launched| launched.servers_left() > 0);
    child.kill().expect("it is killed");
    child.wait().expect("it is dead");
    launched.wait_for("nothing is left", |launched| launched.servers_left() == 0);
    let ended = launched.tune("out", &["--resume"]).output().expect("the binary starts");
    assert_eq!(ended.status.code(), Some(0), "{}", words(&ended));
    assert!(launched.measured("out").iter().any(|shape| shape == "5,4,16"));
}

#[test]
fn commands_that_start_and_end_servers_elsewhere_are_used() {
    // SGLang would need two ranks; the tests' server has one.
    let ignored = "# spectune: ignore[SD202]";
    let text = format!("srun python3 -m sglang.launch_server {FLAGS} --nnodes 2 --node-rank 0  {ignored}\n");
    let launched = Launched::new("run.sh", &text);
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let up = format!("python3 -m sglang.launch_server \"$@\" --port {port} >> server.log 2>&1 &\necho $! > pid\n");
    fs::write(launched.path("up.sh"), up).expect("a script");
    fs::write(launched.path("down.sh"), "echo ended >> ended; kill $(cat pid)\n").expect("a script");
    let address = format!("http://127.0.0.1:{port}");
    let ended = launched.tune("out", &["--start", "sh up.sh", "--stop", "sh down.sh", "--address", &address]).output();
    let ended = ended.expect("the binary starts");
    assert_eq!(ended.status.code(), Some(0), "{}", words(&ended));
    let measured = launched.measured("out");
    assert!(measured.iter().any(|shape| shape == "5,4,16"), "{measured:?}");
    assert!(fs::read_to_string(launched.path("ended")).is_ok_and(|text| text.lines().count() >= 2));
    // The log of a server that the start command leaves in the background is in this folder too.
    assert_eq!(launched.servers_left(), 0);
}

#[test]
fn a_request_log_is_a_workload() {
    let launched = Launched::new("run.sh", &format!("python3 -m sglang.launch_server {FLAGS}\n"));
    let line = |length: usize| {
        let ids = vec![7; length];
        serde_json::json!({"format": 1, "time": 1.0, "target": "x", "shapes": "3,1,4", "prompt_ids": [5, 6, 7, 8],
                           "output_ids": ids, "temperature": 0.0, "rounds": 3, "accept_histogram": [1],
                           "finish_reason": "stop"})
        .to_string()
    };
    let log = [line(3), line(9), line(40)].join("\n");
    fs::write(launched.path("requests.jsonl"), log).expect("a log");
    let arguments = ["tune", "run.sh", "--request-log", "requests.jsonl", "--print-sweep"];
    let ended = launched.command(&arguments).output().expect("the binary starts");
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{reported}");
    assert!(reported.contains("output_length = 9") && reported.contains("requests.jsonl"), "{reported}");
    let ended = launched.command(&[&arguments[..4], &["--dry-run", "--concurrency", "1"]].concat()).output();
    assert_eq!(ended.expect("the binary starts").status.code(), Some(0));
}
