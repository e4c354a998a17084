//! The server over a real socket, on the demo models.

mod abuse;
mod clients;
mod dashboards;
mod evaluations;
mod fields;
mod rollouts;
mod structured;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::Duration,
};

use engine::{Engine, EngineOptions, Request, SamplingParams, ShapePolicy, Simulated, StopConditions};
use safetensors::{SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::{ServeOptions, shutdown, state::State};

/// A running server. A message to `signals` stops it, as does dropping it.
struct Server {
    address: SocketAddr,
    state: Arc<State>,
    signals: mpsc::Sender<()>,
    ended: tokio::task::JoinHandle<std::io::Result<()>>,
}

struct TestResponse {
    status: u16,
    head: String,
    body: String,
}

impl TestResponse {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The data of each server-sent event.
    fn events(&self) -> Vec<String> {
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).map(ToOwned::to_owned).collect()
    }

    #[track_caller]
    fn error(&self, status: u16, parameter: Option<&str>, words: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        let error = &self.json()["error"];
        assert_eq!(error["param"].as_str(), parameter, "{error}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(words)), "{error}");
    }
}

fn options() -> EngineOptions {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny");
    EngineOptions {
        model_path: models.join("target"),
        draft_model_path: Some(models.join("eagle3")),
        algorithm: Some("EAGLE3".into()),
        policy: ShapePolicy::fixed("3,2,6".parse().expect("a shape")),
        context_length: Some(512),
        max_running_requests: 4,
        ..EngineOptions::default()
    }
}

fn engine() -> Engine {
    Engine::load(options()).expect("the demo models load")
}

async fn start(options: ServeOptions) -> Server {
    start_with(engine(), options).await
}

async fn start_with(engine: Engine, options: ServeOptions) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (state, _thread) = super::start(engine, options).expect("it starts");
    let (signals, received) = mpsc::channel(2);
    let ended = tokio::spawn(shutdown::run(listener, state.clone(), received));
    Server { address, state, signals, ended }
}

impl Server {
    async fn get(&self, path: &str) -> TestResponse {
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
    }

