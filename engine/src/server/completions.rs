//! `POST /v1/completions`.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream};
use serde_json::{Map, Value, json};

use super::{
    error::ApiError,
    fields::{Fields, token, wrong},
    parameters::{MOST_LOGPROBS, Parameters, check_model},
    replies::{self, Choice, Happened},
    state::{State, now},
    worker::Running,
};
use crate::{Completion, Event, backend::ProducedToken, text::Text};

/// Tokens of an answer where the client names no number, as in OpenAI's API.
const DEFAULT_TOKENS: usize = 16;
/// Most prompts of a request.
const MOST_PROMPTS: usize = 256;

/// Answers a request.
///
/// # Errors
/// When it is wrong, cannot be taken now, or the engine fails.
pub async fn answer(state: Arc<State>, fields: Fields) -> Result<Response, ApiError> {
    check_model(&fields, &state)?;
    let mut parameters = Parameters::read(&fields, &state)?;
    parameters.stop.max_new_tokens.get_or_insert(DEFAULT_TOKENS);
    parameters.sampling.logprobs = fields.integer("logprobs", 0, MOST_LOGPROBS)?.map(|count| count as usize);
    let prompts = prompts(&fields, &state)?;
    let ids: Vec<Vec<u32>> = prompts.iter().map(|prompt| prompt.ids.clone()).collect();
    let running = state.submit(parameters.requests(&ids)).await?;
    let echo = fields.flag("echo")?;
    let head = Head {
        id: state.response_id("cmpl"),
        created: now(),
        model: state.model().to_owned(),
        choices: parameters.choices,
        echoed: prompts.into_iter().map(|prompt| if echo { prompt.text } else { String::new() }).collect(),
        text: state.worker.facts().text.clone(),
    };
    if fields.flag("stream")? {
        let usage = fields.object("stream_options")?.flag("include_usage")?;
        return Ok(stream(state, head, running, usage));
    }
    let choices = replies::wait(running, &state).await?;
    Ok(Json(whole(&state, &head, &choices)).into_response())
}

struct Prompt {
    ids: Vec<u32>,
    text: String,
}

/// What all parts of a response share.
struct Head {
    id: String,
    created: u64,
    model: String,
    choices: usize,
    /// The text put before each prompt's answers.
    echoed: Vec<String>,
    text: Option<Text>,
}

impl Head {
    fn object(&self, choices: Value) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.model,
            "choices": choices,
        })
    }

    fn choice(&self, index: usize, text: &str, logprobs: Value, reason: Value) -> Value {
        json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason})
    }

    fn echoed(&self, index: usize) -> &str {
        self.echoed.get(index / self.choices.max(1)).map_or("", String::as_str)
    }
}

fn whole(state: &State, head: &Head, choices: &[Choice]) -> Value {
    let list: Vec<Value> = choices
        .iter()
        .enumerate()
        .map(|(index, Choice { completion, tokens })| {
            let echoed = head.echoed(index);
            let text = format!("{echoed}{}", completion.text);
            let logprobs = logprobs(tokens, head.text.as_ref(), echoed.chars().count());
            head.choice(index, &text, logprobs, completion.finish_reason.word().into())
        })
        .collect();
    let completions: Vec<Completion> = choices.iter().map(|choice| choice.completion.clone()).collect();
    let mut object = head.object(list.into());
    object["usage"] = replies::usage(&completions, head.choices);
    if let Some(metrics) = replies::speculation(&completions, state) {
        object["metrics"] = metrics;
    }
    object
}

fn stream(state: Arc<State>, head: Head, running: Vec<Running>, usage: bool) -> Response {
    let count = running.len();
    let echoed: Vec<Value> = (0..count)
        .filter(|index| !head.echoed(*index).is_empty())
        .map(|index| head.object(json!([head.choice(index, head.echoed(index), Value::Null, Value::Null)])))
        .collect();
    let mut completions: Vec<Option<Completion>> = vec![None; count];
    let mut lengths: Vec<usize> = (0..count).map(|index| head.echoed(index).chars().count()).collect();
    let values = replies::merge(running).flat_map(move |Happened { index, event }| {
        let mut values = Vec::new();
        match event {
            Some(Event::Tokens { tokens, text, .. }) => {
                let logprobs = logprobs(&tokens, head.text.as_ref(), lengths[index]);
                lengths[index] += text.chars().count();
                if !text.is_empty() || !logprobs.is_null() {
                    values.push(head.object(json!([head.choice(index, &text, logprobs, Value::Null)])));
                }
            }
            Some(Event::Finished { completion, .. }) => {
                state.metrics.finished(&completion);
                let reason = completion.finish_reason.word();
                values.push(head.object(json!([head.choice(index, "", Value::Null, reason.into())])));
                completions[index] = Some(*completion);
                if completions.iter().all(Option::is_some) && usage {
                    let completions: Vec<Completion> = completions.iter().flatten().cloned().collect();
                    let mut last = head.object(json!([]));
                    last["usage"] = replies::usage(&completions, head.choices);
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
    replies::events(stream::iter(echoed).chain(values))
}

/// A string, a list of strings, a list of token ids, or a list of such lists.
fn prompts(fields: &Fields, state: &State) -> Result<Vec<Prompt>, ApiError> {
    const EXPECTED: &str = "a string, a list of strings, or token ids";
    let value = fields.value("prompt").ok_or_else(|| ApiError::parameter("prompt", "prompt is missing"))?;
    let text = state.worker.facts().text.as_ref();
    let of_text = |prompt: &str| match text {
        Some(text) => Ok(Prompt { ids: text.encode(prompt)?, text: prompt.to_owned() }),
        None => Err(ApiError::parameter("prompt", "this model has no tokenizer: give token ids")),
    };
    let of_ids = |ids: Vec<u32>| Prompt { text: text.map(|text| text.decode(&ids)).unwrap_or_default(), ids };
    let ids = |value: &Value| value.as_array()?.iter().map(token).collect::<Option<Vec<u32>>>();
    let list = match value {
        Value::String(prompt) => return Ok(vec![of_text(prompt)?]),
        Value::Array(list) if !list.is_empty() => list,
        other => return Err(wrong("prompt", EXPECTED, other)),
    };
    if list[0].is_number() {
        return Ok(vec![of_ids(ids(value).ok_or_else(|| wrong("prompt", EXPECTED, value))?)]);
    }
    if list.len() > MOST_PROMPTS {
        return Err(ApiError::parameter("prompt", format!("{} prompts, at most {MOST_PROMPTS} are taken", list.len())));
    }
    list.iter()
        .map(|item| match item {
            Value::String(prompt) => of_text(prompt),
            _ => ids(item).map(of_ids).ok_or_else(|| wrong("prompt", EXPECTED, item)),
        })
        .collect()
}

/// OpenAI's older shape: parallel lists. `offset` is where the text of these tokens begins.
fn logprobs(tokens: &[ProducedToken], text: Option<&Text>, mut offset: usize) -> Value {
    let name = |id: u32| text.map_or_else(|| id.to_string(), |text| text.token(id));
    let (mut names, mut values, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for token in tokens {
        let Some(logprobs) = &token.logprobs else { return Value::Null };
        let token = name(token.id);
        offsets.push(offset);
        offset += token.chars().count();
        names.push(token);
        values.push(logprobs.logprob);
        tops.push(logprobs.top.iter().map(|(id, value)| (name(*id), json!(value))).collect::<Map<_, _>>());
    }
    if names.is_empty() {
        return Value::Null;
    }
    json!({"tokens": names, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets})
}
