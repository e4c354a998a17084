//! vLLM's API, with responses as in its releases (`data/vllm`), over real HTTP.

mod request;

use std::{
    io::{BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use external::api::{Api, ApiKind, Counters, Generate};

/// The responses of a version.
struct Answers {
    version: &'static str,
    metrics: &'static str,
    completion: &'static str,
    /// `None` without development mode.
    server_info: Option<&'static str>,
    reset: &'static str,
}

const OF_0_20: Answers = Answers {
    version: "0.20.0",
    metrics: include_str!("data/vllm/metrics-0.20.txt"),
    completion: include_str!("data/vllm/completion-0.20.sse"),
    server_info: None,
    reset: "",
};
const OF_0_33: Answers = Answers {
    version: "0.33.0",
    metrics: include_str!("data/vllm/metrics-0.33.txt"),
    completion: include_str!("data/vllm/completion-0.33.sse"),
    server_info: Some(include_str!("data/vllm/server_info-0.33.json")),
    reset: r#"{"success": true}"#,
};

/// Path and body of each received request.
type ReceivedRequests = Arc<Mutex<Vec<(String, String)>>>;

/// Serves the responses and records the requests.
fn serve(answers: Answers) -> (Api, ReceivedRequests) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let requested = Arc::new(Mutex::new(Vec::new()));
    let kept = requested.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &answers, &kept);
        }
    });
    (Api::new(ApiKind::Vllm, &base, Some("spectune-1-2".into()), Duration::from_secs(10)), requested)
}

fn answer(mut stream: TcpStream, answers: &Answers, requested: &Mutex<Vec<(String, String)>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (path, body) = request::read(&mut reader)?;
    requested.lock().ok()?.push((path.clone(), String::from_utf8_lossy(&body).into_owned()));
    let version = format!(r#"{{"version": "{}"}}"#, answers.version);
    let models = r#"{"object": "list", "data": [{"id": "spectune-1-2", "object": "model", "max_model_len": 2048}]}"#;
    let (status, kind, text) = match path.as_str() {
        "/health" => (200, "application/json", ""),
        "/version" => (200, "application/json", version.as_str()),
        "/v1/models" => (200, "application/json", models),
        "/metrics" => (200, "text/plain", answers.metrics),
        "/v1/completions" => (200, "text/event-stream", answers.completion),
        "/reset_prefix_cache" => (200, "application/json", answers.reset),
        "/server_info?config_format=json" if answers.server_info.is_some() => {
            (200, "application/json", answers.server_info.unwrap_or_default())
        }
        _ => (404, "application/json", r#"{"detail": "Not Found"}"#),
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(text.as_bytes()).ok()
}

const REQUEST: Generate<'_> = Generate {
    input_ids: &[1, 2, 3],
    max_new_tokens: 4,
    ignore_eos: true,
    temperature: 0.0,
    top_p: 1.0,
    top_k: 0,
    min_p: 0.0,
    seed: Some(7),
};

#[test]
fn a_request_tells_its_rounds_where_the_version_can() {
    let (api, requested) = serve(OF_0_33);
    assert!(api.is_ready().expect("it answers") && api.is_own().expect("it answers"));
    let generated = api.generate(&REQUEST, &std::sync::atomic::AtomicBool::new(false)).expect("served");
    assert_eq!((generated.output_tokens, generated.output_ids.as_slice()), (4, &[11, 12, 13, 14][..]));
    assert_eq!((generated.rounds, generated.accepted_drafts, generated.proposed_drafts), (Some(2), Some(1), Some(6)));
    assert_eq!(generated.accept_histogram, [1, 1, 0, 0]);
    assert!(generated.first_token <= generated.last_token);
    let requested = requested.lock().expect("kept");
    let (_, body) = requested.iter().find(|(path, _)| path == "/v1/completions").expect("it was asked");
    for part in [r#""prompt":[1,2,3]"#, r#""include_usage":true"#, r#""model":"spectune-1-2""#, r#""ignore_eos":true"#]
    {
        assert!(body.contains(part), "{part}: {body}");
    }
    assert!(!body.contains("seed"), "greedy output has none: {body}");
}

#[test]
fn an_answer_that_the_server_gives_up_is_an_error() {
    let events = "data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":null,\"token_ids\":[1]}],\
                  \"usage\":{\"completion_tokens\":1}}\n\n\
                  data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"abort\",\"token_ids\":[]}],\
                  \"usage\":{\"completion_tokens\":1}}\n\ndata: [DONE]\n\n";
    let (api, _) = serve(Answers { completion: events, ..OF_0_33 });
    let error = api.generate(&REQUEST, &std::sync::atomic::AtomicBool::new(false)).expect_err("it is not complete");
    assert!(error.to_string().contains("finish reason abort"), "{error}");
}

#[test]
fn an_older_version_tells_counters_alone() {
    let (api, _) = serve(OF_0_20);
    let generated = api.generate(&REQUEST, &std::sync::atomic::AtomicBool::new(false)).expect("served");
    assert_eq!((generated.output_tokens, generated.rounds, generated.accepted_drafts), (4, None, None));
    let info = api.info().expect("it answers");
    assert_eq!((info.version.as_deref(), info.resolved), (Some("0.20.0"), None));
    let counters = api.counters().expect("it answers");
    assert_eq!((counters.rounds, counters.accepted_drafts), (Some(40.0), Some(60.0)));
}

#[test]
fn a_flush_without_a_result_is_refused_while_requests_run() {
    let of = |running: usize, waiting: usize| {
        let metrics = format!(
            "vllm:num_requests_running{{engine=\"0\"}} {running}\nvllm:num_requests_waiting{{engine=\"0\"}} {waiting}\n"
        );
        let (api, _) = serve(Answers { metrics: metrics.leak(), ..OF_0_20 });
        // A 200 with an empty body.
        api.flush_cache().expect("it answers")
    };
    assert!(of(0, 0));
    assert!(!of(1, 0) && !of(0, 2));
}

#[test]
fn a_configuration_that_is_a_text_for_people_is_none() {
    let text =
        r#"{"vllm_config": "model='m', speculative_config=SpeculativeConfig(method='ngram', num_spec_tokens=3)"}"#;
    let (api, _) = serve(Answers { server_info: Some(text), version: "0.10.2", ..OF_0_20 });
    assert_eq!(api.info().expect("it answers").resolved, None);
}

#[test]
fn counters_and_configuration_are_read_by_their_names() {
    let (api, _) = serve(OF_0_33);
    let expected = Counters {
        running: Some(8.0),
        waiting: Some(0.0),
        generated_tokens: Some(4096.0),
        rounds: Some(1600.0),
        accepted_drafts: Some(2400.0),
        retracted: Some(1.0),
        cached_tokens: None,
        draft_positions: Some(3),
    };
    assert_eq!(api.counters().expect("it answers"), expected);
    let resolved = api.info().expect("it answers").resolved.expect("development mode");
    assert_eq!(resolved["vllm_config"]["speculative_config"]["num_speculative_tokens"], 3);
    assert!(api.flush_cache().expect("it answers"));
}

#[test]
fn a_cache_that_is_still_held_is_not_empty() {
    let (api, _) = serve(Answers { reset: r#"{"success": false}"#, ..OF_0_33 });
    assert!(!api.flush_cache().expect("it answers"));
}
