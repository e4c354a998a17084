//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use engine::{
    Completion, OutputText,
    backend::ProducedToken,
    text::{ChatOptions, TemplateVariables, Text},
};
use serde_json::{Map, Value, json};

use super::{
    error::ApiError,
    fields::Fields,
    parameters::{Lengths, MOST_LOGPROBS, Parameters, check_model, named},
    prompt_logprobs,
    prompts::{self, ChatPrompt},
    reading::{Parts, Piece, Reader, Reading, Reasoning},
    reasoning,
    replies::{self, Choice, Head, StreamUsage, UsageSoFar},
    state::State,
    stream::{self, Chunks},
    tools::Tools,
};

/// A parsed request.
struct Asked {
    parameters: Parameters,
    messages: Vec<Value>,
    options: ChatOptions,
    tools: Option<Tools>,
    reasoning: Option<Reasoning>,
    /// Whether the tokenizer's special tokens are added around the template's output.
    special: bool,
    stream: Option<StreamUsage>,
    /// The client's name for the request.
    name: Option<String>,
    /// Number of alternatives for each token of the prompt, if requested.
    prompt_logprobs: Option<usize>,
    /// SGLang's `return_cached_tokens_details`.
    cache_details: bool,
}

/// Handles a request.
///
/// # Errors
/// When it is invalid, cannot be accepted now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    let arrived = fields.arrived();
    let text = state.worker.facts().text.clone();
    let text = text.ok_or_else(|| ApiError::invalid("this model has no tokenizer: use /generate with input_ids"))?;
    let asked = read(fields, &state, &text)?;
    let Asked {
        mut parameters,
        messages,
        options,
        tools,
        reasoning,
        special,
        stream,
        name,
        prompt_logprobs,
        cache_details,
    } = asked;
    let ChatPrompt { tokens: prompt, thinks } =
        prompts::encode_chat(&state, text.clone(), messages, options, special).await?;
    let length = prompt.len();
    let reading = Reading::new(tools, reasoning, thinks, parameters.form.is_some());
    prompts::check_length(&state, "messages", length, parameters.stop.max_new_tokens)?;
    parameters.compile(&state).await?;
    let running = state.submit(named(parameters.requests(&prompt, &state), name.as_deref()), arrived).await?;
    let choices = parameters.choices;
    let Some(mode) = stream else {
        let head = Head::new(&state, "chatcmpl", "chat.completion", name);
        let choices = replies::wait(running).await?;
        let mut object = whole(&state, &text, &head, &reading, &choices);
        if let (Some(count), Some(first)) = (prompt_logprobs, choices.first()) {
            let logprobs = &first.completion.prompt_logprobs;
            object["prompt_logprobs"] = prompt_logprobs::list(&prompt, logprobs, count, Some(&text));
        }
        if cache_details {
            object["sglext"] = replies::cache_details(choices.iter().map(|choice| &choice.completion));
        }
        return Ok(Json(object).into_response());
    };
    let head = Head::new(&state, "chatcmpl", "chat.completion.chunk", name);
    let usage = UsageSoFar::new(mode, vec![length; choices]);
    let readers = vec![reading.stream(); choices];
    let chunks = ChatChunks { state, text, head, mode, usage, choices, cache_details, reading, readers };
    Ok(stream::respond(running, chunks))
}

fn read(mut fields: Fields, state: &State, text: &Text) -> Result<Asked, ApiError> {
    check_model(&mut fields, state)?;
    let facts = state.worker.facts();
    let lengths = Lengths { names: &["max_completion_tokens", "max_tokens"], least: 1 };
    let mut parameters = Parameters::read(&mut fields, facts, &facts.generation, lengths)?;
    let top = fields.integer("top_logprobs", 0..=MOST_LOGPROBS)?;
    if fields.flag("logprobs")? {
        parameters.sampling.logprobs = Some(top.unwrap_or_default() as usize);
    } else if top.is_some_and(|top| top > 0) {
        return Err(fields.complain("top_logprobs", "top_logprobs needs logprobs to be true"));
    }
    let (messages, options, tools) = conversation(&mut fields, text, state)?;
    call_by_grammar(&fields, &mut parameters, tools.as_ref(), text)?;
    let reasoning = Reasoning::read(&mut fields, state.thinking)?;
    see_marks(&mut parameters, tools.as_ref(), reasoning, text);
    let special = fields.flag("add_special_tokens")?;
    let stream = StreamUsage::read(&mut fields)?;
    let prompt_logprobs = prompt_logprobs::read(&mut fields, stream.is_some())?;
    parameters.sampling.prompt_logprobs = prompt_logprobs::asked([prompt_logprobs, None]);
    let name = fields.text("rid")?;
    let cache_details = fields.flag("return_cached_tokens_details")?;
    fields.finish()?;
    Ok(Asked { parameters, messages, options, tools, reasoning, special, stream, name, prompt_logprobs, cache_details })
}

