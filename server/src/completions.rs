//! `POST /v1/completions`.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use engine::{
    Completion, Request,
    backend::{ProducedToken, TokenLogprobs},
    text::Text,
};
use serde_json::{Map, Value, json};

use super::{
    error::ApiError,
    fields::Fields,
    parameters::{Lengths, MOST_LOGPROBS, Parameters, check_model, named},
    prompt_logprobs,
    prompts::{self, Written},
    replies::{self, Choice, Head, StreamUsage, UsageSoFar},
    state::State,
    stream::{self, Chunks},
};

/// Default maximum number of output tokens, as in OpenAI's API.
const DEFAULT_TOKENS: usize = 16;

/// A parsed request.
struct Asked {
    parameters: Parameters,
    prompts: Vec<Written>,
    /// Whether the tokenizer's special tokens are added around each prompt.
    special: bool,
    echo: bool,
    stream: Option<StreamUsage>,
    wishes: Wishes,
    /// The client's name for the request.
    name: Option<String>,
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
}

/// What all parts of a response have in common.
struct Answer {
    state: Arc<State>,
    head: Head,
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
    let Asked { mut parameters, prompts, special, echo, stream, wishes, name } = read(fields, &state)?;
    let prompts = prompts::encode(&state, "prompt", prompts, special, echo).await?;
    for prompt in &prompts {
        prompts::check_length(&state, "prompt", prompt.tokens.len(), parameters.stop.max_new_tokens)?;
    }
    parameters.stop.max_new_tokens.get_or_insert(DEFAULT_TOKENS);
    parameters.compile(&state).await?;
    let choices = parameters.choices;
    let of_each_choice = || prompts.iter().flat_map(|prompt| std::iter::repeat_n(prompt, choices));
    let lengths: Vec<usize> = of_each_choice().map(|prompt| prompt.tokens.len()).collect();
    let echoed = of_each_choice().map(|prompt| if echo { prompt.text.clone() } else { String::new() }).collect();
    let told = wishes.echo_logprobs || wishes.prompt_logprobs.is_some();
    let kept = of_each_choice().filter(|_| told).map(|prompt| prompt.tokens.clone()).collect();
    let requests: Vec<Request> =
        prompts.iter().flat_map(|prompt| parameters.requests(&prompt.tokens, &state)).collect();
    let running = state.submit(named(requests, name.as_deref()), arrived).await?;
    let head = Head::new(&state, "cmpl", "text_completion", name);
    let text = state.worker.facts().text.clone();
    let answer = Answer { state, head, text, choices, echoed, prompts: kept, wishes };
    let Some(mode) = stream else {
        return Ok(Json(answer.whole(&replies::wait(running).await?)).into_response());
    };
    let offsets = answer.echoed.iter().map(|echoed| echoed.chars().count()).collect();
    Ok(stream::respond(running, TextChunks { answer, mode, usage: UsageSoFar::new(mode, lengths), offsets }))
}

fn read(mut fields: Fields, state: &State) -> Result<Asked, ApiError> {
    check_model(&mut fields, state)?;
    let facts = state.worker.facts();
    let lengths = Lengths { names: &["max_tokens"], least: 0 };
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
    };
    let of_echo = parameters.sampling.logprobs.filter(|_| echo_logprobs);
    parameters.sampling.prompt_logprobs = prompt_logprobs::asked([wishes.prompt_logprobs, of_echo]);
    let name = fields.text("rid")?;
    fields.finish()?;
    Ok(Asked { parameters, prompts, special, echo, stream, wishes, name })
}

impl Answer {
    fn whole(&self, choices: &[Choice]) -> Value {
        let list = choices.iter().zip(&self.echoed).enumerate().map(|(index, (choice, echoed))| {
            let Choice { completion, tokens } = choice;
            let text = format!("{echoed}{}", completion.text);
            let prompt = self.prompts.get(index).map_or(&[][..], Vec::as_slice);
            let mut lists = Lists::new(self.text.as_ref(), 0);
            if self.wishes.echo_logprobs {
                lists.add_prompt(prompt, &completion.prompt_logprobs, tokens);
            } else {
                lists.offset = echoed.chars().count();
            }
            lists.add(tokens);
            let mut object = self.choice(index, &text, lists.value(), completion.finish_reason.word().into());
            if let Some(count) = self.wishes.prompt_logprobs {
                let logprobs = &completion.prompt_logprobs;
                object["prompt_logprobs"] = prompt_logprobs::list(prompt, logprobs, count, self.text.as_ref());
            }
            object
        });
        let mut object = self.head.object(list.collect());
        let completions = choices.iter().map(|choice| &choice.completion);
        object["usage"] = replies::usage(completions.clone(), self.choices);
        if self.wishes.cache_details {
            object["sglext"] = replies::cache_details(completions.clone());
        }
        object["metrics"] = replies::speculation(completions, &self.state);
        object
    }

