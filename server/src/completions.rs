//! `POST /v1/completions`.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use engine::{Completion, backend::ProducedToken, text::Text};
use serde_json::{Map, Value, json};

use super::{
    error::ApiError,
    fields::Fields,
    parameters::{MOST_LOGPROBS, Parameters, check_model},
    prompts::{self, Written},
    replies::{self, Choice, Head, StreamUsage, UsageSoFar},
    state::State,
    stream::{self, Chunks},
};

/// Tokens of an answer where the client names no number, as in OpenAI's API.
const DEFAULT_TOKENS: usize = 16;

/// What a client asks for.
struct Asked {
    parameters: Parameters,
    prompts: Vec<Written>,
    /// Whether the tokenizer's special tokens stand around each prompt.
    special: bool,
    echo: bool,
    stream: Option<StreamUsage>,
}

/// What all parts of an answer share.
struct Answer {
    state: Arc<State>,
    head: Head,
    text: Option<Text>,
    /// Choices of each prompt.
    choices: usize,
    /// The text put before each choice.
    echoed: Vec<String>,
}

/// Answers a request.
///
/// # Errors
/// When it is wrong, cannot be taken now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    let Asked { mut parameters, prompts, special, echo, stream } = read(fields, &state)?;
    let prompts = prompts::encode(&state, "prompt", prompts, special, echo).await?;
    for prompt in &prompts {
        prompts::check_length(&state, "prompt", prompt.tokens.len(), parameters.stop.max_new_tokens)?;
    }
    parameters.stop.max_new_tokens.get_or_insert(DEFAULT_TOKENS);
    let choices = parameters.choices;
    let of_each_choice = || prompts.iter().flat_map(|prompt| std::iter::repeat_n(prompt, choices));
    let lengths: Vec<usize> = of_each_choice().map(|prompt| prompt.tokens.len()).collect();
    let echoed = of_each_choice().map(|prompt| if echo { prompt.text.clone() } else { String::new() }).collect();
    let tokens = prompts.into_iter().map(|prompt| prompt.tokens).collect();
    let running = state.submit(parameters.requests(tokens, &state)).await?;
    let head = Head::new(&state, "cmpl", "text_completion");
    let text = state.worker.facts().text.clone();
    let answer = Answer { state, head, text, choices, echoed };
    let Some(mode) = stream else {
        return Ok(Json(answer.whole(&replies::wait(running).await?)).into_response());
    };
    let offsets = answer.echoed.iter().map(|echoed| echoed.chars().count()).collect();
    Ok(stream::respond(running, TextChunks { answer, mode, usage: UsageSoFar::new(mode, lengths), offsets }))
}

fn read(mut fields: Fields, state: &State) -> Result<Asked, ApiError> {
    check_model(&mut fields, state)?;
    let mut parameters = Parameters::read(&mut fields, &state.worker.facts().generation, &["max_tokens"])?;
    let logprobs = fields.integer("logprobs", 0..=MOST_LOGPROBS)?;
    parameters.sampling.logprobs = logprobs.map(|count| count as usize);
    let echo = fields.flag("echo")?;
    if echo && logprobs.is_some() {
        let message = "echo with logprobs asks for log-probabilities of the prompt, which this server does not compute";
        return Err(fields.complain("echo", message));
    }
    let prompts = prompts::read(&mut fields, "prompt")?;
    let (prompts, _) = prompts.ok_or_else(|| fields.complain("prompt", "prompt is missing"))?;
    let special = fields.flag_or("add_special_tokens", true)?;
    let stream = StreamUsage::read(&mut fields)?;
    fields.finish()?;
    Ok(Asked { parameters, prompts, special, echo, stream })
}

impl Answer {
    fn whole(&self, choices: &[Choice]) -> Value {
        let list = choices.iter().zip(&self.echoed).enumerate().map(|(index, (choice, echoed))| {
            let Choice { completion, tokens } = choice;
            let text = format!("{echoed}{}", completion.text);
            let (logprobs, _) = logprobs(tokens, self.text.as_ref(), echoed.chars().count());
            self.choice(index, &text, logprobs, completion.finish_reason.word().into())
        });
        let mut object = self.head.object(list.collect());
        let completions = choices.iter().map(|choice| &choice.completion);
        object["usage"] = replies::usage(completions.clone(), self.choices);
        if let Some(metrics) = replies::speculation(completions, &self.state) {
            object["metrics"] = metrics;
        }
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
    /// Where the text of each choice's next token begins.
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

    fn tokens(&mut self, index: usize, tokens: &[ProducedToken], text: &str) -> Option<Value> {
        let (logprobs, offset) = logprobs(tokens, self.answer.text.as_ref(), self.offsets[index]);
        self.offsets[index] = offset;
        let chunk = self.chunk(index, tokens.len(), text, logprobs.clone(), Value::Null);
        // Text that is held back comes with a later token.
        (!text.is_empty() || !logprobs.is_null()).then_some(chunk)
    }

    fn end(&mut self, index: usize, completion: &Completion) -> Value {
        self.chunk(index, 0, "", Value::Null, completion.finish_reason.word().into())
    }

    fn last(&mut self, completions: &[Completion]) -> Option<Value> {
        replies::last_chunk(&self.answer.head, self.mode, completions, self.answer.choices, &self.answer.state)
    }
}

/// OpenAI's older shape, parallel lists; and where the text of the next token begins, if that of these begins at
/// `offset`.
fn logprobs(tokens: &[ProducedToken], text: Option<&Text>, mut offset: usize) -> (Value, usize) {
    let name = |id: u32| text.map_or_else(|| format!("token_id:{id}"), |text| text.token(id).text);
    let (mut names, mut values, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for token in tokens {
        let Some(logprobs) = &token.logprobs else { continue };
        let written = name(token.id);
        let mut top: Map<_, _> = logprobs.top.iter().map(|(id, value)| (name(*id), json!(value))).collect();
        // The token itself is among them even if it is none of the best.
        top.insert(written.clone(), json!(logprobs.logprob));
        offsets.push(offset);
        offset += written.chars().count();
        names.push(written);
        values.push(logprobs.logprob);
        tops.push(top);
    }
    if names.is_empty() {
        return (Value::Null, offset);
    }
    let lists = json!({"tokens": names, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets});
    (lists, offset)
}
