//! Servers that are already running are measured as they are: `spectune serve`, and a scripted vLLM
//! without development mode, as real processes and over real HTTP.
//!
//! Run by the crate `cli`: `cargo test -p cli --test running`.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny").canonicalize().expect("the demo models")
}

/// A running `spectune serve`, ended with the test.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    /// Serves the demo pair; without a draft it does not speculate.
    fn start(speculates: bool) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_spectune"));
        command.args(["serve", "--device", "cpu", "--max-running-requests", "4", "--context-length", "128"]);
        command.args(["--port", &port.to_string(), "--model-path"]).arg(models().join("target"));
        if speculates {
            command.args(["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "2"]);
            command.args(["--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3"]);
            command.arg("--speculative-draft-model-path").arg(models().join("eagle3"));
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
        let served = Self { child, url: format!("http://127.0.0.1:{port}") };
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(120), "the server does not listen");
            thread::sleep(Duration::from_millis(50));
        }
        served
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself, which its test has then reported.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spectune(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spectune"))
        .args(arguments)
        .current_dir(folder)
        .env("LLM_KEY", "sk-very-secret")
        .output()
        .expect("the binary starts")
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The header and the records of a journal.
fn journal(folder: &Path) -> (Value, Vec<Value>) {
    let text = fs::read_to_string(folder.join("journal.jsonl")).expect("a journal");
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["content"].clone());
    (lines.next().expect("a header"), lines.collect())
}

const QUICK: [&str; 8] = ["--input-len", "8", "--output-len", "12", "--requests", "4", "--concurrency", "1,2"];

#[test]
fn a_server_is_measured_as_it_runs_and_nothing_else_is_reported() {
    let served = Served::start(true);
    let folder = tempfile::tempdir().expect("a folder");
    let mut arguments = vec!["tune", "--url", &served.url, "--repeats", "2", "--out", "out"];
    arguments.extend(QUICK);
    let ended = spectune(folder.path(), &arguments);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{reported}");
    let (header, records) = journal(&folder.path().join("out"));
    assert_eq!((records.len(), header["servers"][0]["engine"].as_str()), (4, Some("spectune")), "{reported}");
    let setting = |name: &str| {
        let all = header["servers"][0]["settings"].as_array().expect("settings");
        all.iter().find(|one| one["name"] == name).expect("a setting")["value"].clone()
    };
    assert_eq!((setting("num_steps"), setting("num_draft_tokens")), ("2".into(), "3".into()));
    for record in &records {
        let figures = &record["outcome"];
        assert_eq!(figures["status"], "measured", "{reported}");
        assert!(figures["accept_length"].as_f64().is_some_and(|length| (1.0..=3.6).contains(&length)), "{figures}");
        // Short random prompts may have their first token in common.
        let cached = figures["cached_tokens"].as_u64().expect("the server counts them");
        assert!(cached <= 8 && figures["others"].is_null(), "{figures}");
    }
    // No two trials send the same prompts, and nothing is chosen.
    assert!(!folder.path().join("out/tuned.toml").exists());
    let page = fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("Nothing was varied") && page.contains("What lint says of it"), "the page");

    // The report is written again from the journal; a second measurement needs --resume, and has
    // nothing left to do.
    let again = spectune(folder.path(), &["report", "out"]);
    assert_eq!(again.status.code(), Some(0), "{}", words(&again));
    let refused = spectune(folder.path(), &arguments);
    assert!(refused.status.code() == Some(2) && words(&refused).contains("--resume"), "{}", words(&refused));
    arguments.push("--resume");
    assert_eq!(spectune(folder.path(), &arguments).status.code(), Some(0));
    assert_eq!(journal(&folder.path().join("out")).1.len(), 4);

    // A load above the limit is refused with both numbers.
    let above = ["tune", "--url", &served.url, "--out", "above", "--input-len", "8", "--concurrency", "1,64"];
    let ended = spectune(folder.path(), &above);
    let reported = words(&ended);
    assert!(
        ended.status.code() == Some(2) && reported.contains("concurrency of 64") && reported.contains("at most 4"),
        "{reported}"
    );
    assert!(!folder.path().join("above").exists());
}