    async fn post(&self, path: &str, body: Value) -> TestResponse {
        let body = body.to_string();
        let length = body.len();
        self.raw(&format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await
    }

    async fn raw(&self, request: &str) -> TestResponse {
        let mut socket = TcpStream::connect(self.address).await.expect("the server listens");
        socket.write_all(request.as_bytes()).await.expect("it is sent");
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        TestResponse { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Waits until no request runs or waits.
    async fn idle(&self) {
        while self.state.worker.is_busy() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

const PROMPT: &str = "def read(self";

/// The engine's output without a server.
fn offline(prompt: &str, tokens: usize) -> String {
    let mut engine = engine();
    let input_ids = engine.text().expect("a tokenizer").encode(prompt).expect("it encodes");
    let stop = StopConditions { max_new_tokens: Some(tokens), ..StopConditions::default() };
    let request = Request { input_ids, sampling: SamplingParams::default(), stop };
    engine.run(vec![request]).expect("it runs").remove(0).text
}

#[tokio::test]
async fn completions_are_what_the_engine_says_whole_and_streamed() {
    let server = start(ServeOptions::default()).await;
    let body = json!({"model": "target", "prompt": PROMPT, "max_tokens": 40, "temperature": 0});
    let answer = server.post("/v1/completions", body.clone()).await;
    assert_eq!(answer.status, 200);
    let answer = answer.json();
    let text = offline(PROMPT, 40);
    assert_eq!(answer["choices"][0]["text"], text.as_str());
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 40);

    let mut streamed = body;
    streamed["stream"] = true.into();
    streamed["stream_options"] = json!({"include_usage": true});
    let events = server.post("/v1/completions", streamed).await.events();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    let values: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    let pieces: String = values.iter().filter_map(|value| value["choices"][0]["text"].as_str()).collect();
    assert_eq!(pieces, text);
    let usage = &values.last().expect("usage")["usage"];
    assert_eq!(usage["total_tokens"], answer["usage"]["total_tokens"]);
    // The second time, the prompt except its last token is in the cache.
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 4);
}

#[tokio::test]
async fn chat_streams_roles_text_and_reason_for_several_choices() {
    let server = start(ServeOptions { request_metrics: true, ..ServeOptions::default() }).await;
    let messages =
        json!([{"role": "user", "content": [{"type": "text", "text": "Explain "}, {"type": "text", "text": "Vec"}]}]);
    let body = json!({"messages": messages, "max_tokens": 12, "seed": 5, "n": 2, "ignore_eos": true});
    let whole = server.post("/v1/chat/completions", body.clone()).await.json();
    assert_eq!(whole["choices"].as_array().map(Vec::len), Some(2));
    assert_eq!(whole["usage"]["completion_tokens"], 24);
    assert!(whole["metrics"].is_null(), "several choices have no figures in common");
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let events = server.post("/v1/chat/completions", streamed).await.events();
    for index in 0..2 {
        let of_choice = |value: &Value| value["choices"][0]["index"] == index;
        let values: Vec<Value> =
            events.iter().filter_map(|event| serde_json::from_str(event).ok()).filter(of_choice).collect();
        assert_eq!(values[0]["choices"][0]["delta"]["role"], "assistant");
        let text: String = values.iter().filter_map(|value| value["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(whole["choices"][index]["message"]["content"], text.as_str());
        assert_eq!(values.last().expect("an end")["choices"][0]["finish_reason"], "length");
    }
    let mut single = body;
    single["n"] = 1.into();
    let figures = &server.post("/v1/chat/completions", single).await.json()["metrics"]["speculative_decoding"];
    let rounds: u64 =
        figures["acceptance_histogram"].as_array().expect("a list").iter().filter_map(Value::as_u64).sum();
    assert_eq!(figures["num_spec_steps"], rounds);
    // One bucket for each number of drafts from 0 to the maximum, even if no round accepted that
    // many.
    let buckets = figures["acceptance_histogram"].as_array().map_or(0, Vec::len) as u64;
    assert_eq!(figures["num_spec_tokens"], buckets - 1);
    assert_eq!(figures["num_draft_tokens"], rounds * 5);
}

#[tokio::test]
async fn stop_strings_logprobs_echo_and_sglangs_own_page() {
    let server = start(ServeOptions::default()).await;
    let text = offline(PROMPT, 40);
    let stop: String = text.chars().skip(10).take(3).collect();
    let expected = text.split(&stop).next().expect("a part");
    let body = json!({"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "stop": stop, "echo": true});
    let answer = server.post("/v1/completions", body).await.json();
    assert_eq!(answer["choices"][0]["text"], format!("{PROMPT}{expected}"));
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");

    let body = json!({"prompt": PROMPT, "max_tokens": 6, "temperature": 0, "logprobs": 2});
    let logprobs = server.post("/v1/completions", body).await.json()["choices"][0]["logprobs"].clone();
    assert_eq!(logprobs["tokens"].as_array().map(Vec::len), Some(6));
    for (token, (value, top)) in logprobs["tokens"].as_array().expect("a list").iter().zip(
        logprobs["token_logprobs"]
            .as_array()
            .expect("a list")
            .iter()
            .zip(logprobs["top_logprobs"].as_array().expect("a list")),
    ) {
        // Greedy: the token is the best alternative.
        assert_eq!(top[token.as_str().expect("text")], *value);
    }

    let body = json!({"text": PROMPT, "sampling_params": {"max_new_tokens": 40, "temperature": 0}});
    let answer = server.post("/generate", body).await.json();
    assert_eq!(answer["text"], text.as_str());
    assert_eq!(answer["meta_info"]["completion_tokens"], 40);
    let rounds = answer["meta_info"]["spec_verify_ct"].as_f64().expect("a number");
    assert_eq!(answer["meta_info"]["spec_accept_length"], 40.0 / rounds);
}

#[tokio::test]
async fn the_bytes_of_chat_logprobs_are_those_of_the_text() {
    let server = start(ServeOptions::default()).await;
    let body = json!({
        "messages": [{"role": "user", "content": "Explain Vec"}], "max_tokens": 24, "temperature": 0,
        "ignore_eos": true, "logprobs": true, "top_logprobs": 3,
    });
    let whole = server.post("/v1/chat/completions", body.clone()).await.json();
    let list = whole["choices"][0]["logprobs"]["content"].as_array().cloned().expect("log-probabilities");
    assert_eq!(list.len(), 24);
    let bytes = list.iter().flat_map(|token| token["bytes"].as_array().cloned().unwrap_or_default());
    let bytes: Vec<u8> = bytes.filter_map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok())).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], String::from_utf8_lossy(&bytes).as_ref());
    for token in &list {
        // Greedy: the token is the best alternative.
        assert_eq!(token["top_logprobs"][0]["logprob"], token["logprob"]);
        assert_eq!(token["top_logprobs"].as_array().map(Vec::len), Some(3));
    }

    let mut streamed = body;
    streamed["stream"] = true.into();
    streamed["stream_options"] = json!({"continuous_usage_stats": true});
    let events = server.post("/v1/chat/completions", streamed).await.events();
    let values: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    let of = |value: &Value| value["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default();
    assert_eq!(values.iter().flat_map(of).collect::<Vec<_>>(), list);
    assert_eq!(values.last().expect("an end")["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
}

#[tokio::test]
async fn made_up_acceptance_is_named_in_every_answer() {
    let plain = start(ServeOptions::default()).await;
    let made_up = EngineOptions { simulated: Some(Simulated::Length(2.0)), ..options() };
    let engine = Engine::load(made_up).expect("the demo models load");
    let made_up = start_with(engine, ServeOptions::default()).await;
    let completion = ("/v1/completions", json!({"prompt": PROMPT, "max_tokens": 4}), "/simulated");
    let generate = json!({"text": PROMPT, "sampling_params": {"max_new_tokens": 4}});
    for (path, body, place) in [completion, ("/generate", generate, "/meta_info/simulated")] {
        assert_eq!(plain.post(path, body.clone()).await.json().pointer(place), None, "{path}");
        assert_eq!(made_up.post(path, body).await.json().pointer(place), Some(&json!(true)), "{path}");
    }
    assert_eq!(made_up.get("/server_info").await.json()["simulate_accept_length"], 2.0);
}

#[tokio::test]
async fn errors_name_the_parameter_and_never_the_wrong_thing() {
    let server = start(ServeOptions { api_key: None, ..ServeOptions::default() }).await;
    let chat = "/v1/chat/completions";
    let message = json!([{"role": "user", "content": "x"}]);
    server.post(chat, json!({})).await.error(400, Some("messages"), "missing");
    server.post(chat, json!({"messages": []})).await.error(400, Some("messages"), "found an empty list");
    server.post(chat, json!({"messages": [{"content": "x"}]})).await.error(400, Some("messages[0].role"), "no role");
    server.post(chat, json!({"messages": message, "model": "gpt-4"})).await.error(404, Some("model"), "gpt-4");
    server.post(chat, json!({"messages": message, "temperature": -1})).await.error(400, Some("temperature"), "-1");
    server.post(chat, json!({"messages": message, "temperature": "hot"})).await.error(
        400,
        Some("temperature"),
        "a number",
    );
    server.post(chat, json!({"messages": message, "priority": 1})).await.error(400, Some("priority"), "no priorities");
    server.post(chat, json!({"messages": [{"role": "wizard", "content": "x"}]})).await.error(
        400,
        Some("messages[0].role"),
        "system, developer, user",
    );
    server.post(chat, json!({"messages": message, "top_logprobs": 2})).await.error(
        400,
        Some("top_logprobs"),
        "logprobs",
    );
    server.post(chat, json!({"messages": message, "temprature": 1})).await.error(
        400,
        Some("temprature"),
        "leave it out",
    );
    for kwargs in [json!([]), json!({"messages": []})] {
        let body = json!({"messages": message, "chat_template_kwargs": kwargs});
        server.post(chat, body).await.error(400, Some("chat_template_kwargs"), "chat_template_kwargs: ");
    }
    // Defaults that clients write out, which have no effect.
    let defaults = json!({
        "messages": message, "presence_penalty": 0, "tools": [], "stop": null, "max_tokens": 1, "store": true,
        "chat_template_kwargs": {"enable_thinking": false},
    });
    assert_eq!(server.post(chat, defaults).await.status, 200);
    let long = "word ".repeat(2000);
    let answer = server.post("/v1/completions", json!({"prompt": long})).await;
    answer.error(400, Some("prompt"), "maximum context length is 512 tokens");
    assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
    server.post("/v1/completions", json!({"prompt": [1, 99_999_999]})).await.error(400, None, "outside the vocabulary");
    server
        .raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\n{x}")
        .await
        .error(400, None, "not valid JSON");
    server
        .raw("POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}")
        .await
        .error(415, None, "Content-Type: application/json");
    let generate = "/generate";
    server.post(generate, json!({})).await.error(400, Some("text"), "text or input_ids");
    let nested = json!({"text": "x", "sampling_params": {"top_p": 2}});
    server.post(generate, nested).await.error(400, Some("sampling_params.top_p"), "0 to 1");
    let huge =
        format!("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", 9 << 20);
    assert_eq!(server.raw(&(huge + &" ".repeat(9 << 20))).await.status, 413);
    server.get("/v1/nothing").await.error(404, None, "/v1/nothing");
    server.get("/v1/completions").await.error(405, None, "does not support GET");
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test]
async fn keys_models_and_metrics() {
    let server = start(ServeOptions {
        api_key: Some("secret".into()),
        served_model_name: Some("tiny".into()),
        ..ServeOptions::default()
    })
    .await;
    server.get("/v1/models").await.error(401, None, "Bearer");
    server.post("/v1/completions", json!({"prompt": PROMPT})).await.error(401, None, "Bearer");
    let with_key = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer secret\r\n\r\n")
    };
    assert_eq!(server.raw(&with_key("/v1/models")).await.json()["data"][0]["id"], "tiny");
    assert_eq!(server.raw(&with_key("/v1/models/tiny")).await.status, 200);
    assert_eq!(server.raw(&with_key("/v1/models/other")).await.status, 404);
}

#[tokio::test]
async fn health_and_metrics_ask_for_no_key_and_count_what_was_done() {
    let server = start(ServeOptions { api_key: Some("secret".into()), ..ServeOptions::default() }).await;
    assert_eq!(server.get("/health").await.status, 200);
    assert_eq!(server.get("/health_generate").await.status, 200);
    // From the second time on, four of five tokens are in the cache.
    for cached in [0, 4, 4] {
        let body = json!({"input_ids": [9, 8, 7, 6, 5], "sampling_params": {"max_new_tokens": 1}}).to_string();
        let length = body.len();
        let head = "POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer secret";
        let answer = server.raw(&format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}")).await;
        assert_eq!(answer.json()["meta_info"]["cached_tokens"], cached, "{}", answer.body);
    }
    server.idle().await;
    let model = "{model_name=\"target\"}";
    let page = server.get("/metrics").await.body;
    for line in [
        format!("spectune_generation_tokens_total{model} 4"),
        format!("spectune_prompt_tokens_total{model} 16"),
        format!("spectune_cached_tokens_total{model} 8"),
        format!("sglang:cached_tokens_total{model} 8"),
        format!("sglang:cache_hit_rate{model} 0.5"),
        format!("sglang:num_running_reqs{model} 0.0"),
        format!("spectune_time_to_first_token_seconds_count{model} 4"),
        "# TYPE sglang:prompt_tokens_total counter".to_owned(),
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
    let head = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: application/openmetrics-text\r\n\r\n";
    let page = server.raw(head).await.body;
    assert!(page.contains("# TYPE sglang:prompt_tokens counter\n") && page.ends_with("# EOF\n"), "{page}");
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_pages() {
    let server = start(ServeOptions::default()).await;
    let body = json!({"prompt": PROMPT, "max_tokens": 400, "ignore_eos": true, "stream": true}).to_string();
    let mut socket = TcpStream::connect(server.address).await.expect("the server listens");
    let request = format!("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    socket.write_all(request.as_bytes()).await.expect("it is sent");
    let mut first = [0; 64];
    socket.read_exact(&mut first).await.expect("it begins");
    drop(socket);
    server.idle().await;
    let statistics = server.state.worker.published().statistics;
    assert_eq!((statistics.pages_used, statistics.cancelled + statistics.exhausted), (0, 1));
}

/// The demo models with a token whose embedding is NaN, and a separate LM head without such a row.
fn engine_that_breaks_at(token: usize) -> Engine {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (options().model_path, folder.path());
    for entry in fs::read_dir(&from).expect("the demo models") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
    let bytes = fs::read(from.join("model.safetensors")).expect("weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("tensors");
    let embedding = tensors.tensor("model.embed_tokens.weight").expect("an embedding");
    let mut broken = embedding.data().to_vec();
    let row = broken.len() / embedding.shape()[0];
    broken[token * row..(token + 1) * row].fill(0xff);
    let mut views: BTreeMap<String, TensorView<'_>> = tensors.tensors().into_iter().collect();
    let broken = TensorView::new(embedding.dtype(), embedding.shape().to_vec(), &broken).expect("a tensor");
    views.insert("lm_head.weight".into(), embedding);
    views.insert("model.embed_tokens.weight".into(), broken);
    safetensors::serialize_to_file(views, None, &to.join("model.safetensors")).expect("weights");
    let config = fs::read_to_string(from.join("config.json")).expect("a config");
    let mut config: Value = serde_json::from_str(&config).expect("JSON");
    config["tie_word_embeddings"] = false.into();
    fs::write(to.join("config.json"), config.to_string()).expect("a config");
    Engine::load(EngineOptions { model_path: to.to_owned(), ..options() }).expect("the models load")
}

#[tokio::test]
async fn a_prompt_for_which_the_target_has_no_numbers_costs_its_own_client_alone() {
    let server = start_with(engine_that_breaks_at(777), ServeOptions::default()).await;
    let good = json!({"prompt": PROMPT, "max_tokens": 40, "temperature": 0});
    let bad = json!({"input_ids": [5, 6, 777], "sampling_params": {"max_new_tokens": 8}});
    let (whole, broken) = tokio::join!(server.post("/v1/completions", good.clone()), server.post("/generate", bad));
    assert_eq!(whole.json()["choices"][0]["text"], offline(PROMPT, 40).as_str());
    broken.error(500, None, "logits for position 3 are not finite");

    let streamed = json!({"prompt": [5, 6, 777], "max_tokens": 8, "stream": true});
    let events = server.post("/v1/completions", streamed).await.events();
    assert!(events[0].contains("not finite") && events.last().is_some_and(|last| last == "[DONE]"), "{events:?}");

    let after = server.post("/v1/completions", good).await;
    assert_eq!(after.json()["choices"][0]["text"], offline(PROMPT, 40).as_str());
    server.idle().await;
    let statistics = server.state.worker.published().statistics;
    assert_eq!((statistics.pages_used, statistics.broken, statistics.exhausted), (0, 2, 2));
}

#[tokio::test]
async fn a_stop_takes_nothing_new_and_cuts_off_what_does_not_end() {
    let grace = Duration::from_millis(1);
    let mut server = start(ServeOptions { shutdown_grace: grace, ..ServeOptions::default() }).await;
    let body = json!({"prompt": PROMPT, "max_tokens": 480, "ignore_eos": true, "stream": true}).to_string();
    // A client that never reads its response.
    let mut socket = TcpStream::connect(server.address).await.expect("the server listens");
    let request = format!("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    socket.write_all(request.as_bytes()).await.expect("it is sent");
    while !server.state.worker.is_busy() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.signals.send(()).await.expect("it runs");
    tokio::time::timeout(Duration::from_secs(30), &mut server.ended)
        .await
        .expect("it ends")
        .expect("no panic")
        .expect("no error");
    server.idle().await;
    let statistics = server.state.worker.published().statistics;
    assert_eq!((statistics.pages_used, statistics.cancelled + statistics.exhausted), (0, 1));
}

#[tokio::test]
async fn what_is_requested_is_done_or_refused() {
    let server = start(ServeOptions::default()).await;
    let chat = |further: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0});
        body.as_object_mut().expect("an object").extend(further.as_object().cloned().expect("an object"));
        server.post("/v1/chat/completions", body)
    };
    let prompt_tokens = |answer: TestResponse| answer.json()["usage"]["prompt_tokens"].as_u64().expect("a count");
    let plain = prompt_tokens(chat(json!({})).await);
    assert!(prompt_tokens(chat(json!({"add_generation_prompt": false})).await) < plain);
    assert_eq!(prompt_tokens(chat(json!({"add_generation_prompt": true})).await), plain);
    assert_eq!(prompt_tokens(chat(json!({"add_special_tokens": true})).await), plain + 1);
    let onward = prompt_tokens(chat(json!({"continue_final_message": true})).await);
    assert!(onward < plain, "{onward}");
    chat(json!({"add_generation_prompt": true, "continue_final_message": true})).await.error(
        400,
        Some("continue_final_message"),
        "needs add_generation_prompt",
    );
    assert_eq!(chat(json!({"max_tokens": 4.0, "seed": u64::MAX})).await.json()["usage"]["completion_tokens"], 4);
    for (name, value) in [("documents", json!(false)), ("service_tier", json!("")), ("unheard_of", json!(false))] {
        chat(json!({name: value})).await.error(400, Some(name), "leave it out");
    }
    chat(json!({"stop": ""})).await.error(400, Some("stop"), "empty");
    chat(json!({"skip_special_tokens": 1})).await.error(400, Some("skip_special_tokens"), "true or false");

    let complete = |further: Value| {
        let mut body = json!({"prompt": PROMPT, "max_tokens": 40, "temperature": 0});
        body.as_object_mut().expect("an object").extend(further.as_object().cloned().expect("an object"));
        server.post("/v1/completions", body)
    };
    let with = prompt_tokens(complete(json!({})).await);
    assert_eq!(prompt_tokens(complete(json!({"add_special_tokens": false})).await), with - 1);
    let text = offline(PROMPT, 40);
    let stop: String = text.chars().skip(10).take(3).collect();
    let expected = format!("{}{stop}", text.split(&stop).next().expect("a part"));
    let kept = complete(json!({"stop": stop, "include_stop_str_in_output": true})).await.json();
    assert_eq!(kept["choices"][0]["text"], expected.as_str());

    let generate = json!({"text": PROMPT, "sampling_params": {"max_new_tokens": 3}, "detokenize": false});
    let answer = server.post("/generate", generate).await.json();
    assert_eq!((answer["text"].as_str(), answer["output_ids"].as_array().map(Vec::len)), (Some(""), Some(3)));
    complete(json!({"detokenize": false, "stop": "x"})).await.error(400, None, "stop strings need text");
}

#[tokio::test]
async fn special_tokens_are_part_of_the_text_where_requested() {
    let server = start(ServeOptions::default()).await;
    let text = server.state.worker.facts().text.clone().expect("a tokenizer");
    let special = text.encode("").expect("it encodes")[0];
    let end = text.end_token().expect("an end token");
    let body = json!({
        "prompt": [special], "max_tokens": 3, "ignore_eos": true, "logit_bias": {end.to_string(): 100},
    });
    let mut kept = body.clone();
    kept["skip_special_tokens"] = false.into();
    let [skipped, kept] = [server.post("/v1/completions", body).await, server.post("/v1/completions", kept).await];
    let shown = text.token(end).text.repeat(3);
    assert_eq!(
        (&skipped.json()["choices"][0]["text"], &kept.json()["choices"][0]["text"]),
        (&json!(""), &json!(shown))
    );
}

#[tokio::test]
async fn bodies_are_bounded_in_size_memory_and_tokens() {
    let options = ServeOptions { max_request_memory: 256 << 10, ..ServeOptions::default() };
    let server = start(options).await;
    let free = server.state.memory.free();
    let prompt = |bytes: usize| json!({"prompt": "a ".repeat(bytes / 2), "max_tokens": 1});
    let answer = server.post("/v1/completions", prompt(64 << 10)).await;
    answer.error(400, Some("prompt"), "maximum context length is 512 tokens");
    server.post("/v1/completions", prompt(512 << 10)).await.error(503, None, "used up the memory limit");
    // Small in bytes, but large when parsed.
    let lists = json!({"user": vec![json!([]); 60_000]});
    server.post("/v1/completions", lists).await.error(503, None, "used up the memory limit");
    let messages = json!({"messages": vec![json!({"role": "user", "content": ""}); 600]});
    server.post("/v1/chat/completions", messages).await.error(400, Some("messages"), "at least 600 tokens");
    let head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue";
    let answer = server.raw(&format!("{head}\r\nContent-Length: 99999999\r\n\r\n")).await;
    assert_eq!(answer.status, 413, "{}", answer.body);
    let piece = "x".repeat(1 << 20);
    let pieces = format!("{:x}\r\n{piece}\r\n", piece.len()).repeat(9);
    let head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked";
    assert_ne!(server.raw(&format!("{head}\r\n\r\n{pieces}0\r\n\r\n")).await.status, 200);
    server.idle().await;
    assert_eq!(server.state.memory.free(), free);
}

#[tokio::test]
async fn idle_connections_make_room_and_busy_ones_leave_room_for_health() {
    let server = start(ServeOptions { max_connections: 2, ..ServeOptions::default() }).await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        let mut socket = TcpStream::connect(server.address).await.expect("the server listens");
        socket.write_all(b"GET /health HTTP/1.1\r\n").await.expect("it is sent");
        idle.push(socket);
        assert_eq!(server.get("/v1/models").await.status, 200);
    }
    drop(idle);
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut socket = TcpStream::connect(server.address).await.expect("the server listens");
        let head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
        socket.write_all(head.as_bytes()).await.expect("it is sent");
        // After `100 Continue` the request is in progress, but the body never arrives.
        let mut requested = [0; 12];
        socket.read_exact(&mut requested).await.expect("an interim answer");
        assert_eq!(&requested, b"HTTP/1.1 100");
        busy.push(socket);
    }
    server.get("/v1/models").await.error(503, None, "maximum number of connections");
    assert_eq!(server.get("/health").await.status, 200);
    drop(busy);
    server.idle().await;
    while server.get("/v1/models").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn browsers_and_clients_without_a_host_or_key_are_reported() {
    let server = start(ServeOptions { api_key: Some("secret".into()), ..ServeOptions::default() }).await;
    let ask = "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: https://a.example\r\n\
               Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-own\r\n\r\n";
    let answer = server.raw(ask).await;
    assert_eq!(answer.status, 204);
    for line in ["access-control-allow-origin: https://a.example", "access-control-allow-headers: x-own"] {
        assert!(answer.head.lines().any(|found| found == line), "{}", answer.head);
    }
    let answer = server.get("/v1/models").await;
    assert!(answer.head.contains("www-authenticate: Bearer"), "{}", answer.head);
    server.raw("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n").await.error(400, None, "Host");
    assert_eq!(server.get("/ready").await.status, 200);
}
