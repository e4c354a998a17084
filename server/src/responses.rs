//! `POST /v1/responses`: OpenAI's newer API, for text and functions. Responses are not stored: `previous_response_id`
//! is refused.

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

use self::output::Head;
use super::{
    chat,
    error::ApiError,
    fields::Fields,
    grammar::{self, Form},
    parameters::{Lengths, Parameters, check_model, named},
    prompts::{self, ChatPrompt},
    reading::{Reading, Reasoning},
    replies,
    state::{State, now},
    stream::READY_EVENTS,
    tools::Tools,
};

/// A parsed request.
struct Asked {
    parameters: Parameters,
    messages: Vec<Value>,
    options: ChatOptions,
    tools: Option<Tools>,
    reasoning: Option<Reasoning>,
    /// Fields of the request that the response repeats.
    repeated: Value,
    stream: bool,
}

/// Handles a request.
///
/// # Errors
/// When it is invalid, cannot be accepted now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    let arrived = fields.arrived();
    let text = state.worker.facts().text.clone();
    let text = text.ok_or_else(|| ApiError::invalid("this model has no tokenizer: use /generate with input_ids"))?;
    let Asked { mut parameters, messages, options, tools, reasoning, repeated, stream } = read(fields, &state, &text)?;
    let ChatPrompt { tokens: prompt, thinks } = prompts::encode_chat(&state, text, messages, options, false).await?;
    let reading = Reading::new(tools, reasoning, thinks, parameters.form.is_some());
    prompts::check_length(&state, "input", prompt.len(), parameters.stop.max_new_tokens)?;
    parameters.compile(&state).await?;
    let mut running = state.submit(named(parameters.requests(&prompt, &state), None), arrived).await?;
    let head = Head { id: state.response_id("resp"), created: now(), reading, repeated, state: state.clone() };
    if !stream {
        let choices = replies::wait(running).await?;
        let completion = choices.first().map(|choice| &choice.completion).ok_or_else(ApiError::cut_off)?;
        return Ok(Json(head.finished(completion)).into_response());
    }
    let running = running.pop().ok_or_else(ApiError::cut_off)?;
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

fn read(mut fields: Fields, state: &State, text: &Text) -> Result<Asked, ApiError> {
    check_model(&mut fields, state)?;
    let facts = state.worker.facts();
    let lengths = Lengths { names: &["max_output_tokens"], least: 1 };
    let mut parameters = Parameters::read(&mut fields, facts, &facts.generation, lengths)?;
    if parameters.choices != 1 {
        return Err(fields.complain("n", "n: a response has exactly one choice"));
    }
    let (instructions, mut messages) = input::messages(&mut fields)?;
    let form = format(&mut fields)?;
    if let Some((name, _)) = parameters.form.as_ref().filter(|_| form.is_some()) {
        let message = format!("text.format: the output already has a form, given by {name}; remove one of them");
        return Err(fields.complain("text.format", message));
    }
    parameters.form = parameters.form.or(form.map(|form| ("text.format", form)));
    let (written_tools, written_choice) = input::nest_tools(&mut fields);
    let tools = Tools::read(&mut fields, text, state.family)?;
    let mut options = chat::chat_options(&mut fields, text.template_source().unwrap_or_default())?;
    if let Some(tools) = &tools {
        tools.tell(&mut messages, &mut options);
    }
    chat::call_by_grammar(&fields, &mut parameters, tools.as_ref(), text)?;
    let reasoning = Reasoning::read(&mut fields, state.thinking)?;
    chat::see_marks(&mut parameters, tools.as_ref(), reasoning, text);
    let stream = fields.flag("stream")?;
    let metadata = match fields.value("metadata") {
        Some(other) if !other.is_object() => return Err(fields.wrong("metadata", "an object", &other)),
        given => given.unwrap_or_else(|| json!({})),
    };
    let repeated = json!({
        "instructions": instructions, "max_output_tokens": parameters.stop.max_new_tokens,
        "temperature": parameters.sampling.temperature, "top_p": parameters.sampling.top_p,
        "metadata": metadata,
        "tools": written_tools, "tool_choice": written_choice,
        "parallel_tool_calls": tools.as_ref().is_none_or(|tools| tools.parallel),
    });
    fields.finish()?;
    Ok(Asked { parameters, messages, options, tools, reasoning, repeated, stream })
}

/// The requested form of the text.
fn format(fields: &mut Fields) -> Result<Option<Form>, ApiError> {
    let mut text = fields.object("text")?;
    let mut format = text.object("format")?;
    let form = match format.text("type")?.as_deref() {
        None | Some("text") => None,
        Some("json_object") => Some(Form::any_object()),
        Some("json_schema") => {
            let _ = (format.text("name")?, format.text("description")?, format.flag("strict")?);
            let schema = format.value("schema").ok_or_else(|| format.complain("schema", "the schema is missing"))?;
            Some(Form::Schema(grammar::schema_of(&format, "schema", schema)?))
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