#[test]
fn rules_about_sglang_do_not_concern_a_server_of_spectune() {
    let served = Served::start(true);
    let folder = tempfile::tempdir().expect("a folder");
    // SGLang limits running requests by default.
    let launch = "spectune serve --model-path m --speculative-algorithm EAGLE3 --speculative-draft-model-path d \
                  --speculative-num-steps 2 --speculative-eagle-topk 2 --speculative-num-draft-tokens 4\n";
    fs::write(folder.path().join("run.sh"), launch).expect("a launch");
    let alone = spectune(folder.path(), &["lint", "run.sh"]);
    let reported = words(&alone);
    assert!(reported.contains("SD090") && reported.contains("this is what sglang"), "{reported}");
    for arguments in [&["lint", "run.sh", "--url", &served.url][..], &["lint", "--url", &served.url]] {
        let reported = words(&spectune(folder.path(), arguments));
        assert!(reported.contains("runs spectune") && !reported.contains("this is what sglang"), "{reported}");
    }
    // No one has the lines of the server's own launch.
    let own = words(&spectune(folder.path(), &["lint", "--url", &served.url, "--resolved"]));
    assert!(own.contains("given") && !own.contains("written at") && !own.contains(">:1:"), "{own}");
    let tune = ["tune", "--url", &served.url, "--input-len", "8", "--launch", "run.sh", "--out", "with", "--dry-run"];
    let reported = words(&spectune(folder.path(), &tune));
    assert!(reported.contains("runs spectune") && !reported.contains("SD090"), "{reported}");
}

#[test]
fn a_sweep_file_with_a_url_measures_what_runs() {
    let served = Served::start(false);
    let folder = tempfile::tempdir().expect("a folder");
    let ids: Vec<Vec<u32>> = (0..5).map(|at| vec![at + 1, 7, 9, at + 3]).collect();
    fs::write(folder.path().join("ids.json"), serde_json::to_string(&ids).expect("JSON")).expect("prompts");
    let file = |space: &str| {
        format!(
            "[system]\nkind = 'sglang'\nurl = '{}/v1'\n[models]\ntarget = '{1}/target'\ndraft = '{1}/eagle3'\n\
             algorithm = 'EAGLE3'\n[workload]\ninput_ids = 'ids.json'\nrequests = 2\noutput_length = 6\n\
             [batch]\nsizes = [2]\n[search]\nrepeats = 3\n{space}",
            served.url,
            models().display()
        )
    };
    fs::write(folder.path().join("sweep.toml"), file("")).expect("a file");
    let ended = spectune(folder.path(), &["sweep", "sweep.toml", "--out", "out"]);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{reported}");
    assert!(
        reported.contains("5 different prompts, but 6 are needed") && reported.contains("does not speculate"),
        "{reported}"
    );
    assert!(reported.contains("runs without speculation: it is measured as it is"), "{reported}");
    let (_, records) = journal(&folder.path().join("out"));
    let of = |name: &str| records.iter().map(|one| one["outcome"][name].clone()).collect::<Vec<_>>();
    // The last trial sends the first prompt once more.
    assert_eq!(of("repeated_prompts"), [0, 0, 1], "{reported}");
    assert!(of("accept_length").iter().all(Value::is_null), "{reported}");
    assert!(!folder.path().join("out/tuned.toml").exists());

    fs::write(folder.path().join("varied.toml"), file("[space]\nnum_steps = [1, 3]\ntopk = [1]\n")).expect("a file");
    let ended = spectune(folder.path(), &["sweep", "varied.toml", "--out", "varied"]);
    let reported = words(&ended);
    assert!(
        ended.status.code() == Some(2) && reported.contains("cannot be varied") && reported.contains("varied.toml:16"),
        "{reported}"
    );
}