/// Reads the messages, and how they are turned into a prompt.
///
/// # Errors
/// When one is invalid.
pub fn conversation(
    fields: &mut Fields,
    text: &Text,
    state: &State,
) -> Result<(Vec<Value>, ChatOptions, Option<Tools>), ApiError> {
    let source = text.template_source().unwrap_or_default();
    let (mut messages, mut options) = (messages(fields)?, chat_options(fields, source)?);
    if !source.contains("developer") {
        // OpenAI's newer name for the system role.
        for message in messages.iter_mut().filter(|message| message["role"] == "developer") {
            message["role"] = "system".into();
        }
    }
    let tools = Tools::read(fields, text, state.family)?;
    if let Some(tools) = &tools {
        tools.tell(&mut messages, &mut options);
    }
    Ok((messages, options, tools))
}

/// If functions must be called, restricts the output to calls by a grammar.
///
/// # Errors
/// When another output format is requested too.
pub fn call_by_grammar(
    fields: &Fields,
    parameters: &mut Parameters,
    tools: Option<&Tools>,
    text: &Text,
) -> Result<(), ApiError> {
    let Some(tools) = tools else { return Ok(()) };
    if let Some((name, _)) = &parameters.form {
        let message = format!("{name} and tools cannot be combined: remove one, or set tool_choice to none");
        return Err(fields.complain(name, message));
    }
    parameters.form = tools.form(text).map(|form| ("tool_choice", form));
    Ok(())
}

/// Keeps special tokens in the text if they mark calls or reasoning.
pub fn see_marks(parameters: &mut Parameters, tools: Option<&Tools>, reasoning: Option<Reasoning>, text: &Text) {
    let of_tools = tools.map_or(&[][..], |tools| tools.family.markers());
    let of_reasoning = reasoning.map(|_| reasoning::CLOSE);
    let is_hidden = |marker: &str| text.special_token(marker).is_some();
    let hidden = of_tools.iter().copied().chain(of_reasoning).any(is_hidden);
    if parameters.stop.text == OutputText::Plain && hidden {
        parameters.stop.text = OutputText::WithSpecialTokens;
    }
}

/// Reads how messages are turned into a prompt.
///
/// # Errors
/// When a field is invalid.
pub fn chat_options(fields: &mut Fields, template: &str) -> Result<ChatOptions, ApiError> {
    const CONTINUE: &str = "continue_final_message";
    let mut variables = template_variables(fields)?;
    set_effort(fields, template, &mut variables)?;
    let continue_final_message = fields.flag(CONTINUE)?;
    // To continue a message is to request no new one; vLLM requires both to be given explicitly.
    let add_generation_prompt = fields.flag_or("add_generation_prompt", !continue_final_message)?;
    if continue_final_message && add_generation_prompt {
        return Err(fields.complain(CONTINUE, "continue_final_message needs add_generation_prompt to be false"));
    }
    Ok(ChatOptions { variables, tools: Vec::new(), add_generation_prompt, continue_final_message })
}

/// OpenAI's `reasoning_effort`, as far as the template supports it; `none` disables thinking in models that can do
/// without. An effort that the template does not know stays in the fields, and is refused there.
fn set_effort(fields: &mut Fields, template: &str, variables: &mut TemplateVariables) -> Result<(), ApiError> {
    const NAME: &str = "reasoning_effort";
    let Some(effort) = fields.text(NAME)? else { return Ok(()) };
    if effort == "none" {
        for name in ["enable_thinking", "thinking"] {
            variables.entry(name).or_insert_with(|| false.into());
        }
    }
    if template.contains(NAME) {
        variables.entry(NAME).or_insert_with(|| effort.into());
    } else {
        fields.put(NAME, effort.into());
    }
    Ok(())
}

