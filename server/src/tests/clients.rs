//! What clients of the OpenAI, SGLang and vLLM APIs send, as they send it.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};

use super::*;

fn chat(further: Value) -> Value {
    with(json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 8, "seed": 1}), further)
}

fn with(mut body: Value, further: Value) -> Value {
    body.as_object_mut().expect("an object").extend(further.as_object().cloned().expect("an object"));
    body
}

fn functions() -> Value {
    json!([
        {"name": "look", "parameters": {"type": "object", "properties": {"at": {"enum": ["here"]}}, "required": ["at"], "additionalProperties": false}},
        {"name": "listen", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}},
    ])
}

#[tokio::test]
async fn older_functions_are_called_and_answered_in_their_own_format() {
    let server = start(ServeOptions::default()).await;
    let body = chat(json!({"functions": functions(), "function_call": {"name": "look"}, "max_tokens": 100}));
    let whole = server.post("/v1/chat/completions", body.clone()).await.json();
    let choice = &whole["choices"][0];
    let call = json!({"name": "look", "arguments": choice["message"]["function_call"]["arguments"]});
    assert_eq!((&choice["finish_reason"], &choice["message"]["function_call"]), (&json!("function_call"), &call));
    let arguments = call["arguments"].as_str().expect("a string");
    assert_eq!(serde_json::from_str::<Value>(arguments).ok(), Some(json!({"at": "here"})));
    assert!(choice["message"]["tool_calls"].is_null(), "{whole}");
    let events = server.post("/v1/chat/completions", with(body, json!({"stream": true}))).await.events();
    let values: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    let calls = values.iter().map(|value| &value["choices"][0]["delta"]["function_call"]);
    let streamed: String = calls.filter_map(|call| call["arguments"].as_str()).collect();
    assert_eq!(streamed, arguments);
    let history = json!([
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": null, "function_call": {"name": "look", "arguments": arguments}},
        {"role": "function", "name": "look", "content": "dark"},
    ]);
    let answer =
        server.post("/v1/chat/completions", chat(json!({"messages": history, "functions": functions()}))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn only_allowed_tools_are_called() {
    let server = start(ServeOptions::default()).await;
    let functions = functions();
    let functions = functions.as_array().expect("a list");
    let nested: Vec<Value> = functions.iter().map(|one| json!({"type": "function", "function": one})).collect();
    let flat: Vec<Value> = functions.iter().map(|one| with(json!({"type": "function"}), one.clone())).collect();
    for (name, other) in [("look", "listen"), ("listen", "look")] {
        let allowed = json!({"mode": "required", "tools": [{"type": "function", "function": {"name": name}}]});
        let choice = json!({"type": "allowed_tools", "allowed_tools": allowed});
        let body =
            chat(json!({"tools": nested, "tool_choice": choice, "parallel_tool_calls": false, "max_tokens": 100}));
        let answer = server.post("/v1/chat/completions", body).await.json();
        assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], name, "not {other}: {answer}");
        let choice =
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": name}]});
        let body = json!({"input": "x", "tools": flat, "tool_choice": choice, "max_output_tokens": 100});
        let answer = server.post("/v1/responses", body).await.json();
        assert_eq!(answer["output"][0]["name"], name, "{answer}");
    }
    let unknown = json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]}});
    let body = chat(json!({"tools": nested, "tool_choice": unknown}));
    server.post("/v1/chat/completions", body).await.error(400, Some("tool_choice"), "'g', which is not among");
}

