//! Sweeps over servers, with `spectune serve` in place of SGLang, whose API it implements, as real
//! processes over real HTTP.
//!
//! Run by the crate `cli`: `cargo test -p cli --test servers`.

#[path = "support/sglang.rs"]
mod sglang;

#[path = "servers/launch_files.rs"]
mod launch_files;

#[path = "servers/launch_forms.rs"]
mod launch_forms;

#[path = "servers/ends.rs"]
mod ends;

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// Number of kills.
const KILLS: u64 = 10;

/// A small sweep of the demo models over servers, in a separate folder.
struct Sweep {
    folder: TempDir,
}

impl Sweep {
    /// With these tables in its file.
    fn new(system: &str, search: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository");
        let content = format!(
            "[system]\nkind = 'sglang'\nstart_timeout_s = 120\n{system}\n\
             [models]\ntarget = '{0}/target'\ndraft = '{0}/eagle3'\nalgorithm = 'EAGLE3'\n\
             [engine]\ndevice = 'cpu'\ncontext_length = 128\n\
             [workload]\nrandom = {{ input_length = 8 }}\nrequests = 4\noutput_length = 12\nignore_eos = true\n\
             [batch]\nsizes = [1, 2]\n[space]\nnum_steps = [1, 2, 4]\ntopk = [1, 2]\nnum_draft_tokens = [3, 4]\n\
             [search]\nremeasure = 0\nconfirm = false\n{search}\n",
            root.join("models/tiny").display()
        );
        fs::write(folder.path().join("sweep.toml"), content).expect("a sweep file");
        Self { folder }
    }

    /// Starts this program's own server.
    fn from_own_server(search: &str) -> Self {
        Self::new(&format!("{}\nextra_args = ['--device', 'cpu']", sglang_command()), search)
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spectune"));
        sglang::with_python(&mut command);
        command.arg("sweep").arg(self.folder.path().join("sweep.toml")).arg("--out").arg(self.out()).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary starts")
    }

    /// The records of the journal.
    fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.out().join("journal.jsonl")).unwrap_or_default();
        let lines = text.lines().skip(1).filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.map(|line| line["content"].clone()).collect()
    }

    /// Marked processes whose log is in this sweep's folder.
    fn servers_left(&self) -> usize {
        let folder = self.folder.path().display().to_string();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let is_ours = |entry: &fs::DirEntry| {
            let marked = fs::read(entry.path().join("environ")).is_ok_and(|environment| {
                environment.split(|byte| *byte == 0).any(|one| one.starts_with(b"SPECTUNE_SERVER="))
            });
            marked
                && fs::read_link(entry.path().join("fd/1"))
                    .is_ok_and(|log| log.display().to_string().starts_with(&folder))
        };
        processes.filter(is_ours).count()
    }
}

