//! Which page does what.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Request, State as Shared, rejection::BytesRejection},
    http::{Method, StatusCode, Uri, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};

use super::{chat, completions, error::ApiError, fields::Fields, generate, state::State};

/// Largest body in bytes.
pub const LARGEST_BODY: usize = 8 << 20;

type Body = Result<Bytes, BytesRejection>;

/// All pages.
pub fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(text_completions))
        .route("/generate", post(sglang_generate))
        .route("/v1/models", get(models))
        .route("/v1/models/{id}", get(model))
        .route("/server_info", get(server_info))
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(state.clone(), check_key))
        .route("/health", get(health))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(state)
}

async fn chat_completions(Shared(state): Shared<Arc<State>>, body: Body) -> Result<Response, ApiError> {
    chat::answer(state, fields(body)?).await
}

async fn text_completions(Shared(state): Shared<Arc<State>>, body: Body) -> Result<Response, ApiError> {
    completions::answer(state, fields(body)?).await
}

async fn sglang_generate(Shared(state): Shared<Arc<State>>, body: Body) -> Result<Response, ApiError> {
    generate::answer(state, fields(body)?).await
}

async fn models(Shared(state): Shared<Arc<State>>) -> Json<Value> {
    Json(json!({"object": "list", "data": [model_object(&state)]}))
}

async fn model(Shared(state): Shared<Arc<State>>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    if id == state.model() { Ok(Json(model_object(&state))) } else { Err(ApiError::no_model(&id, state.model())) }
}

fn model_object(state: &State) -> Value {
    let capacity = state.worker.facts().capacity;
    json!({
        "id": state.model(), "object": "model", "created": state.started, "owned_by": "spectune",
        "root": state.worker.facts().options.model_path, "max_model_len": capacity.context_length,
    })
}

/// What runs: for people who ask which configuration a server has.
async fn server_info(Shared(state): Shared<Arc<State>>) -> Json<Value> {
    let facts = state.worker.facts();
    let shapes: Vec<String> = facts.options.policy.shapes().map(|shape| shape.to_string()).collect();
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model_path": facts.options.model_path,
        "speculative_draft_model_path": facts.options.draft_model_path,
        "speculative_algorithm": facts.options.algorithm,
        "tree_shapes": shapes,
        "device": {"device": facts.device.device, "name": facts.device.name, "driver": facts.device.driver},
        "context_length": facts.capacity.context_length,
        "max_running_requests": facts.options.max_running_requests,
        "kv_pages": facts.capacity.pages,
        "page_size": facts.capacity.page_size,
        "target_hash": facts.identity.target,
        "draft_hash": facts.identity.draft,
    }))
}

async fn metrics(Shared(state): Shared<Arc<State>>) -> Result<Response, ApiError> {
    let text = state.metrics.text().map_err(|error| ApiError::failed(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response())
}

/// Healthy while the engine's thread answers.
async fn health(Shared(state): Shared<Arc<State>>) -> StatusCode {
    if state.worker.is_alive() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn no_route(method: Method, uri: Uri) -> ApiError {
    ApiError::no_route(method.as_str(), uri.path())
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::wrong_method(method.as_str(), uri.path())
}

async fn check_key(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    let Some(key) = &state.options.api_key else { return next.run(request).await };
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer "));
    // Hashes are compared, so that the time says nothing of how much of the key was right.
    let matches = given.is_some_and(|given| blake3::hash(given.as_bytes()) == blake3::hash(key.as_bytes()));
    if matches { next.run(request).await } else { ApiError::unauthorized().into_response() }
}

fn fields(body: Body) -> Result<Fields, ApiError> {
    match body {
        Ok(bytes) => Fields::parse(&bytes),
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(ApiError::too_large(LARGEST_BODY)),
        Err(rejection) => Err(ApiError::invalid(format!("the body cannot be read: {rejection}"))),
    }
}