#[tokio::test]
async fn responses_include_log_probabilities_and_leave_out_what_there_is_not() {
    let server = start(ServeOptions::default()).await;
    let body = json!({
        "input": "x", "max_output_tokens": 8, "temperature": 0, "top_logprobs": 2, "truncation": "auto", "max_tool_calls": 3,
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"], "reasoning": {"effort": null, "summary": null},
        "stream_options": {"include_obfuscation": false},
    });
    let whole = server.post("/v1/responses", body.clone()).await.json();
    let id = |value: &Value| value["id"].as_str().map(ToOwned::to_owned).unwrap_or_default();
    assert!(id(&whole).starts_with("resp_") && id(&whole["output"][0]).starts_with("msg_"), "{whole}");
    assert_eq!((&whole["truncation"], &whole["max_tool_calls"]), (&json!("auto"), &json!(3)));
    let part = &whole["output"][0]["content"][0];
    let logprobs = part["logprobs"].as_array().expect("a list");
    assert_eq!(logprobs.len(), 8, "{part}");
    assert!(logprobs.iter().all(|one| one["top_logprobs"].as_array().map(Vec::len) == Some(2)), "{part}");
    let text: String = logprobs.iter().filter_map(|one| one["token"].as_str()).collect();
    assert_eq!(part["text"], text.as_str());
    let events = server.post("/v1/responses", with(body, json!({"stream": true}))).await.events();
    let values: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    let of = |kind: &str| values.iter().filter(|value| value["type"] == kind).collect::<Vec<_>>();
    let deltas = of("response.output_text.delta");
    let deltas = deltas.iter().flat_map(|delta| delta["logprobs"].as_array().cloned().unwrap_or_default());
    assert_eq!(deltas.collect::<Vec<_>>(), *logprobs);
    assert_eq!(of("response.output_text.done")[0]["logprobs"], part["logprobs"]);
    assert_eq!(of("response.completed").len() + of("response.incomplete").len(), 1);
    let unknown = json!({"input": "x", "include": ["message.output_text.logprob"]});
    server.post("/v1/responses", unknown).await.error(400, Some("include"), "is none of");
    let effort = json!({"input": "x", "reasoning": {"effort": "high"}});
    server.post("/v1/responses", effort).await.error(400, Some("reasoning.effort"), "leave it out");
}

#[tokio::test]
async fn a_conversation_that_is_too_long_loses_its_oldest_messages_where_that_is_allowed() {
    let server = start(ServeOptions::default()).await;
    let turn = |at: usize| json!([{"role": "user", "content": format!("{at} {}", "word ".repeat(40))}, {"role": "assistant", "content": "a"}]);
    let mut input: Vec<Value> = (0..12).flat_map(|at| turn(at).as_array().cloned().unwrap_or_default()).collect();
    input.push(json!({"role": "user", "content": "last"}));
    let body = json!({"input": input, "instructions": "Be short.", "max_output_tokens": 8});
    server.post("/v1/responses", body.clone()).await.error(400, Some("input"), "maximum context length is 512 tokens");
    let answer = server.post("/v1/responses", with(body.clone(), json!({"truncation": "auto"}))).await.json();
    let tokens = answer["usage"]["input_tokens"].as_u64().expect("a count");
    // One more turn would not have fit.
    assert!(tokens <= 504 && tokens > 504 - 120, "{answer}");
    let alone = json!({"input": "word ".repeat(2000), "truncation": "auto"});
    server.post("/v1/responses", alone).await.error(400, Some("input"), "maximum context length is 512 tokens");
}

#[tokio::test]
async fn offsets_of_echoed_tokens_index_the_text() {
    let server = start(ServeOptions::default()).await;
    for prompt in [json!("def main"), json!("é → def"), json!([5, 6, 7])] {
        let body = json!({"prompt": prompt, "max_tokens": 4, "temperature": 0, "echo": true, "logprobs": 1});
        let answer = server.post("/v1/completions", body).await.json();
        let choice = &answer["choices"][0];
        let text: Vec<char> = choice["text"].as_str().expect("text").chars().collect();
        let (tokens, offsets) = (&choice["logprobs"]["tokens"], &choice["logprobs"]["text_offset"]);
        let pairs = tokens.as_array().expect("a list").iter().zip(offsets.as_array().expect("a list"));
        for (token, offset) in pairs {
            let (token, offset) = (token.as_str().expect("text"), offset.as_u64().expect("a number") as usize);
            if token.starts_with("<|") || token.starts_with("bytes:") {
                continue;
            }
            let found: String = text.iter().skip(offset).take(token.chars().count()).collect();
            assert_eq!(found, token, "at {offset}: {answer}");
        }
    }
}