fn messages(fields: &mut Fields) -> Result<Vec<Value>, ApiError> {
    match fields.value("messages") {
        None => Err(fields.complain("messages", "messages is missing")),
        Some(Value::Array(list)) if !list.is_empty() => list
            .into_iter()
            .enumerate()
            .map(|(at, message)| self::message(&format!("messages[{at}]"), message))
            .collect(),
        Some(other) => Err(fields.wrong("messages", "a list of at least one message", &other)),
    }
}

/// `chat_template_kwargs`: the template's own variables, as in SGLang and vLLM.
fn template_variables(fields: &mut Fields) -> Result<TemplateVariables, ApiError> {
    const NAME: &str = "chat_template_kwargs";
    let variables = match fields.value(NAME) {
        None => return Ok(TemplateVariables::new()),
        Some(Value::Object(variables)) => variables,
        Some(other) => return Err(fields.wrong(NAME, "an object", &other)),
    };
    let taken = ["messages", "tools", "documents", "add_generation_prompt"];
    match taken.into_iter().find(|name| variables.contains_key(*name)) {
        Some(name) => Err(fields.complain(NAME, format!("{NAME}: {name} is set by this server; leave it out"))),
        None => Ok(variables),
    }
}

/// A message in the form of the chat template: text in one piece, arguments of tool calls as objects. Other fields are
/// passed to the template.
///
/// # Errors
/// When it is not a message.
pub fn message(place: &str, value: Value) -> Result<Value, ApiError> {
    let complain = |field: &str, message: String| ApiError::parameter(&format!("{place}.{field}"), message);
    let Value::Object(mut message) = value else {
        return Err(ApiError::parameter(place, format!("{place} is not an object with role and content")));
    };
    let role = message.get("role").and_then(Value::as_str).map(ToOwned::to_owned);
    let role = role.ok_or_else(|| complain("role", format!("{place} has no role")))?;
    let content = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => text_of(parts).ok_or_else(|| {
            complain(
                "content",
                format!("{place}.content has a part that is not text, but this server supports only text"),
            )
        })?,
        // An assistant's message may consist of tool calls only.
        None | Some(Value::Null) if role == "assistant" => String::new(),
        None | Some(Value::Null) => return Err(complain("content", format!("{place} has no content"))),
        Some(_) => {
            return Err(complain("content", format!("{place}.content: expected a string or a list of text parts")));
        }
    };
    message.retain(|_, value| !value.is_null());
    message.insert("content".into(), content.into());
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        read_arguments(call);
    }
    Ok(Value::Object(message))
}

/// Converts arguments of a tool call from OpenAI's JSON in a string to the object that templates expect.
fn read_arguments(call: &mut Value) {
    let Some(arguments) = call.pointer_mut("/function/arguments") else { return };
    let object = arguments.as_str().and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    if let Some(object) = object {
        *arguments = Value::Object(object);
    }
}

fn text_of(parts: &[Value]) -> Option<String> {
    let text = |part: &Map<String, Value>| match part.get("type").and_then(Value::as_str) {
        Some("text") => part.get("text").and_then(Value::as_str).map(ToOwned::to_owned),
        _ => None,
    };
    parts.iter().map(|part| text(part.as_object()?)).collect()
}

fn whole(state: &State, text: &Text, head: &Head, reading: &Reading, choices: &[Choice]) -> Value {
    let list = choices.iter().enumerate().map(|(index, Choice { completion, tokens })| {
        let Parts { reasoning, content, calls } = reading.whole(&completion.text);
        let mut message = json!({"role": "assistant", "content": content});
        if let Some(reasoning) = reasoning {
            message["reasoning_content"] = if reasoning.is_empty() { Value::Null } else { reasoning.into() };
        }
        let mut reason = completion.finish_reason.word();
        if let (Some(tools), false) = (&reading.tools, calls.is_empty()) {
            if content.is_empty() {
                message["content"] = Value::Null;
            }
            message["tool_calls"] = tools.written(&calls, &|| state.random_number());
            reason = reason_with_calls(reason);
        }
        json!({"index": index, "message": message, "logprobs": logprobs(tokens, text), "finish_reason": reason})
    });
    let mut object = head.object(list.collect());
    let completions = choices.iter().map(|choice| &choice.completion);
    object["usage"] = replies::usage(completions.clone(), choices.len());
    object["metrics"] = replies::speculation(completions, state);
    object
}

