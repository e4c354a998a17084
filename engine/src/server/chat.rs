//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::{
    error::ApiError,
    fields::{Fields, wrong},
    parameters::{MOST_LOGPROBS, Parameters, check_model},
    replies::{self, Choice, Happened},
    state::{State, now},
};
use crate::{
    Completion, Event,
    backend::ProducedToken,
    text::{ChatMessage, Text},
};

/// Answers a request.
///
/// # Errors
/// When it is wrong, cannot be taken now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    check_model(&fields, &state)?;
    let mut parameters = Parameters::read(&fields, &state)?;
    if fields.flag("logprobs")? {
        parameters.sampling.logprobs = Some(fields.integer("top_logprobs", 0, MOST_LOGPROBS)?.unwrap_or(0) as usize);
    } else if fields.integer("top_logprobs", 0, MOST_LOGPROBS)?.is_some_and(|count| count > 0) {
        return Err(ApiError::parameter("top_logprobs", "top_logprobs needs logprobs to be true"));
    }
    let text = state.worker.facts().text.clone();
    let text = text.ok_or_else(|| ApiError::invalid("this model has no tokenizer: use /generate with input_ids"))?;
    let prompt = text.encode_chat(&messages(&fields)?)?;
    let running = state.submit(parameters.requests(&[prompt])).await?;
    let head = Head { id: state.response_id("chatcmpl"), created: now(), model: state.model().to_owned() };
    if fields.flag("stream")? {
        let usage = fields.object("stream_options")?.flag("include_usage")?;
        return Ok(stream(state, text, head, running, usage));
    }
    let choices = replies::wait(running, &state).await?;
    Ok(Json(whole(&state, &text, &head, &choices)).into_response())
}

/// What all parts of a response share.
#[derive(Clone)]
struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    fn object(&self, kind: &str, choices: Value) -> Value {
        json!({"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices})
    }
}

fn whole(state: &State, text: &Text, head: &Head, choices: &[Choice]) -> Value {
    let list: Vec<Value> = choices
        .iter()
        .enumerate()
        .map(|(index, choice)| {
            json!({
                "index": index,
                "message": {"role": "assistant", "content": choice.completion.text},
                "logprobs": logprobs(&choice.tokens, text),
                "finish_reason": choice.completion.finish_reason.word(),
            })
        })
        .collect();
    let completions: Vec<Completion> = choices.iter().map(|choice| choice.completion.clone()).collect();
    let mut object = head.object("chat.completion", list.into());
    object["usage"] = replies::usage(&completions, completions.len());
    if let Some(metrics) = replies::speculation(&completions, state) {
        object["metrics"] = metrics;
    }
    object
}

fn stream(state: Arc<State>, text: Text, head: Head, running: Vec<super::worker::Running>, usage: bool) -> Response {
    let chunk = |head: &Head, index: usize, delta: Value, logprobs: Value, reason: Value| {
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason});
        head.object("chat.completion.chunk", json!([choice]))
    };
    let count = running.len();
    let begins: Vec<Value> = (0..count)
        .map(|index| chunk(&head, index, json!({"role": "assistant", "content": ""}), Value::Null, Value::Null))
        .collect();
    let mut completions: Vec<Option<Completion>> = vec![None; count];
    let values = replies::merge(running).flat_map(move |Happened { index, event }| {
        let mut values = Vec::new();
        match event {
            Some(Event::Tokens { tokens, text: new, .. }) => {
                let logprobs = logprobs(&tokens, &text);
                // Text that is held back comes with a later token.
                if !new.is_empty() || !logprobs.is_null() {
                    values.push(chunk(&head, index, json!({"content": new}), logprobs, Value::Null));
                }
            }
            Some(Event::Finished { completion, .. }) => {
                state.metrics.finished(&completion);
                let reason = completion.finish_reason.word();
                values.push(chunk(&head, index, json!({}), Value::Null, reason.into()));
                completions[index] = Some(*completion);
                if completions.iter().all(Option::is_some) && usage {
                    let completions: Vec<Completion> = completions.iter().flatten().cloned().collect();
                    let mut last = head.object("chat.completion.chunk", json!([]));
                    last["usage"] = replies::usage(&completions, count);
                    if let Some(metrics) = replies::speculation(&completions, &state) {
                        last["metrics"] = metrics;
                    }
                    values.push(last);
                }
            }
            None => values.push(ApiError::failed("the engine stopped before the request was finished").body()),
        }
        stream::iter(values)
    });
    replies::events(stream::iter(begins).chain(values))
}

fn messages(fields: &Fields) -> Result<Vec<ChatMessage>, ApiError> {
    let value = fields.value("messages").ok_or_else(|| ApiError::parameter("messages", "messages is missing"))?;
    let list = value.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| wrong("messages", "a list of at least one message", value))?;
    list.iter().enumerate().map(|(at, message)| self::message(at, message)).collect()
}

fn message(at: usize, value: &Value) -> Result<ChatMessage, ApiError> {
    let name = |field: &str| format!("messages[{at}].{field}");
    let role = value.get("role").and_then(Value::as_str);
    let role = role.ok_or_else(|| ApiError::parameter(&name("role"), format!("messages[{at}] has no role")))?;
    let content = match value.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .map(|part| match (part.get("type").and_then(Value::as_str), part.get("text").and_then(Value::as_str)) {
                (Some("text"), Some(text)) => Ok(text),
                _ => Err(ApiError::parameter(&name("content"), "only content parts of type text are supported")),
            })
            .collect::<Result<String, _>>()?,
        None | Some(Value::Null) => String::new(),
        Some(other) => return Err(wrong(&name("content"), "a string or a list of text parts", other)),
    };
    Ok(ChatMessage { role: role.to_owned(), content })
}

fn logprobs(tokens: &[ProducedToken], text: &Text) -> Value {
    let entry = |id: u32, logprob: f32| {
        let token = text.token(id);
        json!({"token": token, "logprob": logprob, "bytes": token.as_bytes()})
    };
    let entries: Vec<Value> = tokens
        .iter()
        .filter_map(|token| {
            let logprobs = token.logprobs.as_ref()?;
            let mut value = entry(token.id, logprobs.logprob);
            value["top_logprobs"] = logprobs.top.iter().map(|(id, logprob)| entry(*id, *logprob)).collect();
            Some(value)
        })
        .collect();
    if entries.is_empty() { Value::Null } else { json!({"content": entries}) }
}
