//! Prompts as clients write them, and as the engine takes them.

use serde_json::Value;

use super::{
    error::ApiError,
    fields::{Fields, token, tokens},
    state::State,
};
use engine::text::{TemplateVariables, Text};

/// Most prompts of a request.
pub const MOST_PROMPTS: usize = 256;

/// A prompt of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// As text.
    Text(String),
    /// As token ids.
    Tokens(Vec<u32>),
}

/// A prompt that the engine takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Its text, where that was asked for.
    pub text: String,
}

/// Reads a string, a list of strings, a list of token ids, or a list of such lists; `false` where there is only one
/// prompt and it is not in a list. `None` where the field is absent.
///
/// # Errors
/// When it is something else, or there are too many.
pub fn read(fields: &mut Fields, name: &str) -> Result<Option<(Vec<Written>, bool)>, ApiError> {
    const EXPECTED: &str = "a string, a list of strings, or token ids";
    let Some(value) = fields.value(name) else { return Ok(None) };
    let list = match &value {
        Value::String(prompt) => return Ok(Some((vec![Written::Text(prompt.clone())], false))),
        Value::Array(list) if !list.is_empty() => list,
        other => return Err(fields.wrong(name, EXPECTED, other)),
    };
    if list[0].is_number() {
        return match list.iter().find(|item| token(item).is_none()) {
            Some(item) => Err(fields.wrong(name, "token ids from 0 to 4294967295", item)),
            None => Ok(Some((tokens(&value).into_iter().map(Written::Tokens).collect(), false))),
        };
    }
    if list.len() > MOST_PROMPTS {
        return Err(
            fields.complain(name, format!("{name} has {} prompts, at most {MOST_PROMPTS} are taken", list.len()))
        );
    }
    let read = |item: &Value| match item {
        Value::String(prompt) => Ok(Written::Text(prompt.clone())),
        _ => tokens(item).map(Written::Tokens).ok_or_else(|| fields.wrong(name, EXPECTED, item)),
    };
    Ok(Some((list.iter().map(read).collect::<Result<_, _>>()?, true)))
}

/// Turns prompts into tokens. `name` is the parameter that held them; `with_text` asks for the text of token ids too.
///
/// # Errors
/// When the model has no tokenizer, or the tokenizer refuses a prompt.
pub async fn encode(
    state: &State,
    name: &'static str,
    written: Vec<Written>,
    with_text: bool,
) -> Result<Vec<Prompt>, ApiError> {
    let text = state.worker.facts().text.clone();
    let one = move |written| match written {
        Written::Tokens(tokens) => {
            let text = text.as_ref().filter(|_| with_text).map(|text| text.decode(&tokens)).unwrap_or_default();
            Ok(Prompt { tokens, text })
        }
        Written::Text(prompt) => match &text {
            Some(text) => Ok(Prompt { tokens: text.encode(&prompt)?, text: prompt }),
            None => Err(ApiError::parameter(name, "this model has no tokenizer: give token ids")),
        },
    };
    aside(move || written.into_iter().map(one).collect()).await
}

/// Turns a conversation into tokens.
///
/// # Errors
/// When the model has no chat template, or the template refuses the conversation.
pub async fn encode_chat(text: Text, messages: Vec<Value>, variables: TemplateVariables) -> Result<Vec<u32>, ApiError> {
    aside(move || Ok(text.encode_chat(&messages, &variables)?)).await
}

/// Refuses a prompt that leaves no room for what is asked for, or for any answer.
///
/// # Errors
/// When it is too long.
pub fn check_length(state: &State, name: &str, prompt: usize, asked: Option<usize>) -> Result<(), ApiError> {
    let most = state.worker.facts().capacity.context_length;
    if prompt.saturating_add(asked.unwrap_or(1)) > most {
        return Err(ApiError::context_length(name, most, prompt, asked));
    }
    Ok(())
}

/// A long prompt takes a while: other connections are served meanwhile.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T, ApiError> + Send + 'static) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(ApiError::failed("the tokenizer failed on this prompt")),
    }
}
