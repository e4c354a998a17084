//! A server with SGLang's API that follows a script, as a real process over real HTTP: every kind
//! of failure is recognised, and none leaves anything behind.
//!
//! The server is this test program, started again with a variable in its environment.

mod request;

use std::{
    env,
    io::{BufReader, Write},
    net::{TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::Path,
    process,
    sync::atomic::AtomicBool,
    thread,
    time::Duration,
};

use external::{
    ServerError,
    api::{Api, ApiKind, Generate},
    failure::{FailureClass, ServerFailure},
    load::{LoadArrivals, run},
    mark::ProcessMark,
    orphans::OrphanHandle,
    port::Ports,
    process::{ProcessLaunch, Server},
    ready::{failure_while_serving, wait_until_ready},
    supervisor::{Supervisor, SupervisorProgram, detach, supervise},
};

/// The server's script and port.
const SCRIPT: &str = "SCRIPTED_SERVER";
const NAME: &str = "scripted-model";
/// Makes this program a supervisor.
const SUPERVISE: &str = "SCRIPTED_SUPERVISOR";
/// Makes it a process that starts a server, and names its folder.
const WATCHED: &str = "SCRIPTED_WATCHED";

/// The server. Run as an ordinary test it does nothing.
#[test]
fn scripted_server() {
    let Ok(script) = env::var(SCRIPT) else { return };
    let (script, port) = script.split_once(' ').expect("a script and a port");
    let say = |line: &str| eprintln!("{line}");
    match script {
        "crash" => process::exit(7),
        "refuse" => {
            say("launch_server.py: error: argument --speculative-algorithm: invalid choice: 'EAGEL'");
            process::exit(2);
        }
        "capture" => {
            say("Capturing batches (bs=64)\nCapture cuda graph failed: CUDA out of memory.");
            say("Received sigquit from a child process. It usually means the child failed.");
            process::exit(1);
        }
        "silent" => loop {
            thread::sleep(Duration::from_secs(1));
        },
        _ => {}
    }
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).expect("its port");
    if script == "late" {
        // Bound, but accepts no connections for a while.
        thread::sleep(Duration::from_millis(500));
    }
    for stream in listener.incoming().flatten() {
        let script = script.to_owned();
        thread::spawn(move || answer(stream, &script));
    }
}

fn answer(stream: TcpStream, script: &str) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let (path, _) = request::read(&mut reader)?;
        let model = if script == "foreign" { "another-model" } else { NAME };
        let whole = |body: String| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let reply = match path.as_str() {
            "/ready" | "/flush_cache" => whole(String::new()),
            "/v1/models" => whole(format!("{{\"data\": [{{\"id\": \"{model}\"}}]}}")),
            "/server_info" => whole("{\"version\": \"0.5.16\", \"speculative_num_steps\": 3}".into()),
            "/metrics" => {
                whole("sglang:num_running_reqs{model_name=\"m\"} 2\nsglang:spec_verify_calls_total 40\n".into())
            }
            "/generate" => {
                generate(&mut stream, script)?;
                return None;
            }
            _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into(),
        };
        stream.write_all(reply.as_bytes()).ok()?;
    }
}

/// Six tokens in three events; each round accepts one draft.
fn generate(stream: &mut TcpStream, script: &str) -> Option<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n").ok()?;
    for (rounds, tokens) in [(0, 1), (1, 3), (2, 5)] {
        let ids: Vec<usize> = (0..tokens).collect();
        let event = format!(
            "data: {{\"output_ids\": {ids:?}, \"meta_info\": {{\"completion_tokens\": {tokens}, \"spec_verify_ct\": {rounds}, \
             \"spec_num_correct_drafts\": {rounds}, \"spec_correct_drafts_histogram\": [0, {rounds}]}}}}\n\n"
        );
        stream.write_all(event.as_bytes()).ok()?;
        stream.flush().ok()?;
        match (script, tokens) {
            ("memory", 3) => {
                eprintln!("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.");
                process::exit(1);
            }
            ("illegal", 3) => {
                eprintln!("RuntimeError: CUDA error: an illegal memory access was encountered");
                process::exit(1);
            }
            ("hang", 3) => thread::sleep(Duration::from_secs(1000)),
            _ => thread::sleep(Duration::from_millis(2)),
        }
    }
    stream.write_all(b"data: [DONE]\n\n").ok()
}

