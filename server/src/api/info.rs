//! Endpoints that report the served models, the configuration and the version.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State as Shared},
};
use engine::{Simulated, options::Fp8Compute};
use serde_json::{Value, json};

use crate::{http::error::ApiError, state::State};

/// `GET /v1/models`.
pub async fn models(Shared(state): Shared<Arc<State>>) -> Json<Value> {
    Json(json!({"object": "list", "data": [model_object(&state)]}))
}

/// `GET /v1/models/{id}`.
pub async fn model(Shared(state): Shared<Arc<State>>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    if id == state.model() { Ok(Json(model_object(&state))) } else { Err(ApiError::no_model(&id, state.model())) }
}

/// `GET /version`.
pub async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /model_info`, with SGLang's names.
pub async fn model_info(Shared(state): Shared<Arc<State>>) -> Json<Value> {
    let (facts, weights) = (state.worker.facts(), state.worker.published().weights);
    Json(json!({
        "model_path": weights.model_path, "tokenizer_path": facts.options.model_path, "is_generation": true,
        "weight_version": weights.version,
    }))
}

/// `GET /server_info`: the configuration, the device, and how well drafts are accepted. Uses
/// SGLang's names where they exist.
pub async fn server_info(Shared(state): Shared<Arc<State>>) -> Json<Value> {
    let facts = state.worker.facts();
    let options = &facts.options;
    let shapes: Vec<String> = options.policy.shapes().map(|shape| shape.to_string()).collect();
    let now = state.worker.published();
    let statistics = &now.statistics;
    // A table of shapes has no single triple, so the current one is reported, as SGLang does for
    // its adaptive steps. The mean context is not published, so a table by context reports none.
    let known = options.algorithm.is_some() && !options.policy.has_contexts();
    let runs = Some(options.policy.shape(statistics.running.max(1))).filter(|_| known);
    let shape = options.policy.shapes().next().filter(|_| shapes.len() == 1 && options.algorithm.is_some());
    let accept_length = now.accept_lengths.since_flush.filter(|_| options.algorithm.is_some());
    Json(json!({
        "engine": "spectune",
        "version": env!("CARGO_PKG_VERSION"),
        "served_model_name": state.model(),
        "model_path": now.weights.model_path,
        "speculative_draft_model_path": now.weights.draft_model_path,
        "weight_version": now.weights.version,
        "speculative_algorithm": options.algorithm,
        "speculative_num_steps": shape.map(|shape| shape.num_steps),
        "speculative_eagle_topk": shape.map(|shape| shape.topk),
        "speculative_num_draft_tokens": shape.map(|shape| shape.num_draft_tokens),
        "speculative_row_budget": shape.and_then(|shape| shape.row_budget),
        "speculative_adaptive": shapes.len() > 1,
        "tree_shapes": shapes,
        "simulate_accept_length": options.simulated.as_ref().and_then(Simulated::length),
        "dtype": options.dtype,
        "quantization": facts.identity.quantised,
        "fp8_compute": facts.identity.fp8_compute.map(Fp8Compute::name),
        "kv_cache_dtype": facts.identity.kv_cache.unwrap_or("auto"),
        "context_length": facts.capacity.context_length,
        "max_running_requests": facts.max_running_requests,
        "max_queued_requests": state.options.max_queued_requests,
        "max_connections": state.options.max_connections,
        "request_memory_free": state.memory.free(),
        "chunked_prefill_size": options.chunked_prefill_size,
        "mem_fraction_static": options.mem_fraction_static,
        "cuda_graph_bs": options.capture_sizes,
        "page_size": facts.capacity.page_size,
        "kv_pages": facts.capacity.pages,
        "device": {
            "device": facts.device.device, "name": facts.device.name, "driver": facts.device.driver,
            "units": facts.device.units,
        },
        "fingerprint": {"target": now.weights.fingerprint.0, "draft": now.weights.fingerprint.1},
        // SGLang's benchmarks read these.
        "internal_states": [{
            "avg_spec_accept_length": accept_length,
            "last_gen_throughput": now.throughput,
            "num_retractions": now.statistics.retracted,
            "num_retractions_for_pages": now.statistics.retracted_for_pages,
            "new_token_ratio": now.statistics.new_token_ratio,
            "effective_max_running_requests_per_dp": facts.max_running_requests,
            "speculative_num_steps": runs.map(|shape| shape.num_steps),
            "speculative_eagle_topk": runs.map(|shape| shape.topk),
            "speculative_num_draft_tokens": runs.map(|shape| shape.num_draft_tokens),
        }],
    }))
}

fn model_object(state: &State) -> Value {
    let facts = state.worker.facts();
    json!({
        "id": state.model(), "object": "model", "created": state.started, "owned_by": "spectune",
        "root": state.worker.published().weights.model_path, "max_model_len": facts.capacity.context_length,
    })
}