    fn choice(&self, index: usize, text: &str, logprobs: Value, reason: Value) -> Value {
        json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason})
    }
}

struct TextChunks {
    answer: Answer,
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
        (!text.is_empty()).then(|| self.chunk(index, 0, &text, Value::Null, Value::Null))
    }

    fn tokens(&mut self, index: usize, tokens: &[ProducedToken], text: &str) -> Vec<Value> {
        let mut lists = Lists::new(self.answer.text.as_ref(), self.offsets[index]);
        lists.add(tokens);
        self.offsets[index] = lists.offset;
        let logprobs = lists.value();
        let chunk = self.chunk(index, tokens.len(), text, logprobs.clone(), Value::Null);
        // Text that is held back is sent with a later token.
        if text.is_empty() && logprobs.is_null() { Vec::new() } else { vec![chunk] }
    }

    fn end(&mut self, index: usize, completion: &Completion) -> Vec<Value> {
        vec![self.chunk(index, 0, "", Value::Null, completion.finish_reason.word().into())]
    }

    fn last(&mut self, completions: &[Completion]) -> Option<Value> {
        let Answer { head, choices, state, wishes, .. } = &self.answer;
        let further = wishes.cache_details.then(|| replies::cache_details(completions.iter()));
        replies::last_chunk(head, self.mode, completions, *choices, further, state)
    }
}

/// OpenAI's older format of log-probabilities: parallel lists.
struct Lists<'a> {
    text: Option<&'a Text>,
    /// Offset of the next token's text, in characters.
    offset: usize,
    names: Vec<String>,
    values: Vec<Option<f32>>,
    tops: Vec<Option<Map<String, Value>>>,
    offsets: Vec<usize>,
}

impl<'a> Lists<'a> {
    fn new(text: Option<&'a Text>, offset: usize) -> Self {
        Self { text, offset, names: Vec::new(), values: Vec::new(), tops: Vec::new(), offsets: Vec::new() }
    }

    /// Adds output tokens that have log-probabilities.
    fn add(&mut self, tokens: &[ProducedToken]) {
        for token in tokens {
            if let Some(logprobs) = &token.logprobs {
                self.push(token.id, Some((logprobs, logprobs.top.len())));
            }
        }
    }

    /// Adds the tokens of a prompt. The first one has no log-probability, and the others have as many alternatives as
    /// the output's tokens.
    fn add_prompt(&mut self, prompt: &[u32], logprobs: &[TokenLogprobs], output: &[ProducedToken]) {
        let count = output.iter().filter_map(|token| Some(token.logprobs.as_ref()?.top.len())).max();
        let after = std::iter::once(None).chain(logprobs.iter().map(Some));
        for (id, one) in prompt.iter().zip(after) {
            self.push(*id, one.map(|one| (one, count.unwrap_or(one.top.len()))));
        }
    }

    fn push(&mut self, id: u32, logprobs: Option<(&TokenLogprobs, usize)>) {
        let name = |id: u32| self.text.map_or_else(|| format!("token_id:{id}"), |text| text.token(id).text);
        let written = name(id);
        let top = logprobs.map(|(one, count)| {
            let best = one.top.iter().take(count);
            let mut top: Map<_, _> = best.map(|(id, value)| (name(*id), json!(value))).collect();
            // The token itself is included even if it is not one of the best.
            top.insert(written.clone(), json!(one.logprob));
            top
        });
        self.offsets.push(self.offset);
        self.offset += written.chars().count();
        self.names.push(written);
        self.values.push(logprobs.map(|(one, _)| one.logprob));
        self.tops.push(top);
    }

    fn value(self) -> Value {
        if self.names.is_empty() {
            return Value::Null;
        }
        json!({
            "tokens": self.names, "token_logprobs": self.values, "top_logprobs": self.tops, "text_offset": self.offsets,
        })
    }
}