#[tokio::test]
async fn fields_of_vllm_name_requests_and_show_and_cut_their_tokens() {
    let server = start(ServeOptions::default()).await;
    let chat_answer =
        server.post("/v1/chat/completions", chat(json!({"request_id": "mine", "return_token_ids": true}))).await;
    let answer = chat_answer.json();
    assert_eq!(answer["id"], "chatcmpl-mine");
    assert_eq!(
        answer["prompt_token_ids"].as_array().map(Vec::len),
        answer["usage"]["prompt_tokens"].as_u64().map(|n| n as usize)
    );
    let ids = answer["choices"][0]["token_ids"].as_array().cloned().expect("ids");
    assert_eq!(ids.len() as u64, answer["usage"]["completion_tokens"].as_u64().expect("a count"));
    let body = chat(json!({"return_token_ids": true, "stream": true}));
    let events = server.post("/v1/chat/completions", body).await.events();
    let values: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    assert_eq!(values[0]["prompt_token_ids"], answer["prompt_token_ids"]);
    let streamed =
        values.iter().flat_map(|value| value["choices"][0]["token_ids"].as_array().cloned().unwrap_or_default());
    assert_eq!(streamed.collect::<Vec<_>>(), ids);

    let complete = |further: Value| {
        server.post("/v1/completions", with(json!({"max_tokens": 2, "return_token_ids": true}), further))
    };
    let long: Vec<u32> = (5..15).collect();
    for (side, expected) in [("left", &long[7..]), ("right", &long[..3])] {
        let body = json!({"prompt": long, "truncate_prompt_tokens": 3, "truncation_side": side, "echo": true});
        let answer = complete(body).await.json();
        assert_eq!(answer["choices"][0]["prompt_token_ids"], json!(expected), "{answer}");
        assert_eq!(answer["usage"]["prompt_tokens"], 3);
    }
    let body = json!({"prompt": "word ".repeat(1000), "truncate_prompt_tokens": -1});
    assert_eq!(complete(body).await.json()["usage"]["prompt_tokens"], 510);
    complete(json!({"prompt": "a", "truncate_prompt_tokens": 0})).await.error(
        400,
        Some("truncate_prompt_tokens"),
        "-1",
    );
    let several = complete(json!({"prompt": [[5, 6], [7]], "n": 2})).await.json();
    let prompts =
        several["choices"].as_array().expect("choices").iter().map(|choice| choice["prompt_token_ids"].clone());
    assert_eq!(prompts.collect::<Vec<_>>(), [json!([5, 6]), json!([5, 6]), json!([7]), json!([7])]);
}

/// A request whose body is not text.
async fn send(server: &Server, head: &str, body: &[u8]) -> TestResponse {
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut socket = TcpStream::connect(server.address).await.expect("the server listens");
    socket.write_all(head.as_bytes()).await.expect("it is sent");
    socket.write_all(body).await.expect("it is sent");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    TestResponse { status, head: head.to_owned(), body: body.to_owned() }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("it is compressed");
    encoder.finish().expect("it is compressed")
}

#[tokio::test]
async fn compressed_bodies_are_read_within_the_same_limits() {
    let server = start(ServeOptions { max_request_memory: 16 << 20, ..ServeOptions::default() }).await;
    let free = server.state.memory.free();
    let gzip = "Content-Encoding: gzip\r\n";
    let body = compressed(json!({"prompt": PROMPT, "max_tokens": 3}).to_string().as_bytes());
    let answer = send(&server, gzip, &body).await;
    assert_eq!(answer.json()["usage"]["completion_tokens"], 3, "{}", answer.body);
    send(&server, "", &body).await.error(400, None, "Content-Encoding: gzip");
    send(&server, gzip, &body[..body.len() / 2]).await.error(400, None, "cannot be decompressed");
    send(&server, gzip, b"{}").await.error(400, None, "cannot be decompressed");
    send(&server, "Content-Encoding: br\r\n", &body).await.error(415, None, "expected gzip");
    // A few kilobytes that would become a gigabyte if they were read whole.
    let bomb = compressed(&vec![b' '; 64 << 20]);
    assert!(bomb.len() < 1 << 17, "{}", bomb.len());
    send(&server, gzip, &bomb).await.error(413, None, "larger than 8 MiB");
    server.idle().await;
    assert_eq!(server.state.memory.free(), free);
}