/// Starts the server with a script and waits until it is ready.
fn start(script: &str, folder: &Path, ports: &mut Ports) -> (Server, Api, Result<Duration, ServerError>) {
    let port = ports.fresh().expect("a port");
    let program = env::current_exe().expect("this program");
    let launch = ProcessLaunch {
        program: program.display().to_string(),
        args: ["scripted_server", "--exact", "--nocapture"].map(str::to_owned).to_vec(),
        env: vec![(SCRIPT.into(), format!("{script} {port}"))],
        log: folder.join("log"),
        container: None,
    };
    let mut server = Server::start(&launch, ProcessMark::new()).expect("it starts");
    let base = format!("http://127.0.0.1:{port}");
    let api = Api::new(ApiKind::Sglang, &base, Some(NAME.into()), Duration::from_secs(2));
    let longest = if script == "silent" { Duration::from_secs(1) } else { Duration::from_secs(60) };
    let ready = wait_until_ready(&mut server, &api, longest, &AtomicBool::new(false));
    (server, api, ready)
}

fn stop(server: Server) {
    let mark = server.mark().clone();
    server.stop(Duration::from_millis(200)).expect("it ends");
    assert!(mark.processes().is_empty());
}

fn request(input_ids: &[u32]) -> Generate<'_> {
    Generate {
        input_ids,
        max_new_tokens: 5,
        ignore_eos: true,
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        seed: None,
    }
}

#[test]
fn each_way_to_fail_is_distinguished_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut ports = Ports::default();
    for (script, expected) in [
        ("crash", FailureClass::Crash),
        ("refuse", FailureClass::Configuration),
        ("capture", FailureClass::OutOfMemoryAtCapture),
        ("silent", FailureClass::Hang),
        ("foreign", FailureClass::ForeignServer),
    ] {
        let (server, _, ready) = start(script, folder.path(), &mut ports);
        match ready {
            Err(ServerError::Failed(ServerFailure { class, .. })) => assert_eq!(class, expected, "{script}"),
            other => panic!("{script}: {other:?}"),
        }
        stop(server);
    }
    for (script, expected) in [
        ("memory", FailureClass::OutOfMemoryWhileRunning),
        ("illegal", FailureClass::IllegalAccess),
        ("hang", FailureClass::Hang),
    ] {
        let (mut server, api, ready) = start(script, folder.path(), &mut ports);
        ready.unwrap_or_else(|error| panic!("{script}: {error}"));
        let error = api.generate(&request(&[1, 2, 3]), &AtomicBool::new(false)).expect_err(script);
        let failure = failure_while_serving(&mut server, &error);
        assert_eq!(failure.class, expected, "{script}: {failure}");
        stop(server);
    }
}

#[test]
fn a_load_is_served_with_the_times_and_figures_of_each_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, api, ready) = start("late", folder.path(), &mut Ports::default());
    ready.expect("it is ready after a while");
    let info = api.info().expect("it answers");
    assert_eq!((info.version.as_deref(), info.models.as_slice()), (Some("0.5.16"), &[NAME.to_owned()][..]));
    assert_eq!(info.resolved.expect("it tells")["speculative_num_steps"], 3);
    let counters = api.counters().expect("it answers");
    assert_eq!((counters.running, counters.rounds, counters.waiting), (Some(2.0), Some(40.0), None));
    assert!(api.flush_cache().expect("it answers"));
    let prompt = [1, 2, 3];
    let requests = vec![request(&prompt); 9];
    let open = (0..9).map(|at| Duration::from_millis(3 * at)).collect();
    for arrivals in [LoadArrivals::Closed(1), LoadArrivals::Closed(4), LoadArrivals::Open(open)] {
        let observed = run(&api, &requests, &arrivals, &AtomicBool::new(false)).expect("served");
        assert_eq!(observed.served.len(), 9);
        for served in &observed.served {
            let generated = &served.generated;
            assert_eq!((generated.output_tokens, generated.rounds, generated.accepted_drafts), (5, Some(2), Some(2)));
            assert_eq!(
                (generated.output_ids.as_slice(), generated.accept_histogram.as_slice()),
                (&[0, 1, 2, 3, 4][..], &[0, 2][..])
            );
            assert!(generated.first_token <= generated.last_token && generated.last_token <= observed.elapsed);
        }
    }
    let interrupted = AtomicBool::new(true);
    assert!(matches!(run(&api, &requests, &LoadArrivals::Closed(2), &interrupted), Err(ServerError::Interrupted)));
    stop(server);
}

/// A hundred starts and stops leave no process and no listening port.
#[test]
fn many_starts_leave_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut ports = Ports::default();
    for _ in 0..100 {
        let (server, api, ready) = start("serve", folder.path(), &mut ports);
        ready.expect("it is ready");
        stop(server);
        assert!(api.is_ready().is_err(), "something still answers at {}", api.base());
    }
}

/// The supervisor. Run as an ordinary test it does nothing.
#[test]
fn supervising_process() {
    if env::var(SUPERVISE).is_err() {
        return;
    }
    detach();
    supervise(std::io::stdin().lock(), std::io::stdout()).expect("everything ends");
}