#[test]
fn two_servers_are_measured_in_turns_with_the_same_prompts() {
    let (first, second) = (Served::start(false), Served::start(true));
    let folder = tempfile::tempdir().expect("a folder");
    let mut arguments = vec!["tune", "--url", &first.url, "--url", &second.url, "--repeats", "2", "--out", "out"];
    arguments.extend(QUICK);
    let ended = spectune(folder.path(), &arguments);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{reported}");
    let (_, records) = journal(&folder.path().join("out"));
    let order: Vec<u64> = records.iter().filter_map(|one| one["server"].as_u64()).collect();
    assert_eq!(order, [0, 1, 1, 0, 1, 0, 0, 1], "in turns");
    for pair in records.chunks(2) {
        assert_eq!(pair[0]["outcome"]["prompt_tokens"], pair[1]["outcome"]["prompt_tokens"]);
        assert_eq!(pair[0]["repeat"], pair[1]["repeat"]);
    }
    assert!(reported.contains("of server 2 is") && reported.contains("too few repeats"), "{reported}");
    let page = fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("Server 2 relative to server 1") && !page.contains("rank\""), "the page");
}

/// A vLLM without development mode that follows a script.
struct Scripted {
    url: String,
}

#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    tokens: AtomicUsize,
    drafts: AtomicUsize,
    accepted: AtomicUsize,
}

impl Scripted {
    fn start(script: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let counts = Arc::new(Counts::default());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counts = counts.clone();
                thread::spawn(move || answer(stream, script, &counts));
            }
        });
        Self { url }
    }
}

