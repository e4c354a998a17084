//! However a sweep ends, nothing that it started is left, and what did not start is not started
//! again.

use std::{os::unix::fs::PermissionsExt, process::Child};

use super::*;

/// Number of starts that are ended in the middle.
const CYCLES: usize = 100;
/// A server that never becomes ready, with a child in a session of its own.
const NEVER_READY: &str = "command = ['sh', '-c', 'setsid sleep 1000 & sleep 1000']";
const GRID: &str = "strategy = 'grid'\nrepeats = 2";

impl Sweep {
    fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    }

    /// Number of starts whose log contains a text.
    fn logs_with(&self, text: &str) -> usize {
        let logs = fs::read_dir(self.out().join("servers")).expect("logs").flatten();
        logs.filter(|log| fs::read_to_string(log.path()).is_ok_and(|log| log.contains(text))).count()
    }

    /// Waits until this many marked processes exist.
    fn wait_for_servers(&self, child: &mut Child) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.servers_left() < 2 {
            assert!(child.try_wait().expect("a child").is_none(), "the sweep has ended");
            assert!(Instant::now() < deadline, "no server was started");
            sleep(Duration::from_millis(5));
        }
    }

    /// Waits until no marked process is left; the supervisor needs a moment after a kill.
    fn wait_for_none(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.servers_left() > 0 {
            assert!(Instant::now() < deadline, "{} processes are left", self.servers_left());
            sleep(Duration::from_millis(5));
        }
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
}

#[test]
fn a_hundred_interrupted_and_killed_starts_leave_nothing() {
    let sweep = Sweep::new(NEVER_READY, GRID);
    for cycle in 0..CYCLES {
        let mut child = sweep.start(&["--resume"]);
        sweep.wait_for_servers(&mut child);
        let name = ["-KILL", "-INT", "-TERM"][cycle % 3];
        signal(&child, name);
        let ended = child.wait_with_output().expect("it ends");
        if name != "-KILL" {
            let reported = words(&ended);
            assert_eq!(ended.status.code(), Some(130), "{reported}");
            assert!(reported.contains("continue with: ") && reported.contains(" --resume"), "{reported}");
            // Without a kill, its own end has waited for the servers.
            assert_eq!(sweep.servers_left(), 0, "{reported}");
        }
        sweep.wait_for_none();
    }
}

#[test]
fn a_kill_of_the_whole_group_leaves_the_supervisor_to_end_the_server() {
    use std::os::unix::process::CommandExt;
    let sweep = Sweep::new(NEVER_READY, GRID);
    let mut command = sweep.command(&[]);
    let mut child =
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
    sweep.wait_for_servers(&mut child);
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().expect("kill runs").success());
    child.wait().expect("it is dead");
    sweep.wait_for_none();
}

/// The supervisor of a sweep.
fn supervisor_of(sweep: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(1)?.parse().ok());
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        parent == Some(sweep) && words.starts_with(b"spectune-supervisor")
    };
    numbers.find(is_one)
}

#[test]
fn the_supervisor_survives_signals_and_a_kill_by_name() {
    let sweep = Sweep::new(NEVER_READY, GRID);
    let mut child = sweep.start(&[]);
    sweep.wait_for_servers(&mut child);
    let supervisor = supervisor_of(child.id()).expect("a supervisor");
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).expect("it runs");
    assert_eq!(name(child.id()).trim(), "spectune");
    assert_ne!(name(supervisor), name(child.id()));
    for signal in ["-INT", "-TERM", "-HUP"] {
        assert!(Command::new("kill").args([signal, &supervisor.to_string()]).status().expect("kill runs").success());
    }
    signal(&child, "-KILL");
    child.wait().expect("it is dead");
    sweep.wait_for_none();
}

#[test]
fn a_rejected_configuration_is_started_once_and_once_more_by_resume() {
    let script = r#"case "$*" in *--speculative-algorithm*) echo "launch_server.py: error: no such draft" >&2; exit 2;; esac; exec "$0" "$@""#;
    let command = format!("command = ['sh', '-c', '''{script}''', '{}', 'serve']", env!("CARGO_BIN_EXE_spectune"));
    let sweep = Sweep::new(&format!("{command}\nextra_args = ['--device', 'cpu']"), GRID);
    let ended = sweep.run(&[]);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(1), "{reported}");
    assert!(reported.contains("every configuration with speculation failed"), "{reported}");
    assert!(reported.contains("launch_server.py: error: no such draft"), "{reported}");
    let speculating: Vec<Value> =
        sweep.records().into_iter().filter(|one| one["outcome"]["status"] != "measured").collect();
    let mut configurations: Vec<String> =
        speculating.iter().map(|one| one["trial"]["configuration"].to_string()).collect();
    let trials = configurations.len();
    configurations.sort();
    configurations.dedup();
    assert_eq!(trials, 4 * configurations.len(), "two batch sizes, two repeats: {reported}");
    assert_eq!(sweep.logs_with("no such draft"), configurations.len(), "{reported}");
    let trial_lines = |with: &str| reported.lines().filter(|line| line.starts_with('[') && line.contains(with)).count();
    assert_eq!(trial_lines("failed: "), configurations.len(), "the reason is printed once for each: {reported}");
    assert_eq!(trial_lines("failed for the same reason"), trials - configurations.len(), "{reported}");
    let reason = speculating[0]["outcome"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("no such draft"), "{reason}");

    let again = sweep.run(&["--resume"]);
    assert_eq!(again.status.code(), Some(1), "{}", words(&again));
    assert_eq!(sweep.logs_with("no such draft"), 2 * configurations.len(), "{}", words(&again));
    assert_eq!(sweep.servers_left(), 0);
}

