//! The routes.

use std::sync::Arc;

use axum::{
    Router,
    extract::State as Shared,
    http::{HeaderMap, Method, Uri},
    middleware::{from_fn, from_fn_with_state},
    response::Response,
    routing::{get, post},
};

use super::{
    access::{self, JsonBody},
    cors, health, info,
    openai::{chat, completions, responses},
    sglang::{control, generate, tokenize, updates},
};
use crate::{http::error::ApiError, state::State};

/// All endpoints. As in SGLang, health and metrics need no key: monitoring a server does not
/// require the right to use it.
pub fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(text_completions))
        .route("/v1/models", get(info::models))
        .route("/v1/models/", get(info::models))
        // A model's name may contain slashes.
        .route("/v1/models/{*id}", get(info::model))
        .route("/v1/responses", post(openai_responses))
        .route("/generate", post(sglang_generate))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/v1/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/v1/detokenize", post(tokenize::detokenize))
        .route("/flush_cache", get(control::flush_cache).post(control::flush_cache))
        .route("/reset_prefix_cache", post(control::flush_cache))
        .route("/abort_request", post(control::abort_request))
        .route("/pause_generation", post(control::pause_generation))
        .route("/continue_generation", post(control::continue_generation))
        .route("/update_weights_from_disk", post(updates::update_from_disk))
        .route("/update_weight_version", post(updates::update_version))
        .route("/server_info", get(info::server_info))
        .route("/get_server_info", get(info::server_info))
        .route("/model_info", get(info::model_info))
        .route("/get_model_info", get(info::model_info))
        // Only routes above this line need the key: health checks and metrics come without one.
        .layer(from_fn_with_state(state.clone(), access::check_key))
        .route("/health", get(health::health))
        .route("/ready", get(health::health))
        .route("/ping", get(health::health))
        .route("/health_generate", get(health::generate))
        .route("/version", get(info::version))
        .route("/metrics", get(metrics_page))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(access::check_host))
        .layer(from_fn(access::check_crowd))
        .layer(from_fn_with_state(state.clone(), cors::tell))
        // Layers below run before those above, so refused requests are counted and named too.
        .layer(from_fn_with_state(state.clone(), access::count))
        .layer(from_fn_with_state(state.clone(), access::name))
        .with_state(state)
}

async fn chat_completions(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Response, ApiError> {
    let JsonBody(fields, _held) = body;
    chat::answer(state, fields).await
}

async fn text_completions(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Response, ApiError> {
    let JsonBody(fields, _held) = body;
    completions::answer(state, fields).await
}

async fn sglang_generate(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Response, ApiError> {
    let JsonBody(fields, _held) = body;
    generate::answer(state, fields).await
}

async fn openai_responses(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Response, ApiError> {
    let JsonBody(fields, _held) = body;
    responses::answer(state, fields).await
}

async fn metrics_page(Shared(state): Shared<Arc<State>>, headers: HeaderMap) -> Result<Response, ApiError> {
    state.metrics.page(&headers).map_err(|error| ApiError::failed(error.to_string()))
}

async fn no_route(method: Method, uri: Uri) -> ApiError {
    ApiError::no_route(method.as_str(), uri.path())
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::wrong_method(method.as_str(), uri.path())
}
