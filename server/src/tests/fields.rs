//! No field is ignored silently: every documented field of OpenAI, SGLang and vLLM is sent with
//! values of every type to every endpoint. An endpoint accepts the values of one row, or only
//! values without an effect, and refuses all others.

use super::{
    super::http::neutral::{self, Endpoint},
    *,
};

/// JSON values, and the fields that accept exactly these. A field whose type depends on the
/// endpoint is in several rows.
type Row = (&'static str, &'static [&'static str]);

const ACCEPTED: [Row; 22] = [
    // Values that an endpoint reads and that none of the ones below is.
    ("[]", &["function_call", "input_ids", "response_format", "stream_options", "tool_choice"]),
    ("[1, -1]", &["truncate_prompt_tokens"]),
    ("[0, 1]", &["top_logprobs"]),
    (r#"[""]"#, &["model"]),
    (r#"[0, 1, -1, 1.5]"#, &["frequency_penalty", "presence_penalty"]),
    (r#"[{}]"#, &["logit_bias", "structured_outputs", "sampling_params", "text"]),
    (
        r#"[true, false]"#,
        &[
            "logprobs",
            "stream",
            "parallel_tool_calls",
            "return_cached_tokens_details",
            "no_stop_trim",
            "ignore_eos",
            "continue_final_message",
            "skip_special_tokens",
            "include_stop_str_in_output",
            "add_special_tokens",
            "add_generation_prompt",
            "detokenize",
            "echo",
            "return_logprob",
            "return_text_in_logprobs",
            "include_reasoning",
            "return_token_ids",
            "return_prompt_token_ids",
        ],
    ),
    (r#"[0]"#, &["top_logprobs", "top_logprobs_num"]),
    (r#"[1]"#, &["max_tokens", "max_completion_tokens", "n", "best_of", "max_output_tokens", "max_tool_calls"]),
    (r#"[0, 1, -1]"#, &["seed", "top_k", "logprob_start_len", "sampling_seed"]),
    (r#"["x", [], ["x"]]"#, &["stop"]),
    (r#"[0, 1, 1.5]"#, &["temperature"]),
    (
        r#"[0, 1]"#,
        &[
            "top_p",
            "min_p",
            "min_tokens",
            "prompt_logprobs",
            "logprobs",
            "max_tokens",
            "max_new_tokens",
            "min_new_tokens",
        ],
    ),
    (r#"[[]]"#, &["tools"]),
    (r#"["", "x"]"#, &["regex", "rid", "request_id", "guided_regex", "input", "instructions"]),
    (r#"[1, 1.5]"#, &["repetition_penalty"]),
    (r#"[[], [1]]"#, &["stop_token_ids"]),
    (r#"[{}, {"a": 1}]"#, &["chat_template_kwargs"]),
    (r#"[true, {}, {"a": 1}]"#, &["guided_json", "json_schema"]),
    (r#"["", "x", [], ["x"]]"#, &["guided_choice"]),
    (r#"["", "x", ["x"], [1]]"#, &["prompt", "text"]),
    (r#"["", "x", ["x"]]"#, &["rid"]),
];

fn values() -> Vec<Value> {
    vec![
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(""),
        json!("x"),
        json!([]),
        json!(["x"]),
        json!([[]]),
        json!([1]),
        json!({}),
        json!({"a": 1}),
    ]
}

/// A request with one field set to a value.
fn request(page: &str, field: &str, value: &Value) -> (&'static str, Value) {
    let (path, mut body) = match page {
        "/v1/chat/completions" => {
            ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}))
        }
        "/v1/completions" => ("/v1/completions", json!({"prompt": "a", "max_tokens": 1})),
        "/v1/responses" => ("/v1/responses", json!({"input": "a", "max_output_tokens": 1})),
        _ => ("/generate", json!({"text": "a", "sampling_params": {"max_new_tokens": 1}})),
    };
    let fields = if page == "sampling_params" { &mut body["sampling_params"] } else { &mut body };
    fields[field] = value.clone();
    (path, body)
}

/// The endpoints, and the object of the request in which the fields are.
const PAGES: [(&str, Endpoint, &str); 5] = [
    ("/v1/chat/completions", Endpoint::Chat, ""),
    ("/v1/completions", Endpoint::Completions, ""),
    ("/v1/responses", Endpoint::Responses, ""),
    ("/generate", Endpoint::Generate, ""),
    ("sampling_params", Endpoint::Generate, "sampling_params."),
];

/// The names of the published fields in an object.
fn published_names(endpoint: Endpoint, prefix: &str) -> BTreeSet<&'static str> {
    let names = neutral::published(endpoint).filter_map(|(name, _)| name.strip_prefix(prefix));
    names.filter(|name| !name.contains('.')).collect()
}

#[tokio::test]
async fn every_field_is_followed_or_refused() {
    let server = start(ServeOptions::default()).await;
    let values = values();
    let mut wrong = Vec::new();
    for (page, endpoint, prefix) in PAGES {
        let read = ACCEPTED.iter().flat_map(|(_, fields)| *fields).copied();
        let fields: BTreeSet<&str> = read.chain(published_names(endpoint, prefix)).chain(["never_heard_of"]).collect();
        for field in fields {
            let answers = values.iter().map(async |value| {
                let (path, body) = request(page, field, value);
                (value, server.post(path, body).await.status)
            });
            let answers = futures::future::join_all(answers).await;
            let strange =
                answers.iter().find(|(_, status)| !([200, 400].contains(status) || field == "model" && *status == 404));
            let found: Vec<&Value> =
                answers.iter().filter(|(_, status)| *status == 200).map(|(value, _)| *value).collect();
            if let Some((value, status)) = strange {
                wrong.push(format!("{page} {field}: {value} got {status}"));
            }
            let rows = ACCEPTED.iter().filter(|(_, fields)| fields.contains(&field));
            let is_row = rows.map(|(list, _)| serde_json::from_str::<Vec<Value>>(list).expect("a list"));
            let is_row = is_row.into_iter().any(|list| found.iter().copied().eq(&list));
            let name = format!("{prefix}{field}");
            let none = values.iter().filter(|value| neutral::has_no_effect(endpoint, &name, value));
            if !is_row && !found.iter().copied().eq(none) {
                wrong.push(format!("{page} {field} accepts {}", json!(found)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Sets a field with a dotted name.
fn set(body: &mut Value, field: &str, value: &Value) {
    let pointer = field.split('.').fold(body, |object, name| &mut object[name]);
    *pointer = value.clone();
}

#[tokio::test]
async fn every_published_default_is_accepted() {
    let server = start(ServeOptions::default()).await;
    let mut wrong = Vec::new();
    let mut count = 0;
    for (page, endpoint, _) in &PAGES[..4] {
        for (field, defaults) in neutral::published(*endpoint) {
            // Parts of an object that is incomplete without required ones, which have no default,
            // or whose presence asks for something.
            let objects = ["response_format.", "tool_choice.", "moderation.", "web_search_options."];
            if objects.iter().any(|object| field.starts_with(object)) {
                continue;
            }
            for value in defaults.iter().chain([&Value::Null]) {
                // Without input there is nothing to do.
                if value.is_null() && ["prompt", "input", "text"].contains(&field) {
                    continue;
                }
                let (path, mut body) = request(page, field.split('.').next().unwrap_or_default(), &Value::Null);
                set(&mut body, field, value);
                if field.starts_with("stream_options") {
                    body["stream"] = true.into();
                }
                let answer = server.post(path, body.clone()).await;
                count += 1;
                if answer.status != 200 {
                    wrong.push(format!("{path} {field}: {value}: {}", answer.body));
                }
            }
        }
    }
    assert!(count > 300, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_request_may_limit_its_drafts_or_have_none() {
    let server = start(ServeOptions::default()).await;
    let drafts = async |field: Value| {
        let mut sampling = json!({"max_new_tokens": 40, "temperature": 0, "ignore_eos": true});
        for (name, value) in field.as_object().expect("an object") {
            sampling[name] = value.clone();
        }
        let answer = server.post("/generate", json!({"text": PROMPT, "sampling_params": sampling})).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = answer.json();
        (answer["text"].clone(), answer["meta_info"]["spec_draft_token_num"].as_u64().expect("a number"))
    };
    let (text, all) = drafts(json!({})).await;
    assert!(all > 0);
    for none in ["disable_speculative_decoding", "disable_spec_decode"] {
        assert_eq!(drafts(json!({none: true})).await, (text.clone(), 0), "{none}");
        assert_eq!(drafts(json!({none: false})).await, (text.clone(), all), "{none}");
    }
    assert_eq!(drafts(json!({"num_speculative_tokens": 4})).await, (text.clone(), 0), "no prepared tree is within 4");
    assert_eq!(drafts(json!({"num_speculative_tokens": 5})).await, (text, all));
    let refused = json!({"prompt": PROMPT, "num_speculative_tokens": -1});
    assert_eq!(server.post("/v1/completions", refused).await.status, 400);
}