/// The key of a sweep file that starts SGLang.
fn sglang_command() -> String {
    let words: Vec<&str> = sglang::LAUNCH.split(' ').collect();
    format!("command = {words:?}")
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_guided_sweep_of_models_that_the_own_engine_cannot_run_counts_acceptance_on_the_servers() {
    let sweep = Sweep::from_own_server("strategy = 'guided'\ncandidates = 1\nrepeats = 1");
    // The servers have a device of their own.
    let file = sweep.folder.path().join("sweep.toml");
    let text = fs::read_to_string(&file).expect("the sweep file");
    let other = text.replace("[engine]\ndevice = 'cpu'", "[engine]\ndevice = 'cuda:99'");
    assert_ne!(text, other);
    fs::write(&file, other).expect("a sweep file");
    let ended = sweep.run(&[]);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{reported}");
    assert!(reported.contains("acceptance is estimated from the servers' counters"), "{reported}");
    assert!(sweep.out().join("tuned.toml").exists(), "{reported}");
}

#[test]
fn a_guided_sweep_measures_few_servers_and_predicts_the_rest() {
    let sweep = Sweep::from_own_server("strategy = 'guided'\ncandidates = 1\nrepeats = 2");
    let ended = sweep.run(&[]);
    let reported = words(&ended);
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{reported}");
    let records = sweep.records();
    let failed: Vec<&Value> = records.iter().filter(|one| one["outcome"]["status"] != "measured").collect();
    assert!(failed.is_empty(), "{failed:#?}\n{reported}");
    let engine = records[0]["fingerprint"]["engine"].as_str().expect("an engine");
    assert!(engine.starts_with("spectune ") && engine.ends_with("served"), "it says which engine it is: {engine}");
    // No speculation, the default, one that determines costs, and finalists: at most four of nine
    // configurations, each with one start, and no speculation with two.
    let mut configurations: Vec<String> =
        records.iter().map(|one| one["trial"]["configuration"]["shape"].to_string()).collect();
    configurations.sort();
    configurations.dedup();
    assert!((3..=4).contains(&configurations.len()), "{configurations:?}");
    // Tables of chains are not used for a space with trees and only four starts.
    assert!(sweep.starts() <= configurations.len() + 2, "{} starts", sweep.starts());
    let guide: Value =
        serde_json::from_str(&fs::read_to_string(sweep.out().join("guide.json")).expect("a guide")).expect("JSON");
    assert!(guide["predictions"].as_array().is_some_and(|all| !all.is_empty()), "{guide}");
    // Replayed acceptance equals that of the server's requests.
    for record in records.iter().filter(|one| one["role"] != "probe") {
        let shape = &record["trial"]["configuration"]["shape"];
        let Some(row) = guide["acceptance"]["rows"].as_array().into_iter().flatten().find(|row| row["shape"] == *shape)
        else {
            continue;
        };
        let (replayed, served) = (&row["accept_length"], &record["outcome"]["accept_length"]);
        let (replayed, served) = (replayed.as_f64().expect("a length"), served.as_f64().expect("a length"));
        assert!((replayed - served).abs() < 1e-6, "{shape}: replayed {replayed}, served {served}");
    }
    assert!(sweep.out().join("report.html").exists());
    assert_eq!(sweep.servers_left(), 0);
}

impl Sweep {
    /// A space of chains only, which a server may run by batch size, with three batch sizes.
    fn from_chains(system: &str, search: &str) -> Self {
        let sweep = Self::new(system, search);
        let file = sweep.folder.path().join("sweep.toml");
        let content = fs::read_to_string(&file).expect("the sweep file");
        let (head, rest) = content.split_once("[batch]").expect("its tables");
        let (_, search) = rest.split_once("[search]").expect("its tables");
        let chains = "[batch]\nsizes = [1, 2, 4]\n[space]\nnum_steps = [1, 2, 4, 5]\ntopk = [1]\n[search]";
        let content = format!("{head}{chains}{search}").replace("requests = 4", "requests = 8");
        fs::write(file, content).expect("a sweep file");
        sweep
    }

    /// Starts this program's own server through a script that receives its arguments.
    fn from_chains_by(script: &str, search: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_spectune");
        let command = format!("command = ['sh', '-c', '''{script}''', '{program}', 'serve']");
        Self::from_chains(&format!("{command}\nextra_args = ['--device', 'cpu']"), search)
    }

    /// The records of starts that served several chains.
    fn probes(&self) -> Vec<Value> {
        self.records().into_iter().filter(|one| one["role"] == "probe").collect()
    }

    /// Number of server logs: one per start.
    fn starts(&self) -> usize {
        let logs = fs::read_dir(self.out().join("servers")).expect("logs").flatten();
        logs.filter(|one| one.path().extension().is_some_and(|extension| extension == "log")).count()
    }
}

const GUIDED: &str = "strategy = 'guided'\ncandidates = 1\nrepeats = 1";
/// Starts a server unchanged.
const PLAINLY: &str = r#"exec "$0" "$@""#;
/// Behaves like SGLang when adaptive steps are not supported: a warning, and the chain given by the
/// flags.
const FALLING_BACK: &str = r#"all=; skip=
for one in "$@"; do
  if [ -n "$skip" ]; then skip=; continue; fi
  case "$one" in
  --speculative-adaptive) echo "speculative_adaptive disabled: dp attention. Falling back to static speculative params." >&2 ;;
  --speculative-adaptive-config) skip=1 ;;
  *) all="$all $one" ;;
  esac
