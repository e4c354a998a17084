//! Endpoints that control the server, with SGLang's names: flush the prefix cache, abort requests,
//! pause generation.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{RawQuery, State as Shared},
};
use serde_json::{Value, json};

use crate::{
    api::access::JsonBody,
    http::{error::ApiError, fields::Fields},
    state::State,
    worker::{AbortReply, Pause},
};

/// Maximum `timeout` of a flush, in seconds.
const LONGEST_WAIT: f64 = 3600.0;
/// Interval between attempts.
const EVERY: Duration = Duration::from_millis(20);

/// `GET` and `POST /flush_cache`, and vLLM's `POST /reset_prefix_cache`: drops everything in the
/// prefix cache. Waits `timeout` seconds for running requests to end, by default not at all.
pub async fn flush_cache(Shared(state): Shared<Arc<State>>, RawQuery(query): RawQuery) -> Result<String, ApiError> {
    let query = query.unwrap_or_default();
    let timeout = query.split('&').find_map(|part| part.strip_prefix("timeout="));
    let wait = match timeout {
        None => 0.0,
        Some(given) => given.parse().ok().filter(|wait| (0.0..=LONGEST_WAIT).contains(wait)).ok_or_else(|| {
            ApiError::parameter("timeout", format!("timeout is '{given}', expected seconds from 0 to {LONGEST_WAIT}"))
        })?,
    };
    let patience = tokio::time::Instant::now() + Duration::from_secs_f64(wait);
    loop {
        match state.worker.flush().await {
            Ok(()) => return Ok("Cache flushed.\n".into()),
            Err(error) if tokio::time::Instant::now() >= patience => return Err(error),
            // SGLang's clients wait for running requests with this parameter.
            Err(_) => tokio::time::sleep(EVERY).await,
        }
    }
}

/// `POST /abort_request`: ends the requests whose `rid` starts with the given text, or all. Their
/// clients receive the output so far.
pub async fn abort_request(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Json<Value>, ApiError> {
    let JsonBody(mut fields, _held) = body;
    let (name, all) = (fields.text("rid")?, fields.flag("abort_all")?);
    // Fields that SGLang's own processes exchange.
    let _ = (fields.value("finished_reason"), fields.value("abort_message"));
    let which = match name.filter(|name| !name.is_empty()) {
        _ if all => AbortReply::All,
        Some(name) => AbortReply::Named(name),
        None => return Err(fields.complain("rid", "give rid or abort_all")),
    };
    fields.finish()?;
    state.worker.abort(which);
    Ok(Json(json!({"status": "ok"})))
}

/// `POST /pause_generation`: no token is generated until `/continue_generation`. By default running
/// requests end with their output so far. With `mode` `in_place` they wait; with `retract` they
/// return to the queue, release their pages of the KV cache, and prefill prompt and output again
/// when they continue.
pub async fn pause_generation(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Json<Value>, ApiError> {
    let JsonBody(mut fields, _held) = body;
    let how = match fields.text("mode")?.as_deref() {
        None | Some("abort") => Pause::Abort,
        Some("retract") => Pause::Retract,
        Some("in_place") => Pause::InPlace,
        Some(other) => {
            return Err(fields.complain("mode", format!("mode is '{other}', expected abort, retract or in_place")));
        }
    };
    fields.finish()?;
    state.worker.pause(how).await?;
    Ok(Json(json!({"message": "Generation paused successfully.", "status": "ok"})))
}

/// `POST /continue_generation`.
pub async fn continue_generation(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Json<Value>, ApiError> {
    let JsonBody(mut fields, _held) = body;
    // Has no effect here: there is no caching allocator.
    let _ = fields.flag("torch_empty_cache")?;
    Fields::finish(fields)?;
    state.worker.go_on().await?;
    Ok(Json(json!({"message": "Generation continued successfully.", "status": "ok"})))
}
