//! The requests that benchmarks and evaluations send.

use super::*;

fn with(mut body: Value, further: Value) -> Value {
    body.as_object_mut().expect("an object").extend(further.as_object().cloned().expect("an object"));
    body
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_else(|| panic!("no list: {value}"))
}

/// The demo target without a draft.
fn plain() -> Engine {
    let policy = ShapePolicy::fixed(schemas::tree::TreeShape::OFF);
    let options = EngineOptions { draft_model_path: None, algorithm: None, policy, ..options() };
    Engine::load(options).expect("the demo target loads")
}

#[tokio::test]
async fn a_text_is_scored_as_it_was_generated() {
    let server = start(ServeOptions::default()).await;
    let body = json!({"prompt": PROMPT, "max_tokens": 6, "temperature": 0, "logprobs": 2, "return_token_ids": null});
    let generated = server.post("/v1/completions", body).await.json()["choices"][0].clone();
    let whole = format!("{PROMPT}{}", generated["text"].as_str().expect("text"));
    for most in [0, 1] {
        let body = json!({"prompt": whole, "max_tokens": most, "temperature": 0, "logprobs": 2, "echo": true});
        let scored = server.post("/v1/completions", body).await.json();
        let [values, tops, names] =
            ["token_logprobs", "top_logprobs", "tokens"].map(|name| list(&scored["choices"][0]["logprobs"][name]));
        let prompt = scored["usage"]["prompt_tokens"].as_u64().expect("a count") as usize;
        assert_eq!((values.len(), tops.len(), names.len()), (prompt + most, prompt + most, prompt + most));
        assert!(values[0].is_null() && tops[0].is_null());
        let of_generation = list(&generated["logprobs"]["token_logprobs"]);
        assert_eq!(values[prompt - 6..prompt], of_generation[..], "the same passes give the same numbers");
        assert_eq!(tops[prompt - 6..prompt], list(&generated["logprobs"]["top_logprobs"])[..]);
        assert_eq!(scored["usage"]["completion_tokens"], most);
    }
    let body = json!({"prompt": whole, "max_tokens": 1, "prompt_logprobs": 1, "temperature": 0});
    let reported = list(&server.post("/v1/completions", body).await.json()["choices"][0]["prompt_logprobs"]);
    let best = reported.last().and_then(Value::as_object).expect("alternatives");
    assert!(reported[0].is_null() && best.values().any(|one| one["rank"] == 1), "{best:?}");
    let body = json!({"messages": [{"role": "user", "content": "x"}], "prompt_logprobs": 0, "max_tokens": 1});
    let answer = server.post("/v1/chat/completions", body).await.json();
    assert_eq!(json!(list(&answer["prompt_logprobs"]).len()), answer["usage"]["prompt_tokens"]);
    for (name, value) in [("prompt_logprobs", json!(1)), ("echo", json!(true))] {
        let body = json!({"prompt": "x", "stream": true, "logprobs": 1, name: value});
        server.post("/v1/completions", body).await.error(400, Some(name), "cannot be streamed");
    }
}

#[tokio::test]
async fn sglangs_own_page_takes_lists_and_tells_of_prompts() {
    let server = start(ServeOptions::default()).await;
    let body = json!({
        "text": [PROMPT, "fn main() {"], "rid": ["a", "b"], "return_logprob": [true, false],
        "logprob_start_len": [2, -1],
        "sampling_params": [{"max_new_tokens": 2, "temperature": 0}, {"max_new_tokens": 3, "sampling_seed": 4}],
        "return_cached_tokens_details": true,
    });
    let answers = list(&server.post("/generate", body.clone()).await.json());
    let meta = |at: usize| answers[at]["meta_info"].clone();
    assert_eq!((meta(0)["id"].as_str(), meta(1)["id"].as_str()), (Some("a"), Some("b")));
    assert_eq!((&meta(0)["completion_tokens"], &meta(1)["completion_tokens"]), (&json!(2), &json!(3)));
    let input = list(&meta(0)["input_token_logprobs"]);
    assert_eq!(json!(input.len() + 2), meta(0)["prompt_tokens"]);
    assert!(input[0][0].is_null() && input[1][0].is_number(), "{input:?}");
    assert!(meta(1)["input_token_logprobs"].is_null() && meta(0)["cached_tokens_details"]["device"].is_u64());
    let scored = json!({"text": PROMPT, "sampling_params": {"max_new_tokens": 0}});
    let scored = server.post("/generate", with(scored, json!({"return_logprob": true, "logprob_start_len": 0}))).await;
    let meta = &scored.json()["meta_info"];
    assert_eq!((meta["completion_tokens"].as_u64(), list(&meta["output_token_logprobs"]).len()), (Some(0), 0));
    assert_eq!(json!(list(&meta["input_token_logprobs"]).len()), meta["prompt_tokens"]);
    for stream in [false, true] {
        let brief = json!({"text": PROMPT, "sampling_params": {"max_new_tokens": 1}, "return_logprob": true});
        let answer = server.post("/generate", with(brief, json!({"stream": stream}))).await;
        let answer = if stream {
            answer.events().iter().rev().find_map(|event| serde_json::from_str(event).ok()).expect("an end")
        } else {
            answer.json()
        };
        let input = list(&answer["meta_info"]["input_token_logprobs"]);
        assert!(input.len() == 1 && input[0][0].is_null() && input[0][1].is_number(), "{answer}");
        assert_eq!(list(&answer["meta_info"]["output_token_logprobs"]).len(), 1, "{answer}");
    }
    let wrong = with(body.clone(), json!({"rid": ["a"]}));
    server.post("/generate", wrong).await.error(400, Some("rid"), "one for each prompt");
    let wrong = with(body, json!({"return_logprob": [true]}));
    server.post("/generate", wrong).await.error(400, Some("return_logprob"), "1 entries for 2 prompts");
}