done
exec "$0" $all"#;

#[test]
fn one_start_serves_another_chain_at_each_batch_size() {
    let sweep = Sweep::from_chains_by(PLAINLY, GUIDED);
    let ended = sweep.run(&[]);
    let reported = words(&ended);
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{reported}");
    let probes = sweep.probes();
    assert_eq!(probes.len(), 3, "one start, three batch sizes: {reported}");
    assert!(sweep.starts() <= 4, "no speculation, the default, several chains, a finalist: {}", sweep.starts());
    // Each batch size used its own row of the table: the accept length is that of its chain, except
    // for the last requests.
    let guide: Value =
        serde_json::from_str(&fs::read_to_string(sweep.out().join("guide.json")).expect("a guide")).expect("JSON");
    let rows = guide["acceptance"]["rows"].as_array().expect("rows");
    for probe in &probes {
        let batch = probe["trial"]["load"]["batch_size"].as_u64().expect("a closed loop");
        let table = probe["trial"]["configuration"]["table"].as_array().expect("a table");
        let row = table.iter().find(|row| row["max_running_batch"] == batch).expect("a row for the batch");
        let replayed = rows.iter().find(|one| one["shape"] == row["shape"]).expect("a chain of the space");
        let (replayed, served) = (&replayed["accept_length"], &probe["outcome"]["accept_length"]);
        let (replayed, served) = (replayed.as_f64().expect("a length"), served.as_f64().expect("a length"));
        let within = if batch == 1 { 1e-6 } else { 0.25 };
        assert!((replayed / served - 1.0).abs() < within, "{row} at {batch}: replayed {replayed}, served {served}");
    }
    let points = guide["round_times"]["points"].as_array().expect("points");
    let shapes: BTreeSet<String> = points.iter().map(|point| point["shape"].to_string()).collect();
    // No speculation is always measured and never predicted.
    assert!(shapes.len() >= 4, "the default and three chains: {shapes:?}");
    assert_eq!(sweep.servers_left(), 0);
}

#[test]
fn an_engine_that_falls_back_to_one_chain_is_searched_by_single_starts() {
    let sweep = Sweep::from_chains_by(FALLING_BACK, GUIDED);
    let ended = sweep.run(&[]);
    let reported = words(&ended);
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{reported}");
    let probes = sweep.probes();
    assert_eq!(probes.len(), 1, "it is tried once: {reported}");
    let reason = probes[0]["outcome"]["reason"].as_str().expect("it failed");
    assert!(reason.contains("speculative_adaptive disabled: dp attention"), "{reason}");
    let measured = sweep.records().iter().filter(|one| one["outcome"]["status"] == "measured").count();
    assert!(measured >= 9, "three configurations or more at three batch sizes: {reported}");
    assert_eq!(sweep.servers_left(), 0);
}

#[test]
fn a_kill_while_several_chains_are_served_leaves_no_server_once_the_sweep_goes_on() {
    let sweep = Sweep::from_chains_by(PLAINLY, GUIDED);
    let adaptive = || {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let folder = sweep.folder.path().display().to_string();
        let is_one = |entry: &fs::DirEntry| {
            fs::read(entry.path().join("cmdline")).is_ok_and(|words| {
                let words = String::from_utf8_lossy(&words);
                words.contains("--speculative-adaptive-config") && words.contains(&folder)
            })
        };
        processes.filter(is_one).count()
    };
    for kill in 0..3 {
        let mut child =
            sweep.command(&["--resume"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut is_there = false;
        while !is_there && child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < deadline, "no start of several chains");
            sleep(Duration::from_millis(5));
            is_there = adaptive() > 0;
        }
        child.kill().expect("it dies");
        child.wait().expect("it is dead");
        assert!(kill > 0 || is_there, "the kill came while its server was there");
        // The supervisor ends it, without another run.
        while adaptive() > 0 {
            assert!(Instant::now() < deadline, "the server outlives the sweep");
            sleep(Duration::from_millis(5));
        }
    }
    let ended = sweep.run(&["--resume"]);
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{}", words(&ended));
    assert_eq!((sweep.probes().len(), adaptive(), sweep.servers_left()), (3, 0, 0), "{}", words(&ended));
}

