//! `GET /health`: whether the engine is alive and makes progress.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{extract::State as Shared, http::StatusCode};
use engine::{Request, SamplingParams, StopConditions};

use super::replies;
use crate::{http::error::ApiError, state::State, worker::Named};

/// Time within which the engine must make progress; SGLang's default.
const PATIENCE: Duration = Duration::from_secs(20);

/// Healthy while the engine's thread runs and requests are accepted.
pub async fn health(Shared(state): Shared<Arc<State>>) -> Result<StatusCode, ApiError> {
    match (state.worker.is_alive(), state.is_stopping()) {
        (true, false) => Ok(StatusCode::OK),
        (_, true) => Err(ApiError::stopping()),
        (false, false) => Err(ApiError::failed("the engine has stopped")),
    }
}

/// Healthy if the engine generates a token: for a request of this check, or, with a long queue, for
/// others.
pub async fn generate(Shared(state): Shared<Arc<State>>) -> Result<StatusCode, ApiError> {
    health(Shared(state.clone())).await?;
    let own = async {
        let request = Request {
            input_ids: vec![0],
            sampling: SamplingParams::default(),
            stop: StopConditions { max_new_tokens: Some(1), ..StopConditions::default() },
        };
        match state.submit(vec![Named { request, name: None }], Instant::now()).await {
            Ok(running) => replies::wait(running).await.map(|_| ()),
            // No room for it: progress of other requests must show it.
            Err(_) if state.worker.is_alive() => std::future::pending().await,
            Err(error) => Err(error),
        }
    };
    let progress = || {
        let now = state.worker.published().statistics;
        (now.generated_tokens, now.prefill_time)
    };
    // Before the own request is submitted: its prefill is progress as well.
    let before = progress();
    let others = async {
        while progress() == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        ended = own => ended?,
        () = others => {}
        () = tokio::time::sleep(PATIENCE) => return Err(ApiError::stuck(PATIENCE.as_secs())),
    }
    Ok(StatusCode::OK)
}