#[tokio::test]
async fn requests_have_ids_and_responses_a_fingerprint() {
    let server = start(ServeOptions::default()).await;
    let id = |answer: &TestResponse| {
        let line = answer.head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
        line.map(ToOwned::to_owned).unwrap_or_default()
    };
    let models = server.get("/v1/models/").await;
    assert_eq!((models.status, &models.json()["object"]), (200, &json!("list")));
    assert!(id(&models).starts_with("req_") && id(&models) != id(&server.get("/v1/models").await));
    let named = "GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: mine\r\n\r\n";
    assert_eq!(id(&server.raw(named).await), "mine");
    let fingerprint = server.state.fingerprint();
    assert!(fingerprint.starts_with("fp_"), "{fingerprint}");
    for (path, body) in
        [("/v1/chat/completions", chat(json!({}))), ("/v1/completions", json!({"prompt": "a", "max_tokens": 1}))]
    {
        assert_eq!(server.post(path, body).await.json()["system_fingerprint"], fingerprint.as_str());
    }
}

#[tokio::test]
async fn responses_in_channels_have_the_same_items_whole_and_streamed() {
    let parser = || Some("gpt-oss".to_owned());
    let options = ServeOptions { tool_call_parser: parser(), reasoning_parser: parser(), ..ServeOptions::default() };
    let server = start(options).await;
    let message = |channel: &str, text: &str| format!("<|channel|>{channel}<|message|>{text}");
    let parts = [("analysis", "A1"), ("commentary", "C1"), ("analysis", "A2"), ("final", "F1 and more")];
    let written: Vec<String> = parts.iter().map(|(channel, text)| message(channel, text)).collect();
    let body = |tokens: u64, stream: bool| {
        let written = written.join("<|end|><|start|>assistant");
        json!({"input": "x", "max_output_tokens": tokens, "guided_choice": [written], "temperature": 0, "stream": stream})
    };
    let items = |response: &Value| -> Vec<(String, String, String)> {
        let text = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let list = response["output"].as_array().expect("a list");
        list.iter().map(|item| (text(item, "type"), text(&item["content"][0], "text"), text(item, "status"))).collect()
    };
    let whole = server.post("/v1/responses", body(300, false)).await.json();
    let kinds = ["reasoning", "message", "reasoning", "message"];
    let expected = |last: &str, status: &str| -> Vec<(String, String, String)> {
        let mut items: Vec<_> = kinds
            .iter()
            .zip(parts)
            .map(|(kind, (_, text))| ((*kind).to_owned(), text.to_owned(), "completed".to_owned()))
            .collect();
        items[3].1 = last.into();
        items[3].2 = status.into();
        items
    };
    assert_eq!(items(&whole), expected("F1 and more", "completed"), "{whole}");
    let tokens = whole["usage"]["output_tokens"].as_u64().expect("a number");
    let thoughts = whole["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().expect("a number");
    assert!(thoughts > 2 && thoughts < tokens / 2, "{thoughts} of {tokens}");
    for tokens in [300, tokens - 3] {
        let whole = server.post("/v1/responses", body(tokens, false)).await.json();
        let events = server.post("/v1/responses", body(tokens, true)).await.events();
        let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
        let last = &events.last().expect("an end")["response"];
        assert_eq!(items(last), items(&whole));
        assert_eq!(last["usage"]["output_tokens_details"], whole["usage"]["output_tokens_details"]);
        let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
        let done = of("response.output_item.done");
        let indexes: Vec<&Value> = done.iter().map(|event| &event["output_index"]).collect();
        assert_eq!(indexes, [&json!(0), &json!(1), &json!(2), &json!(3)]);
        let done: Vec<&Value> = done.iter().map(|event| &event["item"]).collect();
        assert_eq!(done, last["output"].as_array().expect("a list").iter().collect::<Vec<_>>());
    }
    let cut = items(&server.post("/v1/responses", body(tokens - 3, false)).await.json());
    assert_eq!(cut, expected(&cut[3].1, "incomplete"));
    assert!("F1 and more".starts_with(&cut[3].1), "{cut:?}");
}
