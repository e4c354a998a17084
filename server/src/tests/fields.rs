//! No field is ignored silently: every documented field of OpenAI, SGLang and vLLM is sent with values of every type to
//! every endpoint. An endpoint accepts the values of one row, or only values without an effect, and refuses all others.

use super::{super::neutral, *};

/// JSON values, and the fields that accept exactly these. A field whose type depends on the endpoint is in several
/// rows.
type Row = (&'static str, &'static [&'static str]);

const ACCEPTED: [Row; 19] = [
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
        ],
    ),
    (r#"[0]"#, &["top_logprobs", "top_logprobs_num"]),
    (r#"[1]"#, &["max_tokens", "max_completion_tokens", "n", "best_of", "max_output_tokens"]),
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
    (r#"["", "x"]"#, &["regex", "rid", "guided_regex", "input", "instructions"]),
    (r#"[1, 1.5]"#, &["repetition_penalty"]),
    (r#"[[], [1]]"#, &["stop_token_ids"]),
    (r#"[{}, {"a": 1}]"#, &["chat_template_kwargs"]),
    (r#"[true, {}, {"a": 1}]"#, &["guided_json", "json_schema"]),
    (r#"["", "x", [], ["x"]]"#, &["guided_choice"]),
    (r#"["", "x", ["x"], [1]]"#, &["prompt", "text"]),
    (r#"["", "x", ["x"]]"#, &["rid"]),
];

/// Documented fields that no endpoint reads, or that accept none of the values below.
const REFUSED: [&str; 55] = [
    "audio_data",
    "bootstrap_pair_key",
    "bootstrap_port",
    "bootstrap_room",
    "chat_template",
    "custom_labels",
    "data_parallel_rank",
    "decode_tp_size",
    "disagg_prefill_dp_rank",
    "encoder_urls",
    "external_trace_header",
    "guided_decoding_backend",
    "guided_whitespace_pattern",
    "http_worker_ipc",
    "image_max_dynamic_patch",
    "images_config",
    "input_embeds",
    "input_ids",
    "is_normalized",
    "kv_transfer_params",
    "logits_processors",
    "lora_id",
    "max_dynamic_patch",
    "max_tool_calls",
    "messages",
    "min_dynamic_patch",
    "mm_data_mooncake",
    "mm_hashes",
    "multi_item_delimiter_indices",
    "need_wait_for_mm_inputs",
    "no_logs",
    "num_items_assigned",
    "positional_embed_overrides",
    "prediction",
    "received_time",
    "request_id",
    "require_reasoning",
    "response_format",
    "return_entropy",
    "return_indexer_topk",
    "return_meta_info",
    "return_sampling_mask",
    "routed_dp_rank",
    "routed_experts_start_len",
    "stop_regex_max_len",
    "stop_regex_strs",
    "stop_str_max_len",
    "stop_strs",
    "stream_options",
    "task",
    "thinking_token_budget",
    "tool_choice",
    "use_audio_in_video",
    "video_max_dynamic_patch",
    "vllm_xargs",
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

#[tokio::test]
async fn every_field_is_followed_or_refused() {
    let server = start(ServeOptions::default()).await;
    let read = ACCEPTED.iter().flat_map(|(_, fields)| *fields).copied();
    let fields: BTreeSet<&str> = read.chain(neutral::names()).chain(REFUSED).collect();
    let values = values();
    let mut wrong = Vec::new();
    for page in ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate", "sampling_params"] {
        for field in &fields {
            let answers = values.iter().map(async |value| {
                let (path, body) = request(page, field, value);
                (value, server.post(path, body).await.status)
            });
            let answers = futures::future::join_all(answers).await;
            let is_model = *field == "model";
            let strange =
                answers.iter().find(|(_, status)| !([200, 400].contains(status) || is_model && *status == 404));
            let found: Vec<&Value> =
                answers.iter().filter(|(_, status)| *status == 200).map(|(value, _)| *value).collect();
            if let Some((value, status)) = strange {
                wrong.push(format!("{page} {field}: {value} got {status}"));
            }
            let rows = ACCEPTED.iter().filter(|(_, fields)| fields.contains(field));
            let is_row = rows.map(|(list, _)| serde_json::from_str::<Vec<Value>>(list).expect("a list"));
            let is_row = is_row.into_iter().any(|list| found.iter().copied().eq(&list));
            let none = values.iter().filter(|value| neutral::asks_for_nothing(field, value));
            if !is_row && !found.iter().copied().eq(none) {
                wrong.push(format!("{page} {field} accepts {}", json!(found)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
