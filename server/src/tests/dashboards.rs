//! The names that published dashboards read: SGLang's (examples/monitoring, earlier and current
//! versions) and vLLM's (examples/observability and examples/online_serving).

use std::collections::HashMap;

use serde_json::json;

use super::*;

/// Name and type of each metric, as the dashboard's queries use it.
const READ: [(&str, &str); 45] = [
    ("http_requests_total", "counter"),
    ("sglang:cache_hit_rate", "gauge"),
    ("sglang:e2e_request_latency_seconds", "histogram"),
    ("sglang:gen_throughput", "gauge"),
    ("sglang:generation_tokens_histogram", "histogram"),
    ("sglang:generation_tokens_total", "counter"),
    ("sglang:inter_token_latency_seconds", "histogram"),
    ("sglang:max_total_num_tokens", "gauge"),
    ("sglang:num_aborted_requests_total", "counter"),
    ("sglang:num_queue_reqs", "gauge"),
    ("sglang:num_retracted_reqs", "gauge"),
    ("sglang:num_running_reqs", "gauge"),
    ("sglang:num_used_tokens", "gauge"),
    ("sglang:prompt_tokens_histogram", "histogram"),
    ("sglang:prompt_tokens_total", "counter"),
    ("sglang:spec_accept_length", "gauge"),
    ("sglang:spec_verify_calls_total", "counter"),
    ("sglang:time_per_output_token_seconds", "histogram"),
    ("sglang:time_to_first_token_seconds", "histogram"),
    ("sglang:token_usage", "gauge"),
    ("vllm:e2e_request_latency_seconds", "histogram"),
    ("vllm:generation_tokens_total", "counter"),
    ("vllm:gpu_cache_usage_perc", "gauge"),
    ("vllm:inter_token_latency_seconds", "histogram"),
    ("vllm:kv_cache_usage_perc", "gauge"),
    ("vllm:num_preemptions_total", "counter"),
    ("vllm:num_requests_running", "gauge"),
    ("vllm:num_requests_waiting", "gauge"),
    ("vllm:prefix_cache_hits_total", "counter"),
    ("vllm:prefix_cache_queries_total", "counter"),
    ("vllm:prompt_tokens_total", "counter"),
    ("vllm:request_decode_time_seconds", "histogram"),
    ("vllm:request_generation_tokens", "histogram"),
    ("vllm:request_inference_time_seconds", "histogram"),
    ("vllm:request_max_num_generation_tokens", "histogram"),
    ("vllm:request_prefill_time_seconds", "histogram"),
    ("vllm:request_prompt_tokens", "histogram"),
    ("vllm:request_queue_time_seconds", "histogram"),
    ("vllm:request_success_total", "counter"),
    ("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter"),
    ("vllm:spec_decode_num_accepted_tokens_total", "counter"),
    ("vllm:spec_decode_num_draft_tokens_total", "counter"),
    ("vllm:spec_decode_num_drafts_total", "counter"),
    ("vllm:time_per_output_token_seconds", "histogram"),
    ("vllm:time_to_first_token_seconds", "histogram"),
];

#[tokio::test]
async fn dashboards_find_every_metric_under_its_name_and_type() {
    let server = start(ServeOptions::default()).await;
    // Greedy, since a sampled output may accept no draft, and then no position has a count.
    let sampling = json!({"max_new_tokens": 12, "ignore_eos": true, "temperature": 0.0});
    let body = json!({"input_ids": [9, 8, 7], "sampling_params": sampling});
    assert_eq!(server.post("/generate", body).await.status, 200);
    server.idle().await;
    let page = server.get("/metrics").await.body;
    let types: HashMap<&str, &str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let described = page.lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!(described, types.len(), "a name twice");
    for (name, kind) in READ {
        assert_eq!(types.get(name), Some(&kind), "{name}");
        let sample = if kind == "histogram" { format!("{name}_count{{") } else { format!("{name}{{") };
        assert!(page.lines().any(|line| line.starts_with(&sample)), "{name} has no value in\n{page}");
    }
    let value = |name: &str| {
        let line = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in\n{page}"));
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
    };
    assert_eq!(value("vllm:request_success_total{model_name=\"target\",finished_reason=\"length\"}"), 1.0);
    assert_eq!(value("vllm:request_generation_tokens_sum"), 12.0);
    assert_eq!(value("sglang:prompt_tokens_histogram_sum"), 3.0);
    // Queue, prefill and decode make up the whole.
    let parts = ["vllm:request_queue_time_seconds_sum", "vllm:request_inference_time_seconds_sum"];
    let parts: f64 = parts.into_iter().map(value).sum();
    assert!((parts / value("vllm:e2e_request_latency_seconds_sum") - 1.0).abs() < 1e-3, "{page}");
}

#[tokio::test]
async fn a_flush_starts_the_accept_length_over_as_in_sglang() {
    let server = start(ServeOptions::default()).await;
    let accept_length =
        async || server.get("/server_info").await.json()["internal_states"][0]["avg_spec_accept_length"].clone();
    assert!(accept_length().await.is_null());
    let body = json!({"input_ids": [9, 8, 7], "sampling_params": {"max_new_tokens": 12, "ignore_eos": true}});
    assert_eq!(server.post("/generate", body).await.status, 200);
    server.idle().await;
    let first = accept_length().await.as_f64().expect("rounds were run");
    assert!(first >= 1.0, "{first}");
    assert_eq!(server.post("/flush_cache", json!({})).await.status, 200);
    assert!(accept_length().await.is_null());
    let page = server.get("/metrics").await.body;
    let lifetime = format!("spectune_accept_length{{model_name=\"target\"}} {first}");
    let found = page.lines().find(|line| line.starts_with("spectune_accept_length{"));
    assert!(found.is_some_and(|line| line.starts_with(&lifetime[..lifetime.len().min(50)])), "{lifetime}: {found:?}");
    assert!(page.contains("sglang:spec_accept_length{model_name=\"target\"} 0.0"), "{page}");
}