fn answer(mut stream: TcpStream, script: &str, counts: &Counts) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split_whitespace().nth(1)?.to_owned();
    let (mut length, mut authorised) = (0, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim();
        if header.is_empty() {
            break;
        }
        let lower = header.to_lowercase();
        length = lower.strip_prefix("content-length:").map_or(length, |value| value.trim().parse().unwrap_or(0));
        authorised |= header.ends_with("Bearer sk-very-secret");
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let (status, text) = match path.as_str() {
        _ if script == "loading" => (503, "{\"error\": \"loading\"}".to_owned()),
        _ if script == "foreign" => (404, "<html>Not Found</html>".to_owned()),
        _ if script == "page" => (200, "<html>Welcome</html>".to_owned()),
        _ if script == "moved" => (301, String::new()),
        // The beginning of a TLS alert, as a server answers that expects TLS.
        _ if script == "tls" => {
            stream.write_all(&[0x15, 3, 1, 0, 2, 2, 70]).ok()?;
            return Some(());
        }
        // A proxy that forwards the OpenAI API alone.
        _ if script.starts_with("proxied") && !path.starts_with("/v1") => (404, "nginx".to_owned()),
        "/v1/models" if script == "proxied" => {
            let root = models().join("target");
            let card = serde_json::json!({"id": "m", "root": root, "owned_by": "vllm"});
            (200, serde_json::json!({"data": [card, {"id": "lora", "owned_by": "vllm"}]}).to_string())
        }
        "/v1/completions" if script == "crowded" => (429, "{\"error\": \"slow down\"}".to_owned()),
        "/v1/completions" if script == "uncounted" => {
            let event = "data: {\"choices\": [{\"index\": 0, \"text\": \"x\"}]}\n\n";
            (200, event.repeat(3) + "data: [DONE]\n\n")
        }
        "/metrics" if script == "flowing" => {
            let read = counts.requests.fetch_add(1, Ordering::Relaxed);
            match read {
                1 => (500, String::new()),
                _ => (200, format!("vllm:num_requests_running 4\nvllm:generation_tokens_total {}\n", 100 * read)),
            }
        }
        "/v1/completions" if script == "unloaded" => {
            (404, "{\"message\": \"The model `m` does not exist.\"}".to_owned())
        }
        // The first trial is served: its warm-up, and its requests.
        "/v1/completions" if script == "stuck" && count(&counts.requests) >= 2 * 4 => loop {
            thread::park();
        },
        _ if script == "key" && !authorised && path.starts_with("/v1") => {
            (401, "{\"error\": \"Unauthorized\"}".to_owned())
        }
        "/health" => (200, String::new()),
        "/version" => (200, "{\"version\": \"0.26.0\"}".to_owned()),
        "/v1/models" => {
            let root = models().join("target");
            (200, serde_json::json!({"data": [{"id": "m", "root": root, "max_model_len": 64}]}).to_string())
        }
        "/metrics" => {
            let running = if script == "busy" { 7 } else { 0 };
            let lines = format!(
                "vllm:num_requests_running{{engine=\"0\"}} {running}\nvllm:num_requests_waiting{{engine=\"0\"}} 0\n\
                 vllm:generation_tokens_total{{engine=\"0\"}} {}\nvllm:spec_decode_num_drafts_total{{engine=\"0\"}} {}\n\
                 vllm:spec_decode_num_accepted_tokens_total{{engine=\"0\"}} {}\n",
                count(&counts.tokens),
                count(&counts.drafts),
                count(&counts.accepted)
            );
            let position = |at: usize| {
                format!("vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine=\"0\",position=\"{at}\"}} 0\n")
            };
            (200, lines + &(0..3).map(position).collect::<String>())
        }
        "/v1/completions" => (200, completion(&body, counts)?),
        _ => (404, "{\"detail\": \"Not Found\"}".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: text/plain\r\nLocation: https://elsewhere/\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(text.as_bytes()).ok()
}

/// The first token, then two tokens a round.
fn completion(body: &[u8], counts: &Counts) -> Option<String> {
    let requested: Value = serde_json::from_slice(body).ok()?;
    let tokens = usize::try_from(requested["max_tokens"].as_u64()?).ok()?;
    let rounds = tokens.saturating_sub(1).div_ceil(2);
    counts.requests.fetch_add(1, Ordering::Relaxed);
    counts.tokens.fetch_add(tokens, Ordering::Relaxed);
    counts.drafts.fetch_add(rounds, Ordering::Relaxed);
    counts.accepted.fetch_add(tokens.saturating_sub(1) - rounds, Ordering::Relaxed);
    let event = |tokens: usize| {
        let event = serde_json::json!({"choices": [{"index": 0, "text": "x"}], "usage": {"completion_tokens": tokens}});
        format!("data: {event}\n\n")
    };
    let events: String = (0..=rounds).map(|round| event((1 + 2 * round).min(tokens))).collect();
    Some(events + "data: [DONE]\n\n")
}

#[test]
fn a_vllm_without_development_mode_tells_its_number_of_drafts_and_the_launch_file_tells_the_rest() {
    let served = Scripted::start("plain");
    let folder = tempfile::tempdir().expect("a folder");
    let launch = "vllm serve m --max-num-seqs 16 --speculative-config '{\"method\": \"eagle3\", \"model\": \"d\", \"num_speculative_tokens\": 3}'\n";
    fs::write(folder.path().join("run.sh"), launch).expect("a launch");
    let mut arguments = vec!["tune", "--url", &served.url, "--repeats", "1", "--out", "out"];
    arguments.extend(QUICK);
    let ended = spectune(folder.path(), &arguments);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{reported}");
    let row = |reported: &str, name: &str| {
        let line = reported.lines().find(|line| line.trim_start().starts_with(name)).map(str::trim).map(str::to_owned);
        line.unwrap_or_else(|| panic!("no {name}: {reported}"))
    };
    assert!(
        row(&reported, "algorithm ").ends_with("not told") && row(&reported, "draft ").ends_with("not told"),
        "{reported}"
    );
    assert!(
        row(&reported, "num_speculative_tokens ").ends_with(" 3") && reported.contains("lint: not checked"),
        "{reported}"
    );
    let (_, records) = journal(&folder.path().join("out"));
    // Twelve tokens: the first one, and eleven in six rounds.
    let length = records[0]["outcome"]["accept_length"].as_f64().expect("a length");
    assert!((length - 2.0).abs() < 1e-9, "{length}");
    // The script sends a whole answer at once, as a proxy does that holds streams back.
    assert!(reported.contains("the tokens of a request arrived together"), "{reported}");
    let page = fs::read_to_string(folder.path().join("out/report.md")).expect("a page");
    assert!(page.contains("the tokens of a request arrived together"), "{page}");

    let mut with_launch = vec!["tune", "--url", &served.url, "--launch", "run.sh", "--out", "with", "--dry-run"];
    with_launch.extend(QUICK);
    let reported = words(&spectune(folder.path(), &with_launch));
    assert!(
        row(&reported, "algorithm ").ends_with("eagle3") && row(&reported, "max running requests ").ends_with("16"),
        "{reported}"
    );
    assert!(!reported.contains("lint: not checked") && !folder.path().join("with").exists(), "{reported}");
}

#[test]
fn trials_with_other_traffic_are_excluded_and_named() {
    let served = Scripted::start("busy");
    let folder = tempfile::tempdir().expect("a folder");
    let mut arguments = vec!["tune", "--url", &served.url, "--repeats", "2", "--out", "out"];
    arguments.extend(QUICK);
    let ended = spectune(folder.path(), &arguments);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(1), "nothing counts: {reported}");
    assert!(reported.contains("other traffic: it had up to 6 requests more than ours"), "{reported}");
    let page = fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("other traffic") && page.contains("No trial counts"), "the page");
    let trials = fs::read_to_string(folder.path().join("out/trials.csv")).expect("trials");
    assert_eq!(trials.lines().filter(|line| line.contains("other traffic")).count(), 4, "{trials}");
}

