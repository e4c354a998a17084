//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use engine::{
    Completion,
    backend::ProducedToken,
    text::{ChatOptions, TemplateVariables, Text},
};
use serde_json::{Map, Value, json};

use super::{
    error::ApiError,
    fields::Fields,
    parameters::{MOST_LOGPROBS, Parameters, check_model},
    prompts,
    replies::{self, Choice, Head, StreamUsage, UsageSoFar},
    state::State,
    stream::{self, Chunks},
};

/// What a client asks for.
struct Asked {
    parameters: Parameters,
    messages: Vec<Value>,
    options: ChatOptions,
    /// Whether the tokenizer's special tokens stand around what the template writes.
    special: bool,
    stream: Option<StreamUsage>,
}

/// Answers a request.
///
/// # Errors
/// When it is wrong, cannot be taken now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    let Asked { parameters, messages, options, special, stream } = read(fields, &state)?;
    let text = state.worker.facts().text.clone();
    let text = text.ok_or_else(|| ApiError::invalid("this model has no tokenizer: use /generate with input_ids"))?;
    let prompt = prompts::encode_chat(&state, text.clone(), messages, options, special).await?;
    let length = prompt.len();
    prompts::check_length(&state, "messages", length, parameters.stop.max_new_tokens)?;
    let running = state.submit(parameters.requests(vec![prompt], &state)).await?;
    let choices = parameters.choices;
    let Some(mode) = stream else {
        let head = Head::new(&state, "chatcmpl", "chat.completion");
        return Ok(Json(whole(&state, &text, &head, &replies::wait(running).await?)).into_response());
    };
    let head = Head::new(&state, "chatcmpl", "chat.completion.chunk");
    let usage = UsageSoFar::new(mode, vec![length; choices]);
    Ok(stream::respond(running, ChatChunks { state, text, head, mode, usage, choices }))
}

fn read(mut fields: Fields, state: &State) -> Result<Asked, ApiError> {
    check_model(&mut fields, state)?;
    let defaults = &state.worker.facts().generation;
    let mut parameters = Parameters::read(&mut fields, defaults, &["max_completion_tokens", "max_tokens"])?;
    let top = fields.integer("top_logprobs", 0..=MOST_LOGPROBS)?;
    if fields.flag("logprobs")? {
        parameters.sampling.logprobs = Some(top.unwrap_or_default() as usize);
    } else if top.is_some_and(|top| top > 0) {
        return Err(fields.complain("top_logprobs", "top_logprobs needs logprobs to be true"));
    }
    let messages = messages(&mut fields)?;
    let options = chat_options(&mut fields)?;
    let special = fields.flag("add_special_tokens")?;
    let stream = StreamUsage::read(&mut fields)?;
    fields.finish()?;
    Ok(Asked { parameters, messages, options, special, stream })
}

fn chat_options(fields: &mut Fields) -> Result<ChatOptions, ApiError> {
    const CONTINUE: &str = "continue_final_message";
    let variables = template_variables(fields)?;
    let continue_final_message = fields.flag(CONTINUE)?;
    // Whoever continues a message asks for no new one; vLLM wants both to be written out.
    let add_generation_prompt = fields.flag_or("add_generation_prompt", !continue_final_message)?;
    if continue_final_message && add_generation_prompt {
        return Err(fields.complain(CONTINUE, "continue_final_message needs add_generation_prompt to be false"));
    }
    Ok(ChatOptions { variables, tools: Vec::new(), add_generation_prompt, continue_final_message })
}

fn messages(fields: &mut Fields) -> Result<Vec<Value>, ApiError> {
    match fields.value("messages") {
        None => Err(fields.complain("messages", "messages is missing")),
        Some(Value::Array(list)) if !list.is_empty() => {
            list.into_iter().enumerate().map(|(at, message)| self::message(at, message)).collect()
        }
        Some(other) => Err(fields.wrong("messages", "a list of at least one message", &other)),
    }
}

/// `chat_template_kwargs`: the template's own variables, as SGLang and vLLM take them.
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

/// A message as the chat template takes it: text in one piece, the arguments of tool calls as objects. Its other fields
/// are the template's affair.
fn message(at: usize, value: Value) -> Result<Value, ApiError> {
    let place = format!("messages[{at}]");
    let complain = |field: &str, message: String| ApiError::parameter(&format!("{place}.{field}"), message);
    let Value::Object(mut message) = value else {
        return Err(ApiError::parameter(&place, format!("{place} is not an object with role and content")));
    };
    let role = message.get("role").and_then(Value::as_str).map(ToOwned::to_owned);
    let role = role.ok_or_else(|| complain("role", format!("{place} has no role")))?;
    let content = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => text_of(parts).ok_or_else(|| {
            complain("content", format!("{place}.content has a part that is not text, which this server does not take"))
        })?,
        // An assistant may have said nothing but tool calls.
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

/// OpenAI writes the arguments of a tool call as JSON in a string; templates expect the object.
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

fn whole(state: &State, text: &Text, head: &Head, choices: &[Choice]) -> Value {
    let list = choices.iter().enumerate().map(|(index, Choice { completion, tokens })| {
        json!({
            "index": index,
            "message": {"role": "assistant", "content": completion.text},
            "logprobs": logprobs(tokens, text),
            "finish_reason": completion.finish_reason.word(),
        })
    });
    let mut object = head.object(list.collect());
    let completions = choices.iter().map(|choice| &choice.completion);
    object["usage"] = replies::usage(completions.clone(), choices.len());
    if let Some(metrics) = replies::speculation(completions, state) {
        object["metrics"] = metrics;
    }
    object
}

struct ChatChunks {
    state: Arc<State>,
    text: Text,
    head: Head,
    mode: StreamUsage,
    usage: UsageSoFar,
    choices: usize,
}

impl ChatChunks {
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

    fn tokens(&mut self, index: usize, tokens: &[ProducedToken], text: &str) -> Option<Value> {
        let logprobs = logprobs(tokens, &self.text);
        let chunk = self.chunk(index, tokens.len(), json!({"content": text}), logprobs.clone(), Value::Null);
        // Text that is held back comes with a later token.
        (!text.is_empty() || !logprobs.is_null()).then_some(chunk)
    }

    fn end(&mut self, index: usize, completion: &Completion) -> Value {
        self.chunk(index, 0, json!({}), Value::Null, completion.finish_reason.word().into())
    }

    fn last(&mut self, completions: &[Completion]) -> Option<Value> {
        replies::last_chunk(&self.head, self.mode, completions, self.choices, &self.state)
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
            assert_eq!(message(0, call(arguments)).ok(), Some(expected));
        };
        check(json!("{\"city\": \"Paris\"}"), json!({"city": "Paris"}));
        check(json!({"city": "Paris"}), json!({"city": "Paris"}));
        check(json!("[1]"), json!("[1]"));
        check(json!("Paris"), json!("Paris"));
    }
}