#[tokio::test]
async fn logits_are_changed_as_requested_with_speculation_as_without() {
    let server = start(ServeOptions::default()).await;
    let without = start_with(plain(), ServeOptions::default()).await;
    let text = server.state.worker.facts().text.clone().expect("a tokenizer");
    let end = text.end_token().expect("an end token");
    let body = json!({"prompt": PROMPT, "max_tokens": 40, "temperature": 0});
    let mut seen = vec![offline(PROMPT, 40)];
    for further in [
        json!({"presence_penalty": 1.5}),
        json!({"frequency_penalty": 1.0}),
        json!({"repetition_penalty": 1.3}),
        json!({"repetition_penalty": 1.2, "temperature": 1, "seed": 3}),
        json!({"logit_bias": {"300": 3.5, "17": -100}, "frequency_penalty": 0.5, "temperature": 1, "seed": 3}),
    ] {
        let body = with(body.clone(), further.clone());
        let [here, there] =
            [server.post("/v1/completions", body.clone()).await, without.post("/v1/completions", body).await];
        let text = here.json()["choices"][0]["text"].as_str().expect("text").to_owned();
        assert_eq!(there.json()["choices"][0]["text"], text.as_str(), "{further}");
        assert!(!seen.contains(&text), "{further} changes nothing");
        seen.push(text);
    }
    let always_end = json!({"logit_bias": {end.to_string(): 100}, "min_tokens": 5});
    let answer = server.post("/v1/completions", with(body.clone(), always_end)).await.json();
    assert_eq!(
        (&answer["usage"]["completion_tokens"], &answer["choices"][0]["finish_reason"]),
        (&json!(6), &json!("stop"))
    );
    // Each token is the stop string; vLLM's name holds it back, SGLang's does not.
    let stop = text.decode(&[300]);
    for (name, tokens) in [("min_tokens", 4), ("min_new_tokens", 1)] {
        let stopped = json!({"logit_bias": {"300": 100}, "max_tokens": 7, "stop": stop, name: 3});
        let answer = server.post("/v1/completions", with(body.clone(), stopped)).await.json();
        assert_eq!(answer["usage"]["completion_tokens"], tokens, "{name}: {answer}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{name}: {answer}");
    }
    let always_one = json!({"logit_bias": {"300": 100}, "max_tokens": 7});
    let answer = server.post("/v1/completions", with(body.clone(), always_one)).await.json();
    assert_eq!(answer["choices"][0]["text"], text.decode(&[300; 7]).as_str());
    for (name, value) in
        [("logit_bias", json!({"99999999": 1})), ("logit_bias", json!({"1": 101})), ("presence_penalty", json!(3))]
    {
        server.post("/v1/completions", with(body.clone(), json!({name: value}))).await.error(400, Some(name), name);
    }
}

#[tokio::test]
async fn the_cache_is_flushed_when_nothing_runs() {
    let server = start(ServeOptions::default()).await;
    let cached = || async {
        let body = json!({"input_ids": [9, 8, 7, 6, 5], "sampling_params": {"max_new_tokens": 1}});
        server.post("/generate", body).await.json()["meta_info"]["cached_tokens"].clone()
    };
    assert_eq!((cached().await, cached().await), (json!(0), json!(4)));
    assert_eq!(server.get("/flush_cache?timeout=5").await.status, 200);
    assert_eq!((cached().await, cached().await), (json!(0), json!(4)));
    server.get("/flush_cache?timeout=x").await.error(400, Some("timeout"), "seconds");
    // While paused, a request waits indefinitely.
    assert_eq!(server.post("/pause_generation", json!({"mode": "in_place"})).await.status, 200);
    let waits = server.post("/generate", json!({"input_ids": [1], "sampling_params": {"max_new_tokens": 1}}));
    let steers = async {
        while !server.state.worker.is_busy() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The request holds no pages yet.
        assert_eq!(server.post("/flush_cache", json!({})).await.status, 200);
        assert_eq!(server.post("/continue_generation", json!({})).await.status, 200);
    };
    let (answer, ()) = tokio::join!(waits, steers);
    assert_eq!(answer.status, 200);
    assert_eq!(server.post("/reset_prefix_cache", json!({})).await.status, 200);
}

