//! `POST /v1/completions`.

mod lists;

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use engine::{Completion, OutputText, Request, backend::ProducedToken, text::Text};
use serde_json::{Value, json};

use self::lists::Lists;
use crate::{
    api::{
        parameters::{LengthParameter, MOST_LOGPROBS, Parameters, check_model, named},
        prompt_logprobs,
        prompts::{self, Truncation, WrittenPrompt},
        replies::{self, ReplyChoice, ReplyHead, StreamUsage, TokenIds, UsageSoFar},
    },
    http::{error::ApiError, fields::Fields, neutral::Endpoint},
    output::stream::{self, Chunks},
    state::State,
};

/// Default maximum number of output tokens, as in OpenAI's API.
const DEFAULT_TOKENS: usize = 16;

/// A parsed request.
struct CompletionRequest {
    parameters: Parameters,
    prompts: Vec<WrittenPrompt>,
    /// Whether the tokenizer's special tokens are added around each prompt.
    special: bool,
    echo: bool,
    stream: Option<StreamUsage>,
    wishes: Wishes,
    /// The client's name for the request.
    name: Option<String>,
    /// vLLM's `truncate_prompt_tokens`.
    truncation: Option<Truncation>,
}

/// Requested fields of a response in addition to its text.
#[derive(Clone, Copy, Debug, Default)]
struct Wishes {
    /// Whether to return log-probabilities of the echoed prompt.
    echo_logprobs: bool,
    /// vLLM's `prompt_logprobs`: number of alternatives for each token of the prompt.
    prompt_logprobs: Option<usize>,
    /// SGLang's `return_cached_tokens_details`.
    cache_details: bool,
    token_ids: TokenIds,
    /// Whether special tokens are part of the output's text.
    special: bool,
}

/// What all parts of a response have in common.
struct ResponseContext {
    state: Arc<State>,
    head: ReplyHead,
    text: Option<Text>,
    /// Number of choices per prompt.
    choices: usize,
    /// Text to put before each choice.
    echoed: Vec<String>,
    /// Prompt of each choice, if requested.
    prompts: Vec<Vec<u32>>,
    wishes: Wishes,
}

/// Handles a request.
///
/// # Errors
/// When it is invalid, cannot be accepted now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    let arrived = fields.arrived();
    let CompletionRequest { mut parameters, prompts, special, echo, stream, wishes, name, truncation } =
        read(fields, &state)?;
    let prompts = prompts::encode(&state, "prompt", prompts, special, echo, truncation).await?;
    for prompt in &prompts {
        prompts::check_length(&state, "prompt", prompt.tokens.len(), parameters.stop.max_new_tokens)?;
    }
    parameters.stop.max_new_tokens.get_or_insert(DEFAULT_TOKENS);
    parameters.compile(&state).await?;
    let choices = parameters.choices;
    let of_each_choice = || prompts.iter().flat_map(|prompt| std::iter::repeat_n(prompt, choices));
    let lengths: Vec<usize> = of_each_choice().map(|prompt| prompt.tokens.len()).collect();
    let echoed = of_each_choice().map(|prompt| if echo { prompt.text.clone() } else { String::new() }).collect();
    // Prompts are kept only for answers that repeat their tokens.
    let reported = wishes.echo_logprobs || wishes.prompt_logprobs.is_some() || wishes.token_ids.prompt;
    let kept = of_each_choice().filter(|_| reported).map(|prompt| prompt.tokens.clone()).collect();
    let requests: Vec<Request> =
        prompts.iter().flat_map(|prompt| parameters.requests(&prompt.tokens, &state)).collect();
    let running = state.submit(named(requests, name.as_deref()), arrived).await?;
    let head = ReplyHead::new(&state, "cmpl", "text_completion", name);
    let text = state.worker.facts().text.clone();
    let answer = ResponseContext { state, head, text, choices, echoed, prompts: kept, wishes };
    let Some(mode) = stream else {
        return Ok(Json(answer.whole(&replies::wait(running).await?)).into_response());
    };
    let offsets = answer.echoed.iter().map(|echoed| echoed.chars().count()).collect();
    Ok(stream::respond(running, TextChunks { answer, mode, usage: UsageSoFar::new(mode, lengths), offsets }))
}

