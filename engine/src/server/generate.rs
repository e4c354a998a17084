//! `POST /generate`: SGLang's own API.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use serde_json::{Value, json};

use super::{
    error::ApiError,
    fields::{Fields, token, wrong},
    parameters::Parameters,
    replies::{self, Happened},
    state::State,
};
use crate::{Completion, Event, FinishReason};

/// Tokens of an answer where the client names no number, as in SGLang.
const DEFAULT_TOKENS: usize = 128;

/// Answers a request.
///
/// # Errors
/// When it is wrong, cannot be taken now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    fields.refuse(&["image_data", "lora_path", "return_hidden_states", "return_logprob"])?;
    let mut parameters = Parameters::read(&fields.object("sampling_params")?, &state)?;
    parameters.stop.max_new_tokens.get_or_insert(DEFAULT_TOKENS);
    let (prompts, several) = prompts(&fields, &state)?;
    let several = several || parameters.choices > 1;
    let running = state.submit(parameters.requests(&prompts)).await?;
    let id = state.response_id("gen");
    if fields.flag("stream")? {
        let mut texts = vec![String::new(); running.len()];
        let values = replies::merge(running).filter_map(move |Happened { index, event }| {
            let value = match event {
                // SGLang sends all text so far with each event.
                Some(Event::Tokens { text, .. }) if !text.is_empty() => {
                    texts[index].push_str(&text);
                    Some(json!({"index": index, "text": texts[index], "meta_info": {"id": id, "finish_reason": null}}))
                }
                Some(Event::Tokens { .. }) => None,
                Some(Event::Finished { completion, .. }) => {
                    state.metrics.finished(&completion);
                    let mut value = object(&id, &completion);
                    value["index"] = index.into();
                    Some(value)
                }
                None => Some(ApiError::failed("the engine stopped before the request was finished").body()),
            };
            std::future::ready(value)
        });
        return Ok(replies::events(values));
    }
    let choices = replies::wait(running, &state).await?;
    let mut objects: Vec<Value> = choices.iter().map(|choice| object(&id, &choice.completion)).collect();
    Ok(Json(if several { objects.into() } else { objects.pop().unwrap_or_default() }).into_response())
}

fn prompts(fields: &Fields, state: &State) -> Result<(Vec<Vec<u32>>, bool), ApiError> {
    let ids = |value: &Value| value.as_array()?.iter().map(token).collect::<Option<Vec<u32>>>();
    if let Some(value) = fields.value("input_ids") {
        if let Some(prompt) = ids(value).filter(|prompt| !prompt.is_empty()) {
            return Ok((vec![prompt], false));
        }
        let several = value.as_array().and_then(|list| list.iter().map(ids).collect::<Option<Vec<_>>>());
        return several.map(|prompts| (prompts, true)).ok_or_else(|| wrong("input_ids", "token ids", value));
    }
    let Some(text) = &state.worker.facts().text else {
        return Err(ApiError::parameter("input_ids", "this model has no tokenizer: give input_ids"));
    };
    let several = fields.value("text").is_some_and(Value::is_array);
    let texts = fields.texts("text", 256)?;
    if texts.is_empty() {
        return Err(ApiError::parameter("text", "give text or input_ids"));
    }
    Ok((texts.iter().map(|prompt| text.encode(prompt)).collect::<Result<_, _>>()?, several))
}

fn object(id: &str, completion: &Completion) -> Value {
    let reason = match &completion.finish_reason {
        FinishReason::Length => json!({"type": "length", "length": completion.output_ids.len()}),
        FinishReason::StopToken(token) => json!({"type": "stop", "matched": token}),
        FinishReason::StopString(text) => json!({"type": "stop", "matched": text}),
        FinishReason::Cancelled => json!({"type": "abort"}),
    };
    json!({
        "text": completion.text,
        "output_ids": completion.output_ids,
        "meta_info": {
            "id": id,
            "finish_reason": reason,
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": completion.output_ids.len(),
            "cached_tokens": 0,
            "e2e_latency": completion.elapsed.as_secs_f64(),
            "spec_verify_ct": completion.rounds,
            "spec_accept_length": completion.accept_length(),
            "spec_accept_histogram": completion.accept_histogram,
        },
    })
}