#[test]
fn a_key_is_sent_and_stands_in_no_file() {
    let served = Scripted::start("key");
    let folder = tempfile::tempdir().expect("a folder");
    let mut arguments = vec!["tune", "--url", &served.url, "--repeats", "1", "--out", "out"];
    arguments.extend(QUICK);
    let refused = spectune(folder.path(), &arguments);
    assert!(refused.status.code() == Some(3) && words(&refused).contains("--api-key-env NAME"), "{}", words(&refused));
    arguments.extend(["--api-key-env", "LLM_KEY"]);
    let ended = spectune(folder.path(), &arguments);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{reported}");
    assert!(!reported.contains("sk-very-secret"), "{reported}");
    assert!(!leaks(folder.path(), "sk-very-secret"));
}

/// Whether a file of a folder contains a text.
fn leaks(folder: &Path, secret: &str) -> bool {
    fs::read_dir(folder).expect("a folder").flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => leaks(&path, secret),
            false => fs::read(&path).expect("a file").windows(secret.len()).any(|part| part == secret.as_bytes()),
        }
    })
}

#[test]
fn secrets_of_a_started_server_stand_in_no_plan_journal_or_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = env!("CARGO_BIN_EXE_spectune");
    let file = |key: &str| {
        format!(
            "[system]\nkind = 'sglang'\ncommand = ['env', 'HF_TOKEN={key}', '{program}', 'serve']\n\
             extra_args = ['--device', 'cpu']\nenv = {{ MY_API_KEY = '{key}' }}\n\
             [models]\ntarget = '{0}/target'\ndraft = '{0}/eagle3'\nalgorithm = 'EAGLE3'\n\
             [engine]\ndevice = 'cpu'\ncontext_length = 128\n[workload]\nrandom = {{ input_length = 8 }}\nrequests = 2\n\
             output_length = 6\n[space]\nnum_steps = [1]\ntopk = [1]\n[search]\nrepeats = 1\n",
            models().display()
        )
    };
    let write = |key: &str| fs::write(folder.path().join("sweep.toml"), file(key)).expect("a sweep file");
    write("one-hidden-value");
    let plan = spectune(folder.path(), &["sweep", "sweep.toml", "--out", "out", "--dry-run"]);
    let reported = words(&plan);
    assert!(
        reported.contains("MY_API_KEY=***") && reported.contains("HF_TOKEN=***") && !reported.contains("hidden-value"),
        "{reported}"
    );
    let ended = spectune(folder.path(), &["sweep", "sweep.toml", "--out", "out"]);
    assert!(matches!(ended.status.code(), Some(0 | 1)) && !words(&ended).contains("hidden-value"), "{}", words(&ended));
    assert!(!leaks(&folder.path().join("out"), "hidden-value"));
    // A renewed key changes nothing that was measured.
    write("two-hidden-value");
    let resumed = spectune(folder.path(), &["sweep", "sweep.toml", "--out", "out", "--resume"]);
    assert!(matches!(resumed.status.code(), Some(0 | 1)), "{}", words(&resumed));
}

