//! Signals at moments that do not depend on time: while a command waits for its input or for a
//! server that never answers.
//!
//! Run by the crate `cli`: `cargo test -p cli --test signals`.
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::Write,
    net::TcpListener,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

const HANG_UP: u32 = 1;
const INTERRUPT: u32 = 2;

/// Starts the binary with open standard input.
fn start(arguments: &[&str]) -> Child {
    piped(Command::new(env!("CARGO_BIN_EXE_spectune")).args(arguments))
}

fn piped(command: &mut Command) -> Child {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let command = command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary starts")
}

/// Waits until the process handles a signal.
fn wait_until_handled(child: &mut Child, number: u32) {
    if number == HANG_UP && is_in_mask(child, "SigIgn:", number) {
        // Nothing else ends it.
        child.kill().expect("a child");
        panic!("SIGHUP is ignored here, as under nohup: run the tests without it");
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_in_mask(child, "SigCgt:", number) {
        assert!(child.try_wait().expect("a child").is_none(), "it has ended");
        assert!(Instant::now() < deadline, "the signal is not handled");
        sleep(Duration::from_millis(2));
    }
}

/// Whether a mask of the process contains a signal.
fn is_in_mask(child: &Child, mask: &str, number: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(mask));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

fn send(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs").success());
}

#[track_caller]
fn check_interrupted(ended: &Output, of: &dyn std::fmt::Debug) {
    let reported = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{of:?}: {reported}");
    assert!(reported.contains("interrupted") && !reported.contains("panicked"), "{of:?}: {reported}");
}

#[test]
fn a_signal_before_a_command_has_read_its_input_ends_it_with_130() {
    for arguments in [
        &["sweep", "-", "--out", "signals-sweep"][..],
        &["sweep", "-", "--dry-run"],
        &["train", "-", "--out", "signals-train"],
        &["lint", "-"],
        &["serve", "-"],
        &["generate", "-", "--prompt", "a"],
    ] {
        for name in ["-INT", "-TERM", "-HUP"] {
            let mut child = start(arguments);
            // The one that is installed last.
            wait_until_handled(&mut child, HANG_UP);
            assert!(is_in_mask(&child, "SigCgt:", INTERRUPT));
            // It stays open, so that nothing but the signal ends the command.
            let input = child.stdin.take().expect("a pipe");
            send(&child, name);
            check_interrupted(&child.wait_with_output().expect("it ends"), &(arguments, name));
            drop(input);
        }
    }
}

#[test]
fn a_signal_while_a_server_does_not_answer_ends_tune_with_130() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut child = start(&["tune", "--url", &url, "--input-len", "8", "--out", "signals-tune"]);
    // It is accepted and never answered.
    let _connection = listener.accept().expect("a connection");
    assert!(child.try_wait().expect("a child").is_none());
    send(&child, "-INT");
    check_interrupted(&child.wait_with_output().expect("it ends"), &"tune");
}

#[test]
fn an_interrupted_simulation_ends_with_the_draws_that_are_done() {
    let load =
        ["--rollout", "8x4", "--median-len", "30", "--max-len", "400", "--policy", "fixed", "--draws", "1000000"];
    let mut child = start(&[&["simulate", "--accept-lengths", "1.7,2.2"][..], &load].concat());
    wait_until_handled(&mut child, HANG_UP);
    send(&child, "-INT");
    check_interrupted(&child.wait_with_output().expect("it ends"), &"simulate");
}

#[test]
fn a_command_under_nohup_survives_the_end_of_its_session() {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" sweep - --dry-run", env!("CARGO_BIN_EXE_spectune")]);
    let mut child = piped(&mut command);
    wait_until_handled(&mut child, INTERRUPT);
    assert!(is_in_mask(&child, "SigIgn:", HANG_UP));
    send(&child, "-HUP");
    // It still reads its input, and reports what is wrong with it.
    child.stdin.take().expect("a pipe").write_all(b"nothing").expect("it reads");
    let ended = child.wait_with_output().expect("it ends");
    let reported = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(2) && reported.contains("<stdin>"), "{reported}");
}
