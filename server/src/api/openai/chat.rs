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
use serde_json::{Value, json};

use crate::{
    api::{
        messages,
        parameters::{LengthParameter, MOST_LOGPROBS, Parameters, check_model, named},
        prompt_logprobs,
        prompts::{self, ChatPrompt, Truncation},
        replies::{self, ReplyChoice, ReplyHead, StreamUsage, TokenIds, UsageSoFar},
    },
    http::{error::ApiError, fields::Fields, neutral::Endpoint},
    output::{
        reading::{OutputParts, OutputPiece, OutputReading, Reasoning, ResponseReader},
        reasoning::{self, Thinking},
        stream::{self, Chunks},
        tools::{self, Tools},
    },
    state::State,
};

/// A parsed request.
struct ChatRequest {
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
    /// vLLM's `truncate_prompt_tokens`.
    truncation: Option<Truncation>,
    token_ids: TokenIds,
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
    let ChatRequest {
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
        truncation,
        token_ids,
    } = requested;
    let ChatPrompt { tokens: prompt, thinks } =
        prompts::encode_chat(&state, text.clone(), messages, options, special, truncation, "messages").await?;
    let length = prompt.len();
    let reading = OutputReading::new(tools, reasoning, thinks, parameters.form.is_some()).with_thinking(state.thinking);
    // Before the grammar is compiled, which takes longer.
    prompts::check_length(&state, "messages", length, parameters.stop.max_new_tokens)?;
    parameters.compile(&state).await?;
    let running = state.submit(named(parameters.requests(&prompt, &state), name.as_deref()), arrived).await?;
    let choices = parameters.choices;
    let Some(mode) = stream else {
        let head = ReplyHead::new(&state, "chatcmpl", "chat.completion", name);
        let choices = replies::wait(running).await?;
        let mut object = whole(&state, &text, &head, &reading, &choices);
        token_ids.write_all(&mut object, &[prompt.as_slice()], &choices);
        if let (Some(count), Some(first)) = (prompt_logprobs, choices.first()) {
            let logprobs = &first.completion.prompt_logprobs;
            object["prompt_logprobs"] = prompt_logprobs::list(&prompt, logprobs, count, Some(&text));
        }
        if cache_details {
            object["sglext"] = replies::cache_details(choices.iter().map(|choice| &choice.completion));
        }
        return Ok(Json(object).into_response());
    };
    let head = ReplyHead::new(&state, "chatcmpl", "chat.completion.chunk", name);
    let usage = UsageSoFar::new(mode, vec![length; choices]);
    let readers = vec![reading.stream(); choices];
    let prompt = token_ids.prompt.then_some(prompt);
    let chunks =
        ChatChunks { state, text, head, mode, usage, choices, cache_details, reading, readers, token_ids, prompt };
    Ok(stream::respond(running, chunks))
}