#[test]
fn servers_that_cannot_be_measured_are_distinguished() {
    let folder = tempfile::tempdir().expect("a folder");
    for (script, scheme, words) in [
        ("loading", "http", "is not ready yet: wait until it has loaded its model"),
        ("foreign", "http", "neither SGLang nor vLLM nor spectune"),
        ("page", "http", "is not JSON"),
        ("moved", "http", "redirects to https://elsewhere/: give that address"),
        (
            "proxied, without an owner",
            "http",
            "answers neither at /server_info, as SGLang and spectune do, nor at /version",
        ),
        ("tls", "http", "if it expects TLS, give https://127.0.0.1:"),
        ("plain", "https", "does not speak TLS at this port: give http://127.0.0.1:"),
    ] {
        let url = Scripted::start(script).url.replace("http", scheme);
        // All commands that meet a server give the same advice.
        for command in [
            &["tune", "--url", &url, "--input-len", "8", "--out", "out"][..],
            &["lint", "--url", &url],
            &["diagnose", &url, "--seconds", "1"],
        ] {
            let ended = spectune(folder.path(), command);
            let reported = words_of_error(&ended);
            assert_eq!(ended.status.code(), Some(3), "{script}: {reported}");
            assert!(reported.contains(words), "{script}, {command:?}: no {words:?} in {reported}");
        }
    }
    assert!(!folder.path().join("out").exists());

    for (script, words) in
        [("crowded", "send fewer at once (--concurrency)"), ("uncounted", "no usage that counts its tokens")]
    {
        let served = Scripted::start(script);
        let mut arguments = vec!["tune", "--url", &served.url, "--repeats", "1", "--out", script];
        arguments.extend(QUICK);
        let ended = spectune(folder.path(), &arguments);
        let reported = words_of_error(&ended);
        assert!(reported.contains(words) && !reported.contains("not ready"), "{script}: {reported}");
    }

    // A model that it lists and does not generate with ends the measurement after a few trials.
    let served = Scripted::start("unloaded");
    let mut arguments = vec!["tune", "--url", &served.url, "--repeats", "4", "--out", "out"];
    arguments.extend(QUICK);
    let ended = spectune(folder.path(), &arguments);
    let reported = words_of_error(&ended);
    assert_eq!(ended.status.code(), Some(3), "{reported}");
    assert!(
        reported.contains("lists a model that it does not generate with") && reported.contains("--resume"),
        "{reported}"
    );
}

#[test]
fn a_vllm_of_which_a_proxy_forwards_the_openai_api_alone_is_measured() {
    let served = Scripted::start("proxied");
    let folder = tempfile::tempdir().expect("a folder");
    let mut arguments = vec!["tune", "--url", &served.url, "--repeats", "1", "--out", "out"];
    arguments.extend(QUICK);
    let ended = spectune(folder.path(), &arguments);
    let reported = words(&ended);
    assert_eq!(ended.status.code(), Some(0), "{reported}");
    assert!(reported.contains("vLLM (version not told)"), "{reported}");
    assert!(reported.contains("serves 2 models: the first one, m, is measured"), "{reported}");
}

