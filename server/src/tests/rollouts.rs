//! Updates of weights while the server runs, and pauses of generation.

use std::path::PathBuf;

use super::*;

/// The demo target with another final norm, so that its output differs.
fn other_target(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (options().model_path, folder.path().join(name));
    fs::create_dir(&to).expect("a folder");
    for entry in fs::read_dir(&from).expect("the demo target") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
    let bytes = fs::read(from.join("model.safetensors")).expect("weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("tensors");
    let norm = tensors.tensor("model.norm.weight").expect("a norm");
    let mut shifted = norm.data().to_vec();
    let half = shifted.len() / 2;
    shifted.rotate_left(half);
    let mut views: BTreeMap<String, TensorView<'_>> = tensors.tensors().into_iter().collect();
    let shifted = TensorView::new(norm.dtype(), norm.shape().to_vec(), &shifted).expect("a tensor");
    views.insert("model.norm.weight".into(), shifted);
    safetensors::serialize_to_file(views, None, &to.join("model.safetensors")).expect("weights");
    (folder, to)
}

fn greedy() -> Value {
    json!({"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": true})
}

async fn text(server: &Server) -> String {
    let answer = server.post("/v1/completions", greedy()).await.json();
    answer["choices"][0]["text"].as_str().expect("text").to_owned()
}

async fn update(server: &Server, body: Value) -> (u16, Value) {
    let answer = server.post("/update_weights_from_disk", body).await;
    (answer.status, answer.json())
}

async fn post_ok(server: &Server, path: &str, body: Value) {
    let answer = server.post(path, body).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
}

/// Starts a request and waits until it runs.
async fn begun(server: &Arc<Server>, path: &'static str, body: Value) -> tokio::task::JoinHandle<TestResponse> {
    // The last published statistics may still be of the previous request.
    server.idle().await;
    let own = server.clone();
    let request = tokio::spawn(async move { own.post(path, body).await });
    while server.state.worker.published().statistics.running == 0 && !request.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    request
}

#[tokio::test]
async fn weights_of_target_and_draft_are_taken_from_folders() {
    let server = start(ServeOptions::default()).await;
    let (_folder, other) = other_target("other");
    let old = text(&server).await;
    let body = json!({"model_path": other, "weight_version": "step-1", "load_format": "auto", "token_step": 3});
    let (status, answer) = update(&server, body).await;
    assert_eq!(
        (status, &answer["success"], &answer["num_paused_requests"]),
        (200, &json!(true), &json!(0)),
        "{answer}"
    );
    let answer = server.post("/v1/completions", greedy()).await.json();
    let new = answer["choices"][0]["text"].as_str().expect("text");
    let mut engine = Engine::load(EngineOptions { model_path: other.clone(), ..options() }).expect("it loads");
    let input_ids = engine.text().expect("a tokenizer").encode(PROMPT).expect("it encodes");
    let stop = StopConditions { max_new_tokens: Some(40), ignore_eos: true, ..StopConditions::default() };
    let expected = engine.run(vec![Request { input_ids, sampling: SamplingParams::default(), stop }]).expect("it runs");
    assert_eq!(new, expected[0].text);
    assert_ne!(new, old);
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0, "the prefix cache was flushed");
    let info = server.get("/model_info").await.json();
    assert_eq!((&info["model_path"], &info["weight_version"]), (&json!(other), &json!("step-1")));
    let meta = server.post("/generate", json!({"text": PROMPT})).await.json()["meta_info"].clone();
    assert_eq!(meta["weight_version"], "step-1");

    // A folder with a draft replaces the draft; the response does not depend on it.
    let draft = options().draft_model_path.expect("a draft");
    for body in [json!({"model_path": draft}), json!({"draft_model_path": draft, "flush_cache": false})] {
        let (status, answer) = update(&server, body).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(text(&server).await, new);
    }
    let (status, _) = update(&server, json!({"model_path": options().model_path})).await;
    assert_eq!((status, text(&server).await), (200, old));
    post_ok(&server, "/update_weight_version", json!({"new_version": "step-2"})).await;
    assert_eq!(server.get("/server_info").await.json()["weight_version"], "step-2");
}