/// OpenAI's finish reason for a response with calls that ended by itself.
fn reason_with_calls(reason: &'static str) -> &'static str {
    if reason == "stop" { "tool_calls" } else { reason }
}

struct ChatChunks {
    state: Arc<State>,
    text: Text,
    head: Head,
    mode: StreamUsage,
    usage: UsageSoFar,
    choices: usize,
    cache_details: bool,
    reading: Reading,
    /// One per choice.
    readers: Vec<Reader>,
}

impl ChatChunks {
    /// The deltas that can be sent, one for each part.
    fn deltas(&self, piece: Piece) -> Vec<Value> {
        let mut deltas = Vec::new();
        if !piece.reasoning.is_empty() {
            deltas.push(json!({"reasoning_content": piece.reasoning}));
        }
        if !piece.content.is_empty() {
            deltas.push(json!({"content": piece.content}));
        }
        for call in &piece.calls {
            if let Some(tools) = &self.reading.tools {
                deltas.push(json!({"tool_calls": tools.written_piece(call, &|| self.state.random_number())}));
            }
        }
        deltas
    }

    fn chunk(&mut self, index: usize, further: usize, delta: Value, logprobs: Value, reason: Value) -> Value {
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason});
        let mut chunk = self.head.object(json!([choice]));
        self.usage.write(&mut chunk, index, further);
        chunk
    }
}

impl Chunks for ChatChunks {
    fn begin(&mut self, index: usize) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        Some(self.chunk(index, 0, delta, Value::Null, Value::Null))
    }

    fn tokens(&mut self, index: usize, tokens: &[ProducedToken], text: &str) -> Vec<Value> {
        let logprobs = logprobs(tokens, &self.text);
        let piece = self.readers[index].push(text, &self.reading);
        let mut deltas = self.deltas(piece);
        // Text that is held back is sent with a later token.
        if deltas.is_empty() && !logprobs.is_null() {
            deltas.push(json!({"content": ""}));
        }
        if deltas.is_empty() {
            self.usage.count(index, tokens.len());
        }
        // Counts and log-probabilities of tokens are sent once, with the first delta.
        let mut told = (tokens.len(), logprobs);
        let chunk = |delta: Value| {
            let (further, logprobs) = std::mem::take(&mut told);
            self.chunk(index, further, delta, logprobs, Value::Null)
        };
        deltas.into_iter().map(chunk).collect()
    }

    fn end(&mut self, index: usize, completion: &Completion) -> Vec<Value> {
        let mut reason = completion.finish_reason.word();
        let piece = self.readers[index].finish(&self.reading);
        let deltas = self.deltas(piece);
        if self.readers[index].has_calls() {
            reason = reason_with_calls(reason);
        }
        let mut chunks: Vec<Value> =
            deltas.into_iter().map(|delta| self.chunk(index, 0, delta, Value::Null, Value::Null)).collect();
        chunks.push(self.chunk(index, 0, json!({}), Value::Null, reason.into()));
        chunks
    }

    fn last(&mut self, completions: &[Completion]) -> Option<Value> {
        let further = self.cache_details.then(|| replies::cache_details(completions.iter()));
        replies::last_chunk(&self.head, self.mode, completions, self.choices, further, &self.state)
    }
}

fn logprobs(tokens: &[ProducedToken], text: &Text) -> Value {
    let entry = |id: u32, logprob: f32| {
        let token = text.token(id);
        json!({"token": token.text, "logprob": logprob, "bytes": token.bytes})
    };
    let entries = tokens.iter().filter_map(|token| {
        let logprobs = token.logprobs.as_ref()?;
        let mut value = entry(token.id, logprobs.logprob);
        value["top_logprobs"] = logprobs.top.iter().map(|(id, logprob)| entry(*id, *logprob)).collect();
        Some(value)
    });
    let entries: Vec<Value> = entries.collect();
    if entries.is_empty() { Value::Null } else { json!({"content": entries}) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_tool_calls_reach_the_template_as_objects() {
        let check = |arguments: Value, expected: Value| {
            let call = |arguments| json!({"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]});
            let mut expected = call(expected);
            expected["content"] = "".into();
            assert_eq!(message("messages[0]", call(arguments)).ok(), Some(expected));
        };
        check(json!("{\"city\": \"Paris\"}"), json!({"city": "Paris"}));
        check(json!({"city": "Paris"}), json!({"city": "Paris"}));
        check(json!("[1]"), json!("[1]"));
        check(json!("Paris"), json!("Paris"));
    }
}
