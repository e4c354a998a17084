//! `POST /v1/responses`: OpenAI's newer API, for text and functions. Responses are not stored:
//! `previous_response_id` is refused.

mod fitting;
mod input;
mod output;

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response, Sse},
};
use engine::text::{ChatOptions, Text};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio_stream::wrappers::ReceiverStream;

use self::output::ResponseHead;
use super::chat;
use crate::{
    api::{
        messages,
        parameters::{LengthParameter, MOST_LOGPROBS, Parameters, check_model, named},
        prompts::ChatPrompt,
    },
    http::{error::ApiError, fields::Fields, neutral::Endpoint},
    output::{
        grammar::{self, GrammarForm},
        reading::{OutputReading, Reasoning},
        stream::READY_EVENTS,
        tools::Tools,
    },
    state::{State, now},
};

/// A parsed request.
struct ResponsesRequest {
    parameters: Parameters,
    messages: Vec<Value>,
    options: ChatOptions,
    tools: Option<Tools>,
    reasoning: Option<Reasoning>,
    /// Fields of the request that the response repeats.
    repeated: Value,
    /// Whether the oldest messages are left out if the conversation is too long.
    truncates: bool,
    stream: bool,
    /// The client's id for the response.
    id: Option<String>,
}

/// Handles a request.
///
/// # Errors
/// When it is invalid, cannot be accepted now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    let arrived = fields.arrived();
    let text = state.worker.facts().text.clone();
    let text = text.ok_or_else(|| ApiError::invalid("this model has no tokenizer: use /generate with input_ids"))?;
    let requested = read(fields, &state, &text)?;
    let ResponsesRequest { mut parameters, messages, options, tools, reasoning, repeated, truncates, stream, id } =
        requested;
    let output = parameters.stop.max_new_tokens;
    let ChatPrompt { tokens: prompt, thinks } =
        fitting::encode(&state, &text, messages, options, output, truncates).await?;
    let reading = OutputReading::new(tools, reasoning, thinks, parameters.form.is_some()).with_thinking(state.thinking);
    parameters.compile(&state).await?;
    let mut running = state.submit(named(parameters.requests(&prompt, &state), id.as_deref()), arrived).await?;
    let id = id.unwrap_or_else(|| state.new_id("resp_"));
    let head = ResponseHead { id, created: now(), reading, repeated, text, state: state.clone() };
    let running = running.pop().ok_or_else(ApiError::cut_off)?;
    if !stream {
        return Ok(Json(output::whole(running, &head).await?).into_response());
    }
    let (sender, events) = tokio::sync::mpsc::channel(READY_EVENTS);
    tokio::spawn(async move {
        // Dropping the request cancels it.
        tokio::select! {
            () = sender.closed() => {}
            _ = output::pump(running, head, &sender) => {}
        }
    });
    Ok(Sse::new(ReceiverStream::new(events).map(Ok::<_, std::convert::Infallible>)).into_response())
}

fn read(fields: Fields, state: &State, text: &Text) -> Result<ResponsesRequest, ApiError> {
    let mut fields = fields.for_endpoint(Endpoint::Responses);
    let source = text.template_source().unwrap_or_default();
    check_model(&mut fields, state)?;
    let facts = state.worker.facts();
    let lengths = LengthParameter { names: &["max_output_tokens"], least: 1 };
    let mut parameters = Parameters::read(&mut fields, facts, &facts.generation, lengths)?;
    if parameters.choices != 1 {
        return Err(fields.complain("n", "n: a response has exactly one choice"));
    }
    let (instructions, mut messages) = input::messages(&mut fields)?;
    messages::check_roles(&messages, "input", source)?;
    let with_logprobs = input::includes_logprobs(&mut fields)?;
    let top = fields.integer("top_logprobs", 0..=MOST_LOGPROBS)?;
    if with_logprobs || top.is_some_and(|top| top > 0) {
        parameters.sampling.logprobs = Some(top.unwrap_or_default() as usize);
    }
    // Responses repeat these fields as they were written, so they are copied before being read.
    let written_text = fields.peek("text").cloned();
    let form = format(&mut fields)?;
    if let Some((name, _)) = parameters.form.as_ref().filter(|_| form.is_some()) {
        let message = format!("text.format: the output already has a form, given by {name}; remove one of them");
        return Err(fields.complain("text.format", message));
    }
    parameters.form = parameters.form.or(form.map(|form| ("text.format", form)));
    let (written_tools, written_choice) = input::nest_tools(&mut fields);
    let tools = Tools::read(&mut fields, text, state.family)?;
    let effort = input::effort(&mut fields, source)?;
    let mut options = chat::chat_options(&mut fields, source)?;
    if let Some(tools) = &tools {
        tools.tell(&mut messages, &mut options);
    }
    chat::call_by_grammar(&mut parameters, tools.as_ref(), text);
    let reasoning = Reasoning::read(&mut fields, state.thinking)?;
    chat::see_marks(&mut parameters, tools.as_ref(), chat::marked_by(reasoning, state), text);
    let stream = fields.flag("stream")?;
    let metadata = match fields.value("metadata") {
        Some(other) if !other.is_object() => return Err(fields.wrong("metadata", "an object", &other)),
        given => given.unwrap_or_else(|| json!({})),
    };
    let truncates = match fields.text("truncation")?.as_deref() {
        None | Some("disabled") => false,
        Some("auto") => true,
        Some(other) => {
            let message = format!("truncation is '{other}', expected auto or disabled");
            return Err(fields.complain("truncation", message));
        }
    };
    // Limits calls of tools that the server itself runs, of which there are none.
    let most_calls = fields.integer("max_tool_calls", 1..=i64::MAX)?;
    let id = fields.text("request_id")?.filter(|id| !id.is_empty());
    let repeated = json!({
        "text": written_text.unwrap_or_else(|| json!({"format": {"type": "text"}})),
        "reasoning": {"effort": effort, "summary": null}, "max_tool_calls": most_calls,
        "truncation": if truncates { "auto" } else { "disabled" }, "top_logprobs": top.unwrap_or_default(),
        "instructions": instructions, "max_output_tokens": parameters.stop.max_new_tokens,
        "temperature": as_written(parameters.sampling.temperature), "top_p": as_written(parameters.sampling.top_p),
        "metadata": metadata,
        "tools": written_tools, "tool_choice": written_choice,
        "parallel_tool_calls": tools.as_ref().is_none_or(|tools| tools.parallel),
    });
    fields.finish()?;
    Ok(ResponsesRequest { parameters, messages, options, tools, reasoning, repeated, truncates, stream, id })
}

/// A number with the digits that a client wrote, not those of the nearest `f32`.
fn as_written(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| number.into())
}

/// The requested form of the text.
fn format(fields: &mut Fields) -> Result<Option<GrammarForm>, ApiError> {
    let mut text = fields.object("text")?;
    let mut format = text.object("format")?;
    let form = match format.text("type")?.as_deref() {
        None | Some("text") => None,
        Some("json_object") => Some(GrammarForm::any_object()),
        Some("json_schema") => {
            let _ = (format.text("name")?, format.text("description")?, format.flag("strict")?);
            let schema = format.value("schema").ok_or_else(|| format.complain("schema", "the schema is missing"))?;
            Some(GrammarForm::Schema(grammar::schema_of(&format, "schema", schema)?))
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
    Ok(form)
}