/// A stand-in for docker: runs a container's command unmarked and in a session of its own, as the
/// daemon would.
const DOCKER: &str = r#"#!/bin/sh
state=$(dirname "$0")/containers; mkdir -p "$state"
case "$1 $2" in
"container inspect") [ -e "$state/$3" ] && kill -0 "$(cat "$state/$3")" 2>/dev/null; exit ;;
"run --rm") name=$4; shift 7
  env -u SPECTUNE_SERVER setsid "$@" & echo $! > "$state/$name"; wait $!; rm -f "$state/$name"; exit ;;
"stop -t") kill -TERM "$(cat "$state/$4")"; exit ;;
"rm -f") [ -e "$state/$3" ] && kill -KILL "$(cat "$state/$3")"; rm -f "$state/$3"; exit ;;
esac
echo "unexpected: $*" >&2; exit 125
"#;

#[test]
fn a_container_is_ended_by_its_name_also_after_a_kill() {
    let programs = tempfile::tempdir().expect("a folder");
    let docker = programs.path().join("docker");
    fs::write(&docker, DOCKER).expect("a script");
    fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).expect("a script");
    // The flags of a start become arguments of the shell, which ignores them.
    let command =
        format!("command = ['{}', 'run', '--network', 'host', 'image', 'sh', '-c', 'sleep 1000']", docker.display());
    let sweep = Sweep::new(&command, GRID);
    let running = || {
        let names = fs::read_dir(programs.path().join("containers")).into_iter().flatten().flatten();
        names
            .filter(|name| {
                let pid = fs::read_to_string(name.path()).unwrap_or_default();
                Path::new("/proc").join(pid.trim()).exists() && !pid.trim().is_empty()
            })
            .count()
    };
    for name in ["-KILL", "-INT"] {
        let child = sweep.start(&["--resume"]);
        let deadline = Instant::now() + Duration::from_secs(120);
        while running() == 0 {
            assert!(Instant::now() < deadline, "no container was started");
            sleep(Duration::from_millis(5));
        }
        signal(&child, name);
        let ended = child.wait_with_output().expect("it ends");
        while running() > 0 {
            assert!(Instant::now() < deadline, "the container is left: {}", words(&ended));
            sleep(Duration::from_millis(5));
        }
        sweep.wait_for_none();
    }
}

#[test]
fn a_container_in_a_separate_network_is_refused_before_anything_starts() {
    let sweep = Sweep::new("command = ['docker', 'run', '-p', '8000:8000', 'image', 'sglang']", GRID);
    let file = sweep.folder.path().join("sweep.toml");
    let lint = Command::new(env!("CARGO_BIN_EXE_spectune")).arg("lint").arg(&file).output().expect("the binary starts");
    let said = String::from_utf8_lossy(&lint.stdout).into_owned();
    assert!(lint.status.code() == Some(1) && said.contains("--network host"), "{said}");
    for arguments in [&[][..], &["--dry-run"]] {
        let ended = sweep.run(arguments);
        let reported = words(&ended);
        assert_eq!(ended.status.code(), Some(2), "{reported}");
        assert!(
            reported.contains("Add --network host after `docker run` in place of -p")
                && reported.contains("sweep.toml:4"),
            "{reported}"
        );
    }
    assert!(!sweep.out().exists());
}

#[test]
fn missing_weights_stop_a_sweep_before_acceptance_is_replayed() {
    let sweep = Sweep::from_own_server("strategy = 'guided'\ncandidates = 1\nrepeats = 1");
    let draft = sweep.folder.path().join("draft");
    fs::create_dir(&draft).expect("a folder");
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny/eagle3");
    fs::copy(tiny.join("config.json"), draft.join("config.json")).expect("a configuration");
    let file = sweep.folder.path().join("sweep.toml");
    let text = fs::read_to_string(&file).expect("the sweep file");
    let text = text.lines().map(|line| match line.starts_with("draft = ") {
        true => format!("draft = '{}'\n", draft.display()),
        false => format!("{line}\n"),
    });
    fs::write(&file, text.collect::<String>()).expect("a sweep file");
    let plan = sweep.run(&["--dry-run"]);
    let said = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert_eq!(plan.status.code(), Some(0), "{}", words(&plan));
    for part in ["\ntarget     /", "1 weight file, ", "\ndraft      /", "contains no weights", "a sweep stops here"] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    let ended = sweep.run(&[]);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(2), "{reported}");
    assert!(reported.contains("the draft is incomplete: ") && reported.contains("contains no weights"), "{reported}");
    assert!(!reported.contains("texts without speculation") && !sweep.out().join("servers").exists(), "{reported}");
}

#[test]
fn the_time_budget_counts_from_the_first_server_that_is_ready() {
    // A start takes longer than the whole budget.
    let script = r#"sleep 4; exec "$0" "$@""#;
    let command = format!("command = ['sh', '-c', '''{script}''', '{}', 'serve']", env!("CARGO_BIN_EXE_spectune"));
    let sweep = Sweep::new(&format!("{command}\nextra_args = ['--device', 'cpu']"), &format!("{GRID}\nseconds = 3"));
    let ended = sweep.run(&[]);
    let reported = words(&ended);
    assert!(reported.contains("the first server was ready after"), "{reported}");
    assert!(reported.contains(" more starts"), "the start renews the remaining time: {reported}");
    assert!(reported.contains("the time budget is used up"), "{reported}");
    assert!(!sweep.records().is_empty(), "{reported}");
    assert_eq!(sweep.servers_left(), 0);
}