#[tokio::test]
async fn weights_that_do_not_fit_are_refused_and_the_old_ones_serve() {
    let server = start(ServeOptions::default()).await;
    let old = text(&server).await;
    let (_folder, cut) = other_target("cut");
    let file = cut.join("model.safetensors");
    let bytes = fs::read(&file).expect("weights");
    fs::write(&file, &bytes[..bytes.len() / 2]).expect("half of them");
    let (_other, missing) = other_target("missing");
    let bytes = fs::read(missing.join("model.safetensors")).expect("weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("tensors");
    let views: BTreeMap<String, TensorView<'_>> =
        tensors.tensors().into_iter().filter(|(name, _)| name != "model.norm.weight").collect();
    safetensors::serialize_to_file(views, None, &missing.join("model.safetensors")).expect("weights");
    let families = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/families");
    let mut folders = vec![cut, missing, "/nowhere".into()];
    folders.extend(fs::read_dir(families).expect("families").filter_map(|entry| Some(entry.ok()?.path())));
    for folder in folders {
        let (status, answer) = update(&server, json!({"model_path": folder})).await;
        assert_eq!((status, &answer["success"]), (400, &json!(false)), "{}: {answer}", folder.display());
        assert!(answer["message"].as_str().is_some_and(|message| !message.is_empty()));
        assert_eq!(text(&server).await, old);
    }
    let complaint = server.post("/update_weights_from_disk", json!({})).await;
    complaint.error(400, Some("model_path"), "model_path is missing");
    let body = json!({"model_path": options().model_path, "load_format": "gguf"});
    server.post("/update_weights_from_disk", body).await.error(400, Some("load_format"), "expected auto");
}

#[tokio::test]
async fn an_update_waits_for_requests_that_run_or_ends_them() {
    let server = Arc::new(start(ServeOptions::default()).await);
    let (_folder, other) = other_target("other");
    let body = json!({"prompt": PROMPT, "max_tokens": 300, "temperature": 0, "ignore_eos": true});
    let alone = server.post("/v1/completions", body.clone()).await.json()["choices"].clone();
    let running = begun(&server, "/v1/completions", body.clone()).await;
    let (status, answer) = update(&server, json!({"model_path": other})).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(running.await.expect("no panic").json()["choices"], alone, "all of it is of the old weights");
    let after = server.post("/v1/completions", body.clone()).await.json()["choices"].clone();
    assert_ne!(after, alone);

    let running = begun(
        &server,
        "/generate",
        json!({"text": PROMPT, "sampling_params": {"max_new_tokens": 480, "ignore_eos": true}}),
    )
    .await;
    let back = json!({"model_path": options().model_path, "abort_all_requests": true});
    assert_eq!(update(&server, back).await.0, 200);
    let ended = running.await.expect("no panic").json();
    assert_eq!(ended["meta_info"]["finish_reason"]["type"], "abort", "{ended}");
    assert_eq!(server.post("/v1/completions", body).await.json()["choices"], alone);
}

#[tokio::test]
async fn requests_that_are_retracted_go_on_as_if_nothing_had_happened() {
    let server = Arc::new(start(ServeOptions::default()).await);
    let schema = json!({"type": "array", "minItems": 12, "maxItems": 20, "items": {"type": "integer", "maximum": 999}});
    let bodies = [
        json!({"prompt": PROMPT, "max_tokens": 200, "temperature": 0, "ignore_eos": true, "logprobs": 2}),
        json!({"prompt": PROMPT, "max_tokens": 200, "seed": 4, "ignore_eos": true, "stop": ["never to be seen"]}),
        json!({"prompt": PROMPT, "max_tokens": 200, "seed": 5, "presence_penalty": 1, "repetition_penalty": 1.3,
               "min_tokens": 150, "prompt_logprobs": 1}),
        json!({"prompt": PROMPT, "max_tokens": 200, "seed": 6, "guided_json": schema}),
    ];
    for body in bodies {
        let alone = server.post("/v1/completions", body.clone()).await.json()["choices"].clone();
        let running = begun(&server, "/v1/completions", body).await;
        post_ok(&server, "/pause_generation", json!({"mode": "retract"})).await;
        let statistics = server.state.worker.published().statistics;
        assert_eq!((statistics.running, statistics.pages_used, statistics.waiting), (0, 0, 1));
        post_ok(&server, "/flush_cache", json!({})).await;
        // Weights are replaced while all requests wait; here by the same ones.
        assert_eq!(update(&server, json!({"model_path": options().model_path})).await.0, 200);
        post_ok(&server, "/continue_generation", json!({})).await;
        assert_eq!(running.await.expect("no panic").json()["choices"], alone);
    }
    server.idle().await;
    assert_eq!(server.state.worker.published().statistics.pages_used, 0);
}

#[tokio::test]
async fn requests_that_are_paused_in_place_keep_what_they_hold() {
    let server = Arc::new(start(ServeOptions::default()).await);
    let (_folder, other) = other_target("other");
    let body =
        json!({"text": PROMPT, "sampling_params": {"max_new_tokens": 300, "ignore_eos": true, "temperature": 0}});
    let running = begun(&server, "/generate", body.clone()).await;
    post_ok(&server, "/pause_generation", json!({"mode": "in_place"})).await;
    let (status, answer) = update(&server, json!({"model_path": other})).await;
    assert_eq!((status, &answer["success"]), (400, &json!(false)));
    assert!(answer["message"].as_str().is_some_and(|message| message.contains("retract or abort")), "{answer}");
    let (status, answer) = update(&server, json!({"model_path": other, "flush_cache": false})).await;
    assert_eq!(status, 200, "{answer}");
    assert!(!running.is_finished());
    // A request that arrives in the meantime waits.
    let own = server.clone();
    let late = tokio::spawn(async move { own.post("/generate", body).await });
    while server.state.worker.published().statistics.waiting == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    post_ok(&server, "/continue_generation", json!({"torch_empty_cache": true})).await;
    for answer in [running, late] {
        let answer = answer.await.expect("no panic").json();
        assert_eq!(answer["meta_info"]["completion_tokens"], 300, "{answer}");
    }
    let running =
        begun(&server, "/v1/completions", json!({"prompt": PROMPT, "max_tokens": 480, "ignore_eos": true})).await;
    post_ok(&server, "/pause_generation", json!({})).await;
    assert_eq!(running.await.expect("no panic").json()["choices"][0]["finish_reason"], "abort");
    server.post("/pause_generation", json!({"mode": "gently"})).await.error(400, Some("mode"), "expected abort");
    assert_eq!(update(&server, json!({"model_path": options().model_path})).await.0, 200);
    post_ok(&server, "/continue_generation", json!({})).await;
}

#[tokio::test]
async fn a_client_that_leaves_during_a_pause_frees_its_slot() {
    let server = Arc::new(start(ServeOptions::default()).await);
    let body = json!({"prompt": PROMPT, "max_tokens": 300, "ignore_eos": true});
    let request = begun(&server, "/v1/completions", body).await;
    post_ok(&server, "/pause_generation", json!({"mode": "in_place"})).await;
    assert_eq!(server.state.worker.published().statistics.running, 1);
    request.abort();
    server.idle().await;
    assert_eq!(server.state.worker.published().statistics.pages_used, 0);
}
