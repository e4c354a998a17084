//! `POST /v1/responses`: OpenAI's newer API, for text. Nothing is kept: `previous_response_id` is refused.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    Json,
    response::{IntoResponse, Response, Sse, sse::Event as SseEvent},
};
use engine::{Completion, Event, FinishReason, text::ChatOptions};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;
use tokio_stream::wrappers::ReceiverStream;

use super::{
    chat,
    error::ApiError,
    fields::Fields,
    grammar::Form,
    parameters::{Lengths, Parameters, check_model, named},
    prompts, replies,
    state::{State, now},
    stream::{Gone, LONGEST_STALL, READY_EVENTS},
    worker::Running,
};

/// What a client asks for.
struct Asked {
    parameters: Parameters,
    messages: Vec<Value>,
    /// What the answer repeats of the request.
    repeated: Value,
    stream: bool,
}

/// What all objects of an answer share.
struct Head {
    id: String,
    item: String,
    created: u64,
    model: String,
    repeated: Value,
}

/// Answers a request.
///
/// # Errors
/// When it is wrong, cannot be taken now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    let Asked { mut parameters, messages, repeated, stream } = read(fields, &state)?;
    let text = state.worker.facts().text.clone();
    let text = text.ok_or_else(|| ApiError::invalid("this model has no tokenizer: use /generate with input_ids"))?;
    let prompt = prompts::encode_chat(&state, text, messages, ChatOptions::default(), false).await?;
    parameters.compile(&state).await?;
    prompts::check_length(&state, "input", prompt.len(), parameters.stop.max_new_tokens)?;
    let mut running = state.submit(named(parameters.requests(&prompt, &state), None)).await?;
    let head = Head {
        id: state.response_id("resp"),
        item: state.response_id("msg"),
        created: now(),
        model: state.model().to_owned(),
        repeated,
    };
    if !stream {
        let choices = replies::wait(running).await?;
        let completion = choices.first().map(|choice| &choice.completion).ok_or_else(ApiError::cut_off)?;
        return Ok(Json(head.finished(completion)).into_response());
    }
    let running = running.pop().ok_or_else(ApiError::cut_off)?;
    let (sender, events) = tokio::sync::mpsc::channel(READY_EVENTS);
    tokio::spawn(async move {
        let events = Numbered { sender: &sender, next: AtomicU64::new(0) };
        // Dropping the request cancels it.
        tokio::select! {
            () = sender.closed() => {}
            _ = pump(running, head, &events) => {}
        }
    });
    Ok(Sse::new(ReceiverStream::new(events).map(Ok::<_, std::convert::Infallible>)).into_response())
}

fn read(mut fields: Fields, state: &State) -> Result<Asked, ApiError> {
    check_model(&mut fields, state)?;
    let facts = state.worker.facts();
    let lengths = Lengths { names: &["max_output_tokens"], least: 1 };
    let mut parameters = Parameters::read(&mut fields, facts, &facts.generation, lengths)?;
    if parameters.choices != 1 {
        return Err(fields.complain("n", "n: a response has one choice"));
    }
    let instructions = fields.text("instructions")?;
    let mut messages = Vec::from_iter(instructions.iter().map(|text| json!({"role": "system", "content": text})));
    match fields.value("input") {
        None => return Err(fields.complain("input", "input is missing")),
        Some(Value::String(text)) => messages.push(json!({"role": "user", "content": text})),
        Some(Value::Array(items)) if !items.is_empty() => {
            for (at, item) in items.into_iter().enumerate() {
                messages.push(message(at, item)?);
            }
        }
        Some(other) => return Err(fields.wrong("input", "a string or a list of messages", &other)),
    }
    let mut text = fields.object("text")?;
    let mut format = text.object("format")?;
    let form = match format.text("type")?.as_deref() {
        None | Some("text") => None,
        Some("json_object") => Some(Form::any_object()),
        Some("json_schema") => {
            let _ = (format.text("name")?, format.text("description")?, format.flag("strict")?);
            let schema = format.value("schema").ok_or_else(|| format.complain("schema", "the schema is missing"))?;
            Some(Form::Schema(schema))
        }
        Some(other) => {
            let message = format!("text.format.type is '{other}', expected text, json_object or json_schema");
            return Err(format.complain("type", message));
        }
    };
    format.finish()?;
    if text.text("verbosity")?.is_some_and(|verbosity| verbosity != "medium") {
        return Err(text.complain("verbosity", "verbosity is not supported by this server; leave it out"));
    }
    text.finish()?;
    parameters.form = parameters.form.or(form.map(|form| ("text.format", form)));
    let stream = fields.flag("stream")?;
    let repeated = json!({
        "instructions": instructions, "max_output_tokens": parameters.stop.max_new_tokens,
        "temperature": parameters.sampling.temperature, "top_p": parameters.sampling.top_p,
        "metadata": fields.value("metadata").unwrap_or_else(|| json!({})),
    });
    fields.finish()?;
    Ok(Asked { parameters, messages, repeated, stream })
}