#[tokio::test]
async fn requests_are_aborted_by_name_and_by_a_pause() {
    let server = start(ServeOptions::default()).await;
    let body = |rid: &str| json!({"text": PROMPT, "rid": rid, "stream": true, "sampling_params": {"max_new_tokens": 400, "ignore_eos": true}});
    assert_eq!(server.post("/pause_generation", json!({"mode": "in_place"})).await.status, 200);
    let steers = async {
        while server.state.worker.published().statistics.waiting < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(server.post("/abort_request", json!({"rid": "long"})).await.status, 200);
        assert_eq!(server.post("/continue_generation", json!({})).await.status, 200);
    };
    let (aborted, whole, ()) =
        tokio::join!(server.post("/generate", body("long-1")), server.post("/generate", body("other")), steers);
    let last = |answer: &TestResponse| -> Value {
        let events = answer.events();
        serde_json::from_str(&events[events.len() - 2]).expect("an event")
    };
    assert_eq!(last(&aborted)["meta_info"]["finish_reason"]["type"], "abort");
    assert_eq!(last(&whole)["meta_info"]["finish_reason"]["type"], "length");
    server.post("/abort_request", json!({})).await.error(400, Some("rid"), "abort_all");
    assert_eq!(server.post("/pause_generation", json!({})).await.status, 200);
    let steers = async {
        while !server.state.worker.is_busy() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(server.post("/pause_generation", json!({"mode": "abort"})).await.status, 200);
    };
    let (aborted, ()) = tokio::join!(server.post("/generate", body("third")), steers);
    assert_eq!(last(&aborted)["meta_info"]["finish_reason"]["type"], "abort");
}

#[tokio::test]
async fn texts_become_tokens_and_tokens_texts() {
    let server = start(ServeOptions::default()).await;
    let text = server.state.worker.facts().text.clone().expect("a tokenizer");
    let expected = text.encode(PROMPT).expect("it encodes");
    let answer = server.post("/tokenize", json!({"prompt": PROMPT, "return_token_strs": true})).await.json();
    assert_eq!((&answer["tokens"], &answer["count"]), (&json!(expected), &json!(expected.len())));
    assert_eq!(answer["token_strs"][1], text.token(expected[1]).text.as_str());
    let answer = server.post("/v1/tokenize", json!({"prompt": [PROMPT, ""], "add_special_tokens": false})).await.json();
    assert_eq!(answer["count"], json!([expected.len() - 1, 0]));
    let messages = json!({"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": false});
    assert!(list(&server.post("/tokenize", messages).await.json()["tokens"]).len() > 3);
    let answer = server.post("/detokenize", json!({"tokens": expected})).await.json();
    assert_eq!((&answer["text"], &answer["prompt"]), (&json!(PROMPT), &json!(PROMPT)));
    let kept = server.post("/detokenize", json!({"tokens": [expected], "skip_special_tokens": false})).await.json();
    assert!(kept["text"][0].as_str().is_some_and(|text| text.starts_with('<') && text.ends_with(PROMPT)), "{kept}");
    server.post("/detokenize", json!({"tokens": [99_999_999]})).await.error(
        400,
        Some("tokens"),
        "outside the vocabulary",
    );
}

#[tokio::test]
async fn responses_are_chats_whole_and_streamed() {
    let server = start(ServeOptions::default()).await;
    let chat = json!({
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is Vec?"}],
        "max_tokens": 12, "temperature": 0,
    });
    let chat = server.post("/v1/chat/completions", chat).await.json();
    let body = json!({
        "model": "target", "instructions": "Be brief.", "max_output_tokens": 12, "temperature": 0,
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "What is Vec?"}]}],
    });
    let whole = server.post("/v1/responses", body.clone()).await.json();
    let text = &whole["output"][0]["content"][0]["text"];
    assert_eq!(*text, chat["choices"][0]["message"]["content"]);
    assert_eq!(
        (&whole["object"], &whole["usage"]["output_tokens"]),
        (&json!("response"), &chat["usage"]["completion_tokens"])
    );
    let streamed = server.post("/v1/responses", with(body.clone(), json!({"stream": true}))).await.events();
    let events: Vec<Value> = streamed.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
    let pieces: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(*text, pieces.as_str());
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().expect("an end")["response"]["output"][0]["content"], whole["output"][0]["content"]);
    let further = json!({"previous_response_id": "resp_1"});
    server.post("/v1/responses", with(body, further)).await.error(400, Some("previous_response_id"), "leave it out");
}