#[test]
fn a_sweep_that_is_killed_leaves_no_server_once_it_goes_on() {
    let sweep = Sweep::from_own_server("strategy = 'grid'\nrepeats = 2");
    let mut behind = 0;
    for kill in 0..KILLS {
        let mut child =
            sweep.command(&["--resume"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        // A kill counts if a server is running.
        let deadline = Instant::now() + Duration::from_secs(120);
        while sweep.servers_left() == 0 && Instant::now() < deadline && child.try_wait().expect("a child").is_none() {
            sleep(Duration::from_millis(20));
        }
        sleep(Duration::from_millis(kill * 97 % 700));
        behind += usize::from(sweep.servers_left() > 0);
        child.kill().expect("it dies");
        child.wait().expect("it is dead");
    }
    assert!(behind > 0, "no kill hit a run with a server");
    let ended = sweep.run(&["--resume"]);
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{}", words(&ended));
    let mut trials: Vec<String> = sweep.records().iter().map(|one| one["trial"].to_string()).collect();
    let all = trials.len();
    trials.sort();
    trials.dedup();
    assert_eq!(trials.len(), all, "a trial was measured twice");
    // No speculation, the default and six shapes; two batch sizes, two repeats.
    assert_eq!(all % 4, 0, "{}", words(&ended));
    assert_eq!(sweep.servers_left(), 0);
}

#[test]
fn a_server_that_does_not_start_fails_its_trials_with_the_reason() {
    let script = "echo 'launch_server.py: error: argument --dtype: invalid choice: bf17' >&2; exit 2";
    let sweep = Sweep::new(&format!("command = ['sh', '-c', \"{script}\"]"), "strategy = 'grid'");
    let ended = sweep.run(&[]);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(3), "{reported}");
    assert!(
        reported.contains("the engine rejected the configuration") && reported.contains("invalid choice: bf17"),
        "{reported}"
    );
    assert_eq!(sweep.servers_left(), 0);
}

#[test]
fn a_dry_run_prints_the_starts_and_starts_none() {
    let command = "command = ['/nonexistent/engine']\nextra_args = ['--tp-size', '2']";
    let plan = |search: &str| {
        let sweep = Sweep::new(command, search);
        let ended = sweep.run(&["--dry-run"]);
        assert_eq!(ended.status.code(), Some(0), "{}", words(&ended));
        assert!(!sweep.out().exists());
        String::from_utf8_lossy(&ended.stdout).into_owned()
    };
    let starts = |plan: &str| plan.lines().filter(|line| line.starts_with("  /nonexistent/engine")).count();
    let all = plan("strategy = 'grid'");
    let tree = "--speculative-num-steps 4 --speculative-eagle-topk 2 --speculative-num-draft-tokens 4";
    assert!(all.contains(tree) && starts(&all) > 3, "{all}");
    assert_eq!(all.matches("--tp-size 2").count(), starts(&all), "{all}");
    // A guided search starts no speculation, the default, and the configurations that it chooses.
    let chosen = plan("strategy = 'guided'");
    assert_eq!(starts(&chosen), 3, "{chosen}");
    assert!(chosen.contains(" others the ones that the search chooses, "), "{chosen}");
    for part in ["there is no program /nonexistent/engine", "a sweep stops here, before the first start"] {
        assert!(chosen.contains(part), "{chosen}");
    }
}

#[test]
fn an_engine_that_is_not_installed_is_noticed_before_acceptance_is_replayed() {
    let sweep = Sweep::new("command = ['/nonexistent/engine']", "strategy = 'guided'\ncandidates = 1");
    let ended = sweep.run(&[]);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(2), "{reported}");
    assert!(reported.contains("there is no program /nonexistent/engine on this machine: install it"), "{reported}");
    assert!(reported.contains("system.command"), "{reported}");
    assert!(!reported.contains("texts without speculation") && !sweep.out().join("servers").exists(), "{reported}");
}