/// An item of the input, as a message of a chat.
fn message(at: usize, item: Value) -> Result<Value, ApiError> {
    let place = format!("input[{at}]");
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    if kind != "message" {
        return Err(ApiError::parameter(&place, format!("{place} is a {kind}, and this page takes messages only")));
    }
    let Value::Object(mut item) = item else {
        return Err(ApiError::parameter(&place, format!("{place} is not an object with role and content")));
    };
    for name in ["type", "id", "status"] {
        item.remove(name);
    }
    if let Some(parts) = item.get_mut("content").and_then(Value::as_array_mut) {
        for part in parts.iter_mut().filter_map(Value::as_object_mut) {
            let kind = part.get("type").and_then(Value::as_str);
            if matches!(kind, Some("input_text" | "output_text")) {
                part.insert("type".into(), "text".into());
            }
        }
    }
    if item.get("role").and_then(Value::as_str) == Some("developer") {
        item.insert("role".into(), "system".into());
    }
    chat::message(&place, Value::Object(item))
}

impl Head {
    fn object(&self, status: &str, output: Value, usage: Value) -> Value {
        let mut object = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "error": null,
            "incomplete_details": null, "model": self.model, "output": output, "parallel_tool_calls": false,
            "previous_response_id": null, "reasoning": {"effort": null, "summary": null}, "store": false,
            "text": {"format": {"type": "text"}}, "tool_choice": "none", "tools": [], "truncation": "disabled",
            "usage": usage, "user": null,
        });
        if let (Some(object), Some(repeated)) = (object.as_object_mut(), self.repeated.as_object()) {
            object.extend(repeated.clone());
        }
        object
    }

    fn item(&self, status: &str, content: Value) -> Value {
        json!({"type": "message", "id": self.item, "status": status, "role": "assistant", "content": content})
    }

    fn finished(&self, completion: &Completion) -> Value {
        let cut = match completion.finish_reason {
            FinishReason::Length => Some("max_output_tokens"),
            FinishReason::Cancelled => Some("aborted"),
            _ => None,
        };
        let status = if cut.is_some() { "incomplete" } else { "completed" };
        let usage = json!({
            "input_tokens": completion.prompt_tokens,
            "input_tokens_details": {"cached_tokens": completion.cached_tokens},
            "output_tokens": completion.output_ids.len(),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": completion.prompt_tokens + completion.output_ids.len(),
        });
        let mut object = self.object(status, json!([self.item(status, json!([part(&completion.text)]))]), usage);
        if let Some(reason) = cut {
            object["incomplete_details"] = json!({"reason": reason});
        }
        object
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// Events with their numbers.
struct Numbered<'a> {
    sender: &'a Sender<SseEvent>,
    next: AtomicU64,
}

impl Numbered<'_> {
    async fn send(&self, kind: &str, mut value: Value) -> Result<(), Gone> {
        value["type"] = kind.into();
        value["sequence_number"] = self.next.fetch_add(1, Ordering::Relaxed).into();
        let event = SseEvent::default().event(kind).data(value.to_string());
        self.sender.send_timeout(event, LONGEST_STALL).await.map_err(|_| Gone)
    }
}

async fn pump(mut running: Running, head: Head, events: &Numbered<'_>) -> Result<(), Gone> {
    let place = |mut value: Value| {
        value["item_id"] = head.item.clone().into();
        value["output_index"] = 0.into();
        value["content_index"] = 0.into();
        value
    };
    let begun = head.object("in_progress", json!([]), Value::Null);
    events.send("response.created", json!({"response": begun.clone()})).await?;
    events.send("response.in_progress", json!({"response": begun})).await?;
    let mut opened = false;
    loop {
        let event = match running.events.recv().await.unwrap_or_else(|| Err(ApiError::cut_off())) {
            Ok(event) => event,
            Err(error) => {
                let mut failed = head.object("failed", json!([]), Value::Null);
                failed["error"] = json!({"code": "server_error", "message": error.message()});
                return events.send("response.failed", json!({"response": failed})).await;
            }
        };
        if !opened {
            opened = true;
            let item = head.item("in_progress", json!([]));
            events.send("response.output_item.added", json!({"output_index": 0, "item": item})).await?;
            events.send("response.content_part.added", place(json!({"part": part("")}))).await?;
        }
        match event {
            Event::Tokens { text, .. } if text.is_empty() => {}
            Event::Tokens { text, .. } => {
                events.send("response.output_text.delta", place(json!({"delta": text, "logprobs": []}))).await?;
            }
            Event::Finished { completion, .. } => {
                let finished = head.finished(&completion);
                let text = &completion.text;
                events.send("response.output_text.done", place(json!({"text": text, "logprobs": []}))).await?;
                events.send("response.content_part.done", place(json!({"part": part(text)}))).await?;
                let item = finished["output"][0].clone();
                events.send("response.output_item.done", json!({"output_index": 0, "item": item})).await?;
                let status = finished["status"].as_str().unwrap_or_default().to_owned();
                return events.send(&format!("response.{status}"), json!({"response": finished})).await;
            }
        }
    }
}
