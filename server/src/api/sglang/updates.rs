//! Weight updates while the server runs: `POST /update_weights_from_disk` and related endpoints,
//! with SGLang's fields.

use std::{path::PathBuf, sync::Arc};

use axum::{
    Json,
    extract::State as Shared,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use engine::WeightFolders;
use serde_json::json;

use crate::{
    api::access::JsonBody,
    http::error::ApiError,
    state::State,
    worker::{AbortReply, weights::Update},
};

/// `POST /update_weights_from_disk`: loads the weights of a folder. `model_path` is a folder with
/// weights of the target or of the draft, detected from its contents; `draft_model_path`, an
/// extension, is a folder of the draft, alone or together with it. Weights that do not fit are
/// refused, and the old ones stay in use.
pub async fn update_from_disk(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Response, ApiError> {
    let JsonBody(mut fields, _held) = body;
    let mut folder = |name: &str| {
        let given = fields.text(name)?;
        match given.as_deref() {
            Some("") => Err(fields.complain(name, format!("{name} is empty; give the folder of a checkpoint"))),
            _ => Ok(given.map(PathBuf::from)),
        }
    };
    let folders = WeightFolders { model: folder("model_path")?, draft: folder("draft_model_path")? };
    if folders == WeightFolders::default() {
        return Err(fields.complain("model_path", "model_path is missing: give the folder of a checkpoint"));
    }
    if let Some(format) = fields.text("load_format")?.filter(|format| !["auto", "safetensors"].contains(&&**format)) {
        let message = format!("load_format is '{format}', expected auto or safetensors");
        return Err(fields.complain("load_format", message));
    }
    let version = fields.text("weight_version")?;
    let update = Update {
        folders,
        abort_all: fields.flag("abort_all_requests")?,
        flush: fields.flag_or("flush_cache", true)?,
        version: version.clone(),
    };
    // These have no effect here: there is no caching allocator, graphs hold addresses that do not
    // change, and a pause lasts until it is ended.
    for name in ["is_async", "torch_empty_cache", "keep_pause", "recapture_cuda_graph"] {
        let _ = fields.flag(name)?;
    }
    let _ = fields.integer("token_step", 0..=i64::MAX)?;
    fields.finish()?;
    let (status, success, message) = match state.worker.update(update).await {
        Ok(()) => {
            let named = version.map(|version| format!(" Weight version updated to {version}."));
            (StatusCode::OK, true, format!("Succeeded to update model weights.{}", named.unwrap_or_default()))
        }
        Err(error) => (error.status(), false, error.message().to_owned()),
    };
    let body = json!({"success": success, "message": message, "num_paused_requests": 0});
    Ok((status, Json(body)).into_response())
}

/// `POST /update_weight_version`: renames the loaded weights.
pub async fn update_version(Shared(state): Shared<Arc<State>>, body: JsonBody) -> Result<Response, ApiError> {
    let JsonBody(mut fields, _held) = body;
    let version = fields.text("new_version")?;
    let version = version.ok_or_else(|| fields.complain("new_version", "new_version is missing"))?;
    let abort_all = fields.flag_or("abort_all_requests", true)?;
    fields.finish()?;
    if abort_all {
        state.worker.abort(AbortReply::All);
    }
    state.worker.set_version(version.clone()).await?;
    let message = format!("Weight version updated to {version}");
    Ok(Json(json!({"success": true, "message": message, "new_version": version})).into_response())
}