/// A process that starts a server under a supervisor and waits to be killed. Run as an ordinary
/// test it does nothing.
#[test]
fn watched_process() {
    let Ok(folder) = env::var(WATCHED) else { return };
    let folder = Path::new(&folder);
    let mut supervisor = Supervisor::start(&supervisor_program()).expect("it starts");
    let mark = ProcessMark::new();
    supervisor.add(&OrphanHandle { mark: mark.clone(), container: None }).expect("it knows");
    // The second process has left the group, the third has no environment.
    let script = "(setsid sleep 1000 &); env -i sleep 1000 & sleep 1000";
    let launch = ProcessLaunch {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![],
        log: folder.join("log"),
        container: None,
    };
    let _server = Server::start(&launch, mark.clone()).expect("it starts");
    while mark.processes().len() < 4 {
        thread::sleep(Duration::from_millis(1));
    }
    let reported = format!("{} {}", mark.as_str(), supervisor.pid().expect("it runs"));
    std::fs::write(folder.join("new"), reported)
        .and_then(|()| std::fs::rename(folder.join("new"), folder.join("told")))
        .expect("told");
    thread::sleep(Duration::from_secs(1000));
}

fn supervisor_program() -> SupervisorProgram {
    SupervisorProgram {
        path: env::current_exe().expect("this program"),
        name: "supervisor".into(),
        args: ["supervising_process", "--exact", "--nocapture"].map(str::to_owned).to_vec(),
        env: vec![(SUPERVISE.into(), "1".into())],
    }
}

/// Whether this process, and so those that it starts, ignores a signal.
fn is_ignored(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("this process");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask of signals");
    u64::from_str_radix(mask.trim(), 16).expect("a number") >> (number - 1) & 1 == 1
}

fn is_running(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Waits for a condition as long as the machine may need; returns whether it came.
fn comes(mut condition: impl FnMut() -> bool) -> bool {
    let begin = std::time::Instant::now();
    while !condition() {
        if begin.elapsed() > Duration::from_secs(60) {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Whatever ends the process that has started a server, a signal to its whole group included:
/// server and supervisor end.
#[test]
fn many_kills_leave_nothing() {
    // What starts the tests may ignore some (nohup, a shell's background jobs), and then so do
    // these processes.
    let signals = [("-KILL", 9), ("-INT", 2), ("-TERM", 15), ("-HUP", 1)];
    let signals: Vec<(&str, u32)> = signals.into_iter().filter(|(_, number)| !is_ignored(*number)).collect();
    for kill in 0..100 {
        let folder = tempfile::tempdir().expect("a folder");
        let mut watched = process::Command::new(env::current_exe().expect("this program"))
            .args(["watched_process", "--exact", "--nocapture"])
            .env(WATCHED, folder.path())
            .stdout(process::Stdio::null())
            .stderr(process::Stdio::null())
            .process_group(0)
            .spawn()
            .expect("it starts");
        let reported = || std::fs::read_to_string(folder.path().join("told")).ok();
        assert!(comes(|| reported().is_some()), "no server started");
        let reported = reported().expect("it has told");
        let (mark, supervisor) = reported.split_once(' ').expect("a mark and a process");
        let (mark, supervisor) = (ProcessMark::parse(mark).expect("a mark"), supervisor.parse().expect("a process"));
        // A shell on its way to its command counts as a process for a moment.
        assert!(comes(|| mark.processes().len() >= 4) && is_running(supervisor));
        if kill % 2 == 0 {
            watched.kill().expect("SIGKILL");
        } else {
            let group = format!("-{}", watched.id());
            let (name, _) = signals[kill / 2 % signals.len()];
            let ended = process::Command::new("kill").args([name, "--", &group]).status().expect("kill runs");
            assert!(ended.success());
        }
        watched.wait().expect("it is dead");
        assert!(
            comes(|| mark.processes().is_empty() && !is_running(supervisor)),
            "kill {kill}: {:?}",
            mark.processes()
        );
    }
}

#[test]
fn a_supervisor_that_was_killed_is_replaced_and_one_without_servers_ends() {
    let mut supervisor = Supervisor::start(&supervisor_program()).expect("it starts");
    let first = supervisor.pid().expect("it runs");
    let known = OrphanHandle { mark: ProcessMark::new(), container: None };
    supervisor.add(&known).expect("it knows");
    let ended = process::Command::new("kill").args(["-KILL", &first.to_string()]).status().expect("kill runs");
    assert!(ended.success());
    // Its pipe is closed once the last of its threads has ended.
    let another = || OrphanHandle { mark: ProcessMark::new(), container: None };
    assert!(comes(|| supervisor.add(&another()).is_ok() && supervisor.pid() != Some(first)), "it was not replaced");
    let second = supervisor.pid().expect("it runs");
    assert!(is_running(second));
    drop(supervisor);
    assert!(comes(|| !is_running(second)));
    let wrong = SupervisorProgram { path: "/bin/true".into(), ..supervisor_program() };
    assert!(matches!(Supervisor::start(&wrong), Err(ServerError::Supervisor { .. })));
}