fn read(fields: Fields, state: &State, text: &Text) -> Result<ChatRequest, ApiError> {
    let mut fields = fields.for_endpoint(Endpoint::Chat);
    check_model(&mut fields, state)?;
    let facts = state.worker.facts();
    let lengths = LengthParameter { names: &["max_completion_tokens", "max_tokens"], least: 1 };
    let mut parameters = Parameters::read(&mut fields, facts, &facts.generation, lengths)?;
    let top = fields.integer("top_logprobs", 0..=MOST_LOGPROBS)?;
    if fields.flag("logprobs")? {
        parameters.sampling.logprobs = Some(top.unwrap_or_default() as usize);
    } else if top.is_some_and(|top| top > 0) {
        return Err(fields.complain("top_logprobs", "top_logprobs needs logprobs to be true"));
    }
    let (messages, options, tools) = conversation(&mut fields, text, state)?;
    call_by_grammar(&mut parameters, tools.as_ref(), text);
    let reasoning = Reasoning::read(&mut fields, state.thinking)?;
    see_marks(&mut parameters, tools.as_ref(), marked_by(reasoning, state), text);
    let special = fields.flag("add_special_tokens")?;
    let stream = StreamUsage::read(&mut fields)?;
    let prompt_logprobs = prompt_logprobs::read(&mut fields, stream.is_some())?;
    parameters.sampling.prompt_logprobs = prompt_logprobs::requested([prompt_logprobs, None]);
    let name = replies::name(&mut fields, "chatcmpl")?;
    let cache_details = fields.flag("return_cached_tokens_details")?;
    let truncation = Truncation::read(&mut fields, state, parameters.stop.max_new_tokens)?;
    let token_ids = TokenIds::read(&mut fields)?;
    fields.finish()?;
    Ok(ChatRequest {
        parameters,
        messages,
        options,
        tools,
        reasoning,
        special,
        stream,
        name,
        prompt_logprobs,
        cache_details,
        truncation,
        token_ids,
    })
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
    let (mut messages, mut options) = (messages::read(fields)?, chat_options(fields, source)?);
    messages::check_roles(&messages, "messages", source)?;
    tools::convert_messages(&mut messages);
    if !source.contains("developer") {
        // OpenAI's newer name for the system role.
        for message in messages.iter_mut().filter(|message| message["role"] == "developer") {
            message["role"] = "system".into();
        }
    }
    if state.thinking == Thinking::Harmony {
        messages::tell_thoughts(&mut messages);
    }
    let tools = Tools::read(fields, text, state.family)?;
    if let Some(tools) = &tools {
        tools.tell(&mut messages, &mut options);
    }
    Ok((messages, options, tools))
}

/// Restricts the output by a grammar: to calls if functions must be called, and to calls or the
/// requested form if the model decides.
pub fn call_by_grammar(parameters: &mut Parameters, tools: Option<&Tools>, text: &Text) {
    if let Some(tools) = tools {
        parameters.form = tools.form(parameters.form.take(), text);
    }
}

/// How the model thinks, if its marks are read: where reasoning is separated, and always in
/// channels.
pub fn marked_by(reasoning: Option<Reasoning>, state: &State) -> Option<Thinking> {
    (reasoning.is_some() || state.thinking == Thinking::Harmony).then_some(state.thinking)
}