#[test]
fn a_file_of_authorities_that_cannot_be_used_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("empty.pem"), "no certificate\n").expect("a file");
    for (file, expected) in [("none.pem", "none.pem: "), ("empty.pem", "no certificate in PEM form")] {
        for command in [
            &["tune", "--url", "https://127.0.0.1:9", "--input-len", "8"][..],
            &["lint", "--url", "https://127.0.0.1:9"],
        ] {
            let ended = Command::new(env!("CARGO_BIN_EXE_spectune"))
                .args(command)
                .current_dir(folder.path())
                .env("SSL_CERT_FILE", file)
                .output()
                .expect("the binary starts");
            let reported = words_of_error(&ended);
            assert!(reported.contains(expected) && reported.contains("SSL_CERT_FILE"), "{reported}");
            assert_eq!(ended.status.code(), Some(2), "{reported}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_server_that_is_watched_is_diagnosed_also_after_an_interrupt_and_a_failed_reading() {
    let served = Scripted::start("flowing");
    let folder = tempfile::tempdir().expect("a folder");
    let child = Command::new(env!("CARGO_BIN_EXE_spectune"))
        .args(["diagnose", &served.url, "--seconds", "600", "--interval", "1", "--json"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    thread::sleep(Duration::from_millis(3500));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("a signal");
    let ended = child.wait_with_output().expect("it ends");
    let reported = words_of_error(&ended);
    assert_eq!(ended.status.code(), Some(130), "{reported}");
    assert!(reported.contains("readings failed and are left out") && reported.contains("of 600 s"), "{reported}");
    let found: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    assert_eq!((&found["engine"], &found["loads"][0]["running"]), (&"vLLM".into(), &4.0.into()), "{found}");
}

/// What was printed on standard error.
fn words_of_error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[cfg(unix)]
#[test]
fn an_interrupt_while_a_server_does_not_answer_keeps_what_is_finished() {
    let served = Scripted::start("stuck");
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = Command::new(env!("CARGO_BIN_EXE_spectune"))
        .args([
            "tune",
            "--url",
            &served.url,
            "--repeats",
            "2",
            "--out",
            "out",
            "--input-len",
            "8",
            "--output-len",
            "12",
        ])
        .args(["--requests", "4", "--concurrency", "4"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let first = lines.by_ref().find(|line| line.starts_with("[1/2]")).expect("a first trial");
    assert!(first.contains("tokens/s"), "{first}");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("a signal");
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{rest:?}");
    let last = rest.last().expect("a last line");
    assert!(last.starts_with("interrupted; ") && last.contains("continue with: "), "{rest:?}");
    assert_eq!(journal(&folder.path().join("out")).1.len(), 1, "{rest:?}");
}

#[test]
fn what_is_wrong_with_an_address_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let nothing = format!("http://127.0.0.1:{port}");
    for (arguments, code, expected) in [
        (vec!["--url", nothing.as_str(), "--input-len", "8"], 3, "nothing listens there"),
        (vec!["--url", "127.0.0.1:30000", "--input-len", "8"], 2, "is not a URL"),
        (vec!["--url", "http://me:sk-x@h", "--input-len", "8"], 2, "--api-key-env"),
        (vec!["--url", nothing.as_str()], 2, "--prompts FILE, --request-log FILE, or --input-len N"),
        (vec!["run.sh"], 2, "--prompts FILE, --request-log FILE, or --input-len N"),
        (vec!["run.sh", "--url", nothing.as_str()], 2, "cannot be used with"),
        (vec![], 2, "give the launch file to tune, such as `spectune tune run.sh"),
    ] {
        let ended = spectune(folder.path(), &[&["tune"], arguments.as_slice()].concat());
        let reported = words(&ended);
        assert!(ended.status.code() == Some(code) && reported.contains(expected), "{arguments:?}: {reported}");
        assert!(!reported.contains("sk-x"), "{reported}");
    }
}
