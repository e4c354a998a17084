//! Endpoints that control the server, with SGLang's names: flush the prefix cache, abort requests, pause generation.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{RawQuery, State as Shared},
};
use serde_json::{Value, json};

use super::{
    access::JsonBody,
    error::ApiError,
    fields::Fields,
    state::State,
    worker::{Abort, Pause},
};

/// Longest time to wait for requests to end before the cache is flushed, in seconds.
const LONGEST_WAIT: f64 = 3600.0;
/// How often to try.
const EVERY: Duration = Duration::from_millis(20);

/// `GET` and `POST /flush_cache`, and vLLM's `POST /reset_prefix_cache`: forgets all prompts and outputs that are kept for
/// requests to come. Waits `timeout` seconds for running requests to end, by default not at all.
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
            Err(_) => tokio::time::sleep(EVERY).await,
        }
    }
}

/// `POST /abort_request`: ends the requests whose `rid` begins as given, or all. Their clients get what there is so far.
pub async fn abort_request(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Json<Value>, ApiError> {
    let JsonBody(mut fields, _held) = body;
    let (name, all) = (fields.text("rid")?, fields.flag("abort_all")?);
    // What SGLang's own processes say to each other.
    let _ = (fields.value("finished_reason"), fields.value("abort_message"));
    let which = match name.filter(|name| !name.is_empty()) {
        _ if all => Abort::All,
        Some(name) => Abort::Named(name),
        None => return Err(fields.complain("rid", "give rid or abort_all")),
    };
    fields.finish()?;
    state.worker.abort(which);
    Ok(Json(json!({"status": "ok"})))
}

/// `POST /pause_generation`: no token is generated until `/continue_generation`. Running requests end where they are; with
/// `mode` `in_place` they wait, and with `retract` they go back into the queue, hold nothing of the KV cache, and read
/// their tokens again when they continue.
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
    // It says something to devices that lend their memory to others.
    let _ = fields.flag("torch_empty_cache")?;
    Fields::finish(fields)?;
    state.worker.go_on().await?;
    Ok(Json(json!({"message": "Generation continued successfully.", "status": "ok"})))
}