/// Keeps special tokens in the text if they mark calls or reasoning: that of a model that thinks
/// like this.
pub fn see_marks(parameters: &mut Parameters, tools: Option<&Tools>, thinking: Option<Thinking>, text: &Text) {
    let of_tools = tools.map_or(&[][..], |tools| tools.family.markers());
    let of_reasoning = thinking.map(|thinking| match thinking {
        Thinking::Harmony => tools::CHANNEL,
        _ => reasoning::CLOSE,
    });
    // Marks that are special tokens are not part of plain text, and could not be found in it.
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

/// OpenAI's `reasoning_effort`, as far as the template supports it; `none` disables thinking in
/// models that can do without. An effort that the template does not know stays in the fields, and
/// is refused there.
fn set_effort(fields: &mut Fields, template: &str, variables: &mut TemplateVariables) -> Result<(), ApiError> {
    const NAME: &str = "reasoning_effort";
    let Some(effort) = fields.text(NAME)? else { return Ok(()) };
    if effort == "none" {
        for name in ["enable_thinking", "thinking"] {
            // A client's own template variables come first.
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

fn whole(state: &State, text: &Text, head: &ReplyHead, reading: &OutputReading, choices: &[ReplyChoice]) -> Value {
    let list = choices.iter().enumerate().map(|(index, ReplyChoice { completion, tokens })| {
        let OutputParts { reasoning, content, calls, is_cut } = reading.whole(&completion.text);
        let mut message = json!({"role": "assistant", "content": content});
        if let Some(reasoning) = reasoning {
            message["reasoning_content"] = if reasoning.is_empty() { Value::Null } else { reasoning.into() };
        }
        let mut reason = completion.finish_reason.word();
        if let (Some(tools), false) = (&reading.tools, calls.is_empty()) {
            if content.is_empty() {
                message["content"] = Value::Null;
            }
            message[tools.field().0] = tools.written(&calls, &|| state.random_number());
            if !is_cut {
                reason = reason_with_calls(reason, tools);
            }
        }
        json!({"index": index, "message": message, "logprobs": logprobs(tokens, text), "finish_reason": reason})
    });
    let mut object = head.object(list.collect());
    let completions = choices.iter().map(|choice| &choice.completion);
    object["usage"] = replies::usage(completions.clone(), choices.len());
    object["metrics"] = replies::speculation(completions, state);
    object
}

/// OpenAI's finish reason for a response with complete calls that ended by itself.
fn reason_with_calls(reason: &'static str, tools: &Tools) -> &'static str {
    if reason == "stop" { tools.field().1 } else { reason }
}

struct ChatChunks {
    state: Arc<State>,
    text: Text,
    head: ReplyHead,
    mode: StreamUsage,
    usage: UsageSoFar,
    choices: usize,
    cache_details: bool,
    reading: OutputReading,
    /// One per choice.
    readers: Vec<ResponseReader>,
    token_ids: TokenIds,
    /// The prompt's tokens, until they have been sent.
    prompt: Option<Vec<u32>>,
}

impl ChatChunks {
    /// The deltas that can be sent, one for each part.
    fn deltas(&self, piece: OutputPiece) -> Vec<Value> {
        let mut deltas = Vec::new();
        if !piece.reasoning.is_empty() {
            deltas.push(json!({"reasoning_content": piece.reasoning}));
        }
        if !piece.content.is_empty() {
            deltas.push(json!({"content": piece.content}));
        }
        for call in &piece.calls {
            if let Some(tools) = &self.reading.tools {
                deltas.push(json!({tools.field().0: tools.written_piece(call, &|| self.state.random_number())}));
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
        let mut chunk = self.chunk(index, 0, delta, Value::Null, Value::Null);
        if let Some(prompt) = self.prompt.take() {
            chunk["prompt_token_ids"] = prompt.into();
        }
        Some(chunk)
    }

    fn tokens(&mut self, index: usize, tokens: &[ProducedToken], text: &str) -> Vec<Value> {
        let logprobs = logprobs(tokens, &self.text);
        let piece = self.readers[index].push(text, &self.reading);
        let mut deltas = self.deltas(piece);
        // Text that is held back is sent with a later token.
        if deltas.is_empty() && (!logprobs.is_null() || self.token_ids.output) {
            deltas.push(json!({"content": ""}));
        }
        if deltas.is_empty() {
            self.usage.count(index, tokens.len());
        }
        // Counts, log-probabilities and ids of tokens are sent once, with the first delta.
        let mut reported = (tokens.len(), logprobs);
        let chunk = |delta: Value| {
            let (further, logprobs) = std::mem::take(&mut reported);
            self.chunk(index, further, delta, logprobs, Value::Null)
        };
        let mut chunks: Vec<Value> = deltas.into_iter().map(chunk).collect();
        if let Some(first) = chunks.first_mut() {
            self.token_ids.write(&mut first["choices"][0], tokens);
        }
        chunks
    }

    fn end(&mut self, index: usize, completion: &Completion) -> Vec<Value> {
        let mut reason = completion.finish_reason.word();
        let piece = self.readers[index].finish(&self.reading);
        let deltas = self.deltas(piece);
        if let (Some(tools), true) = (&self.reading.tools, self.readers[index].has_complete_calls()) {
            reason = reason_with_calls(reason, tools);
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
    let entries = logprob_entries(tokens, text);
    if entries.is_empty() { Value::Null } else { json!({"content": entries}) }
}

/// OpenAI's log-probabilities of the tokens that have some.
pub fn logprob_entries(tokens: &[ProducedToken], text: &Text) -> Vec<Value> {
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
    entries.collect()
}