fn read(fields: Fields, state: &State) -> Result<CompletionRequest, ApiError> {
    let mut fields = fields.for_endpoint(Endpoint::Completions);
    check_model(&mut fields, state)?;
    let facts = state.worker.facts();
    let lengths = LengthParameter { names: &["max_tokens"], least: 0 };
    let mut parameters = Parameters::read(&mut fields, facts, &facts.generation, lengths)?;
    let logprobs = fields.integer("logprobs", 0..=MOST_LOGPROBS)?;
    parameters.sampling.logprobs = logprobs.map(|count| count as usize);
    let echo = fields.flag("echo")?;
    let prompts = prompts::read(&mut fields, "prompt")?;
    let (prompts, _) = prompts.ok_or_else(|| fields.complain("prompt", "prompt is missing"))?;
    let special = fields.flag_or("add_special_tokens", true)?;
    let stream = StreamUsage::read(&mut fields)?;
    let echo_logprobs = echo && logprobs.is_some();
    if echo_logprobs && stream.is_some() {
        return Err(fields.complain("echo", "echo with logprobs cannot be streamed; leave out stream"));
    }
    let wishes = Wishes {
        echo_logprobs,
        prompt_logprobs: prompt_logprobs::read(&mut fields, stream.is_some())?,
        cache_details: fields.flag("return_cached_tokens_details")?,
        token_ids: TokenIds::read(&mut fields)?,
        special: parameters.stop.text == OutputText::WithSpecialTokens,
    };
    let of_echo = parameters.sampling.logprobs.filter(|_| echo_logprobs);
    parameters.sampling.prompt_logprobs = prompt_logprobs::requested([wishes.prompt_logprobs, of_echo]);
    let name = replies::name(&mut fields, "cmpl")?;
    let truncation = Truncation::read(&mut fields, state, parameters.stop.max_new_tokens)?;
    fields.finish()?;
    Ok(CompletionRequest { parameters, prompts, special, echo, stream, wishes, name, truncation })
}

impl ResponseContext {
    fn whole(&self, choices: &[ReplyChoice]) -> Value {
        let list = choices.iter().zip(&self.echoed).enumerate().map(|(index, (choice, echoed))| {
            let ReplyChoice { completion, tokens } = choice;
            let text = format!("{echoed}{}", completion.text);
            let prompt = self.prompts.get(index).map_or(&[][..], Vec::as_slice);
            let mut lists = self.lists(0);
            if self.wishes.echo_logprobs {
                lists.add_prompt(prompt, echoed, &completion.prompt_logprobs, tokens);
            }
            lists.offset = echoed.chars().count();
            lists.add(tokens);
            let mut object = self.choice(index, &text, lists.value(), completion.finish_reason.word().into());
            if let Some(count) = self.wishes.prompt_logprobs {
                let logprobs = &completion.prompt_logprobs;
                object["prompt_logprobs"] = prompt_logprobs::list(prompt, logprobs, count, self.text.as_ref());
            }
            object
        });
        let mut object = self.head.object(list.collect());
        if self.wishes.token_ids != TokenIds::default() {
            let of_prompts: Vec<&[u32]> = self.prompts.iter().step_by(self.choices).map(Vec::as_slice).collect();
            self.wishes.token_ids.write_all(&mut object, &of_prompts, choices);
        }
        let completions = choices.iter().map(|choice| &choice.completion);
        object["usage"] = replies::usage(completions.clone(), self.choices);
        if self.wishes.cache_details {
            object["sglext"] = replies::cache_details(completions.clone());
        }
        object["metrics"] = replies::speculation(completions, &self.state);
        object
    }

    fn lists(&self, offset: usize) -> Lists<'_> {
        Lists::new(self.text.as_ref(), self.wishes.special, offset)
    }

    fn choice(&self, index: usize, text: &str, logprobs: Value, reason: Value) -> Value {
        json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason})
    }
}

struct TextChunks {
    answer: ResponseContext,
    mode: StreamUsage,
    usage: UsageSoFar,
    /// Offset of the next token's text in each choice.
    offsets: Vec<usize>,
}

impl TextChunks {
    fn chunk(&mut self, index: usize, further: usize, text: &str, logprobs: Value, reason: Value) -> Value {
        let mut chunk = self.answer.head.object(json!([self.answer.choice(index, text, logprobs, reason)]));
        self.usage.write(&mut chunk, index, further);
        chunk
    }
}

impl Chunks for TextChunks {
    fn begin(&mut self, index: usize) -> Option<Value> {
        let text = std::mem::take(&mut self.answer.echoed[index]);
        let prompt = self.answer.wishes.token_ids.prompt.then(|| std::mem::take(&mut self.answer.prompts[index]));
        if text.is_empty() && prompt.is_none() {
            return None;
        }
        let mut chunk = self.chunk(index, 0, &text, Value::Null, Value::Null);
        if let Some(prompt) = prompt {
            chunk["choices"][0]["prompt_token_ids"] = prompt.into();
        }
        Some(chunk)
    }

    fn tokens(&mut self, index: usize, tokens: &[ProducedToken], text: &str) -> Vec<Value> {
        let mut lists = self.answer.lists(self.offsets[index]);
        lists.add(tokens);
        self.offsets[index] = lists.offset;
        let logprobs = lists.value();
        let token_ids = self.answer.wishes.token_ids;
        let mut chunk = self.chunk(index, tokens.len(), text, logprobs.clone(), Value::Null);
        token_ids.write(&mut chunk["choices"][0], tokens);
        // Text that is held back is sent with a later token.
        if text.is_empty() && logprobs.is_null() && !token_ids.output { Vec::new() } else { vec![chunk] }
    }

    fn end(&mut self, index: usize, completion: &Completion) -> Vec<Value> {
        vec![self.chunk(index, 0, "", Value::Null, completion.finish_reason.word().into())]
    }

    fn last(&mut self, completions: &[Completion]) -> Option<Value> {
        let ResponseContext { head, choices, state, wishes, .. } = &self.answer;
        let further = wishes.cache_details.then(|| replies::cache_details(completions.iter()));
        replies::last_chunk(head, self.mode, completions, *choices, further, state)
    }
}