#[test]
fn vllm_is_requested_chains_alone() {
    let sweep = Sweep::new("command = ['vllm', 'serve']", "strategy = 'grid'");
    let file = sweep.folder.path().join("sweep.toml");
    let content = fs::read_to_string(&file).expect("the sweep file").replace("kind = 'sglang'", "kind = 'vllm'");
    fs::write(&file, content).expect("a sweep file");
    let ended = sweep.run(&["--dry-run"]);
    let plan = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(ended.status.code(), Some(0), "{}", words(&ended));
    // No speculation, chains of 1, 2 and 4 steps, and one of 3.
    assert_eq!(plan.matches("vllm serve ").count(), 5, "{plan}");
    assert!(!plan.contains("cannot start") && !plan.contains("the engine's default"), "{plan}");
}

/// A server that is stopped at the end of the test.
struct Served {
    child: std::process::Child,
    url: String,
}

impl Served {
    /// Serves the demo pair with a chain of two steps.
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
        let child = Command::new(env!("CARGO_BIN_EXE_spectune"))
            .args(["serve", "--device", "cpu", "--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "2"])
            .args([
                "--speculative-eagle-topk",
                "1",
                "--speculative-num-draft-tokens",
                "3",
                "--max-running-requests",
                "4",
            ])
            .args(["--context-length", "128", "--port", &port.to_string(), "--model-path"])
            .arg(root.join("target"))
            .arg("--speculative-draft-model-path")
            .arg(root.join("eagle3"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        Self { child, url: format!("http://127.0.0.1:{port}") }
    }

    /// The output of `lint` for it, once it responds.
    fn lint(&self, arguments: &[&str]) -> Output {
        let begin = Instant::now();
        loop {
            let mut command = Command::new(env!("CARGO_BIN_EXE_spectune"));
            let ended = command.args(["lint", "--url", &self.url]).args(arguments).output().expect("the binary starts");
            if !String::from_utf8_lossy(&ended.stderr).contains("nothing listens there") {
                return ended;
            }
            assert!(begin.elapsed() < Duration::from_secs(120), "{}", words(&ended));
            sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("it ends");
    }
}

#[test]
fn a_launch_is_held_against_the_server_that_runs() {
    let served = Served::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.sh");
    let launch = |steps: usize| {
        let text = format!(
            "spectune serve --model-path m --speculative-algorithm EAGLE3 --speculative-draft-model-path d \
             --speculative-num-steps {steps} --speculative-eagle-topk 1 --speculative-num-draft-tokens {} \
             --max-running-requests 4 --context-length 128\n",
            steps + 1
        );
        fs::write(&file, text).expect("a launch");
        served.lint(&[file.to_str().expect("UTF-8"), "--format", "concise"])
    };
    let other = launch(3);
    let said = String::from_utf8_lossy(&other.stdout);
    assert_eq!(other.status.code(), Some(1), "{}", words(&other));
    for part in ["runs spectune ", "2 values differ", "! speculative_num_steps", "! speculative_num_draft_tokens"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let same = launch(2);
    let said = String::from_utf8_lossy(&same.stdout);
    assert!(said.contains("runs what the launch resolves to"), "{said}");
    // Without a file, its own response is checked.
    let own = served.lint(&["--format", "json"]);
    let said: Value = serde_json::from_slice(&own.stdout).expect("JSON");
    assert_eq!(said["running"]["url"], served.url.as_str());
    assert!(said["running"]["launches"][0]["values"].as_array().is_some_and(|values| values.len() > 5), "{said}");
}
